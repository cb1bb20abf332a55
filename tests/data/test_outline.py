"""A taxonomy in each form that people write, read back as the same tree."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beltrami.data import Hierarchy, HierarchyError, load_hierarchy
from beltrami.data.edge_list import write_edge_list
from beltrami.data.text import DataWarning
from beltrami.diagnosis.config import DiagnoseConfig
from beltrami.diagnosis.source import GraphSource, open_source

Forest = list[tuple[int, str]]  # the parent of each node, which comes before it, or -1; its name

# Whatever may be in a name, with the marks that separate columns and paths elsewhere.
NAMES = st.text("ab ,;>/\"éß()'", min_size=1, max_size=6).map(lambda name: "n" + name.strip())


@st.composite
def trees(draw: st.DrawFn) -> Forest:
    names = draw(st.lists(NAMES, min_size=2, max_size=9, unique=True))
    return [(draw(st.integers(0, i - 1)) if i else -1, name) for i, name in enumerate(names)]


def path_of(tree: Forest, node: int) -> list[str]:
    parent, name = tree[node]
    return [*(path_of(tree, parent) if parent >= 0 else []), name]


def table(rows: list[list[str]], delimiter: str) -> str:
    file = io.StringIO()
    csv.writer(file, delimiter=delimiter, lineterminator="\n").writerows(rows)
    return file.getvalue()


def parents(tree: Forest, delimiter: str, *, header: bool, root: bool) -> str:
    rows = [[name, tree[parent][1]] for parent, name in tree if parent >= 0]
    first = [["child", "parent"]] if header else []
    return table([*first, *([[tree[0][1], ""]] if root else []), *rows], delimiter)


def levels(tree: Forest, delimiter: str) -> str:
    paths = [path_of(tree, node) for node in range(len(tree))]
    header = [f"Level {place}" for place in range(1, max(map(len, paths)) + 1)]
    return table([header, *paths], delimiter)  # rows end where their path does


def paths(tree: Forest, mark: str) -> str:
    lines = []
    for node in range(1, len(tree)):
        names = [
            table([[n]], ">").strip() if '"' in n else f'"{n}"' if mark.strip() in n else n
            for n in path_of(tree, node)
        ]
        lines.append(mark.join(names))
    return "\n".join(lines)


def indented(tree: Forest, step: str) -> str:
    lines: list[str] = []

    def write(node: int, depth: int) -> None:
        lines.append(step * depth + tree[node][1])
        for child, (parent, _) in enumerate(tree):
            if parent == node:
                write(child, depth + 1)

    write(0, 0)
    return "\n".join(lines)


def edges_of(h: Hierarchy) -> set[tuple[str, str]]:
    return {(h.labels[child], h.labels[parent]) for child, parent in h.edges.tolist()}


FORMS: dict[str, Callable[[Forest], str]] = {
    "comma, header, root": lambda tree: parents(tree, ",", header=True, root=True),
    "semicolon, header": lambda tree: parents(tree, ";", header=True, root=False),
    "tab, root": lambda tree: parents(tree, "\t", header=False, root=True),
    "levels, comma": lambda tree: levels(tree, ","),
    "levels, semicolon": lambda tree: levels(tree, ";"),
    "levels, tab": lambda tree: levels(tree, "\t"),
}
# A comma or ">" in the first name of a text without a header would make it a table, or paths.
PLAIN_FORMS: dict[str, Callable[[Forest], str]] = {
    "comma": lambda tree: parents(tree, ",", header=False, root=False),
    "paths, /": lambda tree: paths(tree, "/"),
    "paths, >": lambda tree: paths(tree, " > "),
    "tabs": lambda tree: indented(tree, "\t"),
    "spaces": lambda tree: indented(tree, "   "),
}
same_folder = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20, deadline=None
)


@pytest.mark.parametrize("form", [*FORMS, *PLAIN_FORMS])
@same_folder
@given(tree=trees(), windows=st.booleans())
def test_round_trip(tmp_path: Path, form: str, tree: Forest, windows: bool) -> None:
    if form in PLAIN_FORMS:
        tree = [(p, n.translate(dict.fromkeys(map(ord, ',;>/"'), "x")) + f"{i}") for i, (p, n) in
                enumerate(tree)]  # fmt: skip
    text = {**FORMS, **PLAIN_FORMS}[form](tree)
    file = tmp_path / "tree.txt"
    if windows:
        text = "\ufeff" + text.replace("\n", "\r\n")
    file.write_bytes(text.encode())
    h = load_hierarchy(file, strict=True)
    assert edges_of(h) == {(name, tree[parent][1]) for parent, name in tree if parent >= 0}
    assert set(h.labels) == {name for _, name in tree}


def read(folder: Path, text: str, name: str = "t.txt") -> Hierarchy:
    (folder / name).write_text(text, encoding="utf-8")
    return load_hierarchy(folder / name, strict=True)


CATS = {("cat", "animal"), ("lion", "cat"), ("dog", "animal")}


@pytest.mark.parametrize(
    "text",
    [
        "path\nanimal/cat/lion\nanimal/dog\n",
        "# by hand\n/animal/cat/lion/\n\nanimal//dog\n",
        "animal\nanimal/cat\nanimal/cat/lion\nanimal/dog\nanimal/dog\n",
        "animal>cat>lion\nanimal>dog",
        "# Version: 3\n1 - animal\n2 - animal > cat\n35 - animal > cat > lion\n4 - animal > dog",
        '"animal > cat > lion"\n"animal > dog"',
        "animal\n\tcat\n\t\tlion\n\n\tdog",
        "animal\n  cat\n        lion\n  dog",
        "- animal\n  - cat\n    * lion\n  - dog",
        "  animal\n    cat\n      lion\n    # not these\n    dog",
        "dog\tanimal\nlion\tcat\ncat\tanimal",
        " dog , animal \nlion, cat\n cat, animal\nanimal,",
        'dog;"animal"\nlion; "cat"\ncat;animal\nanimal;\n',
        "Level_1;level-2;LEVEL 3\nanimal;cat;lion\nanimal;dog\n",
        "level 1,level 2,level 3\nanimal,cat,lion,,\nanimal,,dog\n",
    ],
)
@pytest.mark.parametrize("name", ["t.txt", "t.csv", "t.tsv", "t"])
def test_forms(tmp_path: Path, text: str, name: str) -> None:
    assert edges_of(read(tmp_path, text, name)) == CATS


@pytest.mark.parametrize(
    ("text", "edges"),
    [
        ("TCP/IP,protocol\nA/B,protocol\nA/B/C,A/B\n", {("TCP/IP", "protocol"), ("A/B/C", "A/B")}),
        ("a > b,c\nd > e,c\n", {("a > b", "c"), ("d > e", "c")}),
        ("food\nfood/fish, fresh\nfood/bread", {("fish, fresh", "food"), ("bread", "food")}),
        ("f, b > tea\nf, b > soup\nf, b > c, d", {("tea", "f, b"), ("c, d", "f, b")}),
        ("food\n  fish, fresh\n  bread", {("fish, fresh", "food"), ("bread", "food")}),
        (
            "food, all\n  fish, fresh\n  bread\n  rice\n  tea",
            {("fish, fresh", "food, all"), ("rice", "food, all")},
        ),
        (
            "animal, all\n  cat, big\n    lion, x\n  dog, y",
            {("cat, big", "animal, all"), ("lion, x", "cat, big"), ("dog, y", "animal, all")},
        ),
        ("child, parent\n lion, cat\n cat, animal", {("lion", "cat"), ("cat", "animal")}),
        ("Felis, 1758;cats\nPuma;cats\ncats;", {("Felis, 1758", "cats"), ("Puma", "cats")}),
        ("b;x,a\nc;x,a\nd,a", {("b;x", "a"), ("c;x", "a"), ("d", "a")}),
        ("a/x\na/b/x\n", {("x (a)", "a"), ("x (b)", "b")}),
        ("a\n b\n  x\n c\n  x\n", {("x (b)", "b"), ("x (c)", "c")}),
    ],
)
def test_names_with_marks_of_other_forms(
    tmp_path: Path, text: str, edges: set[tuple[str, str]]
) -> None:
    assert edges_of(read(tmp_path, text)) >= edges


@pytest.mark.filterwarnings("ignore::beltrami.data.text.DataWarning")
def test_numbers_of_some_paths_are_names(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("1 - a > b\n2 - a > c\na > d")
    assert {"1 - a", "2 - a", "a"} < set(load_hierarchy(tmp_path / "t.txt").labels)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\n  b\n c\n", r"t\.txt, line 3: ' c' is indented like no line above it; indent each"),
        ("a\n\tb\n        c\n", r"line 3: .* indented like no line above it"),
        ("a/b\n//\n", r"line 2: the path '//' has no names"),
        ('a/"b\na/c\n', r"line 1: a quoted field does not end on its line"),
        ("a\nb\n", r"line 1: expected 2 .*`beltrami data show --help` shows other forms"),
        ("a;b;c\nd;e;f\n", r"line 1: expected 2 semicolon-separated columns .*found 3"),
        (
            "a\n  b\n  b\n",
            r"1 edge is repeated and used once, first 'b' on line 3, which .* line 2",
        ),
        ("a/b\nc/d\n", r"t\.txt: 2 roots \('a', 'c'\) are joined under '\(root\)'; correct it"),
        ("a\n  \0b\n", r"line 2: holds a NUL"),
    ],
)
def test_bad_text_names_the_line_and_the_fix(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(HierarchyError, match=message):
        read(tmp_path, text)


def test_several_roots_are_joined_with_a_note(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("b,a\nd,(root)\n")
    with pytest.warns(
        DataWarning, match=r"2 roots \('a', '\(root\)'\) are joined under \"\(root\)'"
    ):
        h = load_hierarchy(tmp_path / "t.csv")
    assert h.is_tree
    assert load_hierarchy(tmp_path / "t.csv", root="a", strict=True).labels == ("b", "a")
    write_edge_list(h, tmp_path / "u.csv")
    assert edges_of(load_hierarchy(tmp_path / "u.csv", strict=True)) == edges_of(h)


@pytest.mark.parametrize(
    ("name", "text", "count"),
    [
        ("t.csv", "family,genus,species\nF,G,s\nF,G,t\nF,H,u\n", 6),
        ("t.csv", "n,family,genus,species\n1,F,G,s\n2,F,G,t\n", 4),
        ("t.txt", "animal/cat/lion\nanimal/dog\n", 4),
        ("taxonomy", "animal\n  cat\n    lion\n  dog\n", 4),
        ("t.tsv", "child\tparent\na\t\nb\ta\nc\ta\nd\ta\n", 4),
    ],
)
def test_diagnoses_and_pages_take_every_form(
    tmp_path: Path, name: str, text: str, count: int
) -> None:
    (tmp_path / name).write_text(text)
    source = open_source(DiagnoseConfig(str(tmp_path / name), strict=True))
    assert isinstance(source, GraphSource)
    assert source.count == count


def test_a_taxonomy_with_several_roots_is_diagnosed_as_a_whole(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text("child,parent\nb,a\nc,a\ne,d\nb,a\n")
    with pytest.warns(DataWarning) as notes:
        assert open_source(DiagnoseConfig(str(file))).count == 6
    assert len(notes) == 2
    with pytest.raises(ValueError, match=r"1 edge is repeated.*leave strict= \(--strict\) away"):
        open_source(DiagnoseConfig(str(file), strict=True))
    file.write_text("a,b\nb,c\nc,d\na,b\nd,b\n")
    with pytest.warns(DataWarning, match="1 edge is repeated and used once, first on line 4"):
        open_source(DiagnoseConfig(str(file)))


def test_large_files_take_no_time(tmp_path: Path) -> None:
    rows = [f"node {i};node {i // 3}" for i in range(1, 100_000)]
    file = tmp_path / "t.csv"
    file.write_text("\n".join(["child;parent", *rows]))
    began = time.perf_counter()
    assert len(load_hierarchy(file)) == 100_000
    assert time.perf_counter() - began < 5  # 0.4 s on a laptop
