"""Random Lorentz points: the wrapped normal with its density, and the uniform law on a ball."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from beltrami.geometry import radial
from beltrami.geometry.checks import Scalar, as_scalar, check_curvature, prepare
from beltrami.geometry.chord import dot
from beltrami.geometry.lorentz.core import boost, dist_sq, exp0, log0

# Cells of the table by which `uniform_ball` inverts its distribution function.
_CELLS = 4096


def wrapped_normal(
    mean: Tensor,
    std: float | Tensor = 1.0,
    c: Scalar = 1.0,
    *,
    sample_shape: Sequence[int] = (),
    generator: torch.Generator | None = None,
) -> Tensor:
    """Sample the wrapped normal: a normal tangent vector at the origin, moved to `mean`.

    v ~ N(0, std²) at the origin, where |v| is a distance, then `boost(exp0(v), mean)`. So `std` is
    the standard deviation of each coordinate of log0 of a sample around the origin.

    Args:
        mean: (..., d).
        std: positive; a float, or a tensor broadcasting against mean.
        sample_shape: leading dimensions to add.
        generator: source of randomness, for reproducible draws.

    Returns: sample_shape + (..., d), differentiable in mean, std and c.
    """
    (mean,), c, dtype = prepare(c, mean=mean)
    std = _check_std(std, mean)
    shape = (*sample_shape, *mean.shape)
    noise = torch.randn(shape, dtype=mean.dtype, device=mean.device, generator=generator)
    return boost(exp0(std * noise, c), mean, c).to(dtype)


def wrapped_normal_log_prob(
    x: Tensor,
    mean: Tensor,
    std: float | Tensor = 1.0,
    c: Scalar = 1.0,
    *,
    keepdim: bool = False,
) -> Tensor:
    """Log-density of `wrapped_normal` at x with respect to the hyperbolic volume.

    `log N(v; 0, std²) − (d−1)·log(sinh(√c|v|)/(√c|v|))` with v = log(mean, x) carried to the
    origin: the second term is the stretch of volume by the exponential map.
    """
    (x, mean), c, _ = prepare(c, x=x, mean=mean)
    std = _check_std(std, mean)
    d = x.shape[-1]
    r2 = dist_sq(x, mean, c, keepdim=True)
    if isinstance(std, Tensor):
        scaled = log0(boost(x, -mean, c), c) / std
        log_std = std.log().expand(scaled.shape).sum(-1, keepdim=True)
        normal = -dot(scaled, scaled) / 2 - log_std
    else:
        normal = -r2 / (2 * std**2) - d * math.log(std)
    out = normal - d / 2 * math.log(2 * math.pi) - (d - 1) * radial.log_sinhc_sq(c * r2)
    return as_scalar(out, keepdim)


def _check_std(std: float | Tensor, mean: Tensor) -> float | Tensor:
    if isinstance(std, Tensor):
        if not std.is_floating_point():
            raise TypeError(f"std must be a floating point tensor, got {std.dtype}")
        return std.to(mean.dtype)
    if not math.isfinite(std) or std <= 0:
        raise ValueError(f"std must be a positive finite number, got {std}")
    return float(std)


def uniform_ball(
    *shape: int,
    radius: float = 1.0,
    c: Scalar = 1.0,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Sample points uniformly, by hyperbolic volume, in the ball of the given radius about 0.

    The distance r from the origin has a density proportional to sinh(√c·r)^(d−1). With
    s = (r/radius)^d the density of s is the smooth (sinh(√c·r)/(√c·r))^(d−1), which is tabulated
    and inverted cell by cell; the error of the distribution function is below 1e-6.

    Args:
        shape: shape of the result; its last entry is the dimension d.
        radius: distance from the origin, not scaled.
    """
    if not shape or shape[-1] < 1:
        raise ValueError(f"shape must end in a dimension of at least 1, got {shape}")
    if not math.isfinite(radius) or radius <= 0:
        raise ValueError(f"radius must be a positive finite number, got {radius}")
    where = torch.device("cpu") if device is None else torch.device(device)
    c = check_curvature(c, torch.float64, where)
    d = shape[-1]
    s = torch.linspace(0, 1, _CELLS + 1, dtype=torch.float64, device=where)
    if isinstance(c, Tensor) and c.numel() != 1:
        raise ValueError(
            f"uniform_ball takes one curvature, got a tensor of shape {tuple(c.shape)}"
        )
    q = (c.reshape(()) if isinstance(c, Tensor) else c) * (radius * s ** (1 / d)) ** 2
    log_density = (d - 1) * radial.log_sinhc_sq(q)
    density = torch.exp(log_density - log_density[-1])
    mass = torch.cumsum((density[1:] + density[:-1]) / 2, 0)
    u = torch.rand(shape[:-1], dtype=torch.float64, device=where, generator=generator) * mass[-1]
    cell = torch.searchsorted(mass, u.reshape(-1)).reshape(u.shape).clamp(max=_CELLS - 1)
    low, high = density[cell], density[cell + 1]
    left = (low + high) / 2 - (mass[cell] - u)  # mass between the cell's left edge and u
    # Inside a cell the density is linear: solve low·f + (high − low)·f²/2 = left for f.
    fraction = 2 * left / (low + torch.sqrt((low * low + 2 * (high - low) * left).clamp(min=0)))
    r = radius * ((cell + fraction) / _CELLS) ** (1 / d)
    direction = torch.randn(shape, dtype=torch.float64, device=where, generator=generator)
    direction = direction / torch.linalg.vector_norm(direction, dim=-1, keepdim=True)
    return exp0(r.unsqueeze(-1) * direction, c).to(dtype)
