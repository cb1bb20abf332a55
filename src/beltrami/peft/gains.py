r"""What an adapter does to a token: LoRA's update times a gain.

With u = A·x, n = |x|, m = |B·u| and the curvature −c, p = c·n² and q = c·m²:

| variant    | Δ                                                                              | c → 0 |
|------------|--------------------------------------------------------------------------------|-------|
| rotation   | `log0(BA·exp0(x))` on space parts: `asinh(sinhc(√p)·√q)/√q · B·u`              | B·u   |
| boost      | the same with time columns a, b: `asinhc(√c|w|)·w`, `w = B·z + b·√(|z|² + 1/c)`, `z = sinhc(√p)·u + a·cosh(√p)/√c` | diverges like 1/√c unless a = b = 0 |
| simplified | stereographic projections for exp and log: `e·2/(1 + √(1 + e²q)) · B·u`, `e = 1/(1 − p/4)` | B·u |
| tangent    | `B·u`: LoRA                                                                    | B·u   |

`reference="repo"` gives the maps of the code published with the paper instead, which differ: see
`docs/peft.md`.
"""  # noqa: E501

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from beltrami.geometry import radial
from beltrami.geometry.chord import root
from beltrami.kernels.hyplora import stereographic_gain
from beltrami.kernels.hyplora.boosted_linear import boosted_linear
from beltrami.kernels.hyplora.gained_linear import gained_linear, gram_matrix, squared_norms
from beltrami.kernels.hyplora.lorentz_gain import lorentz_gain
from beltrami.kernels.hyplora.mixed_gain_linear import mixed_gain_linear
from beltrami.kernels.launch.dtypes import cast, no_autocast, upcast

IN_BALL = 1.9  # √p of "simplified" stays below 2, the border of the ball
REPO_LONGEST = 12.0  # the published code's bound on sinh's argument


class Curvatures(NamedTuple):
    """The curvatures of a layer, and what each token makes of them.

    Args:
        values: numbers or tensors of one number.
        weights: (..., k), of a mixture. None if there is one curvature.
        factor: (..., 1), by which each token moves the one curvature.
    """

    values: tuple[float | Tensor, ...]
    weights: Tensor | None = None
    factor: Tensor | None = None


