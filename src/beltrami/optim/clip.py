"""Gradient clipping by the Riemannian norm.

The gradient of a point, as autograd returns it, is a covector; its entries depend on the
coordinates (far out in the ball they grow like 1/(1 − c|x|²), in Lorentz coordinates they shrink).
What a step of the optimiser follows is its metric norm, so that is what is clipped.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from beltrami.geometry import Euclidean, Manifold
from beltrami.geometry.chord import dot
from beltrami.kernels.launch.dtypes import upcast
from beltrami.kernels.rows.geodesic_rows import MODELS, Products
from beltrami.optim.checks import check_number
from beltrami.optim.groups import param_groups
from beltrami.optim.points import factors_of, inner_dims
from beltrami.optim.rows import Rows, move_rows
from beltrami.optim.sharded import is_sharded, local, splits_rows


@torch.no_grad()
def clip_grad_norm_(
    params: nn.Module | torch.optim.Optimizer,
    max_norm: float,
    *,
    error_if_nonfinite: bool = False,
) -> Tensor:
    """Scale all gradients so that their total norm is at most `max_norm`; returns the norm.

    The norm is Riemannian for points and the usual one for plain parameters, so for a plain model
    this is `torch.nn.utils.clip_grad_norm_`. Parameters split over processes (FSDP2) are summed
    over all of them: every process must call. Waits for no device.

    Args:
        params: a model, or an optimiser of this package.
        max_norm: largest norm; `inf` only measures.
        error_if_nonfinite: raise `RuntimeError` if the norm is not finite, as in torch; waits for
            the device to see.
    """
    if max_norm != math.inf:
        check_number("max_norm", max_norm)
    total = grad_norm(params)
    if error_if_nonfinite and not bool(torch.isfinite(total)):
        raise RuntimeError(
            f"the total norm of the gradients is {float(total)}, so they cannot be clipped"
        )
    scale = torch.clamp(max_norm / (total + 1e-6), max=1.0)
    held: dict[torch.device, list[Tensor]] = {}
    for gradient, _, _ in _gradients(params):
        part = local(gradient)
        part = part._values() if part.is_sparse else part
        held.setdefault(part.device, []).append(part)
    for device, parts in held.items():
        torch._foreach_mul_(parts, scale.to(device))
    return total


@torch.no_grad()
def grad_norm(params: nn.Module | torch.optim.Optimizer) -> Tensor:
    """The total norm that `clip_grad_norm_` would clip, on the device of the first gradient."""
    sums: dict[Any, Tensor] = {}
    for gradient, parameter, manifold in _gradients(params):
        value = _norm_sq(gradient, parameter, manifold)
        mesh: Any = None  # over which processes the value is a part of the sum
        flat = isinstance(manifold, Euclidean)
        if is_sharded(gradient) and (flat or not splits_rows(parameter, inner_dims(manifold))):
            mesh = gradient.device_mesh, _split_dims(gradient)  # type: ignore[attr-defined]
        known = sums.get(mesh)
        sums[mesh] = value if known is None else known + value.to(known.device)
    if not sums:
        return torch.zeros(())
    total: Tensor | None = None
    for mesh, value in sums.items():
        if mesh is not None:
            device_mesh, dims = mesh
            for dim in dims:
                torch.distributed.all_reduce(value, group=device_mesh.get_group(dim))
        total = value if total is None else total + value.to(total.device)
    assert total is not None
    return total.sqrt()


def _split_dims(t: Tensor) -> tuple[int, ...]:
    """Dimensions of the mesh over which t is split: their sums are parts of the total."""
    return tuple(
        i
        for i, placement in enumerate(t.placements)  # type: ignore[attr-defined]
        if placement.is_shard()
    )


def _gradients(
    params: nn.Module | torch.optim.Optimizer,
) -> Iterator[tuple[Tensor, Tensor, Manifold]]:
    if isinstance(params, nn.Module):
        groups = param_groups(params)
        listed = [(p, g["manifold"]) for g in groups for _, p in g["params"]]
    elif isinstance(params, torch.optim.Optimizer) and all(
        "manifold" in group for group in params.param_groups
    ):
        listed = [(p, g["manifold"]) for g in params.param_groups for p in g["params"]]
    else:
        raise TypeError(
            "the norm of gradients is taken of a module or of an optimiser of beltrami.optim, "
            f"which know what is a point; got {type(params).__name__}"
        )
    for parameter, manifold in listed:
        if parameter.grad is not None:
            yield parameter.grad, parameter, manifold


def _norm_sq(gradient: Tensor, parameter: Tensor, manifold: Manifold) -> Tensor:
    """Squared norm of a gradient: of the part that this process holds, or of a row in pieces."""
    if isinstance(manifold, Euclidean):
        held = local(gradient)
        values = upcast(held.coalesce().values() if held.is_sparse else held)
        return (values * values).sum()
    total = torch.zeros((), dtype=upcast(local(parameter)).dtype, device=local(parameter).device)
    factors = factors_of(manifold, parameter.shape[-1])

    def measure(rows: Rows) -> None:
        for factor in factors:
            x, g = upcast(factor.rows(rows.x)), upcast(factor.rows(rows.g))
            if factor.model is None:
                vector = factor.manifold.riemannian_grad(x, g)
                total.add_(factor.manifold.inner(x, vector, vector).sum())
            else:
                of = Products(dot(x, x), dot(x, g), dot(g, g))
                total.add_(MODELS[factor.model].size_sq(of, factor.c).sum())

    move_rows(
        parameter.detach(), gradient, (), (), measure, inner=inner_dims(manifold), write=False
    )
    return total
