"""Points and the curvature of their manifold, trained together."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.optim import Optimizer

from beltrami.geometry import (
    Curvature,
    Euclidean,
    Lorentz,
    Manifold,
    PoincareBall,
    Product,
    Sphere,
    Stereographic,
)
from beltrami.optim import RiemannianAdam, RiemannianSGD, create_optimizer
from tests.optim.problems import Words, points, same, train

OPTIMISERS: dict[str, Any] = {
    "adam": lambda groups: RiemannianAdam(groups, lr=0.05),
    "momentum": lambda groups: RiemannianSGD(groups, lr=0.01, momentum=0.9),
    "nesterov": lambda groups: RiemannianSGD(groups, lr=0.01, momentum=0.9, nesterov=True),
}


def together(
    name: str, x: nn.Parameter, manifold: Manifold, curvature: Curvature, curvature_lr: float
) -> Optimizer:
    groups = [
        {"params": [x], "manifold": manifold},
        {"params": [curvature.raw], "manifold": Euclidean(), "lr": curvature_lr},
    ]
    found: Optimizer = OPTIMISERS[name](groups)
    return found


def value(curvature: Curvature) -> float:
    return float(curvature.value.detach())


# --- training -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Lorentz, PoincareBall])
@pytest.mark.parametrize("name", ["adam", "adamw", "sgd"])
def test_the_loss_of_a_model_falls_and_its_curvature_moves(name: str, kind: type[Manifold]) -> None:
    model = Words(kind)
    before = value(model.curvature)
    optimizer = create_optimizer(model, name, lr=0.3 if name == "sgd" else 0.05, curvature_lr=0.05)
    losses = train(model, optimizer, 40)
    assert losses[-1] < 0.8 * losses[0]
    assert abs(value(model.curvature) - before) > 1e-3


@pytest.mark.parametrize(
    ("model", "tolerance"), [(Lorentz, 0.01), (PoincareBall, 0.2), (Sphere, 0.5)]
)
def test_a_curvature_is_found(model: Any, tolerance: float) -> None:
    """Distances between points that are free to move say which curvature they were measured in.

    Slower where coordinates are bound by c, and so must move along with it.
    """
    truth = model(2.0)
    hidden = points(truth, 12, 3, std=0.6)
    distances = truth.pairwise_dist(hidden, hidden)
    curvature = Curvature(0.7).double()
    manifold = model(curvature)
    x = nn.Parameter(model(0.7).exp0(truth.log0(hidden)))  # not where they would fit
    optimizer = together("adam", x, manifold, curvature, 0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=200)
    losses = []
    for _ in range(200):
        optimizer.zero_grad()
        loss = (manifold.pairwise_dist(x, x) - distances).square().mean()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.1 * losses[0]
    assert value(curvature) == pytest.approx(2.0, rel=tolerance)


# --- what happens to points when c changes --------------------------------------------------------


@pytest.mark.parametrize("name", OPTIMISERS)
def test_lorentz_coordinates_stay_when_c_alone_changes(name: str) -> None:
    curvature = Curvature(1.0)
    H = Lorentz(curvature)
    x = nn.Parameter(points(Lorentz(), 6, 3, dtype=torch.float32))
    optimizer = together(name, x, H, curvature, 0.1)
    x.grad = torch.randn_like(x)
    optimizer.step()  # with a momentum, which then has nothing to do
    x.grad = None
    old, before = x.detach().clone(), H.dist0(x.detach())
    state = {n: v.clone() for n, v in optimizer.state[x].items()}
    for _ in range(3):
        curvature.raw.grad = torch.ones(1)
        optimizer.step()
    assert value(curvature) < 0.9
    assert torch.equal(x.detach(), old)
    assert same(state, dict(optimizer.state[x]))
    assert (H.dist0(x.detach()) > before).all()  # the same x, in a flatter space


@pytest.mark.parametrize("name", OPTIMISERS)
def test_points_are_stepped_with_the_curvature_of_their_gradients(name: str) -> None:
    """The old one, and not the one that the same step has just made."""
    start = points(Lorentz(), 6, 3)
    force = torch.randn_like(start)
    ends = []
    for fixed in (True, False):
        curvature = Curvature(1.0, learnable=not fixed).double()
        x = nn.Parameter(start.clone())
        groups: list[dict[str, Any]] = [{"params": [x], "manifold": Lorentz(curvature)}]
        if not fixed:  # listed before the points, which does not matter
            groups.insert(0, {"params": [curvature.raw], "manifold": Euclidean(), "lr": 1.0})
            curvature.raw.grad = torch.ones(1, dtype=torch.float64)
        x.grad = force.clone()
        OPTIMISERS[name](groups).step()
        ends.append(x.detach())
        assert (value(curvature) == 1.0) == fixed
    assert torch.equal(ends[0], ends[1])


@settings(max_examples=20)
@given(st.floats(-3.0, 3.0), st.floats(0.1, 14.0), st.sampled_from(sorted(OPTIMISERS)))
def test_a_ball_that_shrinks_or_grows_keeps_its_points(
    change: float, radius: float, name: str
) -> None:
    """In one leap of log c: points stay inside, and in their direction, with a finite momentum."""
    curvature = Curvature(1.0)
    ball = PoincareBall(curvature)
    direction = nn.functional.normalize(torch.randn(6, 3), dim=-1)
    x = nn.Parameter(PoincareBall(1.0).exp0(radius * direction))
    optimizer = together(name, x, ball, curvature, 0.0)
    for group in optimizer.param_groups:
        group["lr"] = 0.0 if group["manifold"] is ball else 1.0
    loss = ball.dist0(x).sum()
    loss.backward()
    assert x.grad is not None
    length = PoincareBall(1.0).norm(
        x.detach(), PoincareBall(1.0).riemannian_grad(x.detach(), x.grad)
    )
    curvature.raw.grad = torch.full((1,), -change)
    if name == "adam":  # whose step has the length of its learning rate
        optimizer.param_groups[1]["lr"] = abs(change)
    old = x.detach().clone()
    optimizer.step()
    ball.check_point(x.detach())
    torch.testing.assert_close(nn.functional.normalize(x.detach(), dim=-1), direction)
    kept = (old.norm(dim=-1) * value(curvature) ** 0.5) < 0.9999
    assert torch.equal(x.detach()[kept], old[kept])  # what is inside is not touched
    state = optimizer.state[x]
    moment = state.get("exp_avg", state.get("momentum_buffer"))
    carried = ball.norm(x, ball.riemannian_grad(x, moment)).detach()
    expected = length * (0.1 if name == "adam" else 1.0)
    # rounding a point changes lengths by eps·cosh(r), at the border by tens of percent
    tolerance = 1e-5 + 2e-7 * math.exp(radius) if kept.all() else 0.7
    torch.testing.assert_close(carried, expected, rtol=tolerance, atol=1e-6)


@pytest.mark.parametrize("name", OPTIMISERS)
@pytest.mark.parametrize("down", [False, True])
def test_points_at_the_border_keep_moving_while_c_changes_fast(name: str, down: bool) -> None:
    """A row whose momentum the new c had made a thousand times longer would never move again."""
    curvature = Curvature(1.0)
    ball = PoincareBall(curvature)
    direction = nn.functional.normalize(torch.randn(20, 3), dim=-1)
    x = nn.Parameter(PoincareBall(1.0).exp0(8 * direction))
    optimizer = together(name, x, ball, curvature, 0.02)
    optimizer.param_groups[0]["lr"] = 0.01
    for _ in range(25):
        old, c = x.detach().clone(), value(curvature)
        optimizer.zero_grad()
        loss = ball.dist0(x).sum()
        loss.backward()
        curvature.raw.grad = torch.full((1,), 1.0 if down else -1.0)
        optimizer.step()
        assert x.detach().isfinite().all()
        ball.check_point(x.detach())
        # inward by the learning rate times a momentum of at most 1/(1 − 0.9), about
        moved = PoincareBall(c).dist0(old) - PoincareBall(c).dist0(x.detach())
        assert (moved > 0).all()
        if down:  # else points are put back as well
            assert moved.max() < 0.2
    assert not 0.8 < value(curvature) < 1.25


@pytest.mark.parametrize("down", [False, True])
def test_points_stay_on_a_sphere_whose_radius_is_learned(down: bool) -> None:
    for name in OPTIMISERS:
        curvature = Curvature(1.0).double()
        sphere = Sphere(curvature)
        x = nn.Parameter(points(Sphere(1.0), 6, 4))
        optimizer = together(name, x, sphere, curvature, 0.1)
        for _ in range(10):
            x.grad = torch.randn_like(x)
            curvature.raw.grad = torch.full((1,), 1.0 if down else -1.0, dtype=torch.float64)
            optimizer.step()
            radius = torch.full((6,), value(curvature) ** -0.5, dtype=torch.float64)
            torch.testing.assert_close(x.detach().norm(dim=-1), radius)
            state = optimizer.state[x]
            moment = state.get("exp_avg", state.get("momentum_buffer"))
            assert (moment * x.detach()).sum(-1).abs().max() < 1e-12  # still a tangent vector
        assert not 0.9 < value(curvature) < 1.1


def test_a_geometry_that_is_learned_through_zero() -> None:
    """κ as a bare parameter, from a ball to a sphere and back; points inside all the time."""
    kappa = nn.Parameter(torch.full((1,), -0.5))
    manifold = Stereographic(kappa)
    x = nn.Parameter(Stereographic(-0.5).exp0(4 * torch.eye(3)))
    groups = [
        {"params": [x], "manifold": manifold},
        {"params": [kappa], "manifold": Euclidean(), "lr": 0.2},
    ]
    optimizer = RiemannianAdam(groups, lr=0.05)
    seen = []
    for turn in range(12):
        optimizer.zero_grad()
        (-manifold.dist0(x).sum()).backward()
        kappa.grad = torch.full((1,), -1.0 if turn < 6 else 10.0)
        optimizer.step()
        seen.append(float(kappa.detach()))
        manifold.check_point(x.detach())
        moment = optimizer.state[x]["exp_avg"]
        assert manifold.norm(x.detach(), moment).detach().max() < 2
    assert min(seen) < 0 < max(seen)


def test_factors_of_a_product_are_followed_each_by_itself() -> None:
    """The ball's points are put back, the hyperboloid's are not touched."""
    curvature = Curvature(1.0, size=2)
    other = Curvature(1.0)
    product = Product([(PoincareBall(curvature), 2, 2), (Lorentz(other), 2), (Sphere(other), 3)])
    start = product.random(5, product.size)
    x = nn.Parameter(start.clone())
    groups = [
        {"params": [x], "manifold": product},
        {"params": [curvature.raw, other.raw], "manifold": Euclidean()},
    ]
    optimizer = RiemannianSGD(groups, lr=1.0, momentum=0.9)
    curvature.raw.grad, other.raw.grad = torch.tensor([-2.0, 2.0]), -torch.ones(1)
    optimizer.step()
    with torch.no_grad():
        product.check_point(x)
    end, old = x.detach(), start
    assert not torch.equal(end[:, :2], old[:, :2])  # in a ball that has shrunk
    assert torch.equal(end[:, 2:4], old[:, 2:4])  # in one that has grown
    assert torch.equal(end[:, 4:6], old[:, 4:6])  # on the hyperboloid
    torch.testing.assert_close(end[:, 6:], old[:, 6:] * float(other.value.detach()) ** -0.5)


def test_a_parameter_without_gradient_is_put_back_too() -> None:
    curvature = Curvature(1.0)
    ball = PoincareBall(curvature)
    x = nn.Parameter(PoincareBall(1.0).exp0(6 * torch.eye(3)))
    optimizer = together("adam", x, ball, curvature, 0.5)
    curvature.raw.grad = -torch.ones(1)
    optimizer.step()
    ball.check_point(x.detach())
    assert x.detach().norm(dim=-1).max() < 0.8
    assert x not in optimizer.state or not optimizer.state[x]


# --- weight decay ---------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [RiemannianAdam, RiemannianSGD])
def test_weight_decay_on_a_curvature_is_an_error(make: Any) -> None:
    curvature = Curvature(1.0)
    table = {"params": [nn.Parameter(torch.zeros(3, 2))], "manifold": Lorentz(curvature)}
    decayed = {"params": curvature.parameters(), "manifold": Euclidean(), "weight_decay": 0.1}
    with pytest.raises(ValueError, match=r"a curvature has weight_decay=0\.1.*weight_decay=0"):
        make([table, decayed])
    decayed["params"] = list(curvature.parameters())
    with pytest.raises(ValueError, match="a curvature has weight_decay"):
        make([decayed, table])  # whichever comes first
    with pytest.raises(ValueError, match="a curvature has weight_decay"):
        make([{**decayed, "kind": "curvature"}])  # without its points, but called so
    optimizer = make([table])
    with pytest.raises(ValueError, match="a curvature has weight_decay"):
        optimizer.add_param_group(decayed)
    assert len(optimizer.param_groups) == 1  # as if it had not been tried
    optimizer.add_param_group({**decayed, "weight_decay": 0.0})


def test_no_model_decays_its_curvatures_by_accident() -> None:
    """With the largest decay, a curvature without gradient keeps its value to the last bit."""
    model = Words()
    with torch.no_grad():
        model.curvature.raw.fill_(0.5)
    optimizer = create_optimizer(model, lr=0.1, weight_decay=5.0)
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    matrix: Tensor = model.linear.weight.detach().clone()
    optimizer.step()
    assert torch.equal(model.curvature.raw.detach(), torch.full((1,), 0.5))
    torch.testing.assert_close(model.linear.weight.detach(), 0.5 * matrix)
