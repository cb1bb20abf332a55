"""Entailment cones for a hierarchy, curved and flat: `beltrami run cones`."""
