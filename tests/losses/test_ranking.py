"""The ranking loss: against its formula, masks, the limits where digits are lost."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from beltrami.geometry import Euclidean, Lorentz, lorentz
from beltrami.losses import ranking_loss


def some_distances(rows: int = 6, false: int = 4) -> Tensor:
    return 5 * torch.rand(rows, 1 + false, dtype=torch.float64)


def literal(d: Tensor, mask: Tensor, temperature: float, margin: float) -> float:
    """−log of the softmax, one number at a time."""
    total = 0.0
    for row, counts in zip(d.tolist(), mask.tolist(), strict=True):
        true = math.exp(-(row[0] + margin) / temperature)
        false = sum(math.exp(-x / temperature) for x, c in zip(row[1:], counts, strict=True) if c)
        total -= math.log(true / (true + false))
    return total / len(d)


@pytest.mark.parametrize(("temperature", "margin"), [(1.0, 0.0), (0.3, 0.0), (2.0, 0.7)])
def test_is_the_published_formula(temperature: float, margin: float) -> None:
    d, mask = some_distances(), torch.rand(6, 4) < 0.6
    found = ranking_loss(d, mask, temperature=temperature, margin=margin)
    assert found.item() == pytest.approx(literal(d, mask, temperature, margin), rel=1e-13)
    full = torch.ones(6, 4, dtype=torch.bool)
    expected = torch.nn.functional.cross_entropy(-d, torch.zeros(6, dtype=torch.int64))
    torch.testing.assert_close(ranking_loss(d), expected)
    torch.testing.assert_close(ranking_loss(d, full), expected)


def test_gradient() -> None:
    d = some_distances().requires_grad_()
    mask = torch.rand(6, 4) < 0.6
    mask[0] = False
    assert torch.autograd.gradcheck(lambda x: ranking_loss(x, mask, temperature=0.5), d)


def test_what_is_masked_does_not_matter() -> None:
    d, mask = some_distances(), torch.rand(6, 4) < 0.5
    mask[2] = False
    spoiled = d.clone()
    spoiled[:, 1:][~mask] = math.nan
    d.requires_grad_(), spoiled.requires_grad_()
    loss, other = ranking_loss(d, mask), ranking_loss(spoiled, mask)
    assert torch.equal(loss, other)
    loss.backward(), other.backward()
    assert torch.equal(d.grad, spoiled.grad)
    assert not d.grad[:, 1:][~mask].any()
    assert not d.grad[2].any()  # nothing to be ranked against


@pytest.mark.parametrize("shape", [(3, 1), (0, 5), (0, 1)])
def test_nothing_to_rank_is_zero(shape: tuple[int, int]) -> None:
    d = torch.rand(shape, requires_grad=True)
    loss = ranking_loss(d)
    loss.backward()
    assert loss.item() == 0
    assert not d.grad.any()


def test_keeps_digits_where_the_softmax_is_one() -> None:
    d = torch.tensor([[0.5, 60.5]])
    assert ranking_loss(d).item() == pytest.approx(math.exp(-60), rel=1e-5)
    assert ranking_loss(d.flip(1)).item() == pytest.approx(60, rel=1e-6)


def test_half_precision_is_summed_in_float32() -> None:
    d = some_distances().to(torch.bfloat16)
    assert ranking_loss(d).dtype == torch.float32
    torch.testing.assert_close(ranking_loss(d), ranking_loss(d.float()))


@pytest.mark.parametrize("radius", [0.0, 1e-3, 1.0, 30.0])
def test_gradients_of_points_are_finite(radius: float) -> None:
    """At coincident points, at the origin, and far out in float32."""
    direction = torch.nn.functional.normalize(torch.randn(5, 8, 3), dim=-1)
    direction[:, 2] = direction[:, 0]
    v = (radius * direction).requires_grad_()
    x = lorentz.exp0(v)
    loss = ranking_loss(lorentz.dist(x[:, :1], x[:, 1:]))
    loss.backward()
    assert loss.isfinite()
    assert v.grad.isfinite().all()


def test_small_curvature_ranks_as_flat_space() -> None:
    u, v = torch.randn(6, 1, 3).double(), torch.randn(6, 5, 3).double()
    flat = ranking_loss(Euclidean().dist(u, v))
    errors = [(ranking_loss(Lorentz(c).dist(u, v)) - flat).abs().item() for c in (1e-3, 1e-4)]
    assert 8 < errors[0] / errors[1] < 12


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        ({"distances": torch.ones(3)}, ValueError, r"\(B, 1 \+ K\)"),
        ({"distances": torch.ones(3, 0)}, ValueError, r"\(B, 1 \+ K\)"),
        ({"distances": torch.ones(3, 2, dtype=torch.int64)}, TypeError, "floating"),
        ({"mask": torch.ones(2, 3, dtype=torch.bool)}, ValueError, r"\(2, 2\)"),
        ({"mask": torch.ones(2, 2)}, TypeError, "booleans"),
        ({"temperature": 0.0}, ValueError, "temperature"),
        ({"temperature": "1"}, TypeError, "temperature"),
        ({"margin": math.nan}, ValueError, "margin"),
    ],
)
def test_bad_input(arguments: dict, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        ranking_loss(**{"distances": torch.ones(2, 3)} | arguments)
