r"""The entailment-cone loss of Ganea, Bécigneul and Hofmann (2018) on any manifold with cones.

A general concept u and a special one v: v should lie in the cone that opens at u away from the
origin. With the exterior angle Ξ(u, v) and the half aperture ψ(u) of `beltrami.geometry.cones`,

    E(u, v) = max(0, Ξ(u, v) − ψ(u)),        loss = Σ_true E + Σ_false max(0, γ − E).

The half aperture is asin(2K/(√c|u|)) at Lorentz points, the same cone in the ball, and asin(K/|u|)
in flat space; K is called `min_radius` here. None of them exists where the quotient exceeds 1:

| manifold | a cone needs | distance from the origin |
|---|---|---|
| Lorentz | √c·norm(u) ≥ 2K | asinh(2K)/√c |
| Poincaré ball | √c·norm(u) ≥ 2K/(1 + √(1 + 4K²)), the published bound | asinh(2K)/√c |
| Euclidean | norm(u) ≥ K | K |

Inside, `geometry.cones` calls the cone a half-space: the aperture is π/2 and its gradient 0, so E
is defined and finite everywhere, and the angle still moves u. The published method keeps all points
outside instead: call `keep_outside` after each step.

As c → 0 hyperbolic cones become Euclidean ones if K shrinks along: K_flat = 2K/√c.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from beltrami.checks import check_choice, check_positive
from beltrami.geometry import Euclidean, Lorentz, Manifold, PoincareBall, cones
from beltrami.geometry.checks import Scalar

MIN_RADIUS = 0.1  # K as published
MARGIN = 0.01  # γ as published, an angle
_SLACK = 1e-5  # share of the least radius that keep_outside adds: at the border itself the slope of
# the aperture is infinite, and here it is some hundreds

Reduction = Literal["sum", "mean", "none"]


def cone_manifolds() -> tuple[type[Manifold], ...]:
    """The manifolds that have entailment cones."""
    return (Lorentz, PoincareBall, Euclidean)


def entailment_energy(
    u: Tensor, v: Tensor, manifold: Manifold, *, min_radius: float = MIN_RADIUS
) -> Tensor:
    """`max(0, Ξ(u, v) − ψ(u))`: the angle by which v is outside the cone of u; 0 inside.

    Args:
        u: the general ones, apexes of the cones, (..., d).
        v: the special ones, (..., d).
        manifold: a `Lorentz`, `PoincareBall` or `Euclidean`; others raise `TypeError`.
        min_radius: K > 0. A length in flat space, in units of 1/√c elsewhere.

    Returns:
        (...), in [0, π). Gradients are finite for all points; for coincident points, and for u at
        the origin, energy and gradient are 0.
    """
    _check_manifold(manifold)
    if isinstance(manifold, Euclidean):
        return cones.euclidean_entailment_energy(u, v, min_radius=min_radius)
    energy = (
        cones.entailment_energy
        if isinstance(manifold, Lorentz)
        else cones.poincare_entailment_energy
    )
    return energy(u, v, manifold.c, min_radius=min_radius)


def entailment_loss(
    true: Tensor,
    false: Tensor,
    *,
    margin: float = MARGIN,
    mask: Tensor | None = None,
    reduction: Reduction = "sum",
) -> Tensor:
    """`Σ true + Σ max(0, margin − false)` over the energies of true and of false pairs.

    Args:
        true: energies of true pairs, any shape.
        false: energies of false pairs, any shape, empty if there are none.
        margin: γ > 0, the angle by which a false pair has to miss its cone.
        mask: booleans of the shape of `false`, True where one counts; None for all.
        reduction: "sum" as published; "mean" divides each of the two sums by its number of pairs (a
            sum over no pairs is 0); "none" gives both parts in one vector, true pairs first and
            masked ones as 0.

    Returns:
        A scalar, or a vector for "none".
    """
    _check_loss(true, false, margin, mask, reduction)
    missed = torch.relu(margin - false)
    if mask is not None:
        missed = missed.masked_fill(~mask, 0.0)
    if reduction == "none":
        return torch.cat([true.flatten(), missed.flatten()])
    if reduction == "sum":
        return true.sum() + missed.sum()
    count = missed.numel() if mask is None else mask.sum()
    return true.sum() / max(true.numel(), 1) + missed.sum() / _at_least_one(count)


def least_radius(manifold: Manifold, min_radius: float = MIN_RADIUS) -> float:
    """Distance from the origin at which cones begin: asinh(2K)/√c, or K in flat space."""
    _check_manifold(manifold)
    check_positive("min_radius", min_radius)
    if isinstance(manifold, Euclidean):
        return min_radius
    return math.asinh(2 * min_radius) / math.sqrt(_number(manifold.c))


def keep_outside(x: Tensor, manifold: Manifold, min_radius: float = MIN_RADIUS) -> Tensor:
    """Points (..., d) with those too near the origin moved out along their ray, to where cones are.

    They go to the least radius and a hundred-thousandth (in half precision, a few of its eps) of it
    beyond. The origin itself, which has no ray, goes along the first axis. Other points return
    unchanged, bit by bit.
    """
    _check_manifold(manifold)
    check_positive("min_radius", min_radius)
    slack = max(_SLACK, 4 * torch.finfo(x.dtype).eps)
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    norm = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
    least = _least_norm(manifold, min_radius)
    first = torch.zeros_like(wide)
    first[..., 0] = 1.0
    direction = torch.where(norm > 0, wide / torch.where(norm > 0, norm, 1.0), first)
    moved = (direction * least * (1 + slack)).to(x.dtype)
    return torch.where(norm < least * (1 + slack / 2), moved, x)


def _least_norm(manifold: Manifold, min_radius: float) -> Scalar:
    """The norm of coordinates at which cones begin."""
    if isinstance(manifold, Euclidean):
        return min_radius
    norm = 2 * min_radius
    if isinstance(manifold, PoincareBall):
        norm /= 1 + math.sqrt(1 + 4 * min_radius**2)
    return norm / manifold.c**0.5


def _number(c: Scalar) -> float:
    if isinstance(c, Tensor) and c.numel() != 1:
        raise ValueError(f"least_radius needs one curvature, got {c.numel()}")
    return float(c.detach() if isinstance(c, Tensor) else c)


def _at_least_one(count: int | Tensor) -> int | Tensor:
    return torch.where(count > 0, count, 1) if isinstance(count, Tensor) else max(count, 1)


def _check_manifold(manifold: Manifold) -> None:
    kinds = cone_manifolds()
    if isinstance(manifold, kinds):
        return
    names = ", ".join(kind.__name__ for kind in kinds)
    if isinstance(manifold, type) and issubclass(manifold, Manifold):
        raise TypeError(f"manifold must be an object, not a class: use {manifold.__name__}()")
    got = repr(manifold) if isinstance(manifold, Manifold) else type(manifold).__name__
    raise TypeError(f"entailment cones exist on {names}; got manifold={got}")


def _check_loss(
    true: Tensor, false: Tensor, margin: float, mask: Tensor | None, reduction: str
) -> None:
    for name, energy in (("true", true), ("false", false)):
        if not isinstance(energy, Tensor) or not energy.is_floating_point():
            got = energy.dtype if isinstance(energy, Tensor) else type(energy).__name__
            raise TypeError(f"{name} must be a floating point tensor of energies, got {got}")
    check_positive("margin", margin)
    if mask is not None and (mask.dtype != torch.bool or mask.shape != false.shape):
        raise ValueError(
            f"mask must be booleans of the shape of false, {tuple(false.shape)}; "
            f"got {mask.dtype} of shape {tuple(mask.shape)}"
        )
    check_choice("reduction", reduction, ("sum", "mean", "none"))
