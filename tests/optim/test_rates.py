"""The learning rate of a point is the root mean square change of a coordinate."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from beltrami.geometry import Euclidean, Lorentz, Manifold, PoincareBall, Product, Sphere
from beltrami.optim import RiemannianAdam, RiemannianAdamW
from tests.optim.problems import close, generator, points

RATE = 1e-3


def path(manifold: Manifold, start: Tensor, *, count: int, signal: float) -> list[Tensor]:
    """Where rows are before each step under a steady force and noise, and at the end."""
    parameter = nn.Parameter(start.clone())
    optimizer = RiemannianAdamW([parameter], lr=RATE, weight_decay=0.0, manifold=manifold)
    random = generator(1)
    force = signal * torch.randn(start.shape, dtype=torch.float64, generator=random)
    places = [start]
    for _ in range(count):
        parameter.grad = force + torch.randn(start.shape, dtype=torch.float64, generator=random)
        optimizer.step()
        places.append(parameter.detach().clone())
    return places


def lengths(manifold: Manifold, places: list[Tensor]) -> Tensor:
    """Mean lengths of the single steps, in units of lr·√d."""
    unit = RATE * places[0].shape[-1] ** 0.5
    return torch.stack([manifold.dist(a, b).mean() / unit for a, b in itertools.pairwise(places)])


@pytest.mark.parametrize("signal", [0.0, 1.0])
@pytest.mark.parametrize("width", [8, 64, 1024])
def test_rows_move_as_far_as_under_adamw(width: int, signal: float) -> None:
    """In natural units, c = 1/d and coordinates of variance 1, at the first step and later."""
    start = torch.randn(30, width, dtype=torch.float64, generator=generator())
    flat = path(Euclidean(), start, count=40, signal=signal)
    natural = Lorentz(1 / width)
    curved = path(natural, start, count=40, signal=signal)
    ratio = lengths(natural, curved) / lengths(Euclidean(), flat)
    assert 0.9 < float(ratio.min()) <= float(ratio.max()) < 1.25
    total = natural.dist(curved[0], curved[-1]).mean() / (flat[-1] - flat[0]).norm(dim=-1).mean()
    assert 0.8 < float(total) < 1.25


@pytest.mark.parametrize(
    "manifold",
    [Lorentz(1.0), PoincareBall(0.3), Sphere(1.0), Lorentz(1e-9)],
    ids=repr,
)
@pytest.mark.parametrize("width", [3, 50])
def test_a_first_step_is_as_long_everywhere(manifold: Manifold, width: int) -> None:
    """lr·√d for d dimensions, whatever the width, the curvature and the size of gradients."""
    start = points(manifold, 20, width, std=0.2)
    for size in (1e-3, 1e3):
        parameter = nn.Parameter(start.clone())
        optimizer = RiemannianAdam([parameter], lr=RATE, manifold=manifold)
        parameter.grad = size * torch.randn(start.shape, dtype=torch.float64)
        optimizer.step()
        expected = RATE * manifold.tangent0_size(start.shape[-1]) ** 0.5
        moved = manifold.dist(start, parameter.detach())
        torch.testing.assert_close(moved, torch.full_like(moved, expected), rtol=1e-3, atol=0)


def test_eps_is_compared_with_a_coordinate_of_the_gradient() -> None:
    """Where all coordinates are alike, as in torch's Adam, so also where eps is what counts."""
    start = torch.zeros(4, 256, dtype=torch.float64)
    ours, theirs = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    optimizers = (
        RiemannianAdam([ours], lr=RATE, eps=0.1, manifold=Lorentz(1e-12)),
        torch.optim.Adam([theirs], lr=RATE, eps=0.1),
    )
    for parameter, optimizer in zip((ours, theirs), optimizers, strict=True):
        parameter.grad = torch.full_like(start, 0.1)
        optimizer.step()
    close(ours.detach(), theirs.detach(), 1e-9)


def test_factors_of_a_product_move_by_their_own_width() -> None:
    product = Product([(Lorentz(1.0), 64), (PoincareBall(1.0), 4, 3), (Euclidean(), 16)])
    start = points(product, 10, product.size, std=0.1)
    parameter = nn.Parameter(start.clone())
    optimizer = RiemannianAdam([parameter], lr=RATE, manifold=product)
    parameter.grad = torch.randn_like(start)
    optimizer.step()
    end = parameter.detach()
    for manifold, part, width in (
        (Lorentz(1.0), slice(0, 64), 64),
        (PoincareBall(1.0), slice(68, 72), 4),
        (Euclidean(), slice(76, 92), 16),
    ):
        moved = manifold.dist(start[:, part], end[:, part])
        expected = torch.full_like(moved, RATE * width**0.5)
        torch.testing.assert_close(moved, expected, rtol=1e-6, atol=0)


def radial_share(manifold: Manifold, width: int) -> float:
    """The part of the squared change of coordinates that is along the radius."""
    start = torch.randn(50, width, dtype=torch.float64, generator=generator())
    before, after = path(manifold, start, count=1, signal=0.0)
    change, unit = after - before, start / start.norm(dim=-1, keepdim=True)
    return float(((change * unit).sum(-1) ** 2).sum() / (change**2).sum())


def test_in_natural_units_a_step_is_not_radial() -> None:
    """At c = 1 and width 32 nearly all of a step with a random gradient is; in flat space 1/d."""
    for width in (8, 32, 1024):
        assert radial_share(Lorentz(1 / width), width) < 6 * radial_share(Euclidean(), width)
    assert radial_share(Lorentz(1.0), 32) > 0.9


