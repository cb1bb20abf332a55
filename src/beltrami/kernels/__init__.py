"""Hot operations, one a file: its signature and a plain PyTorch reference that says what it does.

References have hand-written backward passes where autograd would keep float32 copies of rows. Fused
versions for GPUs will come behind the same functions, so nothing above this package need know which
one runs. Import an operation from its own file, `beltrami.kernels.residual.residual`.
"""
