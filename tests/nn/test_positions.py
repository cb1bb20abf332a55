"""Positions: rotations that only see differences, and a table of points."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from beltrami.geometry import Euclidean, Lorentz, Manifold, PoincareBall, lorentz, poincare
from beltrami.nn.positions import LearnedPositions, Rotary


def test_rotary_is_multiplication_by_a_phase() -> None:
    x = torch.randn(2, 5, 3, 8, dtype=torch.float64)
    positions = torch.tensor([0, 1, 7, 100, 4000])
    z = torch.complex(x[..., :4], x[..., 4:])
    frequency = torch.tensor([1.0, 0.1, 0.01, 0.001], dtype=torch.float64)
    turned = z * torch.exp(1j * positions[:, None, None] * frequency)
    expected = torch.cat((turned.real, turned.imag), dim=-1)
    torch.testing.assert_close(Rotary(8)(x, positions), expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("base", [10000.0, 500.0])
def test_scores_depend_on_the_difference_alone(base: float) -> None:
    rotary = Rotary(8, base=base)
    q, k = torch.randn(2, 8, dtype=torch.float64)
    steps = torch.arange(12)

    def turned(x: Tensor) -> Tensor:
        return rotary(x.expand(12, 1, 8), steps).squeeze(1)

    def by_difference(scores: Tensor) -> list[Tensor]:
        return [scores.diagonal(i) for i in range(-11, 12)]

    for scores in (
        turned(q) @ turned(k).mT,
        lorentz.pairwise_dist(turned(q), turned(k), 0.7),
    ):
        diagonals = by_difference(scores)
        for diagonal in diagonals:
            torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal))
        assert torch.stack([d[0] for d in diagonals]).std() > 0.01  # and do depend on it


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_rotary_keeps_norms_and_dtype(dtype: torch.dtype) -> None:
    x = torch.randn(2, 5, 3, 16).to(dtype)
    y = Rotary(16)(x, torch.arange(1000, 1005))
    assert y.dtype == dtype
    tolerance = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(
        y.double().norm(dim=-1), x.double().norm(dim=-1), rtol=tolerance, atol=0
    )


def test_bfloat16_positions_are_exact() -> None:
    """Angles in bfloat16 would round position 1003 to 1000."""
    x = torch.randn(4, 1, 16).bfloat16()
    positions = torch.arange(1000, 1004)
    y, exact = Rotary(16)(x, positions), Rotary(16)(x.double(), positions)
    torch.testing.assert_close(y.double(), exact, rtol=0.01, atol=0.01)


def test_positions_of_each_row_and_of_a_cache() -> None:
    rotary = Rotary(8)
    x = torch.randn(2, 6, 3, 8)
    whole = rotary(x, torch.arange(6))
    torch.testing.assert_close(rotary(x[:, 4:], torch.arange(4, 6)), whole[:, 4:])
    rows = torch.stack((torch.arange(6), torch.arange(3, 9)))
    by_row = rotary(x, rows)
    torch.testing.assert_close(by_row[0], whole[0])
    torch.testing.assert_close(by_row[1], rotary(x[1], torch.arange(3, 9)))


def test_rotary_saves_nothing_with_the_model() -> None:
    assert not Rotary(8).state_dict()
    assert not list(Rotary(8).buffers())


def test_rotary_errors() -> None:
    with pytest.raises(ValueError, match=r"size must be even.*7"):
        Rotary(7)
    rotary = Rotary(8)
    with pytest.raises(ValueError, match=r"\(\.\.\., T, heads, 8\), got \(5, 8\)"):
        rotary(torch.zeros(5, 8), torch.arange(5))
    with pytest.raises(ValueError, match=r"with T = 5 .* got \(4,\)"):
        rotary(torch.zeros(5, 1, 8), torch.arange(4))
    with pytest.raises(TypeError, match=r"integer positions, got torch.float32"):
        rotary(torch.zeros(5, 1, 8), torch.zeros(5))


def _expected(layer: LearnedPositions, x: Tensor, rows: Tensor) -> Tensor:
    manifold = layer.manifold
    w = layer.residual.log_weight.exp()
    if isinstance(manifold, Lorentz):
        space = x + w * rows
        time = lorentz.time(x, manifold.c) + w * lorentz.time(rows, manifold.c)
        norm = torch.sqrt(manifold.c * (time.square() - space.square().sum(-1)))
        return (1 + w) * space / norm.unsqueeze(-1)
    if isinstance(manifold, PoincareBall):
        return poincare.mobius_add(x, manifold.exp0(w * manifold.log0(rows)), manifold.c)
    return x + w * rows


@pytest.mark.parametrize("manifold", [Lorentz(0.7), PoincareBall(0.7), Euclidean()])
def test_learned_positions_are_a_residual(manifold: Manifold) -> None:
    layer = LearnedPositions(9, 4, manifold=manifold).double()
    with torch.no_grad():
        layer.residual.log_weight.fill_(0.3)
    x = manifold.random(2, 6, 4, std=0.3, dtype=torch.float64)
    torch.testing.assert_close(layer(x), _expected(layer, x, layer.weight[:6]))
    late = torch.tensor([[3, 4, 5, 6, 7, 8], [0, 0, 1, 1, 2, 2]])
    torch.testing.assert_close(layer(x, late), _expected(layer, x, layer.weight[late]))
    assert layer.manifold_of == {"weight": manifold}
    layer(x).square().sum().backward()
    assert layer.weight.grad is not None
    assert (layer.weight.grad[:6] != 0).all()
    assert (layer.weight.grad[6:] == 0).all()
    assert layer.residual.log_weight.grad.abs() > 0


@pytest.mark.parametrize("manifold", [Lorentz(0.7), PoincareBall(0.7), Euclidean()])
def test_learned_positions_start_at_their_radius(manifold: Manifold) -> None:
    layer = LearnedPositions(5000, 8, manifold=manifold, radius=0.3)
    distance = manifold.dist0(layer.weight.detach()).square().mean().sqrt()
    torch.testing.assert_close(distance, torch.tensor(0.3), rtol=0.03, atol=0)


def test_learned_positions_flat_limit() -> None:
    twin = LearnedPositions(6, 4, manifold=Euclidean()).double()
    x = torch.randn(2, 6, 4, dtype=torch.float64)
    errors = []
    for c in (1e-2, 1e-4, 1e-6):
        layer = LearnedPositions(6, 4, manifold=Lorentz(c)).double()
        layer.load_state_dict(twin.state_dict())
        errors.append((layer(x) - twin(x)).abs().max())
    assert errors[1] < 0.02 * errors[0]
    assert errors[2] < 0.02 * errors[1]


def test_learned_positions_errors() -> None:
    layer = LearnedPositions(6, 4, manifold=Lorentz())
    with pytest.raises(ValueError, match=r"length=6, got a sequence of 7 tokens"):
        layer(torch.zeros(2, 7, 4))
    with pytest.raises(ValueError, match=r"\(\.\.\., T, 4\), got \(4,\)"):
        layer(torch.zeros(4))
    with pytest.raises(IndexError, match=r"LearnedPositions has positions 0 to 5, got 2 to 6"):
        layer(torch.zeros(2, 4), torch.tensor([6, 2]))
    with pytest.raises(IndexError, match=r"positions 0 to 5, got -1 to 0"):
        layer(torch.zeros(2, 4), torch.tensor([0, -1]))
    with pytest.raises(TypeError, match=r"int32 or int64, got torch.int16"):
        layer(torch.zeros(2, 4), torch.tensor([0, 1], dtype=torch.int16))
