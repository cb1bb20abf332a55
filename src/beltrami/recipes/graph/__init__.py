"""Classify nodes and predict links of a graph, curved and flat: `beltrami run graph`."""
