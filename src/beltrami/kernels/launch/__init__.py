"""Launching kernels: the dispatcher between plain and fused versions, dtypes, saved tensors."""
