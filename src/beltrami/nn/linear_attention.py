"""Focused linear attention: cost and memory linear in the length of the sequence."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from beltrami.checks import check_integer
from beltrami.geometry import Euclidean, Lorentz, Manifold
from beltrami.geometry.checks import no_autocast
from beltrami.kernels.launch.dtypes import upcast
from beltrami.nn.layer import Layer
from beltrami.nn.linear import Linear

# Added to features so that none of a token's is 0 and every query has a key (Hypformer's value).
_LEAST_FEATURE = 1e-6

# Tokens that the causal form works through at once.
_CHUNK = 64


class LinearAttention(Layer):
    r"""Multi-head attention with a kernel in place of the softmax (Hypformer, Yang et al. 2024).

        φ(x) = |r|·rᵖ/|rᵖ|,   r = relu(x) + 10⁻⁶ (coordinate by coordinate)
        head_i = Σ_j φ(q_i)·φ(k_j)·v_j / Σ_j φ(q_i)·φ(k_j) + V·v_i

    on space parts, summed over the keys that query i may look at; V is a small `Linear`, the same
    for all heads, that gives back the rank which the kernel takes. The published scale of r is left
    out: it cancels in the quotient. Curvature enters through the time columns of the linear layers
    alone; as c → 0 they vanish, and the rest is the same for every c.

    Args:
        size: coordinates of the points.
        heads: a divisor of size.
        manifold: Lorentz or Euclidean.
        causal: whether a token sees only itself and earlier ones.
        power: p, how sharply features are focused.
        bias, time: as in `Linear`.
    """

    accepts: ClassVar[tuple[type[Manifold], ...]] = (Lorentz, Euclidean)

    def __init__(
        self,
        size: int,
        heads: int,
        *,
        manifold: Manifold,
        causal: bool = False,
        power: float = 2.0,
        bias: bool = True,
        time: bool = True,
    ) -> None:
        super().__init__(manifold)
        self.size = check_integer("LinearAttention: size", size)
        self.heads = check_integer("LinearAttention: heads", heads)
        if size % heads:
            raise ValueError(f"LinearAttention: heads={heads} must divide size={size}")
        if not 1 <= power < math.inf:
            raise ValueError(f"LinearAttention: power must be at least 1, got {power}")
        self.head_size = size // heads
        self.causal, self.power = causal, float(power)
        self.query_key_value = Linear(size, 3 * size, manifold=manifold, bias=bias, time=time)
        self.value_map = Linear(
            self.head_size, self.head_size, manifold=manifold, bias=bias, time=time
        )
        self.out = Linear(size, size, manifold=manifold, bias=bias, time=time)

    def forward(self, x: Tensor, *, key_mask: Tensor | None = None) -> Tensor:
        """(B, T, size) to (B, T, size).

        Args:
            x: points.
            key_mask: bool, (B, T); False for padding, which no token looks at. A token that may
                look nowhere gets V·v of its own value alone.
        """
        self.check_size(x, self.size)
        if x.ndim != 3:
            raise ValueError(f"LinearAttention takes x of shape (B, T, size), got {tuple(x.shape)}")
        q, k, v = (
            self.query_key_value(x).unflatten(-1, (3 * self.heads, self.head_size)).chunk(3, dim=-2)
        )  # (B, T, heads, head_size) each
        extra = self.value_map(v)
        features_q, features_k = self._features(q), self._features(k)
        if key_mask is not None:
            self._check_mask(key_mask, x)
            features_k = torch.where(key_mask[:, :, None, None], features_k, 0.0)
        wide_v = v.to(features_q.dtype)
        # Weighted sums of the values and, in a last column of ones, of the weights.
        augmented = torch.cat([wide_v, torch.ones_like(wide_v[..., :1])], dim=-1)
        parts = (t.transpose(1, 2) for t in (features_q, features_k, augmented))
        with no_autocast(x):
            sums = (_causal if self.causal else _full)(*parts).transpose(1, 2)
        total = sums[..., -1:]
        seen = total > 0
        mean = torch.where(seen, sums[..., :-1] / torch.where(seen, total, 1.0), 0.0)
        out: Tensor = self.out((mean.to(extra.dtype) + extra).flatten(-2))
        return out

    def _check_mask(self, key_mask: Tensor, x: Tensor) -> None:
        if key_mask.dtype != torch.bool:
            raise TypeError(
                f"LinearAttention: key_mask must be a bool tensor, True where a key may be looked "
                f"at, got {key_mask.dtype}: use key_mask.bool()"
            )
        if key_mask.shape != x.shape[:2]:
            raise ValueError(
                f"LinearAttention: key_mask must have shape (B, T) = {tuple(x.shape[:2])}, got "
                f"{tuple(key_mask.shape)}"
            )

    def _features(self, x: Tensor) -> Tensor:
        r = F.relu(upcast(x)) + _LEAST_FEATURE
        # Relative to the largest, a factor without effect on the result: no power is lost then.
        focused: Tensor = (r / r.detach().amax(-1, keepdim=True)) ** self.power
        length, focused_length = (
            torch.linalg.vector_norm(t, dim=-1, keepdim=True) for t in (r, focused)
        )
        features: Tensor = length * (focused / focused_length)
        return features

    def extra_repr(self) -> str:
        """Sizes, switches and manifold."""
        return (
            f"{self.size}, heads={self.heads}, causal={self.causal}, power={self.power:g}, "
            f"manifold={self.manifold!r}"
        )


def _full(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return q @ (k.mT @ v)


def _causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Σ_{j ≤ i} (q_i·k_j)·v_j for (B, H, T, D) tensors, chunk by chunk."""
    length = q.shape[-2]
    padding = -length % _CHUNK
    q, k, v = (F.pad(t, (0, 0, 0, padding)).unflatten(-2, (-1, _CHUNK)) for t in (q, k, v))
    states = k.mT @ v  # what each chunk adds, (B, H, chunks, D, D + 1)
    # Of the chunks before: not cumsum − states, which would let later tokens in by rounding.
    before = F.pad(states[..., :-1, :, :].cumsum(-3), (0, 0, 0, 0, 1, 0))
    within = (q @ k.mT).tril() @ v
    return (q @ before + within).flatten(-3, -2)[..., :length, :]
