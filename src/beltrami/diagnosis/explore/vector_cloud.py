"""Vectors and distances in the disk."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from beltrami.analysis.curvature_fit import fit_curvature
from beltrami.analysis.hmds import hmds
from beltrami.analysis.tangent_pca import principal_directions
from beltrami.diagnosis.explore.config import MOST_BY_DISTANCES, NEIGHBOURS, ExploreConfig
from beltrami.diagnosis.pictures import LEAST_BEND, MOST_BEND
from beltrami.diagnosis.source import Source, Tick, VectorSource
from beltrami.embeddings import nearest_rows
from beltrami.geometry import Euclidean, poincare
from beltrami.report.explorer import Cloud
from beltrami.train.threads import one_thread

REACH = 3.0  # hyperbolic radius that nine tenths of the vectors stay below
WITHIN = 0.9
MOST_NUMBERS = 1 << 26  # of the vectors that are held at once, 512 MiB of them
_FITTED = 300  # points that choose the curvature
_INSIDE = 1 - 1e-9


def vector_cloud(source: Source, config: ExploreConfig, tick: Tick) -> tuple[Cloud, str]:
    """Points of the disk, and how they got there in words."""
    method = config.method
    if method == "auto":
        many = source.count > MOST_BY_DISTANCES
        method = "tangent-pca" if many and isinstance(source, VectorSource) else "hmds"
    most = min(config.points, MOST_BY_DISTANCES) if method == "hmds" else config.points
    if isinstance(source, VectorSource):
        most = min(most, max(MOST_BY_DISTANCES, MOST_NUMBERS // source.vectors.width))
    g = torch.Generator().manual_seed(config.seed)
    rows = torch.randperm(source.count, generator=g)[:most].sort().values
    if method == "hmds":
        disk, how = _by_distances(source, rows, config.seed)
    elif not isinstance(source, VectorSource):
        raise ValueError(f"--method {method} needs vectors, and {source.name} has distances alone")
    elif method == "as-is":
        disk, how = _as_is(source, rows), "as they are"
    else:
        disk, how = tangent_disk(source.points(rows)), "by tangent PCA"
    labels = [source.label(row) for row in rows.tolist()]
    space, near = _neighbours(source, rows, config, tick)
    tick(1.0)
    return Cloud(disk, labels, _columns(source, rows), space=space, near=near), how


def _neighbours(
    source: Source, rows: Tensor, config: ExploreConfig, tick: Tick
) -> tuple[str, tuple[Tensor, Tensor]]:
    """What the points are in, in words, and the nearest of each there."""
    if isinstance(source, VectorSource):
        points = source.points(rows)
        space = f"{points.shape[1]:,} dimensions"
        if config.metric == "angle":
            points = torch.nn.functional.normalize(points, dim=1)
            space += ", by angle"
    else:
        d = source.draw(rows).distances
        return "the distances given", nearest_rows(lambda block: d[block], len(d), NEIGHBOURS, tick)
    flat = Euclidean()
    rows_near, far = nearest_rows(
        lambda block: flat.pairwise_dist(points[block], points), len(points), NEIGHBOURS, tick
    )
    if config.metric == "angle":
        far = 2 * torch.asin(far.clamp(max=2) / 2)
    return space, (rows_near, far)


def _by_distances(source: Source, rows: Tensor, seed: int) -> tuple[Tensor, str]:
    d = source.draw(rows).distances
    if not float(d.max()) > 0:
        raise ValueError(f"all points of {source.name} coincide: there is nothing to show")
    with one_thread():  # eigenvectors of many small matrices
        fitted = fit_curvature(d, repeats=1, sample=min(len(d), _FITTED), seed=seed).bend
    bend = min(max(fitted, LEAST_BEND), MOST_BEND)
    seen = hmds(d, (bend / float(d.max())) ** 2)
    disk = math.sqrt(seen.c) * poincare.from_lorentz(seen.points, seen.c)
    return inside_disk(disk), f"by hMDS (√c·diameter {bend:.3g}, distortion {seen.distortion:.3f})"


def tangent_disk(points: Tensor) -> Tensor:
    """Vectors as tangent vectors at their mean, of which two principal components are kept."""
    tangent = points - points.mean(0)
    if not float(tangent.abs().max()) > 0:
        raise ValueError("all points coincide: there is nothing to show")
    if tangent.shape[1] == 1:
        tangent = torch.cat([tangent, torch.zeros_like(tangent)], 1)
    plane = tangent @ principal_directions(tangent, 2).mT
    length = torch.linalg.vector_norm(plane, dim=1, keepdim=True)
    scale = REACH / max(float(length.quantile(WITHIN)), float(length.max()) / (4 * REACH))
    radius = scale * length
    return inside_disk(torch.tanh(radius / 2) * plane / torch.where(length > 0, length, 1.0))


def _as_is(source: VectorSource, rows: Tensor) -> Tensor:
    points = source.points(rows)
    if points.shape[1] != 2 or not float(points.norm(dim=1).max()) < 1:
        raise ValueError(
            f"--method as-is takes vectors of two dimensions inside the unit disk; {source.name} "
            f"has {points.shape[1]} dimensions and norms up to {float(points.norm(dim=1).max()):g}"
        )
    return points


def inside_disk(disk: Tensor) -> Tensor:
    """Rounding may put the farthest points on the rim, which is infinitely far away."""
    length = torch.linalg.vector_norm(disk, dim=1, keepdim=True)
    return torch.where(length > _INSIDE, disk * (_INSIDE / length), disk)


def _columns(source: Source, rows: Tensor) -> Mapping[str, Sequence[str] | Sequence[float]]:
    if not isinstance(source, VectorSource):
        return {}
    extras = source.vectors.extras
    own = "norm" if "norm" not in extras else "norm of the vector"
    columns: dict[str, Sequence[str] | Sequence[float]] = {own: source.norms[rows].tolist()}
    usable = source.usable[rows].tolist()
    for name, values in extras.items():
        column = [values[row] for row in usable]
        texts = any(isinstance(value, str) for value in column)
        columns[name] = ["" if v is None else str(v) for v in column] if texts else column
    return columns
