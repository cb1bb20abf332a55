"""Small rooted trees: the embedded ones, and the reader for a user's own edge file.

The files are edge lists as in `edge_list`, of one strict tree: each node has one parent, and the
root is the one node that is nobody's child.
"""

from __future__ import annotations

from importlib.resources import as_file, files
from pathlib import Path

from beltrami.data.collect import Collector
from beltrami.data.edge_list import EdgeRows
from beltrami.data.hierarchy import HierarchyError, quoted_names
from beltrami.data.text import quoted
from beltrami.data.tree import Tree

__all__ = ["TaxonomyError", "Tree", "list_taxonomies", "load_taxonomy", "read_edges"]

MIN_NODES = 3
MAX_NODES = 2000  # all pairs of more nodes would not fit a laptop's patience
EMBEDDED_TREES = ("carnivores",)

TaxonomyError = HierarchyError


def list_taxonomies() -> list[str]:
    """Names that `load_taxonomy` knows."""
    return sorted(EMBEDDED_TREES)


def load_taxonomy(name: str) -> Tree:
    """An embedded tree. `carnivores`: 131 of WordNet's carnivores, three levels below the root."""
    known = list_taxonomies()
    if name not in known:
        raise ValueError(f"no taxonomy called {name!r}; available: {', '.join(known)}")
    with as_file(files("beltrami.data") / "files" / f"{name}.tsv") as path:
        return read_edges(path)


def read_edges(path: str | Path) -> Tree:
    """The tree in an edge file; else a `TaxonomyError`."""
    path = Path(path)
    try:
        path.open("rb").close()
    except OSError as error:  # worded for those who gave it as --edges
        reason = error.strerror or str(error)
        raise TaxonomyError(f"cannot read the edge file {path}: {reason}") from error
    parent_of: dict[str, str] = {}
    line_of: dict[str, int] = {}
    collector = Collector(str(path))
    for line, child, parent in EdgeRows(path):
        if child in parent_of:
            again = "the same edge" if parent_of[child] == parent else "a second parent"
            raise TaxonomyError(
                f"{path}, line {line}: {quoted(child)} has {again} (first on line "
                f"{line_of[child]}); a tree gives each node one parent, so remove one "
                "of the two lines"
            )
        parent_of[child], line_of[child] = parent, line
        collector.edge(child, parent, line)
        if len(collector) > MAX_NODES:
            raise TaxonomyError(
                f"{path}, line {line}: more than {MAX_NODES} nodes; pass a smaller subtree"
            )
    if len(collector) < MIN_NODES:
        raise TaxonomyError(
            f"{path} has {len(collector)} nodes; at least {MIN_NODES} are needed "
            "(one line per edge: child, parent)"
        )
    hierarchy = collector.hierarchy(path.stem)
    if len(hierarchy.roots) > 1:
        roots = [hierarchy.labels[root] for root in hierarchy.roots.tolist()]
        raise TaxonomyError(
            f"{path} has {len(roots)} roots ({quoted_names(roots)}); a tree has one: add lines "
            "that give them a common parent, or pass one of the trees"
        )
    return hierarchy.spanning_tree()
