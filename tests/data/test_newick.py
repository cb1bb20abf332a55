from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beltrami.data.hierarchy import Hierarchy, HierarchyError
from beltrami.data.newick import read_newick

same_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def read(folder: Path, text: str) -> Hierarchy:
    file = folder / "t.nwk"
    file.write_bytes(text.encode())
    return read_newick(file)


def edges_of(h: Hierarchy) -> set[tuple[str, str]]:
    return {(h.labels[child], h.labels[parent]) for child, parent in h.edges.tolist()}


@pytest.mark.parametrize(
    ("text", "edges"),
    [
        ("(A,B)C;", {("A", "C"), ("B", "C")}),
        ("\ufeff( A:0.1 ,\r\n B:1e-3 )C:0;\n", {("A", "C"), ("B", "C")}),
        ("((A,B),C);", {("node-2", "node-1"), ("A", "node-2"), ("B", "node-2"), ("C", "node-1")}),
        ("(A[a [nested] (comment);],'B,''s (x)':2)[&R]'C D'[x];",
         {("A", "C D"), ("B,'s (x)", "C D")}),
        ("(Homo_sapiens,'Pan_paniscus')x;", {("Homo sapiens", "x"), ("Pan_paniscus", "x")}),
        ("((A,B)95,(C,D)95)95;",
         {("A", "95 (node-2)"), ("B", "95 (node-2)"), ("C", "95 (node-3)"), ("D", "95 (node-3)"),
          ("95 (node-2)", "95"), ("95 (node-3)", "95")}),
        ("((A)node-1,B);",
         {("A", "node-1 (node-2)"), ("B", "node-1"), ("node-1 (node-2)", "node-1")}),
        ("((A)B)C;", {("A", "B"), ("B", "C")}),
        ("A;", set()),
    ],
)  # fmt: skip
def test_trees(tmp_path: Path, text: str, edges: set[tuple[str, str]]) -> None:
    h = read(tmp_path, text)
    assert edges_of(h) == edges
    assert h.is_tree
    assert h.name == "t"


def test_depth_has_no_limit(tmp_path: Path) -> None:
    depth = 100_000
    h = read(tmp_path, "(" * depth + "leaf" + ")" * depth + ";")
    assert int(h.depth.max()) == depth


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1, column 1: the file is empty"),
        ("  \n [comment] ", "the file is empty"),
        ("(A,\n (B,C)", "line 1, column 1: this bracket is never closed"),
        ("(A,\n (B,C;", "line 2, column 2: this bracket is never closed"),
        ("(A,B));", r"line 1, column 6: '\)' outside of all brackets"),
        ("A,B;", "line 1, column 2: ',' outside"),
        ("(A,B)", "the tree must end with ;"),
        ("(A,B);\n(C,D);", "line 2, column 1: something follows the tree"),
        ("(A,\nB,A)C;", r"line 2, column 3: the leaf 'A' is there twice .first on line 1"),
        ("(A,)C;", "column 4: a leaf without a name"),
        ("(A,'')C;", "column 4: a leaf without a name"),
        ("();", "a leaf without a name"),
        ("(A B)C;", "column 4: a label right after a node"),
        ("(A:1 B)C;", "column 6: a label right after a node"),
        ("(A(B))C;", "column 3: an opening bracket right after a node"),
        ("(A:x)C;", "column 4: expected a branch length after ':', found 'x'"),
        ("(A:,B)C;", "column 4: expected a branch length"),
        ("(A:1:2)C;", "column 6: a second branch length"),
        ("(A:", "column 3: expected a branch length"),
        ("(A,'B)C;", "column 4: a quote that is never closed"),
        ("(A,[B)C;", "column 4: a comment that is never closed"),
        ("(A],B)C;", "column 3: a stray ]"),
    ],
)
def test_bad_trees_name_the_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(HierarchyError, match=message):
        read(tmp_path, text)


@same_folder
@given(
    data=st.data(),
    names=st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), min_size=1),
        min_size=1,
        max_size=8,
        unique=True,
    ),
)
def test_quoted_labels_round_trip(tmp_path: Path, data: st.DataObject, names: list[str]) -> None:
    parent = [data.draw(st.integers(0, node - 1)) for node in range(1, len(names))]
    text = {}
    for node in reversed(range(len(names))):
        below = [text[child] for child in range(node + 1, len(names)) if parent[child - 1] == node]
        name = "'" + names[node].replace("'", "''") + "'"
        text[node] = f"({','.join(below)}){name}" if below else name
    expected = {(names[child], names[parent[child - 1]]) for child in range(1, len(names))}
    assert edges_of(read(tmp_path, text[0] + ";")) == expected


@same_folder
@given(content=st.binary() | st.text("(),;:'[]_A1 \n").map(str.encode))
def test_any_bytes_give_a_tree_or_a_named_error(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "t.nwk"
    file.write_bytes(content)
    problem = ""
    try:
        assert read_newick(file).is_tree
    except HierarchyError as error:
        problem = str(error)
    assert not problem or "t.nwk" in problem


@pytest.mark.parametrize("text", ["({0},{0});", "(a:{0},b);"])
def test_errors_quote_only_the_beginning_of_labels(tmp_path: Path, text: str) -> None:
    with pytest.raises(HierarchyError, match="xxx…") as caught:
        read(tmp_path, text.format("x" * 30_000))
    assert len(str(caught.value)) < 300 + len(str(tmp_path))
