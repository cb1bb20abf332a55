"""The gain against the three maps it stands for."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from beltrami.geometry import lorentz, poincare
from beltrami.kernels.layers.radial_gain import radial_gain
from tests.kernels.checks import assert_compiles, gradients, leaf, saved_bytes

MODELS = {"lorentz": lorentz, "poincare": poincare}


def points(model: str, *shape: int, radius: float, dtype: torch.dtype = torch.float64) -> Tensor:
    v = torch.randn(*shape, dtype=dtype)
    return MODELS[model].exp0(radius * v / v.norm(dim=-1, keepdim=True), 1.3).requires_grad_()


@pytest.mark.parametrize("radius", [1e-6, 0.5, 3.0, 10.0])
@pytest.mark.parametrize("model", MODELS)
def test_is_exp0_of_the_linear_map_of_log0(model: str, radius: float) -> None:
    m, c = MODELS[model], 1.3
    x = points(model, 7, 5, radius=radius)
    weight = leaf(4, 5, scale=0.3)
    got = radial_gain(x, x @ weight.T, c, model)
    expected = m.exp0(m.log0(x, c) @ weight.T, c)
    torch.testing.assert_close(got, expected, rtol=1e-11, atol=0)
    assert got.shape == (7, 4)


@pytest.mark.parametrize("model", MODELS)
def test_gradients(model: str) -> None:
    for radius in (0.3, 4.0):
        x, u = points(model, 3, 5, radius=radius), leaf(3, 4, scale=0.4)
        c = torch.tensor([1.3], dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(lambda x, u, c: radial_gain(x, u, c, model), (x, u, c))


@pytest.mark.parametrize("model", MODELS)
def test_float32_far_out(model: str) -> None:
    """Gradients keep their digits where exp0 of the ball contracts to nothing."""
    x = points(model, 5, 8, radius=8.0)
    x32 = x.detach().float().requires_grad_()
    weight = torch.randn(8, 8, dtype=torch.float64) / 8
    got = gradients(lambda x: radial_gain(x, x @ weight.to(x.dtype).T, 1.3, model), x32)[0]
    wide = x32.detach().double().requires_grad_()
    expected = gradients(lambda x: radial_gain(x, x @ weight.T, 1.3, model), wide)[0]
    assert (got - expected).norm() <= 1e-4 * expected.norm()


def test_keeps_only_its_inputs() -> None:
    x, u = leaf(64, 32, dtype=torch.float32), leaf(64, 16, dtype=torch.float32)
    assert saved_bytes(lambda: radial_gain(x, u, 1.0), besides=(x, u)) == 0


def test_half_precision_odd_shapes_and_compile() -> None:
    x, u = leaf(6, 5, dtype=torch.float32), leaf(6, 4, dtype=torch.float32)
    half = radial_gain(x.bfloat16(), u.bfloat16(), 1.0)
    assert half.dtype == torch.bfloat16
    expected = radial_gain(x.bfloat16().float(), u.bfloat16().float(), 1.0)
    torch.testing.assert_close(half.float(), expected, rtol=2**-8, atol=0)
    for n in (0, 1):
        assert radial_gain(leaf(n, 5), leaf(n, 3), 1.0).shape == (n, 3)
    torch.testing.assert_close(
        radial_gain(leaf(5, 4).t() * 0, leaf(3, 4).t() * 0, 1.0), torch.zeros(4, 3).double()
    )
    assert_compiles(lambda x, u: radial_gain(x, u, 1.3), x, u)