# --- states of the older unit ---------------------------------------------------------------------


def old_adam(
    H: Lorentz, x: Tensor, gradients: list[Tensor], *, lr: float, decay: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """AdamW of version 0.1, its second moment the squared length of a gradient, and its state."""
    m, v, eps = torch.zeros_like(x), torch.zeros_like(x[..., :1]), 1e-3
    for t, g in enumerate(gradients, 1):
        gradient = H.riemannian_grad(x, g)
        m = 0.9 * m + 0.1 * gradient
        v = 0.999 * v + 0.001 * H.inner(x, gradient, gradient, keepdim=True)
        drawn = H.exp0((1 - lr * decay) * H.log0(x))
        x, m = drawn, H.transport(x, drawn, m)
        alpha = lr / (1 - 0.9**t) / ((v / (1 - 0.999**t)).sqrt() + eps)
        end = H.exp(x, -alpha * m)
        x, m = end, H.transport(x, end, m)
    c = float(H.c)
    covector = m - c * (x * m).sum(-1, keepdim=True) * x / (1 + c * x.square().sum(-1, True))
    step = torch.tensor(float(len(gradients)))
    return x, {"step": step, "exp_avg": covector, "exp_avg_sq": v}


def old_state(H: Manifold, states: list[dict[str, Tensor]], **changed: Any) -> dict[str, Any]:
    """A state dict as version 0.1 wrote it."""
    group = {
        "lr": 0.05, "betas": (0.9, 0.999), "eps": 1e-3, "weight_decay": 0.2, "amsgrad": False,
        "maximize": False, "foreach": None, "fused": None, "capturable": False,
        "nonfinite": "skip", "manifold": repr(H), "params": list(range(len(states))),
    }  # fmt: skip
    return {"state": dict(enumerate(states)), "param_groups": [group | changed]}


def test_a_state_of_the_older_unit_is_converted() -> None:
    """What is loaded goes on exactly as the older optimiser would have."""
    H, start = Lorentz(0.7), points(Lorentz(0.7), 6, 5)
    gradients = [torch.randn_like(start) for _ in range(6)]
    middle, state = old_adam(H, start, gradients[:3], lr=0.05, decay=0.2)
    expected, last = old_adam(H, start, gradients, lr=0.05, decay=0.2)

    parameter = nn.Parameter(middle.clone())
    optimizer = RiemannianAdamW([parameter], lr=1.0, manifold=H)
    optimizer.load_state_dict(saved := old_state(H, [state]))
    assert torch.equal(saved["state"][0]["exp_avg_sq"], state["exp_avg_sq"])  # left as it was
    (group,) = optimizer.param_groups
    assert group["rate_unit"] == "rms"
    assert group["lr"] == pytest.approx(0.05 / 5**0.5)
    for gradient in gradients[3:]:
        parameter.grad = gradient.clone()
        optimizer.step()
    close(parameter.detach(), expected, 1e-12)
    close(5 * optimizer.state[parameter]["exp_avg_sq"], last["exp_avg_sq"], 1e-12)
    again = RiemannianAdamW([nn.Parameter(middle.clone())], manifold=H)
    again.load_state_dict(optimizer.state_dict())  # today's unit: nothing to convert
    assert again.param_groups[0]["lr"] == group["lr"]


def test_plain_groups_of_older_states_load_as_they_are() -> None:
    parameter = nn.Parameter(torch.randn(3, 4))
    moments = {"step": torch.tensor(2.0), "exp_avg": torch.ones(3, 4)}
    optimizer = RiemannianAdamW([parameter], manifold=Euclidean())
    state = old_state(Euclidean(), [moments | {"exp_avg_sq": torch.full((3, 4), 0.3)}])
    optimizer.load_state_dict(state)
    assert torch.equal(optimizer.state[parameter]["exp_avg_sq"], torch.full((3, 4), 0.3))
    assert optimizer.param_groups[0]["lr"] == 0.05


def test_older_states_that_cannot_be_converted_are_refused() -> None:
    H = Lorentz(1.0)

    def load(widths: tuple[int, ...], **changed: Any) -> None:
        tables = [nn.Parameter(torch.zeros(2, width)) for width in widths]
        states = [
            {
                "step": torch.tensor(1.0),
                "exp_avg": torch.zeros(2, w),
                "exp_avg_sq": torch.ones(2, 1),
            }
            for w in widths
        ]
        RiemannianAdamW(tables, manifold=H).load_state_dict(old_state(H, states, **changed))

    with pytest.raises(ValueError, match=r"several widths.*point_lr=0.0354 for d=2 or .* d=8"):
        load((2, 8))
    with pytest.raises(ValueError, match=r"scheduler.*point_lr=0.025 for d=4.*initial_lr"):
        load((4,), initial_lr=0.05)
    with pytest.raises(ValueError, match=r"rate_unit='length'"):
        load((4,), rate_unit="length")


def test_a_scheduled_state_loads_without_its_schedule() -> None:
    """The way out that the message names."""
    H = Lorentz(1.0)
    parameter = nn.Parameter(torch.zeros(2, 4))
    moments = {"step": torch.tensor(1.0), "exp_avg": torch.zeros(2, 4)}
    state = old_state(H, [moments | {"exp_avg_sq": torch.ones(2, 1)}], initial_lr=0.05)
    del state["param_groups"][0]["initial_lr"]
    optimizer = RiemannianAdamW([parameter], manifold=H)
    optimizer.load_state_dict(state)
    LambdaLR(optimizer, lambda step: 1.0)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.025)
