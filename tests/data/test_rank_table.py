from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beltrami.data import Hierarchy, HierarchyError, load_hierarchy
from beltrami.data.edge_list import read_edge_list, write_edge_list
from beltrami.data.load import READERS, read_text
from beltrami.data.rank_table import read_rank_table
from beltrami.data.text import DataWarning

CATS = """n,Species,Kingdom,Family,Genus
1,catus,Animalia,Felidae,Felis
2,,Animalia,Felidae,Felis
3,lupus,Animalia,Canidae,Canis
4,leo,Animalia,,Panthera
"""


def read(folder: Path, content: str, name: str = "t.csv") -> Hierarchy:
    """What a file holds; its roots are not joined."""
    (folder / name).write_text(content, encoding="utf-8")
    return READERS.get(Path(name).suffix, read_text)(folder / name)


def ranked_edges(h: Hierarchy) -> set[tuple[str, str, str, str]]:
    assert h.ranks is not None
    named = list(zip(h.ranks, h.labels, strict=True))
    return {(*named[child], *named[parent]) for child, parent in h.edges.tolist()}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.csv", CATS),
        ("t.tsv", CATS.replace(",", "\t")),
        ("t.txt", "# cats and dogs\n" + CATS + "# the end\n"),
        ("t.csv", "\ufeff" + CATS.replace("\n", "\r\n").replace("Felidae", '"Felidae"')),
        ("t.csv", "#" + CATS.replace("Family", "FAMILY ")),
    ],
)
def test_columns_of_ranks_give_paths(tmp_path: Path, name: str, text: str) -> None:
    h = read(tmp_path, text, name)
    assert ranked_edges(h) == {
        ("family", "Felidae", "kingdom", "Animalia"),
        ("genus", "Felis", "family", "Felidae"),
        ("species", "catus", "genus", "Felis"),
        ("family", "Canidae", "kingdom", "Animalia"),
        ("genus", "Canis", "family", "Canidae"),
        ("species", "lupus", "genus", "Canis"),
        ("genus", "Panthera", "kingdom", "Animalia"),  # the family is empty
        ("species", "leo", "genus", "Panthera"),
    }
    assert h.is_tree
    assert h.rank_counts == {"kingdom": 1, "family": 2, "genus": 3, "species": 3}
    assert list(h.rank_counts) == ["kingdom", "family", "genus", "species"]


def test_namesakes_are_not_merged(tmp_path: Path) -> None:
    h = read(
        tmp_path,
        "family,genus,subgenus,species\n"
        "Tytonidae,Tyto,,alba\n"
        "Motacillidae,Motacilla,,alba\n"
        ",Motacilla,,alba\n"
        "Bovidae,Bison,Bison,bison\n"
        "Bovidae,Bison,Bison,bison\n",
    )
    assert h.labels == (
        "Tytonidae",
        "Tyto",
        "alba (Tyto)",
        "Motacillidae",
        "Motacilla (Motacillidae)",
        "alba (Motacilla, Motacillidae)",
        "Motacilla (genus)",
        "alba (Motacilla)",
        "Bovidae",
        "Bison (genus)",
        "Bison (subgenus)",
        "bison",
    )
    assert h.lineage("alba (Motacilla)") == (
        ("genus", "Motacilla (genus)"),
        ("species", "alba (Motacilla)"),
    )


def test_ancestors_that_differ_in_rank_alone(tmp_path: Path) -> None:
    h = read(tmp_path, "order,family,genus\nX,,G\n,X,G\n")
    assert h.labels == ("X (order)", "G (genus, order X)", "X (family)", "G (genus, family X)")


cells = st.sampled_from(["", "a", "b", "c", "a (b)", "a (genus)", "ü, d", "#1"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(cells, cells, cells, cells).filter(any), min_size=1, max_size=12))
def test_every_prefix_of_a_row_is_one_node(tmp_path: Path, rows: list[tuple[str, ...]]) -> None:
    ranks = ("class", "order", "genus", "species")
    text = "\n".join("\t".join(row) for row in [ranks, *rows])
    h = read(tmp_path, text, "t.tsv")
    paths = set()
    for row in rows:
        path: tuple[tuple[str, str], ...] = ()
        for rank, name in zip(ranks, row, strict=True):
            if name:
                path += ((rank, name),)
                paths.add(path)
    assert len(h) == len(paths)
    assert len(h.roots) == len({path[0] for path in paths})
    lineages = {tuple(rank for rank, _ in h.lineage(label)) for label in h.labels}
    assert lineages == {tuple(rank for rank, _ in path) for path in paths}
    for label in h.labels:
        depth = len(h.lineage(label))
        assert any(label.startswith(path[-1][1]) for path in paths if len(path) == depth)
    write_edge_list(h, tmp_path / "again.tsv")
    again = read_edge_list(tmp_path / "again.tsv")
    assert ranked_edges(again) == ranked_edges(h)
    assert len(again) == len(h)
    assert again.rank_counts == h.rank_counts


