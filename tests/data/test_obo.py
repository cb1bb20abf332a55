from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beltrami.data.hierarchy import Hierarchy, HierarchyError
from beltrami.data.obo import read_obo

HEADER = "format-version: 1.2\nontology: tiny\n\n"


def read(folder: Path, text: str, relationships: tuple[str, ...] = ()) -> Hierarchy:
    file = folder / "tiny.obo"
    file.write_text(text, encoding="utf-8")
    return read_obo(file, relationships=relationships)


def edges_of(h: Hierarchy) -> set[tuple[str, str]]:
    return {(h.labels[child], h.labels[parent]) for child, parent in h.edges.tolist()}


TINY = (
    HEADER
    + r"""
[Term]
id: X:1 ! the root
name: All

[Term]
id: X:2
name: Left\, {really\}! Yes\!
def: "Not [Term] id: X:9 ! {" [] {a="b"}
is_a: X:1 {is_inferred="true", by="me"} ! All

[Term] ! a stanza
id: X:3
name: Right
is_a: X:1 ! All
relationship: part_of X:2 {x="y"} ! Left
relationship: next_to X:4

[Typedef]
id: part_of
name: part of
is_a: X:1

[Term]
id: X:4
name: Gone
is_obsolete: true

[Term]
id: X:5
is_a: Y:7 ! from elsewhere
is_a: X:2
is_a: X:3
"""
)


def test_terms_and_is_a(tmp_path: Path) -> None:
    h = read(tmp_path, TINY)
    left = "Left, {really}! Yes!"
    assert set(h.labels) == {"All", left, "Right", "X:5", "Y:7"}
    assert edges_of(h) == {
        (left, "All"),
        ("Right", "All"),
        ("X:5", "Y:7"),
        ("X:5", left),
        ("X:5", "Right"),
    }
    assert h.name == "tiny"


def test_relationships_on_request(tmp_path: Path) -> None:
    more = edges_of(read(tmp_path, TINY, ("part_of",))) - edges_of(read(tmp_path, TINY))
    assert more == {("Right", "Left, {really}! Yes!")}


def test_a_parent_that_is_also_a_whole_counts_once(tmp_path: Path) -> None:
    text = "[Term]\nid: A\n[Term]\nid: B\nis_a: A\nrelationship: part_of A\n"
    assert edges_of(read(tmp_path, text, ("part_of",))) == {("B", "A")}


def test_terms_of_the_same_name_get_their_ids(tmp_path: Path) -> None:
    text = "[Term]\nid: A\nname: x\n[Term]\nid: B\nname: x\n[Term]\nid: C\nname: x (A)\n"
    assert read(tmp_path, text).labels == ("x (A)'", "x (B)", "x (A)")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"is empty: it has no \[Term\]"),
        (HEADER, r"is empty: it has no \[Term\]"),
        ("[Term]\nid: A\nis_obsolete: true\n", "is empty"),
        ("[Term]\nname: a\n", r"line 1: this \[Term\] has no id"),
        ("[Term]\nid: A\n[Term]\nid: A\n", r"line 3: the id 'A' is there twice .first on line 1"),
        ("[Term]\nid: A\nid: B\n", "line 3: a second id"),
        ("[Term]\nid: A\nis_a:\n", "line 3: expected the id of a term"),
        ("[Term]\nid: A\nis_a: B C\n", "line 3: expected the id of a term, found 'B C'"),
        ("[Term]\nid: A\nis_a: B\nis_a: B\n", "line 4: the parent B is .*first on line 3"),
        ("[Term]\nid: A\nis_a: A\n", "line 3: 'A' is its own parent"),
        ("[Term]\nid: A\nis_a: B\n[Term]\nid: B\nis_a: A", "lines 3, 6: the parents form a cycle"),
        ("[Term]\nid: A\nis_a: B\n[Term]\nid: B\nis_obsolete: true", "line 3: .* is obsolete"),
        ("[Term]\nid: A\nhello\n", "line 3: expected `tag: value` in a stanza, found 'hello'"),
        ("[Term\n", "line 1: expected `tag: value` in the header"),
    ],
)  # fmt: skip
def test_bad_files_name_the_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(HierarchyError, match=message):
        read(tmp_path, text)


fragments = st.sampled_from(
    [
        "[Term]",
        "id: A",
        "id: B",
        "is_a: A",
        "is_a: B",
        "name: \\",
        "is_obsolete: true",
        "x",
        "!",
        "{",
    ]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary() | st.lists(fragments).map(lambda lines: "\n".join(lines).encode()))
def test_any_bytes_give_terms_or_a_named_error(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "t.obo"
    file.write_bytes(content)
    problem = ""
    try:
        assert len(read_obo(file)) >= 1
    except HierarchyError as error:
        problem = str(error)
    assert not problem or "t.obo" in problem


def test_many_spaces_take_no_square_of_time(tmp_path: Path) -> None:
    """By the square of their number, this would take hours."""
    gap = " " * 500_000
    text = f"{HEADER}[Term]\nid: X:1\nname: a{gap}b\n[Term]\nid: X:2\nname: c{gap}{{x}}\n"
    assert read(tmp_path, text).labels == (f"a{gap}b", "c")


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        ("a {x}", "a"),
        ("a{x}", "a{x}"),
        ("a }", "a }"),
        ("a {x} {y}", "a {x}"),
        ("a {x}}", "a {x}}"),
    ],
)
def test_modifiers_stand_after_a_space(tmp_path: Path, value: str, plain: str) -> None:
    assert read(tmp_path, f"{HEADER}[Term]\nid: X:1\nname: {value}\n").labels == (plain,)
