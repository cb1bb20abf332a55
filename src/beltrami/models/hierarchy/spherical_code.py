"""Directions that keep far apart from one another: where the neighbours of a node go."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

_SEED = 0  # codes are part of a construction that has no chance in it
_POOL = 2048  # random directions to choose from; at least _POOL_SHARE times as many as are wanted
_POOL_SHARE = 4
_REFINED = 1024  # larger codes stay as they were chosen: a step costs the square of the size
_STEPS = 400
_SHARPNESS = (8.0, 2000.0)  # of the soft maximum, from the first step to the last
_STEP_LENGTH = (0.3, 0.003)  # of the closest pair's angle


@lru_cache(maxsize=256)
def spherical_code(count: int, dim: int) -> Tensor:
    """`count` unit vectors of R^dim, far from one another: float64 of shape (count, dim).

    In the plane they are equally spaced. Up to dim + 1 of them form a simplex and up to 2·dim the
    axes and their opposites, both optimal; more are chosen greedily from random directions of a
    fixed seed, each as far as possible from those before, and then pushed apart. The tensor is
    shared between calls and must not be changed.
    """
    if dim < 2 or count < 1:
        raise ValueError(f"need count ≥ 1 and dim ≥ 2, got count={count} and dim={dim}")
    if dim == 2:
        angle = 2 * math.pi / count * torch.arange(count, dtype=torch.float64)
        return torch.stack([angle.cos(), angle.sin()], dim=-1)
    if count <= dim + 1:
        return _simplex(count, dim)
    if count <= 2 * dim:
        axes = torch.eye(dim, dtype=torch.float64)
        return torch.cat([axes, -axes])[:count]
    code = _farthest_first(count, dim)
    return _pushed_apart(code) if count <= _REFINED else code


def least_angle(code: Tensor) -> float:
    """The smallest angle between two directions; π if there are fewer than two."""
    if len(code) < 2:
        return math.pi
    gap = torch.pdist(code).min().item()
    return 2 * math.asin(min(gap / 2, 1.0))


def _unit(rows: Tensor) -> Tensor:
    unit: Tensor = rows / torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    return unit


def _simplex(count: int, dim: int) -> Tensor:
    """Corners of a regular simplex with `count` corners, in the first count − 1 coordinates."""
    code = torch.zeros(count, dim, dtype=torch.float64)
    if count == 1:
        code[0, 0] = 1.0
        return code
    for i in range(count - 1):
        # row i closes its own length; every later row has the product −1/(count − 1) with it
        code[i, i] = math.sqrt(1 - code[i].square().sum().item())
        rest = -1 / (count - 1) - code[i + 1 :] @ code[i]
        code[i + 1 :, i] = rest / code[i, i]
    return _unit(code)


def _farthest_first(count: int, dim: int) -> Tensor:
    generator = torch.Generator().manual_seed(_SEED)
    pool = torch.randn(
        max(_POOL, _POOL_SHARE * count), dim, dtype=torch.float64, generator=generator
    )
    pool = _unit(pool)
    chosen = torch.empty(count, dtype=torch.int64)
    chosen[0] = 0
    nearest = pool @ pool[0]  # the largest cosine with a chosen direction
    for i in range(1, count):
        chosen[i] = nearest.argmin()
        nearest = torch.maximum(nearest, pool @ pool[chosen[i]])
    return pool[chosen]


def _pushed_apart(code: Tensor) -> Tensor:
    """Descend on the soft maximum of all cosines, ever sharper, and keep the best code seen."""
    best, best_angle = code, least_angle(code)
    angle = best_angle
    for step in range(_STEPS):
        done = step / (_STEPS - 1)
        sharp = _SHARPNESS[0] * (_SHARPNESS[1] / _SHARPNESS[0]) ** done
        share = _STEP_LENGTH[0] * (_STEP_LENGTH[1] / _STEP_LENGTH[0]) ** done
        cosine = (code @ code.T).fill_diagonal_(-math.inf)
        force = torch.softmax(sharp * cosine, dim=-1) @ code
        force = force - (force * code).sum(-1, keepdim=True) * code
        code = _unit(code - share * angle * force)
        angle = least_angle(code)
        if angle > best_angle:
            best, best_angle = code, angle
    return best
