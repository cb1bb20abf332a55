"""Curvatures and radii of a model, for a training log."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from beltrami.geometry import Curvature, Manifold, Product
from beltrami.geometry.manifold import learnable_curvatures, manifolds_of
from beltrami.kernels.launch.dtypes import upcast
from beltrami.optim.groups import points_of
from beltrami.optim.module_paths import module_paths
from beltrami.optim.points import factors_of
from beltrami.optim.sharded import full, is_sharded, local

# Rows of a table whose radii are logged: quantiles are then off by a percent, at no cost.
_ROWS = 4096
_QUANTILES = ("q05", "q50", "q95")

# Curvatures of one module that are logged one by one; of more, the smallest, median and largest.
_FEW = 8


@torch.no_grad()
def geometry_metrics(model: nn.Module) -> dict[str, float]:
    """Curvatures and radii of a model, for a training log.

    - `curvature/<name>`: each learnable curvature; of a `Curvature` of several `/0`, `/1`, ..., and
      of more than eight `/min`, `/q50` and `/max`.
    - `curvature_at_bound/<name>`: 1 if a `Curvature` sits at one of its bounds, else 0; of several
      the share of those that do.
    - `radius/<name>/q05`, `/q50`, `/q95`: quantiles over rows of the distance from the origin, for
      each parameter that `manifold_of` names. Of tables beyond 4096 rows every k-th is taken. They
      are NaN if one of these rows is not finite.

    The device is waited for once. Where parameters are split over processes, all must call, and
    all get the values of the whole model.
    """
    metrics: dict[str, Tensor] = {}
    _log_curvatures(model, metrics)
    for name, parameter, manifold in named_points(model):
        if not parameter.numel():
            continue
        radii = _radii(parameter, _whole_manifold(manifold))
        # Made on the device: numbers from the host would be waited for, once a table.
        levels = torch.linspace(0.05, 0.95, 3, dtype=radii.dtype, device=radii.device)
        for label, value in zip(_QUANTILES, radii.quantile(levels), strict=True):
            metrics[f"radius/{name}/{label}"] = value
    if not metrics:
        return {}
    device = next(iter(metrics.values())).device
    numbers = torch.stack([value.to(device, torch.float64) for value in metrics.values()])
    return dict(zip(metrics, numbers.tolist(), strict=True))


def _log_curvatures(model: nn.Module, metrics: dict[str, Tensor]) -> None:
    names = {id(p): name for name, p in _parameters(model)}
    for module, path in module_paths(model).items():
        if isinstance(module, Curvature) and module.learnable:
            whole = _whole_curvature(module)
            _log_values(f"curvature/{path}", whole.value.flatten(), metrics)
            metrics[f"curvature_at_bound/{path}"] = whole.at_bound().float().mean()
        for manifold in manifolds_of(module):
            for c in learnable_curvatures(manifold):
                if isinstance(c, Tensor) and id(c) in names:
                    _log_values(f"curvature/{names[id(c)]}", full(c).flatten(), metrics)


def _log_values(key: str, values: Tensor, metrics: dict[str, Tensor]) -> None:
    if len(values) == 1:
        metrics[key] = values[0]
    elif len(values) <= _FEW:
        metrics.update({f"{key}/{i}": value for i, value in enumerate(values)})
    else:
        ends = {"min": values.min(), "q50": values.median(), "max": values.max()}
        metrics.update({f"{key}/{label}": value for label, value in ends.items()})


def named_points(model: nn.Module) -> list[tuple[str, Tensor, Manifold]]:
    """Names, values and manifolds of the parameters that are points, shared ones once."""
    paths = module_paths(model)
    return list(points_of((path, module) for module, path in paths.items()).values())


def _parameters(model: nn.Module) -> list[tuple[str, Tensor]]:
    """Parameters with their names as if there were no wrappers."""
    return [
        (f"{path}.{own}" if path else own, parameter)
        for module, path in module_paths(model).items()
        for own, parameter in module._parameters.items()
        if parameter is not None
    ]


def _whole_curvature(curvature: Curvature) -> Curvature:
    """The curvature itself, or where FSDP2 has split it a copy that is whole."""
    if not is_sharded(curvature.raw):
        return curvature
    whole = copy.copy(curvature)
    whole._parameters = {"raw": nn.Parameter(full(curvature.raw.detach()), requires_grad=False)}
    return whole


def _whole_manifold(manifold: Manifold) -> Manifold:
    """The manifold with its curvatures whole, where FSDP2 has split them."""
    if isinstance(manifold, Product):
        blocks = [(_whole_manifold(b.manifold), b.size, b.count) for b in manifold.factors]
        return Product(blocks, manifold.p)
    return factors_of(manifold, 1)[0].manifold


def _radii(points: Tensor, manifold: Manifold) -> Tensor:
    """Distances from the origin of rows at a fixed stride.

    Which rows are taken does not depend on how many processes hold them.
    """
    c = None if isinstance(manifold, Product) else manifold.c
    kept_dims = 2 if isinstance(c, Tensor) and c.numel() > 1 else 1  # (k, d): a curvature a row
    rows = points.shape[:-kept_dims].numel()
    stride = max(1, -(-rows // _ROWS))
    split = _row_split(points)
    if split is None:
        x = full(points.detach()) if is_sharded(points) else points.detach()
        x = x.reshape(rows, *points.shape[points.ndim - kept_dims :])[::stride]
        return manifold.dist0(upcast(x)).flatten()
    group, rank, world = split
    inner = rows // points.shape[0]
    share = -(-points.shape[0] // world) * inner  # rows a process; the last ones hold fewer
    taken = [range(-(-r * share // stride) * stride, min((r + 1) * share, rows), stride)
             for r in range(world)]  # fmt: skip
    x = local(points.detach())
    x = x.reshape(x.shape[0] * inner, *points.shape[points.ndim - kept_dims :])
    x = x[-rank * share % stride :: stride]
    radii = manifold.dist0(upcast(x)).flatten()
    each = points.shape[-2] if kept_dims == 2 else 1
    counts = [len(r) * each for r in taken]
    padded = radii.new_zeros(max(counts))  # all_gather wants the same length of all
    padded[: len(radii)] = radii
    parts = [torch.empty_like(padded) for _ in range(world)]
    torch.distributed.all_gather(parts, padded, group=group)
    return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])


def _row_split(points: Tensor) -> tuple[Any, int, int] | None:
    """Group, rank and size of the processes among which rows are split, if it is as simple."""
    if not is_sharded(points) or points.ndim < 2:
        return None
    placements, mesh = points.placements, points.device_mesh  # type: ignore[attr-defined]
    dims = [i for i, placement in enumerate(placements) if not placement.is_replicate()]
    if len(dims) != 1 or not placements[dims[0]].is_shard(0):
        return None
    (dim,) = dims
    return mesh.get_group(dim), mesh.get_local_rank(dim), mesh.size(dim)
