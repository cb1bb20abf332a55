"""Embedded data sets and readers for the user's own; imports nothing else of beltrami."""

from beltrami.data.graph_files import read_graph
from beltrami.data.graphs import Graph, load_network
from beltrami.data.hierarchy import Hierarchy, HierarchyError
from beltrami.data.load import list_hierarchies, load_hierarchy
from beltrami.data.text import DataWarning
from beltrami.data.tree import Tree
from beltrami.data.triples import TripleSet, load_triples

__all__ = [
    "DataWarning",
    "Graph",
    "Hierarchy",
    "HierarchyError",
    "Tree",
    "TripleSet",
    "list_hierarchies",
    "load_hierarchy",
    "load_network",
    "load_triples",
    "read_graph",
]
