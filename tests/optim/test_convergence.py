"""Convergence: on problems that scipy solves too, in closed form, and far out in float32."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from scipy import optimize
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR

from beltrami.geometry import (
    Euclidean,
    Lorentz,
    Manifold,
    PoincareBall,
    Product,
    Sphere,
    Stereographic,
)
from beltrami.optim import RiemannianAdam, RiemannianAdamW, RiemannianSGD
from tests.optim.problems import points

SIZE = 3
MANIFOLDS = [Lorentz(0.4), PoincareBall(2.0)]
OPTIMISERS: dict[str, Callable[..., Optimizer]] = {
    "adam": lambda groups: RiemannianAdam(groups, lr=0.1, betas=(0.9, 0.99)),
    "amsgrad": lambda groups: RiemannianAdam(groups, lr=0.1, betas=(0.9, 0.99), amsgrad=True),
    "adamw": lambda groups: RiemannianAdamW(groups, lr=0.1, betas=(0.9, 0.99), weight_decay=0.0),
    "sgd": lambda groups: RiemannianSGD(groups, lr=0.3),
    "momentum": lambda groups: RiemannianSGD(groups, lr=0.1, momentum=0.8),
    "nesterov": lambda groups: RiemannianSGD(groups, lr=0.1, momentum=0.8, nesterov=True),
}


def scipy_optimum(loss: Callable[[Tensor], Tensor], start: Tensor) -> Tensor:
    """Where BFGS ends: the minimum of a function of flat coordinates."""

    def both(flat: object) -> tuple[float, object]:
        v = torch.as_tensor(flat, dtype=torch.float64).view(start.shape).clone().requires_grad_()
        value = loss(v)
        value.backward()
        assert v.grad is not None
        return value.item(), v.grad.flatten().numpy()

    found = optimize.minimize(
        both, start.flatten().numpy(), jac=True, method="BFGS", options={"gtol": 1e-10}
    )
    return torch.as_tensor(found.x).view(start.shape)


def descend(
    optimizer: Optimizer, loss: Callable[[], Tensor], count: int = 0, *, falls: bool = False
) -> float:
    """Train, and return how close that should come.

    The learning rate of Adam falls, since its steps do not get smaller by themselves.
    """
    falls = falls or isinstance(optimizer, RiemannianAdam)
    count = count or (250 if falls else 150)
    schedule = CosineAnnealingLR(optimizer, T_max=count) if falls else None
    for _ in range(count):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
        if schedule is not None:
            schedule.step()
    return 1e-4 if falls else 1e-5


# --- against scipy --------------------------------------------------------------------------------


@pytest.mark.parametrize("manifold", MANIFOLDS, ids=repr)
@pytest.mark.parametrize("name", OPTIMISERS)
def test_frechet_mean(name: str, manifold: Manifold) -> None:
    data = points(manifold, 12, SIZE, std=0.8)
    weights = torch.linspace(0.5, 1.5, 12, dtype=torch.float64)

    def spread(x: Tensor) -> Tensor:
        return (weights * manifold.dist_sq(x, data)).mean() / 2

    best = manifold.exp0(
        scipy_optimum(lambda v: spread(manifold.exp0(v)), torch.zeros(SIZE, dtype=torch.float64))
    )
    mean = nn.Parameter(data[0].clone())
    optimizer = OPTIMISERS[name]([{"params": [mean], "manifold": manifold}])
    close = descend(optimizer, lambda: spread(mean))
    assert manifold.dist(mean.detach(), best) < close
    assert manifold.dist(best, manifold.frechet_mean(data, weights)) < 1e-6


@pytest.mark.parametrize("manifold", [Lorentz(0.7), PoincareBall(0.7)], ids=repr)
@pytest.mark.parametrize("make", [RiemannianAdam, RiemannianSGD])
def test_weight_decay_that_is_part_of_the_loss_moves_the_optimum_as_scipy_says(
    make: Callable[..., Optimizer], manifold: Manifold
) -> None:
    data = points(manifold, 12, SIZE, std=0.8) + 0.1
    decay = 0.6

    def spread(x: Tensor) -> Tensor:
        return manifold.dist_sq(x, data).mean() / 2

    def decayed(v: Tensor) -> Tensor:
        x = manifold.exp0(v)
        return spread(x) + decay / 2 * manifold.dist0(x).square()

    best = manifold.exp0(scipy_optimum(decayed, torch.full((SIZE,), 0.1, dtype=torch.float64)))
    mean = nn.Parameter(data[0].clone())
    optimizer = make([mean], lr=0.1, weight_decay=decay, manifold=manifold)
    close = descend(optimizer, lambda: spread(mean))
    assert manifold.dist(mean.detach(), best) < close


def noisy_geodesic(manifold: Manifold) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Two end points, and points near their geodesic at known times."""
    ends = points(manifold, 2, SIZE, std=0.9, seed=3)
    t = torch.linspace(0, 1, 15, dtype=torch.float64).unsqueeze(-1)
    on = manifold.geodesic(ends[0], ends[1], t)
    noise = 0.05 * torch.randn(15, SIZE, dtype=torch.float64)
    return ends[0], ends[1], t, manifold.exp(on, manifold.transport_from0(on, noise))


