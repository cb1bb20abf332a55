"""A hyperbolic language model and its Euclidean twin, trained on the same text."""
