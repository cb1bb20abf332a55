"""What is timed: one step of each optimiser on tables of points, and of torch's on plain ones.

Every competitor has its own parameters and gradients, so none finds its data in a cache because
another has just been there.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from beltrami.geometry import Lorentz, Manifold, PoincareBall, lorentz
from beltrami.optim import RiemannianAdam, RiemannianAdamW, RiemannianSGD

CURVATURE = 1.0
LR = 1e-3
# Standard deviations of the points' distance from the origin a coordinate, and of the gradients.
_SPREAD = 0.1
_GRADIENT = 1e-2

EAGER, COMPILED, FOREACH, FUSED = "eager", "compiled", "foreach", "fused"
GEOOPT = "geoopt"
BALL, HYPERBOLOID = "Poincaré", "Lorentz"


@dataclass(frozen=True)
class Tables:
    """One problem: how many parameters of which shape and dtype."""

    count: int
    rows: int
    width: int
    dtype: torch.dtype = torch.float32

    @property
    def shape(self) -> str:
        """For a table."""
        size = f"{self.rows} × {self.width}, {str(self.dtype).removeprefix('torch.')}"
        return size if self.count == 1 else f"{self.count} tables of {size}"


@dataclass(frozen=True)
class Competitor:
    """An optimiser and the way it runs; `build` makes it with its parameters and gradients."""

    name: str
    mode: str
    build: Callable[[Tables, str], Optimizer]
    peer: bool = False
    """Of another library: that it cannot run is a result, not a crash."""


@dataclass(frozen=True)
class Case:
    """Competitors on one problem, the first of them the one that all are compared with."""

    name: str
    tables: Tables
    competitors: tuple[Competitor, ...]


# --- parameters -----------------------------------------------------------------------------------


def _with_gradients(points: Sequence[Tensor]) -> list[nn.Parameter]:
    parameters = [nn.Parameter(t) for t in points]
    for p in parameters:
        p.grad = _GRADIENT * torch.randn_like(p)
    return parameters


def _points(manifold: Manifold | None, n: Tables, device: str) -> list[nn.Parameter]:
    torch.manual_seed(0)
    shape = n.rows, n.width
    if manifold is None:
        made = [_SPREAD * torch.randn(*shape, device=device) for _ in range(n.count)]
    else:
        made = [manifold.random(*shape, std=_SPREAD, device=device) for _ in range(n.count)]
    return _with_gradients([t.to(n.dtype) for t in made])


def _torch(kind: type[Optimizer], **options: Any) -> Callable[[Tables, str], Optimizer]:
    return lambda n, device: kind(_points(None, n, device), lr=LR, **options)  # type: ignore[call-arg]


def _ours(
    kind: type[Optimizer], manifold: Manifold, **options: Any
) -> Callable[[Tables, str], Optimizer]:
    def build(n: Tables, device: str) -> Optimizer:
        return kind(_points(manifold, n, device), lr=LR, manifold=manifold, **options)  # type: ignore[call-arg]

    return build


def _geoopt(ball: bool) -> Callable[[Tables, str], Optimizer]:
    """geoopt's RiemannianAdam; its Lorentz points have their time as a first coordinate."""

    def build(n: Tables, device: str) -> Optimizer:
        with warnings.catch_warnings():
            # geoopt is built on torch.jit.script; that is its maintainers' business.
            warnings.simplefilter("ignore")
            import geoopt

        ours: Manifold = PoincareBall(CURVATURE) if ball else Lorentz(CURVATURE)
        points = [p.detach() for p in _points(ours, n, device)]
        manifold = geoopt.PoincareBall(c=CURVATURE) if ball else geoopt.Lorentz(k=CURVATURE)
        if not ball:
            times = [lorentz.time(x, CURVATURE, keepdim=True) for x in points]
            points = [torch.cat([t, x], dim=-1) for t, x in zip(times, points, strict=True)]
        parameters = [geoopt.ManifoldParameter(x, manifold=manifold.to(device)) for x in points]
        for p in parameters:
            p.grad = _GRADIENT * torch.randn_like(p.data)
        optimizer: Optimizer = geoopt.optim.RiemannianAdam(parameters, lr=LR)
        return optimizer

    return build


# --- the cases ------------------------------------------------------------------------------------


def _geometries() -> dict[str, Manifold]:
    return {HYPERBOLOID: Lorentz(CURVATURE), BALL: PoincareBall(CURVATURE)}


def _geoopt_adam(*models: str) -> list[Competitor]:
    return [
        Competitor(f"{GEOOPT} RiemannianAdam, {m}", EAGER, _geoopt(m == BALL), peer=True)
        for m in models
    ]


def cpu_cases(quick: bool = False) -> list[Case]:
    """One large table, and many small ones."""
    adam, adamw = torch.optim.Adam, torch.optim.AdamW
    yardstick = Competitor("torch Adam", FOREACH, _torch(adam, foreach=True))
    table = [
        yardstick,
        Competitor("torch Adam", FUSED, _torch(adam, fused=True)),
        Competitor("torch AdamW", FOREACH, _torch(adamw, foreach=True)),
    ]
    for model, manifold in _geometries().items():
        for mode in (EAGER, COMPILED):
            table.append(
                Competitor(f"RiemannianAdam, {model}", mode, _ours(RiemannianAdam, manifold))
            )
        build = _ours(RiemannianSGD, manifold, momentum=0.9)
        table.append(Competitor(f"RiemannianSGD with momentum, {model}", EAGER, build))
    table += _geoopt_adam(HYPERBOLOID, BALL)
    small = [
        yardstick,
        Competitor(
            f"RiemannianAdam, {HYPERBOLOID}", EAGER, _ours(RiemannianAdam, Lorentz(CURVATURE))
        ),
        *_geoopt_adam(HYPERBOLOID),
    ]
    return [
        Case("table", Tables(1, 50 if quick else 50_000, 64), tuple(table)),
        Case("small", Tables(3 if quick else 200, 8 if quick else 64, 64), tuple(small)),
    ]


def cuda_cases(quick: bool = False) -> list[Case]:
    """The embedding of a large vocabulary, in float32 and in bfloat16."""
    adamw = torch.optim.AdamW
    competitors = [
        Competitor("torch AdamW", FUSED, _torch(adamw, fused=True)),
        Competitor("torch AdamW", FOREACH, _torch(adamw, foreach=True)),
    ]
    for model, manifold in _geometries().items():
        name = f"RiemannianAdamW, {model}"
        competitors += [
            Competitor(name, FUSED, _ours(RiemannianAdamW, manifold, fused=True)),
            Competitor(name, EAGER, _ours(RiemannianAdamW, manifold, fused=False)),
            Competitor(name, COMPILED, _ours(RiemannianAdamW, manifold, fused=False)),
        ]
    competitors += _geoopt_adam(HYPERBOLOID, BALL)
    rows = 64 if quick else 128_256
    return [
        Case("table", Tables(1, rows, 512, dtype), tuple(competitors))
        for dtype in (torch.float32, torch.bfloat16)
    ]


def cases(device: str, quick: bool = False) -> list[Case]:
    return cuda_cases(quick) if device == "cuda" else cpu_cases(quick)


def names(case: Case) -> str:
    """What `--only` is looked for in."""
    return f"{case.name} {case.tables.shape}"
