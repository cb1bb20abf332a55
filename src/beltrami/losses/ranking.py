r"""The softmax ranking loss of Nickel and Kiela (2017): a true partner must be the nearest.

For a node u with a true partner v and sampled false ones v₁ … v_K at distances d₀ and d₁ … d_K,

    loss = −log [ e^{−d₀} / (e^{−d₀} + Σ_k e^{−d_k}) ] = softplus(d₀ + log Σ_k e^{−d_k}),

the cross entropy of choosing v. The second form keeps its digits where the first rounds to
log 1 = 0. It sees distances only, so it is the same on every manifold.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from beltrami.checks import check_number, check_positive


def ranking_loss(
    distances: Tensor,
    mask: Tensor | None = None,
    *,
    temperature: float = 1.0,
    margin: float = 0.0,
) -> Tensor:
    r"""Mean over the rows of `softplus((d₀ + margin)/T + log Σ_k e^{−d_k/T})`, a scalar.

    Args:
        distances: (B, 1 + K), any floating dtype: column 0 is the true partner, the others are
            false ones. K may be 0, and B too.
        mask: booleans (B, K), True where a false partner counts; None for all. What stands at a
            False entry, NaN included, changes neither value nor gradient.
        temperature: T > 0; distances are divided by it. 1 as published.
        margin: distance by which a false partner has to be further away; 0 as published.

    Returns:
        A scalar in float32 or wider, at least 0. A row without a false partner that counts adds 0,
        with gradient 0; an empty batch gives 0.
    """
    _check(distances, mask, temperature, margin)
    distances = distances.to(torch.promote_types(distances.dtype, torch.float32))
    true, false = distances[:, 0], distances[:, 1:]
    if not false.numel():
        return distances.sum() * 0.0
    logits = -false / temperature
    if mask is not None:
        logits = logits.masked_fill(~mask, -math.inf)
    # Where nothing counts the sum is 0; its gradient falls on masked entries, which drop it.
    rivals = torch.logsumexp(logits, dim=-1)
    return F.softplus((true + margin) / temperature + rivals).mean()


def _check(distances: Tensor, mask: Tensor | None, temperature: float, margin: float) -> None:
    if not isinstance(distances, Tensor) or not distances.is_floating_point():
        got = distances.dtype if isinstance(distances, Tensor) else type(distances).__name__
        raise TypeError(f"distances must be a floating point tensor, got {got}")
    if distances.ndim != 2 or distances.shape[1] < 1:
        raise ValueError(
            "distances must have the shape (B, 1 + K), the true partner's first; "
            f"got {tuple(distances.shape)}"
        )
    check_positive("temperature", temperature)
    check_number("margin", margin)
    if mask is None:
        return
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        got = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise TypeError(f"mask must be a tensor of booleans, True where one counts; got {got}")
    wanted = (distances.shape[0], distances.shape[1] - 1)
    if mask.shape != wanted:
        raise ValueError(
            f"mask must have the shape (B, K) = {wanted}, without the true partner's column; "
            f"got {tuple(mask.shape)}"
        )