@pytest.mark.parametrize("manifold", [Lorentz(1.0), PoincareBall(0.6)], ids=repr)
@pytest.mark.parametrize("name", ["adamw", "momentum", "nesterov"])
def test_geodesic_regression_by_end_points(name: str, manifold: Manifold) -> None:
    _, _, t, data = noisy_geodesic(manifold)

    def misfit(ends: Tensor) -> Tensor:
        return manifold.dist_sq(manifold.geodesic(ends[0], ends[1], t), data).mean()

    best = manifold.exp0(
        scipy_optimum(
            lambda v: misfit(manifold.exp0(v)), torch.zeros(2, SIZE, dtype=torch.float64) + 0.1
        )
    )
    ends = nn.Parameter(points(manifold, 2, SIZE, std=0.1))
    optimizer = OPTIMISERS[name]([{"params": [ends], "manifold": manifold}])
    close = descend(optimizer, lambda: misfit(ends))
    assert manifold.dist(ends.detach(), best).max() < close


@pytest.mark.parametrize("manifold", [Lorentz(1.0), PoincareBall(0.6)], ids=repr)
@pytest.mark.parametrize("name", ["adam", "nesterov"])
def test_geodesic_regression_by_start_and_velocity(name: str, manifold: Manifold) -> None:
    """A point and a plain parameter in one optimiser."""
    _, _, t, data = noisy_geodesic(manifold)

    def misfit(start: Tensor, velocity: Tensor) -> Tensor:
        along = manifold.exp(start, t * manifold.transport_from0(start, velocity))
        return manifold.dist_sq(along, data).mean()

    found = scipy_optimum(
        lambda v: misfit(manifold.exp0(v[0]), v[1]), torch.zeros(2, SIZE, dtype=torch.float64) + 0.1
    )
    start = nn.Parameter(points(manifold, SIZE, std=0.1))
    velocity = nn.Parameter(torch.zeros(SIZE, dtype=torch.float64))
    groups = [
        {"params": [start], "manifold": manifold},
        {"params": [velocity], "manifold": Euclidean()},
    ]
    close = descend(OPTIMISERS[name](groups), lambda: misfit(start, velocity))
    assert manifold.dist(start.detach(), manifold.exp0(found[0])) < close
    torch.testing.assert_close(velocity.detach(), found[1], atol=close, rtol=0)


# --- in closed form -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "manifold",
    [
        Lorentz(1.0),
        Lorentz(3.0),
        PoincareBall(1.0),
        PoincareBall(0.2),
        Sphere(0.5),
        Stereographic(-0.7),
        Product([(Lorentz(1.0), 2), (PoincareBall(2.0), 2), (Euclidean(), 1)]),
    ],
    ids=repr,
)
def test_gradient_descent_on_half_the_squared_distance_follows_the_geodesic(
    manifold: Manifold,
) -> None:
    """Its gradient is −log, so a step of η leaves 1 − η of the way."""
    start, target = points(manifold, 7, 5), points(manifold, 7, 5, seed=1)
    x = nn.Parameter(start.clone())
    optimizer = RiemannianSGD([x], lr=0.2, manifold=manifold)
    for i in range(1, 6):
        optimizer.zero_grad()
        (manifold.dist_sq(x, target).sum() / 2).backward()
        optimizer.step()
        expected = manifold.geodesic(start, target, 1 - 0.8**i)
        torch.testing.assert_close(x.detach(), expected, atol=1e-12, rtol=1e-12)


# --- far out in float32 ---------------------------------------------------------------------------

FAR: dict[str, Callable[..., Optimizer]] = {
    "adam": lambda p, m: RiemannianAdam(p, lr=1.0, manifold=m),
    "adamw": lambda p, m: RiemannianAdamW(p, lr=1.0, manifold=m),
    "sgd": lambda p, m: RiemannianSGD(p, lr=0.05, manifold=m),
    "momentum": lambda p, m: RiemannianSGD(p, lr=0.02, momentum=0.7, manifold=m),
    "nesterov": lambda p, m: RiemannianSGD(p, lr=0.02, momentum=0.7, nesterov=True, manifold=m),
}


