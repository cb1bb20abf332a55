"""Measures of embeddings and models; `beltrami.analysis.hierarchy` has those of hierarchies."""
