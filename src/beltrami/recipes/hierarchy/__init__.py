"""Embed a taxonomy in hyperbolic and in flat space: `beltrami run hierarchy`."""
