"""The Gene Ontology, from the SQLite database of Bioconductor's GO.db (Debian `r-bioc-go.db`).

There are three ontologies: biological process (BP), molecular function (MF) and cellular component
(CC). Edges are all that the database calls parents ("isa", "part of" and, for BP, the kinds of
"regulates"), so that `closure` is its table of offspring; `relationships` chooses among them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from contextlib import closing
from pathlib import Path

from beltrami.checks import check_choice
from beltrami.data.collect import Collector, unique_labels
from beltrami.data.hierarchy import Hierarchy, HierarchyError

ONTOLOGIES = ("BP", "MF", "CC")


def read_gene_ontology(
    path: str | Path, ontology: str, *, relationships: Collection[str] | None = None
) -> Hierarchy:
    """One of the three ontologies.

    Args:
        path: the file GO.sqlite; it is only read.
        ontology: "BP", "MF" or "CC".
        relationships: kinds of parents to take, such as ("isa", "part of"); all by default.
    """
    path = Path(path)
    ontology = check_choice("ontology", ontology.upper(), ONTOLOGIES)
    if not path.is_file():
        raise HierarchyError(f"cannot read {path}: no such file")
    try:
        terms, parents = _tables(path, ontology)
    except sqlite3.Error as error:
        raise HierarchyError(f"{path} is not a database of the Gene Ontology: {error}") from error
    if relationships is not None:
        kinds = {kind for _, _, kind in parents}
        if unknown := sorted(set(relationships) - kinds):
            raise ValueError(
                f"relationships: {', '.join(map(repr, unknown))} not in {path}, which has "
                f"{', '.join(map(repr, sorted(kinds)))}"
            )
        parents = [row for row in parents if row[2] in relationships]
    names = unique_labels((str(name), str(go_id)) for _, go_id, name in terms)
    label = {key: name for (key, _, _), name in zip(terms, names, strict=True)}
    collector = Collector(str(path), unit="entry")
    for name in names:
        collector.node(name)
    pairs = ((child, parent) for child, parent, _ in parents if parent in label)
    for place, (child, parent) in enumerate(dict.fromkeys(pairs), start=1):
        if child not in label:
            raise collector.error(place, f"term {child} is in go_{ontology.lower()}_parents alone")
        collector.edge(label[child], label[parent], place)
    return collector.hierarchy(f"go-{ontology.lower()}")


Term = tuple[int, str, str]  # key, GO id, name
Parent = tuple[int, int, str]  # child's key, parent's key, kind


def _tables(path: Path, ontology: str) -> tuple[list[Term], list[Parent]]:
    uri = f"{path.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True)) as database:
        terms = database.execute(
            "SELECT _id, go_id, term FROM go_term WHERE ontology = ? ORDER BY go_id", (ontology,)
        ).fetchall()
        # A table's name cannot be a parameter; this one is of a fixed list.
        table = f"go_{ontology.lower()}_parents"
        parents = database.execute(
            f"SELECT _id, _parent_id, relationship_type FROM {table} ORDER BY rowid"
        ).fetchall()
    return terms, parents
