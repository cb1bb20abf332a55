"""Input checks, the compute dtype, and the `debug` switch.

Every public function of `beltrami.geometry` passes its tensors through `prepare`, which does the
checks that need no look at the values (types, shapes, devices) and leaves value checks, which
would stall a GPU, to the `debug` context.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor

Scalar = float | Tensor
"""A curvature or a scale: a Python number, or a tensor that broadcasts against `x[..., :1]`."""

_debug_depth = 0


@contextmanager
def debug() -> Iterator[None]:
    """Check the values of all inputs of geometry functions inside the context.

    Finds NaN and infinite entries, curvatures that are not positive and points outside the
    Poincaré ball, and raises `ValueError` where they enter instead of where they are noticed.
    Each check waits for the device, so it is off by default. Has no effect inside a graph that
    was compiled outside the context.

    >>> with beltrami.debug():
    ...     loss = model(batch)
    """
    global _debug_depth
    _debug_depth += 1
    try:
        yield
    finally:
        _debug_depth -= 1


def debugging() -> bool:
    """Whether value checks are on."""
    return _debug_depth > 0


def prepare(c: Scalar, **tensors: Tensor) -> tuple[list[Tensor], Scalar, torch.dtype]:
    """Check the inputs of a geometry function and bring them to the dtype it computes in.

    Returns the tensors, the curvature, and the dtype in which rows (points, tangent vectors) are
    to be returned. Half-precision inputs are computed in float32: rows return in the input dtype,
    scalars a row (distances, times) in float32.
    """
    dtype, compute = _common_dtype(tensors)
    _check_last_dims(tensors)
    device = next(iter(tensors.values())).device
    c = check_curvature(c, compute, device)
    if _debug_depth:
        check_finite(**tensors)
    return distinct(*(t.to(compute) for t in tensors.values())), c, dtype


def distinct(*tensors: Tensor) -> list[Tensor]:
    """The tensors; under torch.compile an alias for each that occurs a second time.

    torch's compiler refuses an autograd Function that is given the same tensor twice.
    """
    if not torch.compiler.is_compiling():
        return list(tensors)
    return [t.view_as(t) if any(t is s for s in tensors[:i]) else t for i, t in enumerate(tensors)]


def no_autocast(x: Tensor) -> AbstractContextManager[object]:
    """Autocast off where x is; nothing on the meta device, for which torch has no autocast."""
    kind = x.device.type
    return nullcontext() if kind == "meta" else torch.autocast(kind, enabled=False)


def check_integer(name: str, value: int, least: int = 1) -> None:
    """Raise unless an argument is an integer of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an integer, got {type(value).__name__}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")


def as_scalar(value: Tensor, keepdim: bool) -> Tensor:
    """The scalar a row of shape (..., 1), without its last dimension unless `keepdim`."""
    return value if keepdim else value.squeeze(-1)


def as_fraction(t: Scalar, x: Tensor, name: str = "t") -> Scalar:
    """A number along a geodesic in the dtype of x; a Python number stays one."""
    if not isinstance(t, Tensor):
        return t
    if not t.is_floating_point():
        raise TypeError(f"{name} must be a float or a floating point tensor, got {t.dtype}")
    return t.to(x.dtype)


def check_curvature(
    c: Scalar, dtype: torch.dtype, device: torch.device, *, name: str = "c", signed: bool = False
) -> Scalar:
    """Check a curvature and return it in `dtype`; a Python number stays one."""
    if isinstance(c, Tensor):
        if not c.is_floating_point():
            raise TypeError(f"{name} must be a floating point tensor, got {c.dtype}")
        if c.ndim and c.shape[-1] != 1:
            raise ValueError(
                f"{name} must broadcast against x[..., :1], so its last dimension must be 1; "
                f"got shape {tuple(c.shape)}: use {name}.unsqueeze(-1)"
            )
        if c.device != device and c.ndim:
            raise ValueError(
                f"{name} is on {c.device} but the points are on {device}: move one of them"
            )
        if _debug_depth:
            check_finite(**{name: c})
            if not signed and not bool((c > 0).all()):
                raise ValueError(f"{name} must be positive, got {c.detach().min().item()}")
        return c.to(dtype)
    if isinstance(c, bool) or not isinstance(c, (int, float)):  # torch 2.9 traces no int | float
        hint = "; pass curvature.value" if callable(getattr(c, "forward", None)) else ""
        raise TypeError(f"{name} must be a float or a tensor, got {type(c).__name__}{hint}")
    # Comparisons, not math.isfinite: a compiler may hold c as a symbol.
    if not -math.inf < c < math.inf or (not signed and c <= 0):
        raise ValueError(
            f"{name} must be a {'' if signed else 'positive '}finite number, got {c}"
            + ("" if signed else f" ({name} > 0 means sectional curvature -{name})")
        )
    return float(c)


def _common_dtype(tensors: dict[str, Tensor]) -> tuple[torch.dtype, torch.dtype]:
    """The promoted dtype of the tensors, and the one to compute in (float32 or wider)."""
    dtype: torch.dtype | None = None
    for name, t in tensors.items():
        if not isinstance(t, Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, got {type(t).__name__}")
        if not t.is_floating_point():
            raise TypeError(f"{name} must be a floating point tensor, got {t.dtype}: use .float()")
        if t.dtype != dtype:  # promote_types is a dispatched operator
            dtype = t.dtype if dtype is None else torch.promote_types(dtype, t.dtype)
    assert dtype is not None
    half = dtype in (torch.bfloat16, torch.float16)
    return dtype, torch.float32 if half else dtype


def _check_last_dims(tensors: dict[str, Tensor]) -> None:
    (first, reference), *others = tensors.items()
    if reference.ndim == 0:
        raise ValueError(f"{first} must have at least one dimension, got a scalar tensor")
    for name, t in others:
        if t.ndim == 0 or t.shape[-1] != reference.shape[-1]:
            raise ValueError(
                f"{first} and {name} must have the same last dimension, got shapes "
                f"{tuple(reference.shape)} and {tuple(t.shape)}"
            )
        if t.device != reference.device:
            raise ValueError(
                f"{first} is on {reference.device} but {name} is on {t.device}: move one of them"
            )


def check_finite(**tensors: Tensor) -> None:
    """Raise `ValueError` if a tensor has NaN or infinite entries. Waits for the device."""
    for name, t in tensors.items():
        bad = ~torch.isfinite(t)
        if bool(bad.any()):
            where = tuple(int(i) for i in bad.nonzero()[0])
            raise ValueError(
                f"{name} has {int(bad.sum())} entries that are not finite; the first is "
                f"{t[where].item()} at index {where}"
            )
