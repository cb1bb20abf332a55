"""`beltrami diagnose`: how tree-like data are, beside what they are to be compared with."""
