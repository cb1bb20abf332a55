r"""The one learnable-curvature module.

A curvature is learned through the *deviation* of its logarithm from the initial value,

    c = init·exp(f(raw)),    f(r) = r/(1 + (r/b)⁴)^{1/4},    b = log(hi/init) for r > 0,
                                                             b = log(init/lo) for r < 0,

with `raw = 0` at the start. So c is `init` to the last digit in every dtype (a stored logarithm
would come back as 0.99999996 in float32), near the start one unit of `raw` is one unit of log c,
and c approaches its bounds without reaching them. The slope `f' = (1 + (r/b)⁴)^{-5/4}` falls like
a power, not like an exponential, so a curvature that was driven to a bound can come back.

The law takes some fifteen operations on one number, as long as a layer. `shared_curvatures` is the
context in which each curvature is evaluated once, however many layers read it; blocks and
`beltrami.nn.Sequential` open it around their forward pass, models with `shares_curvatures`.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

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
        self._spelled = tuple(map(repr, (self.init, *self.reach)))
        raw = torch.zeros(size)
        if learnable:
            self.raw = nn.Parameter(raw)
        else:
            self.register_buffer("raw", raw)

    @classmethod
    def natural(
        cls,
        width: int,
        kappa: float = 1.0,
        *,
        size: int = 1,
        bounds: tuple[float, float] = (0.01, 100.0),
        learnable: bool = True,
    ) -> Curvature:
        """The curvature c = κ/width, at which coordinates of variance 1 are neither flat nor far.

        A point whose `width` coordinates have variance 1 has c·|x|² ≈ κ. At c = 1 that is the width
        itself, and every function of the geometry is a logarithm there; at κ of order 1 it bends.

        Args:
            width: coordinates of the points: of a stream, of a head, of class scores.
            kappa: κ at the start.
            size: how many curvatures.
            bounds: the open interval of κ; that of c is the same over width.
            learnable: whether κ is learned.

        >>> H = Lorentz(Curvature.natural(512))    # a learnable c, 1/512 at the start
        """
        if not isinstance(bounds, tuple) or len(bounds) != 2:
            raise ValueError(f"bounds must be a pair (lo, hi) of κ, got {bounds!r}")
        c = natural_curvature(width, kappa)
        lo, hi = (_number(b, "bounds") for b in bounds)
        if not lo <= kappa <= hi:
            raise ValueError(
                f"kappa must lie strictly between the bounds ({lo}, {hi}), got {kappa}"
            )
        lo, hi = lo / width, hi / width
        return cls(c, size=size, bounds=(lo, hi), learnable=learnable)

    def reset_parameters(self) -> None:
        """Back to `init`; what `to_empty` leaves undefined is defined again."""
        nn.init.zeros_(self.raw)

    @property
    def value(self) -> Tensor:
        """The curvature now: shape (1,), or (size, 1) for several.

        Either broadcasts against `x[..., :1]`: several curvatures belong to the second to last
        dimension of x, (..., size, d). The dtype is that of `raw`, but at least float32.
        """
        return self.evaluate()[0]

    @property
    def radius(self) -> Tensor:
        """The radius of curvature `1/√c` now, in the shape of `value`."""
        return self.radius_on()

    def radius_on(self, device: torch.device | None = None) -> Tensor:
        """`radius` on a device, that of `raw` unless given; see `shared_curvatures`."""
        entry = self._shared(device)
        place = self.raw.device if device is None else device
        return _on(self._law(), device)[1] if entry is None else entry.radius(place)

    def evaluate(self, device: torch.device | None = None) -> tuple[Tensor, Tensor]:
        """(c, 1/√c) on a device, that of `raw` unless given; see `shared_curvatures`."""
        entry = self._shared(device)
        place = self.raw.device if device is None else device
        return _on(self._law(), device) if entry is None else entry.by_device[place]

    def _shared(self, device: torch.device | None) -> _Evaluated | None:
        shared = None if torch.compiler.is_compiling() else getattr(_local, "shared", None)
        if shared is None:
            return None
        raw = self.raw
        # A result without gradient must not serve a reader that needs one, nor the other way round.
        modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        key = id(self), *modes
        version = -1 if raw.is_inference() else raw._version
        entry: _Evaluated | None = shared.get(key)
        if entry is None or entry.raw is not raw or entry.version != version:
            entry = shared[key] = _Evaluated(raw, version, {raw.device: self._law()}, {})
        place = raw.device if device is None else device
        if place not in entry.by_device:
            entry.by_device[place] = _on(entry.by_device[raw.device], place)
        return entry

    def _law(self) -> tuple[Tensor, Tensor]:
        c, radius = curvature_law(self.raw, *self._constants())
        return (c, radius) if self.size == 1 else (c.unsqueeze(-1), radius.unsqueeze(-1))

    def _constants(self) -> tuple[float, float, float]:
        """`init` and `reach`.

        `torch.compile(dynamic=True)` takes attributes and globals that are floats for unknown
        numbers, which it cannot give to an autograd.Function; it gets texts.
        """
        if not torch.compiler.is_compiling():
            return self.init, *self.reach
        init, up, down = self._spelled
        return float(init), float(up), float(down)

    def value_at(self, raw: Tensor) -> Tensor:
        """The curvature that another `raw` stands for."""
        c = curvature_law(raw, self.init, *self.reach)[0]
        return c if self.size == 1 else c.unsqueeze(-1)

    def forward(self) -> Tensor:
        """The curvature, as `value` has it."""
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


def natural_curvature(width: int, kappa: float = 1.0) -> float:
    """c = κ/width, with both checked; see `Curvature.natural`."""
    if isinstance(width, bool) or not isinstance(width, int):
        raise TypeError(f"width must be an integer, got {type(width).__name__}")
    if width < 1:
        raise ValueError(f"width must be at least 1, got {width}")
    return _number(kappa, "kappa") / width


# --- the law --------------------------------------------------------------------------------------


def curvature_law(raw: Tensor, init: float, up: float, down: float) -> tuple[Tensor, Tensor]:
    """`c = init·exp(f(raw))` and `1/√c`, in float32 at least, in the shape of raw.

    Args:
        raw: 0 at the start.
        init: the curvature there.
        up, down: how far log c can go, both ways.
    """
    out: tuple[Tensor, Tensor] = _Law.apply(raw, init, up, down)
    return out


def law_and_slope(raw: Tensor, init: float, up: float, down: float) -> tuple[Tensor, Tensor]:
    """c and dc/draw = c·(1 + t⁴)^{-5/4}, where t = |raw/b|."""
    r, p = _law_parts(raw, up, down)
    c = init * torch.exp(r * p**-0.25)
    return c, c * p**-1.25


def _law_parts(raw: Tensor, up: float, down: float) -> tuple[Tensor, Tensor]:
    """r, short of where its fourth power overflows, and 1 + (r/b)⁴."""
    r = raw if raw.dtype == torch.float64 else raw.float()
    # Beyond 1e9 bounds f is the bound itself in every dtype; the fourth power is still finite.
    r = F.hardtanh(r, -1e9 * down, 1e9 * up)
    return r, 1 + torch.maximum(r / up, r / -down) ** 4


class _Law(torch.autograd.Function):
    """(c, 1/√c).

    In eager mode raw is kept outside of autograd's saved tensors, which activation checkpointing
    counts: it may recompute a layer with an evaluation that the layer's forward pass did not need.
    No `jvp`: torch.compile refuses functions that have one.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(raw: Tensor, init: float, up: float, down: float) -> tuple[Tensor, Tensor]:
        r, p = _law_parts(raw, up, down)
        c = init * torch.exp(r * p**-0.25)
        return c, torch.rsqrt(c)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        raw, *ctx.constants = inputs
        # What a compiler traces and what torch.func transforms has to be saved as usual.
        usual = torch.compiler.is_compiling() or torch._C._functorch.peek_interpreter_stack()
        ctx.eager = None if usual else (raw, *(t.detach() for t in output))
        ctx.version = -1 if usual or raw.is_inference() else raw._version
        if usual:
            ctx.save_for_backward(raw)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(
        ctx: Any, by_c: Tensor | None, by_radius: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        init, up, down = ctx.constants
        raw = ctx.saved_tensors[0] if ctx.eager is None else ctx.eager[0]
        if ctx.eager is not None and ctx.version not in (-1, raw._version):
            raise RuntimeError(
                "a curvature that the gradient needs was changed in place after the forward pass"
            )
        r, p = _law_parts(raw, up, down)
        if ctx.eager is None or torch.is_grad_enabled():  # compiled, or a second derivative
            c = init * torch.exp(r * p**-0.25)
            radius = torch.rsqrt(c)
        else:
            _, c, radius = ctx.eager
        by_log = None if by_c is None else by_c * c
        if by_radius is not None:
            half = by_radius * radius * -0.5
            by_log = half if by_log is None else by_log + half
        return None if by_log is None else (by_log * p**-1.25).to(raw.dtype), None, None, None


class _Fork(torch.autograd.Function):
    """The same number several times, for as many readers, whose gradients are added up at once."""

    generate_vmap_rule = True

    @staticmethod
    def forward(number: Tensor, readers: int) -> tuple[Tensor, ...]:
        return tuple(number.view_as(number) for _ in range(readers))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, None]:
        given = [g for g in grads if g is not None]
        if len(given) < 2:
            return (given[0] if given else None), None
        return torch.stack(given).sum(0), None


