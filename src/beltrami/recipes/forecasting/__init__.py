"""`beltrami forecast`: what a table of widths and losses says of larger widths."""
