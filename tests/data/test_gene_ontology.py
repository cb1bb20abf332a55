import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from beltrami.data.gene_ontology import read_gene_ontology
from beltrami.data.hierarchy import Hierarchy, HierarchyError
from beltrami.data.load import DEBIAN_GENE_ONTOLOGY, load_hierarchy
from tests.data.installed import need_installed

TERMS = [
    (1, "all", "all", "universal"),
    (2, "GO:2", "process", "BP"),
    (3, "GO:3", "growth", "BP"),
    (4, "GO:4", "growth", "BP"),
    (5, "GO:5", "regulation of growth", "BP"),
    (6, "GO:6", "cell", "CC"),
]
PARENTS = [
    (2, 1, "isa"),
    (3, 2, "isa"),
    (4, 2, "isa"),
    (4, 3, "part of"),
    (5, 2, "isa"),
    (5, 3, "regulates"),
    (5, 3, "negatively regulates"),
]


def database(folder: Path, parents: list[tuple[int, int, str]] = PARENTS) -> Path:
    path = folder / "GO?#.sqlite"  # a name that means something in an address
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE go_term (_id INTEGER, go_id TEXT, term TEXT, ontology TEXT)")
        db.executemany("INSERT INTO go_term VALUES (?, ?, ?, ?)", TERMS)
        for ontology in ("bp", "cc"):
            table = f"go_{ontology}_parents"
            db.execute(f"CREATE TABLE {table} (_id INT, _parent_id INT, relationship_type TEXT)")
        db.executemany("INSERT INTO go_bp_parents VALUES (?, ?, ?)", parents)
        db.commit()
    return path


def edges_of(h: Hierarchy) -> set[tuple[str, str]]:
    return {(h.labels[child], h.labels[parent]) for child, parent in h.edges.tolist()}


def test_an_ontology_without_the_root_of_all_three(tmp_path: Path) -> None:
    path = database(tmp_path)
    before = path.read_bytes()
    h = read_gene_ontology(path, "bp")
    assert h.name == "go-bp"
    assert h.labels == ("process", "growth (GO:3)", "growth (GO:4)", "regulation of growth")
    isa = {
        ("growth (GO:3)", "process"),
        ("growth (GO:4)", "process"),
        ("regulation of growth", "process"),
    }
    whole = {("growth (GO:4)", "growth (GO:3)")}
    assert edges_of(h) == isa | whole | {("regulation of growth", "growth (GO:3)")}
    assert edges_of(read_gene_ontology(path, "BP", relationships=("isa",))) == isa
    assert edges_of(read_gene_ontology(path, "BP", relationships=["isa", "part of"])) == isa | whole
    assert read_gene_ontology(path, "CC").labels == ("cell",)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_bad_requests_and_files(tmp_path: Path) -> None:
    path = database(tmp_path)
    with pytest.raises(ValueError, match="one of 'BP', 'MF', 'CC'; got 'XX'"):
        read_gene_ontology(path, "XX")
    with pytest.raises(ValueError, match=r"'is_a' not in .* which has 'isa',"):
        read_gene_ontology(path, "BP", relationships=("is_a",))
    with pytest.raises(HierarchyError, match="not a database of the Gene Ontology: no such table"):
        read_gene_ontology(path, "MF")
    with pytest.raises(HierarchyError, match="no such file"):
        read_gene_ontology(tmp_path / "missing.sqlite", "BP")
    assert not (tmp_path / "missing.sqlite").exists()
    noise = tmp_path / "noise.sqlite"
    noise.write_bytes(b"\x00noise" * 1000)
    with pytest.raises(HierarchyError, match="not a database"):
        read_gene_ontology(noise, "BP")


def test_a_cycle_is_named(tmp_path: Path) -> None:
    path = database(tmp_path, [(3, 2, "isa"), (2, 3, "isa")])
    with pytest.raises(HierarchyError, match="cycle: 'process' -> 'growth"):
        read_gene_ontology(path, "BP")


def test_a_stranger_among_the_children_is_named(tmp_path: Path) -> None:
    with pytest.raises(HierarchyError, match="term 77 is in go_bp_parents alone"):
        read_gene_ontology(database(tmp_path, [(77, 2, "isa")]), "BP")


@pytest.mark.parametrize(
    ("name", "nodes", "edges", "pairs"),
    [
        ("go-bp", 28_140, 65_107, 630_849),
        ("go-mf", 11_238, 13_769, 72_089),
        ("go-cc", 4_180, 6_837, 45_453),
    ],
)
def test_the_ontologies_of_go_db_3_16(name: str, nodes: int, edges: int, pairs: int) -> None:
    # GO.db's own tables of offspring have one pair more for every term, with its root "all".
    need_installed("gene-ontology", debian=DEBIAN_GENE_ONTOLOGY)
    h = load_hierarchy(name)
    assert (len(h), len(h.edges), len(h.closure())) == (nodes, edges, pairs)
