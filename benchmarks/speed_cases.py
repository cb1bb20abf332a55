"""What is timed: each operation of ours, of each peer, and its Euclidean counterpart.

All on the same points, curvature −1, float32. Peers get their own layout (time first for geoopt's
hyperboloid) prepared beforehand, so that no conversion is timed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from beltrami.geometry import lorentz, poincare
from benchmarks import peers
from benchmarks.peers import hypll_math

Function = Callable[..., Tensor]
EUCLIDEAN, OURS = "Euclidean", "beltrami"


@dataclass(frozen=True)
class Competitor:
    """One library's way to one operation: `function(*inputs)`, differentiable in all inputs."""

    library: str
    function: Function
    inputs: tuple[Tensor, ...]
    fullgraph: bool = False


@dataclass(frozen=True)
class Operation:
    """One row group of the table."""

    model: str
    name: str
    competitors: tuple[Competitor, ...]
    shape: str

    @property
    def title(self) -> str:
        """Model and name."""
        return f"{self.model} {self.name}"


@dataclass(frozen=True)
class Sizes:
    """Rows and width of the batch, and rows of the all-pairs problem."""

    rows: int = 65536
    dim: int = 64
    pairs: int = 1024

    @classmethod
    def quick(cls) -> Sizes:
        """Small enough to see whether everything runs."""
        return cls(rows=4096, pairs=256)


def _points(n: int, dim: int, seed: int, model: str) -> Tensor:
    """Points at radii 0.05 to 3 in random directions."""
    g = torch.Generator().manual_seed(seed)
    v = torch.randn(n, dim, generator=g, dtype=torch.float64)
    r = 0.05 + 2.95 * torch.rand(n, 1, generator=g, dtype=torch.float64)
    norm = {"lorentz": r.sinh(), "poincare": (r / 2).tanh(), "tangent": r}[model]
    return (v / v.norm(dim=-1, keepdim=True) * norm).float()


# The Euclidean counterparts. A radial map that does nothing would be free, so that the counterpart
# of exp0, log0 and transport is the least a map can do: read a row, write a row.
def _euclidean_dist(x: Tensor, y: Tensor) -> Tensor:
    return torch.linalg.vector_norm(x - y, dim=-1)


def _euclidean_norm(x: Tensor) -> Tensor:
    return torch.linalg.vector_norm(x, dim=-1)


def _scaled_copy(x: Tensor) -> Tensor:
    return x * 1.5


def _scaled_copy_last(x: Tensor, y: Tensor, v: Tensor) -> Tensor:
    return v * 1.5


def _difference(x: Tensor, y: Tensor) -> Tensor:
    return y - x


def _sum(x: Tensor, y: Tensor) -> Tensor:
    return x + y


COUNTERPARTS: dict[str, tuple[Function, str]] = {
    "dist": (_euclidean_dist, "‖x − y‖"),
    "dist0": (_euclidean_norm, "‖x‖"),
    "exp0": (_scaled_copy, "scaled copy"),
    "log0": (_scaled_copy, "scaled copy"),
    "log": (_difference, "y − x"),
    "transport": (_scaled_copy_last, "scaled copy of v"),
    "mobius_add": (_sum, "x + y"),
    "pairwise_dist": (torch.cdist, "torch.cdist"),
}


def _arguments(model: str, name: str, sizes: Sizes) -> tuple[Tensor, ...]:
    if name == "pairwise_dist":
        return tuple(_points(sizes.pairs, sizes.dim, s, model) for s in (0, 1))
    x, y = (_points(sizes.rows, sizes.dim, s, model) for s in (0, 1))
    v = _points(sizes.rows, sizes.dim, 2, "tangent")
    return {"dist0": (x,), "log0": (x,), "exp0": (v,), "transport": (x, y, v)}.get(name, (x, y))


def _all_pairs(dist: Function) -> Function:
    """How a library without pairwise distances gets them: by broadcasting."""
    return lambda x, y: dist(x.unsqueeze(1), y.unsqueeze(0))


def _geoopt_lorentz(name: str, args: tuple[Tensor, ...]) -> Competitor | None:
    m = peers.geoopt_lorentz(torch.float32)
    functions: dict[str, Function] = {
        "dist": m.dist,
        "dist0": m.dist0,
        "exp0": m.expmap0,
        "log0": m.logmap0,
        "log": m.logmap,
        "transport": m.transp,
        "pairwise_dist": _all_pairs(m.dist),
    }
    if name not in functions:
        return None
    if name == "exp0":
        inputs: tuple[Tensor, ...] = (peers.at_origin(args[0]),)
    elif name == "transport":
        x, y, v = args
        inputs = (peers.with_time(x), peers.with_time(y), peers.tangent_with_time(x, v))
    else:
        inputs = tuple(peers.with_time(t) for t in args)
    return Competitor("geoopt", functions[name], inputs)


def _geoopt_ball(name: str, args: tuple[Tensor, ...]) -> Competitor | None:
    m = peers.geoopt_ball(torch.float32)
    functions: dict[str, Function] = {
        "dist": m.dist,
        "dist0": m.dist0,
        "exp0": m.expmap0,
        "log0": m.logmap0,
        "log": m.logmap,
        "transport": m.transp,
        "mobius_add": m.mobius_add,
        "pairwise_dist": _all_pairs(m.dist),
    }
    return Competitor("geoopt", functions[name], args) if name in functions else None


def _hypll(name: str, args: tuple[Tensor, ...]) -> Competitor | None:
    c = torch.tensor(1.0)
    functions: dict[str, Function] = {
        "dist": lambda x, y: hypll_math.dist(x, y, c),
        "exp0": lambda v: hypll_math.expmap0(v, c),
        "log0": lambda x: hypll_math.logmap0(x, c),
        "log": lambda x, y: hypll_math.logmap(x, y, c),
        "transport": lambda x, y, v: hypll_math.transp(x, y, v, c),
        "mobius_add": lambda x, y: hypll_math.mobius_add(x, y, c),
        "pairwise_dist": lambda x, y: hypll_math.cdist(x[None], y[None], c)[0],
    }
    return Competitor("HypLL", functions[name], args) if name in functions else None


NAMES = {
    "lorentz": ("dist", "dist0", "exp0", "log0", "log", "transport", "pairwise_dist"),
    "poincare": (
        "dist", "dist0", "exp0", "log0", "log", "transport", "mobius_add", "pairwise_dist",
    ),
}  # fmt: skip


def operation(model: str, name: str, sizes: Sizes) -> Operation:
    args = _arguments(model, name, sizes)
    ours = getattr(lorentz if model == "lorentz" else poincare, name)
    others = [_geoopt_lorentz(name, args)] if model == "lorentz" else [
        _geoopt_ball(name, args), _hypll(name, args),
    ]  # fmt: skip
    competitors = (
        Competitor(EUCLIDEAN, COUNTERPARTS[name][0], args, fullgraph=True),
        Competitor(OURS, ours, args, fullgraph=True),
        *(other for other in others if other is not None),
    )
    n = f"{args[0].shape[0]} × " * (2 if name == "pairwise_dist" else 1)
    return Operation(model, name, competitors, f"{n}{args[0].shape[1]}")
