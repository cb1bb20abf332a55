"""Hot operations, one a file: its signature and a plain PyTorch reference that says what it does.

References have hand-written backward passes where autograd would keep float32 copies of rows.
`adam_rows` and `distance_mass` have a fused version in Triton behind the same function, in a file
of its own (`adam_rows_triton`), so that nothing above this package need know which one runs. Import
an operation from its own file, `beltrami.kernels.layers.residual.residual`.
"""
