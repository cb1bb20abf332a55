"""Embedded data sets and readers for the user's own; imports nothing else of beltrami."""

from beltrami.data.graph_files import read_graph
from beltrami.data.graphs import Graph, load_network
from beltrami.data.hierarchy import Hierarchy, HierarchyError
from beltrami.data.load import list_hierarchies, load_hierarchy
from beltrami.data.taxonomies import TaxonomyError, Tree, list_taxonomies, load_taxonomy, read_edges
from beltrami.data.text import DataWarning
from beltrami.data.triples import TripleSet, load_triples

__all__ = [
    "DataWarning",
    "Graph",
    "Hierarchy",
    "HierarchyError",
    "TaxonomyError",
    "Tree",
    "TripleSet",
    "list_hierarchies",
    "list_taxonomies",
    "load_hierarchy",
    "load_network",
    "load_taxonomy",
    "load_triples",
    "read_edges",
    "read_graph",
]
