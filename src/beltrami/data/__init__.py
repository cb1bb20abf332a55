"""Embedded data sets and readers for the user's own; imports nothing else of beltrami."""

from beltrami.data.taxonomies import TaxonomyError, Tree, list_taxonomies, load_taxonomy, read_edges

__all__ = ["TaxonomyError", "Tree", "list_taxonomies", "load_taxonomy", "read_edges"]
