"""`beltrami family`: overlaps and losses of several models against their widths."""
