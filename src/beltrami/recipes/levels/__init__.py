"""Classify the leaves of a taxonomy level by level, curved and flat: `beltrami run levels`."""
