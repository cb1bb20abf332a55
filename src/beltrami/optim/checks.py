"""What the optimisers are given, checked early, and gradients where that was asked for."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from beltrami.geometry import Euclidean, Manifold, Product, Sphere
from beltrami.kernels.launch.dtypes import accumulation_dtype
from beltrami.optim.groups import Group, curvature_parameters
from beltrami.optim.points import curvature_shape, factors_of
from beltrami.optim.sharded import is_sharded, local


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Raise `ValueError` unless value is one of the choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}; got {value!r}")


def check_number(
    name: str, value: Any, *, low: float = 0.0, high: float = math.inf, tensor: bool = False
) -> None:
    """Raise unless value is a number with low ≤ value < high; a tensor may be allowed."""
    if tensor and isinstance(value, Tensor):
        if value.numel() != 1:
            raise ValueError(f"{name} must be one number, got shape {tuple(value.shape)}")
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")
    if not low <= value < high:
        upper = "" if high == math.inf else f" and below {high:g}"
        raise ValueError(f"{name} must be at least {low:g}{upper}, got {value}")


def check_flag(name: str, value: Any, *, optional: bool = False) -> None:
    """Raise `TypeError` unless value is True or False, or None where that is a choice too."""
    if not isinstance(value, bool) and not (optional and value is None):
        raise TypeError(f"{name} must be {'None, ' * optional}True or False, got {value!r}")


def check_rate(options: Group) -> None:
    """Raise unless `lr` is a number that `foreach` can work with."""
    lr = options["lr"]
    check_flag("foreach", options["foreach"], optional=True)
    check_number("lr", lr, tensor=True)
    if isinstance(lr, Tensor):
        if lr.is_cpu:  # elsewhere it would have to be waited for
            check_number("lr", lr.item())
        if options["foreach"] and not options.get("capturable"):
            raise ValueError("foreach=True does not go with lr given as a tensor: leave it at None")


def check_group(group: Group) -> None:
    """Raise unless a group's manifold is known and its parameters can be points of it."""
    check_choice("nonfinite", group["nonfinite"], ("skip", "raise"))
    manifold = group["manifold"]
    if manifold is None:
        raise ValueError(
            "these parameters do not say on which manifold they lie, and are not taken for flat "
            "without a word: give the model itself, Optimizer(model), or its "
            "beltrami.optim.param_groups(model), or say manifold=Lorentz(1.0), or "
            "manifold=Euclidean() for plain parameters"
        )
    if not isinstance(manifold, Manifold):
        hint = ""
        if isinstance(manifold, type) and issubclass(manifold, Manifold):
            hint = f": use an object, {manifold.__name__}()"
        raise TypeError(f"manifold must be a Manifold such as Lorentz(1.0), got {manifold!r}{hint}")
    if group.get("capturable") and any(p.is_cpu for p in group["params"]):
        raise ValueError("capturable=True is for parameters on a GPU, and one is on the CPU")
    if isinstance(manifold, Euclidean):
        return
    for i, parameter in enumerate(group["params"]):
        name = _name(group, i)
        if not parameter.is_floating_point() or parameter.ndim == 0:
            raise ValueError(
                f"{name} cannot hold points of {manifold!r}: points are real and have at least one "
                f"dimension, got {parameter.dtype} of shape {tuple(parameter.shape)}"
            )
        if isinstance(manifold, Product) and parameter.shape[-1] != manifold.size:
            raise ValueError(
                f"{name} has {parameter.shape[-1]} columns, but points of {manifold!r} have "
                f"{manifold.size} coordinates"
            )
        c, rows = curvature_shape(manifold), torch.Size((*parameter.shape[:-1], 1))
        if c.numel() != 1 and not _spreads(c, rows):
            raise ValueError(
                f"{name} has shape {tuple(parameter.shape)}, but {manifold!r} has {c.numel()} "
                f"curvatures of shape {tuple(c)}, one for each part of (..., {c[0]}, size)"
            )
        _check_points(name, parameter, manifold)


def _check_points(name: str, parameter: Tensor, manifold: Manifold) -> None:
    """Raise `ValueError` if a parameter, all here, is not finite or lies outside the ball.

    In half precision rounding alone may carry points there, and the first step puts it right; so it
    does with points that are off a sphere.
    """
    apart = [parameter, *curvature_parameters(manifold)]
    rounded = parameter.dtype != accumulation_dtype(parameter.dtype)
    if rounded or not parameter.numel() or any(t.is_meta or is_sharded(t) for t in apart):
        return
    try:
        with torch.no_grad():
            for factor in factors_of(manifold, parameter.shape[-1]):
                if not isinstance(factor.manifold, Sphere):
                    factor.manifold.check_point(factor.rows(parameter.detach()))
    except ValueError as error:
        raise ValueError(
            f"{name} does not hold points of {manifold!r}: {error}. Start from "
            "manifold.random(...), or put them there with manifold.project(x)"
        ) from None


def _spreads(shape: torch.Size, over: torch.Size) -> bool:
    """Whether a tensor of one shape can be expanded to another."""
    ending = over[len(over) - len(shape) :]
    return len(shape) <= len(over) and all(n in (1, m) for n, m in zip(shape, ending, strict=True))


def check_curvatures(groups: list[Group]) -> None:
    """Raise `ValueError` if a curvature of some group's manifold is decayed, or is a point."""
    curvatures = {id(raw) for g in groups for raw in curvature_parameters(g["manifold"])}
    for group in groups:
        flat = isinstance(group["manifold"], Euclidean)
        if not flat and any(id(p) in curvatures for p in group["params"]):
            raise ValueError(
                f"a curvature is among the points of {group['manifold']!r}: give it a group of its "
                "own with manifold=Euclidean(), as beltrami.optim.param_groups(model) does"
            )
        named = group.get("kind") == "curvature"
        if not group["weight_decay"] or not group["params"]:
            continue
        if named or any(id(p) in curvatures for p in group["params"]):
            raise ValueError(
                f"a curvature has weight_decay={group['weight_decay']}, which would pull it to its "
                "start, not to zero: give it a group with weight_decay=0, as "
                "beltrami.optim.param_groups(model) does"
            )


def check_gradients(group: Group) -> None:
    """Raise `FloatingPointError` if a gradient is not finite, before anything has moved."""
    for i, parameter in enumerate(group["params"]):
        gradient = parameter.grad
        if gradient is None:
            continue
        held = local(gradient)
        values = held.coalesce().values() if held.is_sparse else held
        bad = int((~torch.isfinite(values)).sum())
        if bad:
            name = _name(group, i)
            raise FloatingPointError(
                f"the gradient of {name}, shape {tuple(parameter.shape)}, has {bad} entries that "
                "are not finite; nothing was changed. With nonfinite='skip' its rows would be "
                "left where they are"
            )


def _name(group: Group, i: int) -> str:
    """What messages call a parameter."""
    return str(group["param_names"][i]) if "param_names" in group else f"parameter {i}"


def point_widths(group: Group) -> list[int]:
    """How many coordinates the points of each parameter have; nothing for plain parameters."""
    if isinstance(group["manifold"], Euclidean):
        return []
    return [parameter.shape[-1] for parameter in group["params"]]


def check_widths(group: Group, expected: list[int]) -> None:
    """Raise `ValueError` if an engine has put flattened parameters in the place of points."""
    widths = point_widths(group)
    if widths != expected:
        raise ValueError(
            f"points of {expected} coordinates have become parameters of {widths}: the training "
            "engine has flattened them, and rows are not points any more. DeepSpeed's ZeRO does "
            "that; use FSDP2 or DDP"
        )