# --- one evaluation a forward pass ----------------------------------------------------------------


# Readers of a curvature that are served by one fork, the first; each further one has twice as many.
_READERS = 8


class _Evaluated(NamedTuple):
    raw: Tensor
    version: int
    by_device: dict[torch.device, tuple[Tensor, Tensor]]
    forks: dict[torch.device, tuple[int, Iterator[Tensor]]]

    def radius(self, place: torch.device) -> Tensor:
        """1/√c for one more reader."""
        radius = self.by_device[place][1]
        if not radius.requires_grad or torch._C._functorch.peek_interpreter_stack():
            return radius
        readers, left = self.forks.get(place, (_READERS // 2, iter(())))
        served = next(left, None)
        if served is None:
            left = iter(_Fork.apply(radius, 2 * readers))
            self.forks[place] = 2 * readers, left
            served = next(left)
        return served


_local = threading.local()  # .shared: curvatures evaluated inside `shared_curvatures`
_Forward = TypeVar("_Forward", bound=Callable[..., Any])


@contextmanager
def shared_curvatures() -> Iterator[None]:
    """Evaluate each learnable curvature once inside the context, however often it is read.

    For the forward pass of a model; the outermost context counts. A parameter that changes inside
    is evaluated again, but for changes of its `.data`, which torch does not count. What
    `torch.compile` traces evaluates the law where it stands, since a compiler merges equal
    operations itself.

    >>> with shared_curvatures():
    ...     y = model(x)
    """
    if getattr(_local, "shared", None) is not None:
        yield
        return
    _local.shared = {}
    try:
        yield
    finally:
        _local.shared = None


def shares_curvatures(forward: _Forward) -> _Forward:
    """Decorator of a module's `forward`: it runs inside `shared_curvatures`."""

    @functools.wraps(forward)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return forward(*args, **kwargs)
        with shared_curvatures():
            return forward(*args, **kwargs)

    return wrapper  # type: ignore[return-value]


def _on(pair: tuple[Tensor, Tensor], device: torch.device | None) -> tuple[Tensor, Tensor]:
    return pair if device is None else (pair[0].to(device), pair[1].to(device))


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
