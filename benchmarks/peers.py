"""geoopt and HypLL behind beltrami's conventions, at curvature −1.

Lorentz points enter by their space part and are given to geoopt with time first. In the ball the
peers' `expmap0` has |v| = half the distance, so vectors are halved on the way in and doubled on the
way out. Both libraries are used through the functions a user would call.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

with warnings.catch_warnings():
    # geoopt is built on torch.jit.script; that is its maintainers' business, not our users'.
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    warnings.filterwarnings("ignore", message=".*torch.jit.*")
    import geoopt
    from hypll.manifolds.poincare_ball.math import diffgeom as hypll_math

Function = Callable[..., Tensor]


@dataclass(frozen=True)
class Peer:
    """A library's functions for one model, by our names."""

    name: str
    model: str
    functions: dict[str, Function] = field(default_factory=dict)


def with_time(x: Tensor) -> Tensor:
    """(t, x) with the time of curvature −1, correctly rounded."""
    wide = x.double()
    time = (1 + (wide * wide).sum(-1, keepdim=True)).sqrt()
    return torch.cat([time.to(x.dtype), x], dim=-1)


def tangent_with_time(x: Tensor, v: Tensor) -> Tensor:
    """(x·v/t, v): the ambient vector of a tangent vector at x, correctly rounded."""
    wide = x.double()
    time = (1 + (wide * wide).sum(-1, keepdim=True)).sqrt()
    along = (wide * v.double()).sum(-1, keepdim=True) / time
    return torch.cat([along.to(v.dtype), v], dim=-1)


def at_origin(v: Tensor) -> Tensor:
    return torch.cat([torch.zeros_like(v[..., :1]), v], dim=-1)


def space(x: Tensor) -> Tensor:
    return x[..., 1:]


def geoopt_lorentz(dtype: torch.dtype) -> geoopt.Lorentz:
    return geoopt.Lorentz(k=torch.tensor(1.0, dtype=dtype))


def geoopt_ball(dtype: torch.dtype) -> geoopt.PoincareBall:
    # As a tensor of the dtype: c=1.0 converted later is wrong by 4e-8 in float64.
    return geoopt.PoincareBall(c=torch.tensor(1.0, dtype=dtype))


def lorentz_peers(dtype: torch.dtype) -> list[Peer]:
    m = geoopt_lorentz(dtype)
    functions: dict[str, Function] = {
        "dist": lambda x, y: m.dist(with_time(x), with_time(y)),
        "dist0": lambda x: m.dist0(with_time(x)),
        "exp0": lambda v: space(m.expmap0(at_origin(v))),
        "log0": lambda x: space(m.logmap0(with_time(x))),
        "log": lambda x, y: space(m.logmap(with_time(x), with_time(y))),
        "transport": lambda x, y, v: space(
            m.transp(with_time(x), with_time(y), tangent_with_time(x, v))
        ),
    }
    return [Peer("geoopt", "lorentz", functions)]


def ball_peers(dtype: torch.dtype) -> list[Peer]:
    m, one = geoopt_ball(dtype), torch.tensor(1.0, dtype=dtype)
    ours_to_geoopt: dict[str, Function] = {
        "dist": m.dist,
        "dist0": m.dist0,
        "exp0": lambda v: m.expmap0(v / 2),
        "log0": lambda x: 2 * m.logmap0(x),
        "log": m.logmap,
        "transport": m.transp,
        "mobius_add": m.mobius_add,
    }
    ours_to_hypll: dict[str, Function] = {
        "dist": lambda x, y: hypll_math.dist(x, y, one),
        "exp0": lambda v: hypll_math.expmap0(v / 2, one),
        "log0": lambda x: 2 * hypll_math.logmap0(x, one),
        "log": lambda x, y: hypll_math.logmap(x, y, one),
        "transport": lambda x, y, v: hypll_math.transp(x, y, v, one),
        "mobius_add": lambda x, y: hypll_math.mobius_add(x, y, one),
    }
    return [Peer("geoopt", "poincare", ours_to_geoopt), Peer("HypLL", "poincare", ours_to_hypll)]
