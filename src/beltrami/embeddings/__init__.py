"""Labelled points that a run has learned: neighbours, distances, new nodes, files.

    embedding = beltrami.load_run("runs/hierarchy-wordnet-mammals")
    embedding.nearest("feline", k=10)

Loads no training code.
"""

from beltrami.embeddings.embedding import Embedding, Neighbour, nearest_rows
from beltrami.embeddings.export import FORMATS, export_embedding
from beltrami.embeddings.files import load_run

__all__ = ["FORMATS", "Embedding", "Neighbour", "export_embedding", "load_run", "nearest_rows"]
