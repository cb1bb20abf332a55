"""The entailment-cone loss: against the published formulas, where cones begin, limits."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from beltrami.geometry import Euclidean, Lorentz, Manifold, PoincareBall, Product, Sphere, poincare
from beltrami.losses import entailment_energy, entailment_loss, keep_outside, least_radius

MANIFOLDS = [Lorentz(1.0), Lorentz(0.3), PoincareBall(1.0), PoincareBall(2.5), Euclidean()]


def points(manifold: Manifold, n: int = 40, std: float = 1.0) -> Tensor:
    return manifold.random(n, 4, std=std, dtype=torch.float64)


def test_is_the_published_energy_in_the_ball() -> None:
    """Ganea et al. 2018: the angle from an acos, the aperture from an asin, for c = 1."""
    ball, k = PoincareBall(1.0), 0.1
    x, y = keep_outside(points(ball, std=0.1), ball, k), points(ball)
    nx, ny, dot = x.norm(dim=-1), y.norm(dim=-1), (x * y).sum(-1)
    above = dot * (1 + nx**2) - nx**2 * (1 + ny**2)
    below = nx * (x - y).norm(dim=-1) * (1 + nx**2 * ny**2 - 2 * dot).sqrt()
    expected = (torch.acos(above / below) - torch.asin(k * (1 - nx**2) / nx)).relu()
    torch.testing.assert_close(entailment_energy(x, y, ball), expected, rtol=0, atol=1e-8)
    assert (expected > 0).any()
    assert (expected == 0).any()


def test_is_the_published_energy_in_flat_space() -> None:
    flat, k = Euclidean(), 0.4
    x, y = keep_outside(points(flat), flat, k), points(flat)
    cosine = torch.cosine_similarity(x, y - x, dim=-1)
    expected = (torch.acos(cosine) - torch.asin(k / x.norm(dim=-1))).relu()
    found = entailment_energy(x, y, flat, min_radius=k)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-7)


def test_models_of_hyperbolic_space_agree() -> None:
    c = 0.7
    x, y = points(PoincareBall(c)), points(PoincareBall(c))
    a, b = poincare.to_lorentz(x, c), poincare.to_lorentz(y, c)
    torch.testing.assert_close(
        entailment_energy(x, y, PoincareBall(c)), entailment_energy(a, b, Lorentz(c))
    )


def test_small_curvature_gives_euclidean_cones() -> None:
    x, y, k = points(Euclidean()), points(Euclidean()), 0.2
    flat = entailment_energy(x, y, Euclidean(), min_radius=k)

    def error(c: float) -> float:
        curved = entailment_energy(x, y, Lorentz(c), min_radius=k * math.sqrt(c) / 2)
        return (curved - flat).abs().max().item()

    assert 8 < error(1e-3) / error(1e-4) < 12


@pytest.mark.parametrize("manifold", MANIFOLDS, ids=repr)
def test_gradients_are_finite_at_singular_points_and_far_out(manifold: Manifold) -> None:
    reach = 12.0 if isinstance(manifold, PoincareBall) else 30.0
    direction = torch.nn.functional.normalize(torch.randn(12, 4), dim=-1)
    for radius in (0.0, 1e-6, 0.2, 1.0, reach):
        scaled = radius if isinstance(manifold, Euclidean) else radius / math.sqrt(manifold.c)
        x = manifold.exp0(scaled * direction).detach().requires_grad_()
        for other in (x.detach(), -x.detach(), x.detach().roll(1, 0), torch.zeros_like(x)):
            y = other.clone().requires_grad_()
            true, false = entailment_energy(x, y, manifold), entailment_energy(y, x, manifold)
            loss = entailment_loss(true, false)
            grads = torch.autograd.grad(loss, [x, y])
            assert loss.isfinite()
            assert all(bool(g.isfinite().all()) for g in grads)


@pytest.mark.parametrize("manifold", MANIFOLDS, ids=repr)
def test_a_point_is_in_its_own_cone_and_the_origin_entails_all(manifold: Manifold) -> None:
    x = points(manifold)
    assert not entailment_energy(x, x, manifold).any()
    assert not entailment_energy(torch.zeros_like(x), x, manifold).any()


@pytest.mark.parametrize("manifold", MANIFOLDS, ids=repr)
def test_gradcheck(manifold: Manifold) -> None:
    x = keep_outside(points(manifold, 6), manifold, 0.2).requires_grad_()
    y = points(manifold, 6).requires_grad_()

    def loss(x: Tensor, y: Tensor) -> Tensor:
        true = entailment_energy(x, y, manifold)
        return entailment_loss(true, entailment_energy(y, x, manifold), margin=1.3)

    assert torch.autograd.gradcheck(loss, (x, y))


# --- the loss over energies -----------------------------------------------------------------------


def test_loss_is_the_max_margin_sum() -> None:
    true, false = torch.tensor([0.0, 0.4]), torch.tensor([[0.0, 0.05], [0.3, 0.1]])
    assert entailment_loss(true, false, margin=0.1).item() == pytest.approx(0.4 + 0.1 + 0.05)
    mean = entailment_loss(true, false, margin=0.1, reduction="mean")
    assert mean.item() == pytest.approx(0.4 / 2 + 0.15 / 4)
    parts = entailment_loss(true, false, margin=0.1, reduction="none")
    torch.testing.assert_close(parts, torch.tensor([0.0, 0.4, 0.1, 0.05, 0.0, 0.0]))


def test_masked_false_pairs_do_not_count() -> None:
    true = torch.tensor([0.2])
    false = torch.tensor([0.0, math.nan, 0.05], requires_grad=True)
    mask = torch.tensor([True, False, True])
    loss = entailment_loss(true, false, margin=0.1, mask=mask)
    loss.backward()
    assert loss.item() == pytest.approx(0.2 + 0.1 + 0.05)
    assert torch.equal(false.grad, torch.tensor([-1.0, 0.0, -1.0]))
    mean = entailment_loss(true, false, margin=0.1, mask=mask, reduction="mean")
    assert mean.item() == pytest.approx(0.2 + 0.15 / 2)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_no_false_pairs(reduction: str) -> None:
    true, none = torch.tensor([0.2, 0.4]), torch.empty(0)
    expected = 0.6 if reduction == "sum" else 0.3
    assert entailment_loss(true, none, reduction=reduction).item() == pytest.approx(expected)
    assert entailment_loss(none, none, reduction=reduction).item() == 0
    mask = torch.zeros(2, dtype=torch.bool)
    masked = entailment_loss(true, true, mask=mask, reduction=reduction)
    assert masked.item() == pytest.approx(expected)


# --- where cones begin ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("manifold", MANIFOLDS, ids=repr)
def test_keep_outside(manifold: Manifold, dtype: torch.dtype) -> None:
    k = 0.3
    x = points(manifold, 200, std=0.3).to(dtype)
    x[0] = 0
    out = keep_outside(x, manifold, k)
    before, after = (manifold.dist0(p.double()) for p in (x, out))
    least = least_radius(manifold, k)
    near = torch.finfo(dtype).eps
    assert bool((after >= least).all())
    inside = before < least
    assert inside.any()
    assert (~inside).any()
    assert bool((after[inside] < least * (1 + 2e-5 + 8 * near)).all())
    far = before > least * (1 + 1e-3 + 8 * near)
    assert torch.equal(out[far], x[far])
    assert out[0, 0] > 0
    assert not out[0, 1:].any()
    cosine = torch.cosine_similarity(x[1:].double(), out[1:].double(), dim=-1)
    torch.testing.assert_close(cosine, torch.ones_like(cosine), rtol=0, atol=4 * near)
    assert torch.equal(keep_outside(out, manifold, k), out)


def test_the_least_radius_is_the_published_one_in_the_ball() -> None:
    k = 0.1
    radius = least_radius(PoincareBall(1.0), k)
    expected = 2 * k / (1 + math.sqrt(1 + 4 * k * k))
    assert math.tanh(radius / 2) == pytest.approx(expected)


def test_inside_the_least_radius_the_cone_is_a_half_space() -> None:
    ball = Lorentz(1.0)
    x = torch.tensor([0.1, 0.0], requires_grad=True)
    beside = torch.tensor([0.1, 5.0])
    behind = torch.tensor([-5.0, 0.1])
    assert entailment_energy(x, beside, ball).item() < 0.2
    energy = entailment_energy(x, behind, ball)
    assert energy.item() == pytest.approx(math.pi / 2, abs=0.2)
    energy.backward()
    assert x.grad.any()  # the angle still moves the apex


@pytest.mark.parametrize("manifold", [Sphere(1.0), Product([(Lorentz(1.0), 2)]), Lorentz, None])
def test_manifolds_without_cones(manifold: Manifold) -> None:
    with pytest.raises(TypeError, match="Lorentz"):
        entailment_energy(torch.ones(2), torch.ones(2), manifold)


@pytest.mark.parametrize(
    ("change", "kind", "text"),
    [
        ({"margin": 0.0}, ValueError, "margin"),
        ({"margin": None}, TypeError, "margin"),
        ({"mask": torch.ones(3, dtype=torch.bool)}, ValueError, "mask"),
        ({"reduction": "max"}, ValueError, "reduction"),
        ({"true": torch.ones(2, dtype=torch.int64)}, TypeError, "true"),
        ({"false": [0.1]}, TypeError, "false"),
    ],
)
def test_bad_input(change: dict, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        entailment_loss(**{"true": torch.ones(2), "false": torch.ones(2)} | change)


@pytest.mark.parametrize(
    ("radius", "kind"), [(0.0, ValueError), (-1.0, ValueError), ("", TypeError)]
)
def test_bad_radius(radius: float, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="min_radius"):
        keep_outside(torch.ones(2), Lorentz(1.0), radius)
    with pytest.raises(kind, match="min_radius"):
        least_radius(Lorentz(1.0), radius)