@dataclass(frozen=True)
class AdapterMap:
    """From u = A·x and n² to `scaling·Δ(x)`.

    Args:
        variant, reference: as in `HypLoraConfig`.
        unit: the length that counts as 1: √d of a token of mean square 1. Curvatures are given in
            this unit.
        cap: tokens with √p above get the gain of one there.
    """

    variant: str = "rotation"
    reference: str = "paper"
    unit: float = 1.0
    cap: float | None = None

    def __call__(
        self,
        u: Tensor,
        n2: Tensor,
        curvatures: Curvatures,
        weight: Tensor,
        *,
        time_in: Tensor | None = None,
        time_out: Tensor | None = None,
        scaling: float = 1.0,
        add_to: Tensor | None = None,
    ) -> Tensor:
        """`add_to + scaling·Δ`, (..., out)."""
        routed = curvatures.weights is not None or curvatures.factor is not None
        if self.reference == "paper" and (
            self.variant == "rotation" or (self.variant == "simplified" and not routed)
        ):
            return self._gained(u, n2, curvatures, weight, scaling, add_to)
        if self.variant == "boost":
            assert time_in is not None
            assert time_out is not None
            return boosted_linear(
                u,
                weight,
                n2,
                curvatures.values[0] / self.unit**2,
                time_in,
                time_out,
                scaling=scaling,
                cap=self.cap,
                add_to=add_to,
            )
        with no_autocast(u):  # norms are not for bfloat16
            z, wide_weight = self.coefficients(
                u, n2, curvatures, weight, time_in=time_in, time_out=time_out
            )
        delta = F.linear(cast(scaling * z, u.dtype), cast(wide_weight, u.dtype))
        return delta if add_to is None else (add_to + delta).to(add_to.dtype)

    @property
    def variant_cap(self) -> float | None:
        """`cap`, and what the variant itself needs."""
        if self.variant != "simplified":
            return self.cap
        return IN_BALL if self.cap is None else min(self.cap, IN_BALL)

    def _gained(
        self,
        u: Tensor,
        n2: Tensor,
        curvatures: Curvatures,
        weight: Tensor,
        scaling: float,
        add_to: Tensor | None,
    ) -> Tensor:
        """In one operation."""
        values, weights, factor = curvatures
        if weights is None:
            c = values[0] / self.unit**2
            if factor is None:
                return gained_linear(
                    u,
                    weight,
                    n2,
                    c,
                    scaling=scaling,
                    cap=self.variant_cap,
                    stereographic=self.variant == "simplified",
                    add_to=add_to,
                )
            several: Tensor | list[float] = c * factor
        elif isinstance(values[0], Tensor):
            several = torch.cat([torch.as_tensor(v).reshape(1) for v in values]) / self.unit**2
        else:
            several = [float(v) / self.unit**2 for v in values]
        return mixed_gain_linear(
            u, weight, n2, several, weights, scaling=scaling, cap=self.cap, add_to=add_to
        )

    def coefficients(
        self,
        u: Tensor,
        n2: Tensor,
        curvatures: Curvatures,
        weight: Tensor,
        *,
        time_in: Tensor | None = None,
        time_out: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """z and W with Δ = W·z, in float32 at least; boost's have a column more than B."""
        if self.variant == "tangent":
            return upcast(u), weight
        if self.variant == "boost":
            assert time_in is not None
            assert time_out is not None
            (c,) = curvatures.values
            return self._boost(upcast(u), n2, c / self.unit**2, weight, time_in, time_out)
        return self.gain(u, n2, curvatures, weight) * upcast(u), weight

    def gain(self, u: Tensor, n2: Tensor, curvatures: Curvatures, weight: Tensor) -> Tensor:
        """The gain of each token, (..., 1), of all variants but boost."""
        if self.variant == "boost":
            raise ValueError("boost is no gain: its update has another direction than B·A·x")
        if self.variant == "tangent":
            return torch.ones_like(n2)
        m2 = squared_norms(upcast(u), gram_matrix(weight))
        gains = [self._of_one(n2, m2, c, curvatures.factor) for c in curvatures.values]
        if curvatures.weights is None:
            return gains[0]
        return (torch.cat(gains, -1) * curvatures.weights).sum(-1, keepdim=True)

    def _of_one(self, n2: Tensor, m2: Tensor, c: float | Tensor, factor: Tensor | None) -> Tensor:
        if self.reference == "repo":
            return self._repo(n2, m2, c)
        c = c / self.unit**2
        if factor is not None:
            c = c * factor
        p = _bounded(c * n2, self.variant_cap)
        if self.variant == "rotation":
            return lorentz_gain(p, c * m2)
        return stereographic_gain.gain(p, c * m2)

    def _boost(
        self,
        u: Tensor,
        n2: Tensor,
        c: float | Tensor,
        weight: Tensor,
        time_in: Tensor,
        time_out: Tensor,
    ) -> tuple[Tensor, Tensor]:
        p = _bounded(c * n2, self.cap)
        z = radial.sinhc_sq(p) * u + radial.cosh_sq(p) / c**0.5 * upcast(time_in)
        time = torch.sqrt((z * z).sum(-1, keepdim=True) + 1 / c)
        z = torch.cat([z, time], -1)
        both = torch.cat([weight, time_out.unsqueeze(-1)], -1)
        return radial.asinhc_sq(c * squared_norms(z, gram_matrix(both))) * z, both

    def _repo(self, n2: Tensor, m2: Tensor, c: float | Tensor) -> Tensor:
        """The published code, number by number; its `k` is 1/c (rotation) or c (simplified)."""
        n, m = root(n2), root(m2)
        if self.variant == "simplified":
            lift = 2 / (1 + c * n2)
            size = lift * m
            return lift / (1 + c**0.5 * torch.sqrt(size * size + c))
        k = 1 / torch.as_tensor(c, dtype=n.dtype, device=n.device)
        radius2 = F.softplus(k) + 1e-6
        radius = torch.sqrt(radius2)
        n = _at_least(n, 1e-7)
        lift = radius * torch.sinh(_at_most(n / self.unit / radius, REPO_LONGEST)) / n
        size = lift * m
        time = torch.sqrt(size * size + 1 / radius2) / radius
        near = torch.sqrt(2 * _at_least(time - 1, 1e-6))
        far = torch.acosh(_at_least(time, 1 + 1e-7))
        distance = radius * torch.where(time < 1.01, near, far)
        return distance * lift / _at_least(size, 1e-7)


def _bounded(p: Tensor, cap: float | None) -> Tensor:
    return p if cap is None else _at_most(p, cap**2)


def _at_most(x: Tensor, bound: float) -> Tensor:
    return torch.where(x > bound, bound, x)


def _at_least(x: Tensor, bound: float) -> Tensor:
    return torch.where(x < bound, bound, x)
