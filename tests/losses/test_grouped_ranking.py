"""The grouped ranking loss: against the published formula, its sampled form, and at its limits."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

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
from beltrami.losses import ranking_loss
from beltrami.losses.grouped_ranking import grouped_ranking_loss, log_mass

F64 = torch.float64
MANIFOLDS = {
    "lorentz": Lorentz(1.0),
    "lorentz, other curvature": Lorentz(0.4),
    "lorentz, curvature as a tensor": Lorentz(torch.tensor([0.4], dtype=F64)),
    "ball": PoincareBall(1.0),
    "ball, other curvature": PoincareBall(2.0),
    "product": Product([(Lorentz(1.0), 2), (Euclidean(), 2)]),
    "product of three": Product([(Lorentz(0.5), 1), (PoincareBall(1.0), 1), (Sphere(1.0), 2)]),
    "euclidean": Euclidean(),
    "sphere": Sphere(1.0),
    "stereographic": Stereographic(-0.7),
}
EVERYWHERE = pytest.mark.parametrize("manifold", MANIFOLDS.values(), ids=MANIFOLDS)


class Problem:
    """Three nodes with 2, 1 and 3 positives, and five candidates of which some are is_negative."""

    def __init__(self, manifold: Manifold, spread: float = 1.0) -> None:
        g = torch.Generator().manual_seed(5)
        self.nodes, self.positives, self.pool = (
            manifold.random(n, 4, std=spread, dtype=F64, generator=g) for n in (3, 6, 5)
        )
        self.rows = torch.tensor([0, 0, 1, 2, 2, 2])
        self.is_negative = torch.tensor(
            [[1, 1, 0, 1, 0], [0, 0, 0, 0, 1], [1, 1, 1, 1, 1]], dtype=torch.bool
        )
        self.manifold = manifold

    def points(self) -> list[Tensor]:
        return [t.requires_grad_() for t in (self.nodes, self.positives, self.pool)]

    def loss(self, **options: Any) -> Tensor:
        return grouped_ranking_loss(
            self.nodes,
            self.positives,
            self.rows,
            self.pool,
            self.is_negative,
            self.manifold,
            **options,
        )


def literal(problem: Problem, negatives: float) -> list[float]:
    """−log e^{−d}/(e^{−d} + K·mean e^{−d'}), one number at a time."""
    found = []
    dist = problem.manifold.dist
    for row, v in zip(problem.rows.tolist(), problem.positives, strict=True):
        u = problem.nodes[row]
        true = math.exp(-dist(u, v).item())
        false = [
            math.exp(-dist(u, n).item())
            for n, counts in zip(problem.pool, problem.is_negative[row].tolist(), strict=True)
            if counts
        ]
        total = negatives * sum(false) / len(false) if false else 0.0
        found.append(-math.log(true / (true + total)))
    return found


@EVERYWHERE
@pytest.mark.parametrize("negatives", [1.0, 10, 50.0])
def test_is_the_published_loss_with_the_mean_over_strangers(
    manifold: Manifold, negatives: float
) -> None:
    problem = Problem(manifold)
    found = problem.loss(negatives=negatives)
    assert found.dtype == F64
    assert found.tolist() == pytest.approx(literal(problem, negatives), rel=1e-10)


def test_fifty_negatives_are_the_default() -> None:
    problem = Problem(Lorentz(1.0))
    assert torch.equal(problem.loss(), problem.loss(negatives=50.0))


@EVERYWHERE
def test_gradient(manifold: Manifold) -> None:
    problem = Problem(manifold, spread=0.5)
    problem.is_negative[1] = False
    points = problem.points()

    def loss(*moved: Tensor) -> Tensor:
        # Gradients of ambient coordinates (the sphere's) are only defined along the manifold.
        on = (manifold.project(t) for t in moved)
        problem.nodes, problem.positives, problem.pool = on
        return problem.loss()

    assert torch.autograd.gradcheck(loss, points)


def test_a_learned_curvature_gets_its_gradient() -> None:
    curvature = Curvature(0.7).double()
    problem = Problem(Lorentz(curvature))
    parameter = next(curvature.parameters())

    def total(value: float) -> float:
        with torch.no_grad():
            parameter.fill_(value)
            return problem.loss().sum().item()

    at = parameter.item()
    slope = (total(at + 1e-5) - total(at - 1e-5)) / 2e-5
    with torch.no_grad():
        parameter.fill_(at)
    problem.loss().sum().backward()
    assert parameter.grad.item() == pytest.approx(slope, rel=1e-6)


def test_equals_the_sampled_loss_that_samples_each_negative_once() -> None:
    """With as many negatives as is_negative there is nothing left to average."""
    problem = Problem(Lorentz(1.0))
    problem.is_negative[:] = True
    u = problem.nodes[problem.rows]
    false = problem.manifold.pairwise_dist(u, problem.pool)
    distances = torch.cat([problem.manifold.dist(u, problem.positives)[:, None], false], dim=1)
    assert problem.loss(negatives=5.0).mean().item() == pytest.approx(ranking_loss(distances))


def test_is_what_the_sampled_loss_tends_to() -> None:
    """With many samples for each negative, weighted down, the sampled sum is the mean."""
    problem = Problem(Lorentz(1.0))
    row, samples, negatives = 0, 200_000, 50
    u, v = problem.nodes[row], problem.positives[0]
    is_negative = problem.pool[problem.is_negative[row]]
    drawn = is_negative[torch.randint(len(is_negative), (samples,))]
    near = (-problem.manifold.dist(u, drawn)).exp()
    true = (-problem.manifold.dist(u, v)).exp()
    sampled = -(true / (true + negatives * near.mean())).log()
    error = negatives * near.std() / math.sqrt(samples)  # of the sum; the loss's is smaller
    assert abs(problem.loss()[0] - sampled) < 5 * error
    # One draw of 50 a time is noisier, and by Jensen's inequality no larger on average.
    few = near[:samples].view(-1, negatives).sum(-1)
    losses = -(true / (true + few)).log()
    assert losses.mean() <= problem.loss()[0] + 5 * losses.std() / math.sqrt(len(losses))
    assert losses.mean() == pytest.approx(problem.loss()[0].item(), rel=0.01)


# --- far apart ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, F64], ids=str)
@pytest.mark.parametrize("distance", [80.0, 90.0, 110.0, 600.0])
def test_flat_points_far_apart(dtype: torch.dtype, distance: float) -> None:
    """e^-d of float32 ends at 87; the loss of a tie does not."""
    u, v, n = (
        torch.tensor([[at, 0.0]], dtype=dtype).requires_grad_() for at in (0.0, distance, -distance)
    )
    everyone = torch.ones(1, 1, dtype=torch.bool)
    loss = grouped_ranking_loss(u, v, torch.zeros(1, dtype=torch.int64), n, everyone, Euclidean())
    assert loss.dtype == dtype
    assert loss.item() == pytest.approx(math.log(51), rel=1e-4)
    near, far = torch.autograd.grad(loss.sum(), (v, n))
    assert near[0, 0].item() == pytest.approx(50 / 51, rel=1e-4)
    assert far[0, 0].item() == pytest.approx(50 / 51, rel=1e-4)


@pytest.mark.parametrize("distance", [720.0, 740.0, 800.0, 1e5])
def test_flat_points_farther_than_float64_holds(distance: float) -> None:
    """Beyond e^-708 a negative pushes nowhere; the ancestor still pulls."""
    u, v, n = (
        torch.tensor([[at, 0.0]], dtype=F64).requires_grad_() for at in (0.0, distance, -distance)
    )
    everyone = torch.ones(1, 1, dtype=torch.bool)
    loss = grouped_ranking_loss(u, v, torch.zeros(1, dtype=torch.int64), n, everyone, Euclidean())
    near, far = torch.autograd.grad(loss.sum(), (v, n))
    assert math.isfinite(loss.item())
    assert near[0, 0].item() == pytest.approx(1.0, abs=0.02)
    assert far[0, 0].item() == 0.0


# --- limits ---------------------------------------------------------------------------------------


@EVERYWHERE
def test_counts_may_be_known(manifold: Manifold) -> None:
    problem = Problem(manifold)
    counts = problem.is_negative.sum(-1)
    assert torch.equal(problem.loss(counts=counts), problem.loss())
    assert not torch.equal(problem.loss(counts=counts + 1), problem.loss())  # they are believed


@EVERYWHERE
def test_without_strangers_the_loss_is_zero_and_pulls_nowhere(manifold: Manifold) -> None:
    problem = Problem(manifold)
    problem.is_negative[0] = False
    points = problem.points()
    loss = problem.loss()
    assert loss[:2].tolist() == [0.0, 0.0]
    assert (loss[2:] > 0).all()
    nodes, positives, pool = torch.autograd.grad(loss.sum(), points)
    assert not nodes[0].any()
    assert not positives[:2].any()
    for gradient in (nodes, positives, pool):
        assert gradient.isfinite().all()
    assert nodes[1:].any(-1).all()


@EVERYWHERE
def test_nothing_at_all_is_nothing(manifold: Manifold) -> None:
    """No pool, no positives, no nodes: as a process without a share of a batch meets them."""
    problem = Problem(manifold)
    problem.pool, problem.is_negative = problem.pool[:0], problem.is_negative[:, :0]
    points = problem.points()
    assert problem.loss().tolist() == [0.0] * 6
    assert not any(g.any() for g in torch.autograd.grad(problem.loss().sum(), points))
    problem = Problem(manifold)
    problem.nodes, problem.positives, problem.rows = (
        problem.nodes[:0],
        problem.positives[:0],
        problem.rows[:0],
    )
    problem.is_negative = problem.is_negative[:0]
    points = problem.points()
    assert problem.loss().shape == (0,)
    assert not any(g.any() for g in torch.autograd.grad(problem.loss().sum(), points))


@EVERYWHERE
def test_what_is_no_negative_does_not_matter(manifold: Manifold) -> None:
    problem = Problem(manifold)
    problem.is_negative[:, 1] = False
    points = problem.points()
    before = problem.loss()
    gradient = torch.autograd.grad(before.sum(), points)[2]
    assert not gradient[1].any()
    moved = problem.pool.detach().clone()
    moved[1] = problem.nodes[0].detach()
    problem.pool = moved
    torch.testing.assert_close(problem.loss(), before)


@EVERYWHERE
def test_coincident_points_are_finite(manifold: Manifold) -> None:
    """As at the start, where all points lie at the origin."""
    problem = Problem(manifold)
    for points in (problem.nodes, problem.positives, problem.pool):
        points[:] = manifold.origin(4, dtype=F64)
    points = problem.points()
    loss = problem.loss()
    assert loss.tolist() == pytest.approx([math.log(51)] * 6)
    for gradient in torch.autograd.grad(loss.sum(), points):
        assert not gradient.any()


@pytest.mark.parametrize(
    ("manifold", "radius", "dtype"),
    [
        (Lorentz(1.0), 43.0, torch.float32),
        (Euclidean(), 50.0, torch.float32),
        (Euclidean(), 400.0, F64),
    ],
    ids=str,
)
def test_far_pairs_are_linear(manifold: Manifold, radius: float, dtype: torch.dtype) -> None:
    """Where e^x overflows, too: the loss is the distance and a constant, the gradient 1."""
    away = torch.tensor([[0.0, radius]], dtype=dtype)
    u, v = manifold.exp0(-away), manifold.exp0(away).requires_grad_()
    first, all_of_them = torch.zeros(1, dtype=torch.int64), torch.ones(1, 1, dtype=torch.bool)
    loss = grouped_ranking_loss(u, v, first, u.clone(), all_of_them, manifold)
    distance = manifold.dist(u, v)
    assert loss.item() == pytest.approx(2 * radius + math.log(50), rel=1e-6)
    (gradient,) = torch.autograd.grad(loss.sum(), v)
    (expected,) = torch.autograd.grad(distance.sum(), v)
    assert expected.any()
    torch.testing.assert_close(gradient, expected)


def test_digits_are_kept_where_the_loss_is_small() -> None:
    u, v = torch.zeros(1, 2, dtype=F64), torch.tensor([[0.1, 0.0]], dtype=F64)
    n = torch.tensor([[60.0, 0.0]], dtype=F64)
    arguments = (torch.zeros(1, dtype=torch.int64), n, torch.ones(1, 1, dtype=torch.bool))
    for manifold in (Euclidean(), Lorentz(1.0)):
        a, b = manifold.exp0(v), manifold.exp0(n)
        loss = grouped_ranking_loss(u, a, arguments[0], b, arguments[2], manifold, negatives=1)
        assert loss.item() == pytest.approx(math.exp(-59.9), rel=1e-12)


@EVERYWHERE
def test_log_mass(manifold: Manifold) -> None:
    problem = Problem(manifold)
    problem.is_negative[1] = False
    found = log_mass(problem.nodes, problem.pool, problem.is_negative, manifold)
    near = (-manifold.pairwise_dist(problem.nodes, problem.pool)).exp() * problem.is_negative
    torch.testing.assert_close(found, near.sum(-1).log(), rtol=1e-10, atol=1e-12)
    assert found[1] == -math.inf


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("manifold", [Lorentz(1.0), Euclidean()], ids=repr)
@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        ({"negatives": 0.0}, ValueError, "negatives must be positive and finite, got 0"),
        ({"negatives": math.nan}, ValueError, "negatives must be positive and finite, got nan"),
        ({"is_negative": torch.ones(3, 5)}, TypeError, "is_negative must be booleans"),
        (
            {"is_negative": torch.ones(1, 5, dtype=torch.bool)},
            ValueError,
            r"is_negative must be of shape \(3, 5\).*\(1, 5\)",
        ),
        (
            {"rows": torch.zeros(5, dtype=torch.int64)},
            ValueError,
            r"rows must be of shape \(6,\).*\(5,\)",
        ),
        ({"pool": torch.ones(5, 3, dtype=F64)}, ValueError, "same last dimension"),
        (
            {"counts": torch.ones(5)},
            ValueError,
            r"counts must be of shape \(3,\), one a node, got \(5,\)",
        ),
    ],
)
def test_bad_input(manifold: Manifold, arguments: dict, kind: type[Exception], text: str) -> None:
    problem = Problem(manifold)
    good = {
        "nodes": problem.nodes,
        "positives": problem.positives,
        "rows": problem.rows,
        "pool": problem.pool,
        "is_negative": problem.is_negative,
        "manifold": manifold,
    }
    with pytest.raises(kind, match=text):
        grouped_ranking_loss(**good | arguments)
