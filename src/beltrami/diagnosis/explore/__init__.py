"""`beltrami explore`: data as an interactive page."""
