r"""Scores of pairs for `kernels.contrastive`, a block of rows at a time, and their gradients.

The score is minus a distance, summed over the factors of a product, or an inner product.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from beltrami.geometry.checks import Scalar
from beltrami.geometry.chord import root
from beltrami.geometry.lorentz.pairwise import all_distances, all_gradients
from beltrami.geometry.radial_map import sum_to
from beltrami.kernels.launch.dtypes import accumulation_dtype
from beltrami.kernels.pairs.chords import chords, left, right, rows_of

# Where the two terms of `_lag` agree in the digits that float32 has, a power takes its place.
_LAG_LIMIT = 1e-8

_Needs = tuple[bool, bool, bool]
_Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]


class Pairs(Protocol):
    """What the loss asks of a metric. `cache` is what `score` keeps for `pull` of the same rows."""

    def score(self, rows: slice) -> tuple[Tensor, Any]:
        """Scores of a block of rows with all of y, (rows, m)."""

    def pull(self, rows: slice, cache: Any, g: Tensor) -> None:
        """Add up the gradients of (g·score).sum()."""

    def gradients(self) -> _Gradients:
        """What `pull` has added up, for x, y and c."""


def pairs_of(x: Tensor, y: Tensor, c: Scalar | None, metric: str, needs: _Needs) -> Pairs:
    """The pairs of rows of x and y, (n, d) or (n, k, d), for a metric of `contrastive_loss`.

    Args:
        x, y: points of any floating dtype.
        c: a number, a tensor of one element or (k, 1) for "lorentz"; else None.
        metric: "lorentz", "euclidean" or "dot".
        needs: which of x, y and c `pull` is to find the gradients of.
    """
    dtype = accumulation_dtype(torch.promote_types(x.dtype, y.dtype))
    if metric == "dot":
        return _Dot(x.to(dtype), y.to(dtype), needs)
    if isinstance(c, Tensor):
        c = c.reshape(-1, 1, 1)
    kind = _ByPair if dtype == torch.float64 else _ByProduct
    return kind(x.to(dtype), y.to(dtype), c, needs)


def _factors_first(x: Tensor) -> Tensor:
    """(n, d) or (n, k, d) to (k, n, d)."""
    return x.unsqueeze(0) if x.ndim == 2 else x.transpose(0, 1)


def _factors_back(g: Tensor, like: Tensor) -> Tensor:
    return g.squeeze(0) if like.ndim == 2 else g.transpose(0, 1).contiguous()


class _Dot:
    def __init__(self, x: Tensor, y: Tensor, needs: _Needs) -> None:
        self.shape = x.shape[1:]
        self.x, self.y, self.needs = x.flatten(1), y.flatten(1), needs
        self.gx: list[Tensor] = []
        self.gy: Any = 0.0

    def score(self, rows: slice) -> tuple[Tensor, Any]:
        return self.x[rows] @ self.y.t(), None

    def pull(self, rows: slice, cache: Any, g: Tensor) -> None:
        if self.needs[0]:
            self.gx.append(g @ self.y)
        if self.needs[1]:
            self.gy = self.gy + g.t() @ self.x[rows]

    def gradients(self) -> _Gradients:
        gx = torch.cat(self.gx).unflatten(1, self.shape) if self.needs[0] else None
        return gx, self.gy.unflatten(1, self.shape) if self.needs[1] else None, None


class _ByPair:
    """Minus the distance, summed over factors, of float64 points. c = None is Euclidean."""

    def __init__(self, x: Tensor, y: Tensor, c: Scalar | None, needs: _Needs) -> None:
        self.like, self.needs = x, needs
        self.x, self.y = _factors_first(x), _factors_first(y)
        self.c = 0.0 if c is None else c  # the chord is |x − y| then, exactly
        self.gx: list[Tensor] = []
        self.gy: Any = 0.0
        self.gc: Any = 0.0

    def score(self, rows: slice) -> tuple[Tensor, Any]:
        return -all_distances(self.x[:, rows], self.y, self.c).sum(0), None

    def pull(self, rows: slice, cache: Any, g: Tensor) -> None:
        g = (-g).expand(self.x.shape[0], -1, -1)
        gx, gy, gc = all_gradients(self.x[:, rows], self.y, self.c, g, self.needs)
        if gx is not None:
            self.gx.append(gx)
        if gy is not None:
            self.gy = self.gy + gy
        if gc is not None:
            self.gc = self.gc + gc

    def gradients(self) -> _Gradients:
        return (
            _factors_back(torch.cat(self.gx, 1), self.like) if self.needs[0] else None,
            _factors_back(self.gy, self.like) if self.needs[1] else None,
            self.gc if self.needs[2] else None,
        )


class _ByProduct:
    r"""Minus the distance, summed over factors, of float32 points. c = None is Euclidean.

    With q = c·Q/4 = sinh²(√c·D/2) from the product, or q = Q for c = None,

        D = (2/√c)·asinh √q            ∂D/∂Q = √c/(4√q√(1 + q))       or √q and 1/(2√q)
        ∂Q/∂x = 2(T_y/T_x·x − y)       ∂Q/∂c = 2·e_x·e_y − T_y·e_x²/T_x − T_x·e_y²/T_y.

    The sums over pairs of ∂Q/∂x, ∂Q/∂y and ∂Q/∂c are float64 products with the matrix of weights
    h = g·∂D/∂Q, so that rounding h to float32 costs each pair an eps and cannot cancel between
    terms.
    """

    def __init__(self, x: Tensor, y: Tensor, c: Scalar | None, needs: _Needs) -> None:
        self.like, self.needs = x, needs
        self.c: Any = c.double() if isinstance(c, Tensor) else c
        curvature: Any = 0.0 if c is None else self.c
        self.a = a = rows_of(_factors_first(x), curvature)
        self.b = b = rows_of(_factors_first(y), curvature)
        self.left, self.right = left(a), right(b)
        self.unit: Any = 1.0
        if self.c is not None:
            self.left = self.left * (self.c / 4)
            self.unit = 2 * self.c**-0.5
        if needs[0] or needs[2]:
            sides = [b.x, b.time]
            if needs[2]:
                sides += [b.excess, b.excess * b.excess / b.time]
            self.of_y = torch.cat(sides, -1)
        self.of_x = torch.cat([a.x, a.time], -1)
        self.gx: list[Tensor] = []
        self.sums: Any = 0.0  # over rows of h·[x, T_x], (k, m, d + 1)
        self.gc: Any = 0.0

    def score(self, rows: slice) -> tuple[Tensor, Any]:
        q = chords(self.left[:, rows], self.right)  # (k, rows, m), float64
        narrow = q.float()
        length = root(narrow) if self.c is None else _asinh_root(narrow)
        unit = self.unit.float() if isinstance(self.unit, Tensor) else self.unit
        return -(unit * length).sum(0), q

    def pull(self, rows: slice, cache: Any, g: Tensor) -> None:
        a, d = self.a, self.b.x.shape[-1]
        h = (self._slope(rows, cache) * -g).double()
        time, excess = a.time[:, rows], a.excess[:, rows]
        if self.needs[0] or self.needs[2]:
            sums = h @ self.of_y
            if self.needs[0]:
                self.gx.append(2 * (sums[..., d : d + 1] / time * a.x[:, rows] - sums[..., :d]))
            if self.needs[2]:
                by_time, by_excess, by_square = sums[..., d:].split(1, -1)
                by_chord = 2 * excess * by_excess - excess * excess / time * by_time
                by_chord = (by_chord - time * by_square).sum((-1, -2), keepdim=True)
                # ∂D/∂c at fixed Q is −lag(q)/(c√c)
                by_unit = _lag(cache).flatten(1) @ g.double().flatten()
                by_unit = by_unit[:, None, None] * self.c**-1.5
                self.gc = self.gc + sum_to(by_chord + by_unit, self.c)
        if self.needs[1]:
            self.sums = self.sums + h.transpose(-1, -2) @ self.of_x[:, rows]

    def _slope(self, rows: slice, q: Tensor) -> Tensor:
        """∂D/∂Q in float32, with the rounding of the product as a floor under √q.

        Without it the gradient of coincident points is 0/0 and that of unresolved ones grows at
        will.
        """
        eps = torch.finfo(torch.float64).eps
        factor = 2.0 if self.c is None else self.c / 2
        floor = (eps * factor) * self.a.norm[:, rows]
        raised = torch.addcmul(q, floor, self.b.norm.transpose(-1, -2)).float()
        apart = raised > 0
        slope = torch.where(apart, torch.rsqrt(torch.where(apart, raised, 1.0)), 0.0)
        if self.c is None:
            return slope / 2
        gain = self.c**0.5 / 4
        gain = gain.float() if isinstance(gain, Tensor) else gain
        return gain * slope * torch.rsqrt(1 + q.float())

    def gradients(self) -> _Gradients:
        gy = None
        if self.needs[1]:
            d = self.b.x.shape[-1]
            gy = 2 * (self.sums[..., d:] / self.b.time * self.b.x - self.sums[..., :d])
            gy = _factors_back(gy, self.like)
        gx = _factors_back(torch.cat(self.gx, 1), self.like) if self.needs[0] else None
        return gx, gy, self.gc if self.needs[2] else None


def _asinh_root(q: Tensor) -> Tensor:
    """asinh √q. Through log1p, which CPUs vectorise and asinh they do not: ten times as fast."""
    return torch.log1p(root(q) + q / (1 + torch.sqrt(1 + q)))


def _lag(q: Tensor) -> Tensor:
    """asinh √q − √q/√(1 + q), which is q√q/3 near 0; float64 good to float32's eps."""
    z, t = root(q), torch.sqrt(1 + q)
    return torch.where(q < _LAG_LIMIT, q * z / 3, torch.log1p(z + q / (1 + t)) - z / t)
