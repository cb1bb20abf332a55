r"""The one learnable-curvature module.

A curvature is learned through the *deviation* of its logarithm from the initial value,

    c = init·exp(f(raw)),    f(r) = r/(1 + (r/b)⁴)^{1/4},    b = log(hi/init) for r > 0,
                                                             b = log(init/lo) for r < 0,

with `raw = 0` at the start. So c is `init` to the last digit in every dtype (a stored logarithm
would come back as 0.99999996 in float32), near the start one unit of `raw` is one unit of log c,
and c approaches its bounds without reaching them. The slope `f' = (1 + (r/b)⁴)^{-5/4}` falls like
a power, not like an exponential, so a curvature that was driven to a bound can come back.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

# f stops this far (in log c) short of the bounds, and a learnable `init` must keep ten times that
# distance: rounding in float32 then never carries c across a bound.
_MARGIN = 1e-5

# The part of the interval between the bounds, in log c, that counts as sitting at a bound.
_AT_BOUND = 0.02


class Curvature(nn.Module):
    """A positive curvature `c` (sectional curvature −c), learnable between two bounds.

    The module that owns the curvature registers it; layers hold it through a manifold,
    `Lorentz(curvature)`, which is a plain object and registers nothing. So a model's state dict
    has one key for it, however many layers share it.

    What is stored is `raw`, shape (size,): how far log c has moved from its start. A checkpoint is
    therefore read with the `init` and `bounds` it was written with, as it is with the same width.
    Casting the model to bfloat16 or float16 rounds that deviation, to 3 digits; `init` keeps all
    of its digits, and `value` is computed in float32 at least.

    Weight decay has no business here (it would pull c back to `init`): `no_weight_decay()` names
    the parameter, in timm's convention, and our optimisers read it.

    Args:
        init: the curvature at the start; strictly between the bounds if learnable.
        size: how many curvatures: one a factor, a head, an expert.
        bounds: the open interval (lo, hi) that c cannot leave.
        learnable: whether `raw` is a parameter or a buffer. The state dict has the same key.

    >>> curvature = Curvature(1.0)
    >>> H = Lorentz(curvature)
    >>> H.dist(x, y)                     # differentiable in curvature.raw
    """

    raw: Tensor

    def __init__(
        self,
        init: float = 1.0,
        *,
        size: int = 1,
        bounds: tuple[float, float] = (0.01, 100.0),
        learnable: bool = True,
    ) -> None:
        super().__init__()
        self.init, self.bounds = _check(init, size, bounds, learnable)
        self.size = size
        self.learnable = learnable
        raw = torch.zeros(size)
        if learnable:
            self.raw = nn.Parameter(raw)
        else:
            self.register_buffer("raw", raw)

    def reset_parameters(self) -> None:
        """Back to `init`; what `to_empty` leaves undefined is defined again."""
        nn.init.zeros_(self.raw)

    @property
    def value(self) -> Tensor:
        """The curvature now: shape (1,), or (size, 1) for several.

        Either broadcasts against `x[..., :1]`: several curvatures belong to the second to last
        dimension of x, (..., size, d). The dtype is that of `raw`, but at least float32.
        """
        return self.value_at(self.raw)

    def value_at(self, raw: Tensor) -> Tensor:
        """The curvature that some `raw` stands for; `value` is that of our own."""
        raw = raw.to(torch.promote_types(raw.dtype, torch.float32))
        value = self.init * torch.exp(self._deviation(raw))
        return value if self.size == 1 else value.unsqueeze(-1)

    def forward(self) -> Tensor:
        """`value`."""
        return self.value

    def at_bound(self) -> Tensor:
        """Whether each curvature sits at one of its bounds: bool, shape (size,).

        At a bound means within 2 percent of the interval in log c: the data asks for a curvature
        that the bounds forbid. Worth a line in a training log.
        """
        lo, hi = (math.log(b) for b in self.bounds)
        reach = _AT_BOUND * (hi - lo)
        log_c = self.value.detach().flatten().log()
        return (log_c < lo + reach) | (log_c > hi - reach)

    def no_weight_decay(self) -> set[str]:
        """The names of this module's parameters that must not be decayed."""
        return {"raw"}

    def extra_repr(self) -> str:
        """What `print(model)` shows: the arguments, not the value, which may be on a device."""
        lo, hi = self.bounds
        return (
            f"init={self.init}, size={self.size}, bounds=({lo}, {hi}), learnable={self.learnable}"
        )

    @property
    def reach(self) -> tuple[float, float]:
        """How far log c can go from its start, up and down: the law's two b."""
        lo, hi = self.bounds
        up, down = math.log(hi / self.init) - _MARGIN, math.log(self.init / lo) - _MARGIN
        if not self.learnable:  # init may be a bound itself; raw is 0 unless another was loaded
            up, down = max(up, _MARGIN), max(down, _MARGIN)
        return up, down

    def _deviation(self, raw: Tensor) -> Tensor:
        """f(raw), written for |raw| > b with the bound in front so that nothing overflows."""
        up, down = self.reach
        bound = torch.where(raw > 0, torch.full_like(raw, up), -down)
        inside = raw.abs() < bound.abs()
        inner, outer = torch.where(inside, raw, 0.0), torch.where(inside, bound, raw)
        near = inner / (1 + (inner / bound) ** 4) ** 0.25
        return torch.where(inside, near, bound / (1 + (bound / outer) ** 4) ** 0.25)


def _check(
    init: float, size: int, bounds: tuple[float, float], learnable: bool
) -> tuple[float, tuple[float, float]]:
    lo, hi = (_number(b, "bounds") for b in bounds)
    init = _number(init, "init")
    if not 0 < lo < hi:
        raise ValueError(f"bounds must satisfy 0 < lo < hi, got ({lo}, {hi})")
    gap = 10 * _MARGIN if learnable else 0.0
    if not lo * (1 + gap) <= init <= hi * (1 - gap):
        inside = "strictly between the bounds (at a bound its gradient would vanish)"
        raise ValueError(
            f"init must lie {inside if learnable else 'within the bounds'} ({lo}, {hi}), got {init}"
        )
    if isinstance(size, bool) or not isinstance(size, int):
        raise TypeError(f"size must be an integer, got {type(size).__name__}")
    if size < 1:
        raise ValueError(f"size must be at least 1, got {size}")
    return init, (lo, hi)


def _number(value: float, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")
    if not math.isfinite(value) or value <= 0:
        raise ValueError(f"{name} must be positive and finite, got {value}")
    return float(value)