def far_out(manifold: Manifold, radius: float, rows: int = 8, seed: int = 0) -> Tensor:
    """Points at one distance from the origin, in float32."""
    v = torch.randn(rows, SIZE, generator=torch.Generator().manual_seed(seed))
    return manifold.project(manifold.exp0(radius * nn.functional.normalize(v, dim=-1)))


def assert_finite(optimizer: Optimizer, x: Tensor) -> None:
    assert x.isfinite().all()
    for value in optimizer.state[x].values():
        assert value.isfinite().all()


@pytest.mark.parametrize(
    ("manifold", "radius"),
    [(Lorentz(1.0), 30.0), (Lorentz(0.5), 40.0), (PoincareBall(4.0), 7.5)],
    ids=repr,
)
@pytest.mark.parametrize("name", FAR)
def test_a_point_far_out_comes_home(name: str, manifold: Manifold, radius: float) -> None:
    x = nn.Parameter(far_out(manifold, radius))
    optimizer = FAR[name]([x], manifold)
    if isinstance(optimizer, RiemannianAdam):
        optimizer.param_groups[0]["lr"] = radius / 30
    descent = []
    schedule = CosineAnnealingLR(optimizer, T_max=120)
    for _ in range(120):
        optimizer.zero_grad()
        (manifold.dist0(x).square().sum() / 2).backward()
        optimizer.step()
        schedule.step()
        assert_finite(optimizer, x)
        descent.append(manifold.dist0(x.detach()))
    path = torch.stack(descent)
    assert path[0].min() > 0.9 * radius  # it was far out
    falling = path[1:] < path[:-1]
    assert falling[path[1:] > 0.3 * radius].all()  # all the way, until momentum may overshoot
    assert path[-1].max() < 0.05 * radius


@pytest.mark.parametrize("name", ["adam", "momentum", "nesterov"])
@pytest.mark.parametrize("power", [1, 2])
def test_a_point_at_radius_30_reaches_its_target(name: str, power: int) -> None:
    """Past the origin and out again to the other side; by the distance and by its square."""
    manifold = Lorentz(1.0)
    target = far_out(manifold, 5.0, seed=1)
    x = nn.Parameter(far_out(manifold, 30.0))
    rate = {"adam": 1.0}.get(name, 0.3 if power == 1 else 0.02)
    optimizer = FAR[name]([x], manifold)
    optimizer.param_groups[0]["lr"] = rate
    start = manifold.dist(x.detach(), target)

    def loss() -> Tensor:
        return (manifold.dist(x, target) if power == 1 else manifold.dist_sq(x, target) / 2).sum()

    descend(optimizer, loss, 200, falls=True)
    assert_finite(optimizer, x)
    assert start.min() > 25
    assert manifold.dist(x.detach(), target).max() < 0.1


@pytest.mark.parametrize("name", ["adam", "momentum", "nesterov"])
def test_a_point_is_pushed_out_to_radius_30(name: str) -> None:
    manifold = Lorentz(1.0)
    x = nn.Parameter(far_out(manifold, 1e-3))
    optimizer = FAR[name]([x], manifold)
    descend(optimizer, lambda: (manifold.dist0(x) - 30).square().sum() / 2)
    assert_finite(optimizer, x)
    torch.testing.assert_close(
        manifold.dist0(x.detach()), torch.full((8,), 30.0), rtol=1e-2, atol=0
    )


def test_the_origin_itself_is_left() -> None:
    """A point starts with the gradient it has there, not with 0/0."""
    manifold = Lorentz(1.0)
    target = far_out(manifold, 3.0)
    for name in ("adam", "nesterov"):
        x = nn.Parameter(torch.zeros_like(target))
        optimizer = FAR[name]([x], manifold)
        optimizer.param_groups[0]["lr"] = 0.1
        descend(optimizer, lambda x=x: manifold.dist_sq(x, target).sum() / 2, 100)  # type: ignore[misc]
        assert manifold.dist(x.detach(), target).max() < 0.3


@pytest.mark.parametrize("name", FAR)
def test_a_ball_is_never_left(name: str) -> None:
    """Pushed outward for ever, points come to rest at the border, inside."""
    manifold = PoincareBall(1.0)
    x = nn.Parameter(far_out(manifold, 12.0))
    optimizer = FAR[name]([x], manifold)
    for _ in range(40):
        optimizer.zero_grad()
        (-10 * manifold.dist0(x).sum()).backward()
        optimizer.step()
        assert_finite(optimizer, x)
        manifold.check_point(x.detach())
    assert manifold.dist0(x.detach()).min() > 14
    descend(optimizer, lambda: manifold.dist0(x).square().sum() / 2, 100)  # and come back
    assert manifold.dist0(x.detach()).max() < 8
