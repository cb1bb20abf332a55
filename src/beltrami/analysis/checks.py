"""Input checks that the measures share. They look at values, so they wait for the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from beltrami.geometry.checks import check_finite

_KINDS: dict[str, Callable[[Tensor], bool]] = {
    "numbers": lambda x: True,
    "floating point": Tensor.is_floating_point,
    "booleans": lambda x: x.dtype == torch.bool,
    "integers": lambda x: not (x.is_floating_point() or x.is_complex()),
}


def check_tensor(name: str, value: Any, shape: str = "", kind: str = "numbers") -> None:
    """Raise unless an argument is a tensor of that kind and shape.

    Args:
        shape: names of its dimensions, such as "n d"; those of the same name have the same size.
            Any shape will do if it is empty.
        kind: "floating point", "booleans", "integers", or "numbers" of any dtype.
    """
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(value).__name__}")
    if not shape:
        return
    names = shape.split()
    size_of = dict(zip(names, value.shape, strict=False))
    fits = tuple(value.shape) == tuple(size_of.get(name) for name in names)
    if not fits or not _KINDS[kind](value):
        raise ValueError(
            f"{name} must be {kind} of shape ({', '.join(names)}), got {value.dtype} of shape "
            f"{tuple(value.shape)}"
        )


def integers(name: str, value: Tensor, dims: int) -> Tensor:
    """The tensor as int64, if it holds integers and has `dims` dimensions."""
    check_tensor(name, value)
    if value.is_floating_point() or value.is_complex() or value.dtype == torch.bool:
        raise TypeError(f"{name} must be integers, got {value.dtype}")
    if value.ndim != dims:
        raise ValueError(f"{name} must have {dims} dimension(s), got shape {tuple(value.shape)}")
    return value.detach().to(torch.int64)


def check_points(points: Tensor, name: str = "points", *, least: int = 0) -> None:
    """Raise unless points are finite floating point rows (n, d), and as many as needed."""
    check_tensor(name, points, "n d", "floating point")
    if len(points) < least:
        raise ValueError(f"{name} must be {least} rows at least, got {len(points)}")
    check_finite(**{name: points})


def check_range(name: str, value: Tensor, count: int, what: str) -> None:
    """Raise unless all integers lie in 0..count − 1."""
    if value.numel() == 0:
        return
    low, high = torch.stack(torch.aminmax(value)).tolist()
    if low < 0 or high >= count:
        raise ValueError(
            f"{name} must number {what} from 0 to {count - 1}, got {low if low < 0 else high}"
        )


def numbers(name: str, value: Tensor) -> Tensor:
    """A vector of finite numbers as float64."""
    check_tensor(name, value)
    if value.is_complex() or value.dtype == torch.bool:
        raise TypeError(f"{name} must be real numbers, got {value.dtype}")
    if value.ndim != 1:
        raise ValueError(f"{name} must be a vector, got shape {tuple(value.shape)}")
    check_finite(**{name: value})
    return value.detach().to(torch.float64)


def check_same_length(first: str, a: Tensor, second: str, b: Tensor) -> None:
    """Raise unless two arguments have the same shape and device, and at least one entry."""
    if a.shape != b.shape:
        raise ValueError(
            f"{first} and {second} must have the same shape, got {tuple(a.shape)} and "
            f"{tuple(b.shape)}"
        )
    if a.device != b.device:
        raise ValueError(f"{first} is on {a.device} but {second} is on {b.device}: move one")
    if a.numel() == 0:
        raise ValueError(f"{first} and {second} are empty: there is nothing to measure")
