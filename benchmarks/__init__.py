"""Side-by-side measurements against peers; see RESULTS.md for the tables and their commands."""
