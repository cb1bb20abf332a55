"""A step of Riemannian SGD against the maps it is made of."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from beltrami.geometry import Manifold, lorentz
from beltrami.geometry.checks import Scalar
from beltrami.kernels.rows import row_blocks
from beltrami.kernels.rows.sgd_rows import SGDRates, sgd_rows_
from tests.kernels.row_states import (
    CURVATURES,
    MANIFOLDS,
    covector,
    random_covectors,
    relative,
    table,
)

VARIANTS = {
    "plain": SGDRates(0.3),
    "momentum": SGDRates(0.3, momentum=0.9),
    "dampening": SGDRates(0.3, momentum=0.9, dampening=0.4),
    "nesterov": SGDRates(0.3, momentum=0.9, nesterov=True),
    "decay": SGDRates(0.3, momentum=0.9, decay=0.2),
    "nesterov and decay": SGDRates(0.3, momentum=0.9, nesterov=True, decay=0.2),
}


def step(
    x: Tensor, g: Tensor, p: Tensor | None, rates: SGDRates, c: Scalar, model: str, first: bool
) -> tuple[Tensor, Tensor | None]:
    """Where a step leads, the arguments being left as they are."""
    x, p = x.clone(), None if p is None else p.clone()
    sgd_rows_(x, g, p, rates, first=first, c=c, model=model)
    return x, p


def by_the_manifold(
    x: Tensor, g: Tensor, p: Tensor | None, rates: SGDRates, manifold: Manifold, first: bool
) -> tuple[Tensor, Tensor | None]:
    """The step written with exp, transport and tangent vectors."""
    leaf = x.clone().requires_grad_()
    (pull,) = torch.autograd.grad((manifold.dist0(leaf) ** 2).sum() / 2, leaf)
    gradient = manifold.riemannian_grad(x, g + rates.decay * pull)
    if p is None:
        return manifold.exp(x, -rates.lr * gradient), None
    m = gradient
    if not first:
        m = rates.momentum * manifold.riemannian_grad(x, p) + (1 - rates.dampening) * gradient
    direction = gradient + rates.momentum * m if rates.nesterov else m
    y = manifold.exp(x, -rates.lr * direction)
    return y, covector(manifold, y, manifold.transport(x, y, m))


@pytest.fixture(params=MANIFOLDS)
def model(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("curvature", CURVATURES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_is_the_step_of_the_manifold(model: str, variant: str, curvature: str) -> None:
    c, rates = CURVATURES[curvature], VARIANTS[variant]
    manifold = MANIFOLDS[model](c)
    x = table(manifold, 20, 3, 5)
    p = torch.zeros_like(x) if rates.momentum else None
    expected, expected_p = x, p
    for i in range(3):
        g = random_covectors(manifold, x)
        x, p = step(x, g, p, rates, c, model, first=i == 0)
        expected, expected_p = by_the_manifold(
            expected, g, expected_p, rates, manifold, first=i == 0
        )
        assert relative(x, expected) < 1e-10
        assert (p is None) == (expected_p is None)
        if p is not None and expected_p is not None:
            assert relative(p, expected_p) < 1e-10


def test_far_out_in_float32() -> None:
    unit = torch.nn.functional.normalize(torch.randn(50, 6, dtype=torch.float64), dim=-1)
    x = lorentz.exp0(30 * unit, 1.0).float()
    p = torch.zeros_like(x)
    for variant in ("momentum", "nesterov"):
        for i in range(4):
            points = x.clone().requires_grad_()
            target = lorentz.exp0(torch.randn(50, 6), 1.0)
            g = torch.autograd.grad(lorentz.dist(points, target, 1.0).sum(), points)[0]
            rates = VARIANTS[variant]
            y, q = step(x, g, p, rates, 1.0, "lorentz", first=i == 0)
            wide_y, wide_q = step(
                x.double(), g.double(), p.double(), rates, 1.0, "lorentz", first=i == 0
            )
            assert q is not None
            assert wide_q is not None
            assert relative(y, wide_y) < 2e-5
            assert relative(q, wide_q) < 2e-5
            x, p = y, q


@pytest.mark.parametrize("variant", ["momentum", "nesterov"])
def test_tends_to_sgd(model: str, variant: str) -> None:
    """As c → 0, at the rate c. In the ball the flat coordinates are twice those of the ball."""
    scale = {"lorentz": 1.0, "poincare": 2.0}[model]
    rates = VARIANTS[variant]
    flat, g, p = (torch.randn(30, 4, dtype=torch.float64) for _ in range(3))
    parameter = torch.nn.Parameter(flat.clone())
    theirs = torch.optim.SGD(
        [parameter], float(rates.lr), momentum=rates.momentum, nesterov=rates.nesterov
    )
    theirs.state[parameter]["momentum_buffer"] = p.clone()
    parameter.grad = g
    theirs.step()
    errors = []
    for c in (1e-2, 1e-4, 1e-6):
        new, moment = step(flat / scale, scale * g, scale * p, rates, c, model, first=False)
        assert moment is not None
        buffer = theirs.state[parameter]["momentum_buffer"]
        errors.append(
            max(relative(scale * new, parameter.detach()), relative(moment / scale, buffer))
        )
    assert errors[2] < 1e-4
    assert errors[1] < 0.02 * errors[0]
    assert errors[2] < 0.02 * errors[1]


@pytest.mark.parametrize("variant", ["plain", "momentum", "nesterov and decay"])
def test_bad_rows_are_left_alone(model: str, variant: str) -> None:
    rates = VARIANTS[variant]
    manifold = MANIFOLDS[model](1.0)
    x = table(manifold, 6, 5).float()
    g, momentum = (random_covectors(manifold, x) for _ in range(2))
    p = momentum if rates.momentum else None
    clean_x, clean_p = step(x, g, p, rates, 1.0, model, first=False)
    g = g.clone()
    bad, good = [1, 3, 4, 5], [0, 2]
    for row, value in zip(bad, (torch.nan, torch.inf, -torch.inf, 1e30), strict=True):
        g[row, 2] = value
    new_x, new_p = step(x, g, p, rates, 1.0, model, first=False)
    for before, after, expected in ((x, new_x, clean_x), (p, new_p, clean_p)):
        if before is not None and after is not None and expected is not None:
            assert torch.equal(after[bad], before[bad])
            assert torch.equal(after[good], expected[good])


def test_rows_without_a_gradient_stay_in_place(model: str) -> None:
    x = table(MANIFOLDS[model](1.0), 300, 5, radius=3.0).float()
    zero = torch.zeros_like(x)
    for variant in ("momentum", "nesterov"):
        y, p = step(x, zero, zero, VARIANTS[variant], 1.0, model, first=False)
        assert torch.equal(y, x)
        assert p is not None
        assert not p.any()


def test_row_blocks_are_the_whole(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for c in (1.0, CURVATURES["several"]):
        manifold = MANIFOLDS[model](c)
        x = table(manifold, 50, 3, 5)
        g, p = (random_covectors(manifold, x) for _ in range(2))
        rates = VARIANTS["nesterov and decay"]
        whole = step(x, g, p, rates, c, model, first=False)
        with monkeypatch.context() as patch:
            patch.setattr(row_blocks, "_BLOCK_ELEMENTS", 7 * 15)
            assert len([*row_blocks.row_blocks(x, c)]) > 4
            parts = step(x, g, p, rates, c, model, first=False)
        for part, expected in zip(parts, whole, strict=True):
            assert part is not None
            assert expected is not None
            assert relative(part, expected) < 1e-14


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_storage_only(model: str, dtype: torch.dtype) -> None:
    manifold = MANIFOLDS[model](1.0)
    x = table(manifold, 20, 5, radius=0.5).to(dtype)
    g, p = (random_covectors(manifold, x.double()).to(dtype) for _ in range(2))
    rates = VARIANTS["nesterov"]
    new, moment = step(x, g, p, rates, 1.0, model, first=False)
    wide, _ = step(x.float(), g.float(), p.float(), rates, 1.0, model, first=False)
    assert moment is not None
    assert new.dtype == moment.dtype == dtype
    assert torch.equal(new, wide.to(dtype))


def test_compiles(model: str) -> None:
    manifold = MANIFOLDS[model](1.0)
    x = table(manifold, 20, 5).float()
    g, p = (random_covectors(manifold, x) for _ in range(2))
    compiled = torch.compile(sgd_rows_, fullgraph=True)
    rates = VARIANTS["nesterov"]
    y, q = x.clone(), p.clone()
    compiled(y, g, q, rates, first=False, c=1.0, model=model)
    expected, moment = step(x, g, p, rates, 1.0, model, first=False)
    assert moment is not None
    assert relative(y, expected) < 1e-5
    assert relative(q, moment) < 1e-5