def test_columns_by_name(tmp_path: Path) -> None:
    file = tmp_path / "shop.csv"
    file.write_text("item,shelf,hall\nsoap,2,east\nrope,2,west\n")
    with pytest.warns(DataWarning, match=r"shop\.csv: 2 roots \('east', 'west'\) are joined"):
        h = load_hierarchy(file, ranks=("hall", "shelf", "item"))
    assert h.labels == ("east", "2 (east)", "soap", "west", "2 (west)", "rope", "(root)")
    assert h.rank_counts == {"hall": 2, "shelf": 2, "item": 2}
    assert load_hierarchy(file, ranks=("hall", "item"), root="east").labels == ("east", "soap")
    with pytest.raises(
        HierarchyError, match=r"line 1: there is no column 'shel'; did you.*'shelf'"
    ):
        load_hierarchy(file, ranks=("hall", "shel"))
    with pytest.raises(ValueError, match="2 or more different columns, got \\('hall',\\)"):
        load_hierarchy(file, ranks=("hall",))
    with pytest.raises(
        TypeError, match="ranks must be a sequence of column names, got the text 'x'"
    ):
        load_hierarchy(file, ranks="x")
    with pytest.raises(ValueError, match="'carnivores' is the name of a data set"):
        load_hierarchy("carnivores", ranks=("a", "b"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("genus,species\n", "is empty: it has a header and no row"),
        ("genus,species\nFelis,catus,x\n", "line 2: expected 2 .*header on line 1.*found 3"),
        ("genus,species,x\n,,1\n", r"line 2: all ranks \('genus', 'species'\) are empty; fill one"),
        ("genus,species\nFelis,catus\n\nNA,leo\n", "line 4: the genus is 'NA'; leave the cell"),
        ("genus,species\nnull,leo\n", "line 2: the genus is 'null'; leave the cell"),
        ("genus,Genus,species\na,a,b\n", "line 1: two columns are called 'Genus'; rename one"),
        ('genus,species\nFelis,"catus\n', "line 2: a quoted field does not end on its line"),
        ("genus,species\nFelis,c\0\n", "line 2: holds a NUL"),
    ],
)
def test_bad_tables_name_the_line(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(HierarchyError, match=rf"t\.csv.* {message}|t\.csv {message}"):
        read(tmp_path, content)


def test_a_table_without_ranks(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("genus,n\nFelis,1\n")
    with pytest.raises(HierarchyError, match=r"line 1: the header names 1 ranks; 2 are needed"):
        read_rank_table(tmp_path / "t.csv")
    (tmp_path / "t.csv").write_text("")
    with pytest.raises(HierarchyError, match="first row must name the ranks"):
        read_rank_table(tmp_path / "t.csv")


def test_edges_are_edges_whatever_else_the_header_names(tmp_path: Path) -> None:
    h = read(tmp_path, "child,parent,rank,genus,species\nb,a,genus,x,y\nc,b,,x,y\na,,family,,\n")
    assert dict(zip(h.labels, h.ranks or (), strict=True)) == {"b": "genus", "a": "family", "c": ""}


def test_a_table_with_species_has_ranks_whatever_parents_it_names(tmp_path: Path) -> None:
    h = read(tmp_path, "taxonID,parentEventID,name,genus,species\n1,,x,Felis,catus\n")
    assert h.rank_counts == {"genus": 1, "species": 1}


def test_a_node_has_one_rank(tmp_path: Path) -> None:
    text = "child,parent,rank\nc,a,genus\nc,b,\n"
    assert read(tmp_path, text).rank_counts == {"genus": 1}
    with pytest.raises(
        HierarchyError, match="line 4: 'c' has the rank 'tribe', but 'genus' on line 2"
    ):
        read(tmp_path, text + "c,d,tribe\n")
    with pytest.raises(HierarchyError, match="two columns are called 'rank'"):
        read(tmp_path, "child,parent,rank,rank\nc,a,genus,genus\n")


def test_ranks_of_a_hierarchy(tmp_path: Path) -> None:
    edges = torch.tensor([[1, 0], [2, 1]])
    h = Hierarchy("h", ("a", "b", "c", "d"), edges, ("order", "", "genus", "genus"))
    assert h.at_rank("genus").tolist() == [2, 3]
    with pytest.raises(
        HierarchyError, match="h has no rank 'tribe'; its ranks are 'order', 'genus'"
    ):
        h.at_rank("tribe")
    assert h.reduction().ranks == h.ranks
    assert h.subtree("b").ranks == ("", "genus")
    write_edge_list(h, tmp_path / "t.tsv")
    again = read_edge_list(tmp_path / "t.tsv")
    assert (again.labels, again.ranks) == (("a", "d", "b", "c"), ("order", "genus", "", "genus"))
    plain = Hierarchy("h", h.labels, edges, ("",) * 4)
    assert plain.ranks is None
    assert plain.rank_counts == {}
    assert plain.digest() == h.digest()
    with pytest.raises(HierarchyError, match="h has no rank 'genus'; its nodes have no ranks"):
        plain.at_rank("genus")
    with pytest.raises(HierarchyError, match="ranks must be one a node, got 1 for 4 nodes"):
        Hierarchy("h", h.labels, edges, ("genus",))
    with pytest.raises(TypeError, match="ranks must be text, got 3 for 'd'"):
        Hierarchy("h", h.labels, edges, ("", "", "", 3))  # type: ignore[arg-type]
    with pytest.raises(HierarchyError, match="the label ' x' cannot stand"):
        write_edge_list(Hierarchy("h", ("a",), edges[:0], (" x",)), tmp_path / "u.tsv")


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "Felis", "rank": "genus", "children": [{"name": "catus", "rank": "species"},'
        ' {"name": "x", "rank": 3}]}',
        '{"nodes": [{"id": "Felis", "rank": "genus"}, {"id": 1, "name": "catus",'
        ' "rank": "species"}, {"id": "x"}], "links": [{"source": "Felis", "target": 1},'
        ' {"source": "Felis", "target": "x"}]}',
    ],
)
def test_json_with_ranks(tmp_path: Path, text: str) -> None:
    h = read(tmp_path, text, "t.json")
    assert (h.labels, h.ranks) == (("Felis", "catus", "x"), ("genus", "species", ""))
    with pytest.raises(HierarchyError, match=r"t\.json: the rank of node 0, .* half a character"):
        read(tmp_path, text.replace("genus", "\\ud800"), "t.json")
