"""Embedded data sets and readers for the user's own; imports nothing else of beltrami."""

from beltrami.data.hierarchy import Hierarchy, HierarchyError
from beltrami.data.load import list_hierarchies, load_hierarchy
from beltrami.data.taxonomies import TaxonomyError, Tree, list_taxonomies, load_taxonomy, read_edges

__all__ = [
    "Hierarchy",
    "HierarchyError",
    "TaxonomyError",
    "Tree",
    "list_hierarchies",
    "list_taxonomies",
    "load_hierarchy",
    "load_taxonomy",
    "read_edges",
]
