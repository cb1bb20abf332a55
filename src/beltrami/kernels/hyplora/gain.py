"""The settings of a token's gain, as they go from a call to the kernels."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from beltrami.kernels.hyplora import lorentz_gain, stereographic_gain

BALL = 2.0  # √p of a stereographic projection stays below


class Gain(NamedTuple):
    """The settings of `s·g` with g = lorentz_gain(c·n², c·m²).

    Args:
        c: curvature −c: a number, or a tensor.
        scaling: s.
        cap: √c·n above this counts as this, and gets no gradient.
        stereographic: takes `stereographic_gain` instead; `cap` has to be below 2 then.
    """

    c: Tensor | float
    scaling: float = 1.0
    cap: float | None = None
    stereographic: bool = False

    @property
    def c_tensor(self) -> Tensor | None:
        """c if it is a tensor, for autograd, which sees none inside another object."""
        return self.c if isinstance(self.c, Tensor) else None

    @property
    def constants(self) -> Gain:
        """The same without the tensor."""
        return Gain(0.0, *self[1:]) if isinstance(self.c, Tensor) else self

    def at(self, c: Tensor | None) -> Gain:
        """The same with the tensor that `constants` leaves out."""
        return self if c is None else Gain(c, *self[1:])

    @property
    def cap_squared(self) -> float:
        """The square of `cap`, as kernels are given it."""
        return 0.0 if self.cap is None else float(self.cap) ** 2

    def check(self) -> None:
        """Refuse several curvatures, and what leaves the ball."""
        if isinstance(self.c, Tensor) and self.c.numel() != 1:
            raise ValueError(f"c must be one number, got a tensor of shape {tuple(self.c.shape)}")
        if self.stereographic and (self.cap is None or not self.cap < BALL):
            raise ValueError(f"stereographic=True needs cap below {BALL}, got {self.cap}")

    def capped(self, n2: Tensor) -> tuple[Tensor, Tensor | None]:
        """p = c·n², not above cap², and where it was."""
        p = self.c * n2
        if self.cap is None:
            return p, None
        clipped = p > self.cap**2
        return torch.where(clipped, self.cap**2, p), clipped

    def values(self, n2: Tensor, m2: Tensor) -> Tensor:
        """g, in the dtype of m²."""
        p = self.capped(n2)[0].to(m2.dtype)
        if self.stereographic:
            return stereographic_gain.gain(p, self.c * m2)
        return lorentz_gain.gain(p, self.c * m2, far=self._may_be_far)

    def values_and_slopes(self, n2: Tensor, m2: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """g and its derivatives by c·n² and c·m²."""
        p, clipped = self.capped(n2)
        p, q = p.to(m2.dtype), self.c * m2
        if self.stereographic:
            g, by_p, by_q = stereographic_gain.gain_and_slopes(p, q)
        else:
            g, by_p, by_q = lorentz_gain.gain_and_slopes(p, q, far=self._may_be_far)
        return g, by_p if clipped is None else torch.where(clipped, 0.0, by_p), by_q

    @property
    def _may_be_far(self) -> bool:
        return self.cap is None or self.cap**2 > lorentz_gain.FAR
