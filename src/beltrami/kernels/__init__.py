"""Hot operations, one a file: its signature and a plain PyTorch reference that says what it does.

References have hand-written backward passes where autograd would keep float32 copies of rows.
`adam_rows` has a fused version in Triton behind the same function, in a file of its own
(`adam_rows_triton`); others will come the same way, so nothing above this package need know which
one runs. Import an operation from its own file, `beltrami.kernels.residual.residual`.
"""
