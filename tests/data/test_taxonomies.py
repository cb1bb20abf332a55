from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch

from beltrami.data import TaxonomyError, Tree, list_taxonomies, load_taxonomy, read_edges
from beltrami.data.taxonomies import MAX_NODES


def parse(text: str) -> Tree:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "t.tsv"
        path.write_text(text, encoding="utf-8")
        return read_edges(path)


def test_carnivores_is_the_tree_its_documentation_promises() -> None:
    tree = load_taxonomy("carnivores")
    assert (len(tree), max(tree.depth)) == (131, 3)
    assert tree.labels[0] == "carnivore"
    assert len(set(tree.labels)) == len(tree)
    lion = tree.labels.index("lion")
    assert tree.labels[tree.parent[lion]] == "big cat"
    assert tree.leaves_below[0] == sum(1 for below in tree.descendants if below == 0)
    assert tree.descendants[0] == len(tree) - 1


def test_every_embedded_taxonomy_loads() -> None:
    for name in list_taxonomies():
        assert len(load_taxonomy(name)) >= 3


def test_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'lizards'.*carnivores"):
        load_taxonomy("lizards")


def test_distances_are_path_lengths() -> None:
    #        a
    #       / \
    #      b   c
    #     / \   \
    #    d   e   f
    tree = parse("b\ta\nc\ta\nd\tb\ne\tb\nf\tc")
    hops = tree.distances()
    at = {label: i for i, label in enumerate(tree.labels)}
    expected = {("a", "d"): 2, ("d", "e"): 2, ("d", "f"): 4, ("b", "c"): 2, ("b", "f"): 3}
    assert {pair: hops[at[pair[0]], at[pair[1]]].item() for pair in expected} == expected
    assert torch.equal(hops, hops.T)
    assert torch.equal(hops.diagonal(), torch.zeros(6, dtype=hops.dtype))


def test_carnivore_distances_satisfy_the_four_point_condition() -> None:
    # Holds for tree metrics only: of the three sums of opposite pairs, the two largest are equal.
    hops = load_taxonomy("carnivores").distances()
    a, b, c, d = torch.randint(131, (4, 2000), generator=torch.Generator().manual_seed(0))
    sums = torch.stack([hops[a, b] + hops[c, d], hops[a, c] + hops[b, d], hops[a, d] + hops[b, c]])
    ordered = sums.sort(dim=0).values
    assert torch.equal(ordered[1], ordered[2])


@pytest.mark.parametrize(
    "text",
    [
        "child\tparent\nb\ta\nc\ta\n",
        "b,a\nc,a",
        "# a comment\n\nChild,Parent\nb,a\r\n c , a \n",
        "# a comment, with, commas\n#child,parent\nb,a\nc,a\n# the end",
        "# tabs, then\nb\ta\n# b, a\nc\ta",
        '"b",a\n"c","a"',
    ],
)
def test_accepted_forms_give_the_same_tree(tmp_path: Path, text: str) -> None:
    file = tmp_path / "t.csv"
    file.write_bytes(b"\xef\xbb\xbf" + text.encode())  # spreadsheets put a byte-order mark first
    tree = read_edges(file)
    assert (tree.name, tree.labels, tree.parent) == ("t", ("a", "b", "c"), (-1, 0, 0))


def test_rows_may_come_in_any_order() -> None:
    tree = parse("d\tc\nc\tb\nb\ta")
    assert tree.labels == ("a", "b", "c", "d")
    assert tree.depth == (0, 1, 2, 3)


@pytest.mark.parametrize("text", ["#b\ta\nc\t#b", "c,#b\n#b,a", "#b,a\n#c,#b"])
def test_labels_may_start_with_a_hash(text: str) -> None:
    tree = parse(text)
    assert tree.labels[:2] == ("a", "#b")
    assert len(tree) == 3


def test_quoted_comma_is_part_of_the_label() -> None:
    assert parse('"fox, red",a\nc,a').labels == ("a", "fox, red", "c")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"0 nodes; at least 3"),
        ("b\ta", r"2 nodes; at least 3"),
        ("b\ta\nc", r"line 2: expected 2 tab-separated columns.*found 1"),
        ("b,a\nc,a,x", r"line 2: expected 2 comma-separated columns.*found 3"),
        ("b\ta\n\tb", r"line 2: the child is empty"),
        ("b\ta\na\t", r"2 nodes; at least 3"),
        ("b\ta\nc\tc", r"line 2: 'c' is its own parent"),
        ("b\ta\nc\ta\nb\tc", r"line 3: 'b' has a second parent \(first on line 1\)"),
        ("b\ta\nc\ta\nb\ta", r"line 3: 'b' has the same edge \(first on line 1\)"),
        ("b\ta\nd\tc\ne\tc", r"2 roots \('a', 'c'\)"),
        ("a\tb\nb\tc\nc\ta", r"lines 1, 2, 3: the parents form a cycle: 'a' -> 'b' -> 'c' -> 'a'"),
        ("b\tr\na\tc\nc\ta\nd\ta", r"lines 2, 3: the parents form a cycle: 'a' -> 'c' -> 'a'"),
        ("\n".join(f"n{i}\tr" for i in range(MAX_NODES)), rf"line {MAX_NODES}: more than"),
    ],
)
def test_bad_edges_name_the_line_and_the_fix(text: str, message: str) -> None:
    with pytest.raises(TaxonomyError, match=message):
        parse(text)


def test_largest_allowed_tree_is_read() -> None:
    chain = "\n".join(f"n{i + 1}\tn{i}" for i in range(MAX_NODES - 1))
    tree = parse(chain)
    assert max(tree.depth) == MAX_NODES - 1
    assert tree.distances().max() == MAX_NODES - 1


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(TaxonomyError, match="No such file"):
        read_edges(tmp_path / "missing.tsv")
    with pytest.raises(TaxonomyError, match="directory"):
        read_edges(tmp_path)
    latin = tmp_path / "latin.tsv"
    latin.write_bytes("loup\tbête".encode("latin-1"))
    with pytest.raises(TaxonomyError, match="not UTF-8 text"):
        read_edges(latin)


@pytest.mark.parametrize(
    ("labels", "parent", "message"),
    [
        (("a",), (-1, 0), "equally long"),
        (("a", "b"), (0, 0), "node 0 must be the root"),
        (("a", "b", "c"), (-1, 2, 0), "parent of node 1 must be an earlier node, got 2"),
    ],
)
def test_inconsistent_trees_are_refused(
    labels: tuple[str, ...], parent: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Tree("t", labels, parent)
