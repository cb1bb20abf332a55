r"""The gain of a linear map between stereographic projections of the hyperboloid,

    g(p, q) = 2e/(1 + s),    e = 1/(1 − p/4),    s = √(1 + e²q),

for p below 4, the border of the ball: what `lorentz_gain` is between exp0 and log0. Its slopes are
∂g/∂p = e²/(2s·(1 + s)) and ∂g/∂q = −e³/(s·(1 + s)²).
"""

from __future__ import annotations

import torch
from torch import Tensor


def gain(p: Tensor, q: Tensor) -> Tensor:
    """g, in the dtype of its arguments."""
    lift, stretch = _parts(p, q)
    return 2 * lift / (1 + stretch)


def gain_and_slopes(p: Tensor, q: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """g, ∂g/∂p and ∂g/∂q."""
    lift, stretch = _parts(p, q)
    share = lift / (1 + stretch)
    by_p = share * lift / (2 * stretch)
    return 2 * share, by_p, -share * share * lift / stretch


def _parts(p: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    lift = 1 / (1 - p / 4)
    return lift, torch.sqrt(1 + lift * lift * q)
