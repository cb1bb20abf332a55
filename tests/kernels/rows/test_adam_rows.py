"""A step of Riemannian Adam against the maps it is made of."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from beltrami.geometry import Manifold, lorentz
from beltrami.kernels.launch import dispatch
from beltrami.kernels.rows import row_blocks
from beltrami.kernels.rows.adam_rows import AdamRates, adam_rows_
from tests.kernels.adam_states import (
    RATES,
    VARIANTS,
    State,
    check_bad_rows,
    check_float16_moments,
    check_out_of_range,
    check_rows_without_a_gradient,
    check_steps_across_the_ball,
    check_the_border,
    state,
)
from tests.kernels.row_states import CURVATURES, MANIFOLDS, covector, relative


def by_the_manifold(old: State, rates: AdamRates, manifold: Manifold) -> State:
    """The step written with exp, transport and tangent vectors."""
    x = old.x.clone().requires_grad_()
    (pull,) = torch.autograd.grad((manifold.dist0(x) ** 2).sum() / 2, x)
    x = old.x
    gradient = manifold.riemannian_grad(x, old.g + rates.decay * pull)
    m = manifold.riemannian_grad(x, old.p)
    m = rates.beta1 * m + (1 - rates.beta1) * gradient
    mean_sq = manifold.inner(x, gradient, gradient, keepdim=True) / x.shape[-1]
    v = rates.beta2 * old.v + (1 - rates.beta2) * mean_sq
    v_max = None if old.v_max is None else torch.maximum(old.v_max, v)
    largest = v if v_max is None else v_max
    alpha = rates.step_size / ((largest / rates.correction).sqrt() + rates.eps)
    if rates.keep is not None:
        drawn = manifold.exp0(rates.keep * manifold.log0(x))
        x, m = drawn, manifold.transport(x, drawn, m)
    y = manifold.exp(x, -alpha * m)
    return State(y, old.g, covector(manifold, y, manifold.transport(x, y, m)), v, v_max)


@pytest.fixture(params=MANIFOLDS)
def model(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("curvature", CURVATURES)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("amsgrad", [False, True])
def test_is_the_step_of_the_manifold(
    model: str, variant: str, curvature: str, amsgrad: bool
) -> None:
    c, rates = CURVATURES[curvature], VARIANTS[variant]
    manifold = MANIFOLDS[model](c)
    ours = theirs = state(manifold, 20, 3, 5, amsgrad=amsgrad)
    for _ in range(3):
        ours, theirs = ours.step(rates, c, model), by_the_manifold(theirs, rates, manifold)
        ours.assert_close(theirs, 1e-10)


def test_several_steps_far_out_in_float32() -> None:
    """Each step from radius 30 is that of float64 from the same state."""
    unit = torch.nn.functional.normalize(torch.randn(50, 6, dtype=torch.float64), dim=-1)
    x = lorentz.exp0(30 * unit, 1.0).float()
    p = torch.zeros_like(x)
    now = State(x, p, p, torch.zeros(50, 1))
    for _ in range(5):
        target = lorentz.exp0(torch.randn(50, 6), 1.0)
        points = now.x.clone().requires_grad_()
        now.g = torch.autograd.grad(lorentz.dist(points, target, 1.0).sum(), points)[0]
        new = now.step(RATES, 1.0, "lorentz")
        assert all(torch.isfinite(t).all() for t in new.tensors() if t is not None)
        wide = now.to(dtype=torch.float64).step(RATES, 1.0, "lorentz")
        new.assert_close(wide.to(dtype=torch.float32), 2e-5)
        assert bool((lorentz.dist(new.x, now.x, 1.0) > 0.1).all())
        now = new


@pytest.mark.parametrize("variant", ["plain", "decoupled decay"])
def test_tends_to_adam_with_a_second_moment_a_row(model: str, variant: str) -> None:
    """As c → 0, at the rate c. In the ball the flat coordinates are twice those of the ball."""
    scale = {"lorentz": 1.0, "poincare": 2.0}[model]
    rates = VARIANTS[variant]._replace(step_size=0.15)
    flat = torch.randn(30, 4, dtype=torch.float64)
    g, p = (torch.randn(30, 4, dtype=torch.float64) for _ in range(2))
    v = torch.rand(30, 1, dtype=torch.float64) / 4
    moment = rates.beta1 * p + (1 - rates.beta1) * g
    second = rates.beta2 * v + (1 - rates.beta2) * g.square().mean(-1, keepdim=True)
    alpha = rates.step_size / ((second / rates.correction).sqrt() + rates.eps)
    start = flat if rates.keep is None else rates.keep * flat
    expected = State(start - alpha * moment, g, moment, second)
    errors = []
    for c in (1e-2, 1e-4, 1e-6):
        new = State(flat / scale, scale * g, scale * p, v).step(rates, c, model)
        got = State(scale * new.x, g, new.p / scale, new.v)
        errors.append(max(relative(a, b) for a, b in zip(*pairs(got, expected), strict=True)))
    assert errors[2] < 1e-4
    assert errors[1] < 0.02 * errors[0]
    assert errors[2] < 0.02 * errors[1]


def pairs(a: State, b: State) -> tuple[list[Tensor], list[Tensor]]:
    return [a.x, a.p, a.v], [b.x, b.p, b.v]


def test_row_blocks_are_the_whole(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for c, shape in ((1.0, (50, 3, 5)), (CURVATURES["several"], (50, 3, 5)), (0.7, (50, 5))):
        old = state(MANIFOLDS[model](c), *shape, amsgrad=True)
        whole = old.step(VARIANTS["both"], c, model)
        with monkeypatch.context() as patch:
            patch.setattr(row_blocks, "_BLOCK_ELEMENTS", 7 * 15)
            blocks = len([*row_blocks.row_blocks(old.x, c)])
            old.step(VARIANTS["both"], c, model).assert_close(whole, 1e-15)
        assert blocks > 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_storage_only(model: str, dtype: torch.dtype) -> None:
    old = state(MANIFOLDS[model](1.0), 20, 5, dtype=dtype)
    new = old.step(RATES, 1.0, model)
    wide = old.to(dtype=torch.float32).step(RATES, 1.0, model)
    assert new.x.dtype == new.p.dtype == dtype
    assert torch.equal(new.x, wide.x.to(dtype))
    assert torch.equal(new.v, wide.v)
    # In the ball p is as long at the rounded point as it was before.
    if model == "poincare":
        before, after = (1 - x.float().square().sum(-1, keepdim=True) for x in (wide.x, new.x))
        wide.p *= before / after
    torch.testing.assert_close(new.p, wide.p.to(dtype), rtol=2 * torch.finfo(dtype).eps, atol=0)


def test_bad_rows_are_left_alone(model: str) -> None:
    check_bad_rows(model, fused=False)


def test_rows_without_a_gradient_stay_in_place(model: str) -> None:
    check_rows_without_a_gradient(model, fused=False)


def test_a_long_step_stays_in_the_ball() -> None:
    check_the_border(fused=False)


def test_rows_beyond_the_range_of_the_dtype_are_left_alone() -> None:
    check_out_of_range(fused=False)


def test_steps_across_the_ball_end_inside() -> None:
    check_steps_across_the_ball(fused=False)


@pytest.mark.parametrize("model", MANIFOLDS)
def test_moments_beyond_float16_are_not_stored(model: str) -> None:
    check_float16_moments(model, fused=False)


def test_what_is_compiled_is_the_reference(model: str) -> None:
    old = state(MANIFOLDS[model](1.0), 20, 5, dtype=torch.float32)
    compiled = torch.compile(adam_rows_, fullgraph=True)
    for fused in (None, True):
        new = old.to()
        compiled(new.x, new.g, new.p, new.v, None, RATES, c=1.0, model=model, fused=fused)
        new.assert_close(old.step(RATES, 1.0, model), 1e-5)


def test_without_triton_the_reference_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "triton_module", lambda name: None)
    old = state(MANIFOLDS["lorentz"](1.0), 4, 5)
    with pytest.raises(ValueError, match=r"fused=True.*Triton is not installed"):
        old.step(RATES, 1.0, "lorentz", True)
    new = old.step(RATES, 1.0, "lorentz", None)
    new.assert_close(old.step(RATES, 1.0, "lorentz"), 0.0)
