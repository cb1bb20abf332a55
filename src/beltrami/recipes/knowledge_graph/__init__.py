"""Predict links of a knowledge graph: `beltrami run knowledge-graph`."""
