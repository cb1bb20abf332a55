"""Runnable experiments: a hyperbolic system and its Euclidean twin, measured side by side."""
