r"""What a symmetric matrix gains by one step: `max_j (max_k min(a_ik, a_kj) − a_ij)` of some rows.

The (max, min) product of a matrix with itself, of which only the largest gain of each row is kept.
For Gromov products it is how far a row is from a tree; `analysis.gromov_search` asks for it where
bounds leave too many pairs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from beltrami.kernels.launch.dispatch import dispatch


def row_gaps(a: Tensor, first: int, last: int, *, fused: bool | None = None) -> Tensor:
    """The largest gain over j > i of rows first to last − 1, (last − first,); −∞ without such j.

    Not differentiable. Takes (last − first)·n² steps and, besides the result, memory for a row's
    products or, on a GPU, for none.

    Args:
        a: (n, n), symmetric, float32 or float64, −∞ on the diagonal; none of it NaN.
        first, last: which rows.
        fused: None takes the Triton kernel on a GPU where it can do the work, False never, True is
            a `ValueError` where it cannot.
    """
    if not isinstance(a, Tensor) or a.dtype not in (torch.float32, torch.float64):
        got = a.dtype if isinstance(a, Tensor) else type(a).__name__
        raise TypeError(f"a must be a float32 or float64 tensor, got {got}")
    if a.ndim != 2 or a.shape[0] != a.shape[1]:
        raise ValueError(f"a must be (n, n), got {tuple(a.shape)}")
    if not 0 <= first <= last <= len(a):
        raise ValueError(f"rows must lie in 0..{len(a)}, got {first} to {last}")
    a = a.detach()
    kernel = dispatch("pairs.row_gaps_triton", fused, a)
    if kernel is not None:
        gaps: Tensor = kernel.row_gaps(a, first, last)
        return gaps
    gaps = a.new_full((last - first,), -torch.inf)
    for i in range(first, min(last, len(a) - 1)):
        gains = torch.minimum(a[i], a[i + 1 :]).amax(1).sub_(a[i, i + 1 :])
        gaps[i - first] = gains.max()
    return gaps
