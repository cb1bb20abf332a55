"""The linear map with a time column against its formula."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from beltrami.geometry import lorentz
from beltrami.kernels.layers.time_linear import time_linear
from tests.kernels.checks import assert_compiles, gradients, leaf, saved_bytes


def formula(x: Tensor, w: Tensor, t: Tensor, b: Tensor | None, c: float | Tensor) -> Tensor:
    return F.linear(x, w, b) + lorentz.excess_time(x, c, keepdim=True) * t


@pytest.mark.parametrize("bias", [True, False])
def test_value_and_gradients(bias: bool) -> None:
    x, w, t = leaf(2, 3, 5), leaf(4, 5), leaf(4)
    b = leaf(4) if bias else None
    c = torch.tensor([1.7], dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(time_linear(x, w, t, b, c), formula(x, w, t, b, c))
    inputs = (x, w, t, c) if b is None else (x, w, t, c, b)
    assert torch.autograd.gradcheck(lambda x, w, t, c, b=None: time_linear(x, w, t, b, c), inputs)
    assert torch.autograd.gradgradcheck(
        lambda x, w, t, c, b=None: time_linear(x, w, t, b, c), inputs
    )


def test_is_the_map_with_time_itself_but_for_a_bias() -> None:
    """Public code multiplies time; the difference is w_τ/√c."""
    x, w, t = torch.randn(6, 5), torch.randn(4, 5), torch.randn(4)
    c = 2.0
    with_time = F.linear(x, w) + lorentz.time(x, c, keepdim=True) * t
    torch.testing.assert_close(time_linear(x, w, t, t / c**0.5, c), with_time)


def test_keeps_only_its_inputs() -> None:
    x, w, t, b = (leaf(*s, dtype=torch.float32) for s in [(64, 32), (16, 32), (16,), (16,)])
    assert saved_bytes(lambda: time_linear(x, w, t, b, 1.0), besides=(x, w, t, b)) == 0


def test_half_precision() -> None:
    x, w, t, b = (leaf(*s, dtype=torch.float32) for s in [(64, 32), (16, 32), (16,), (16,)])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = time_linear(x, w, t, b, 1.0)
        assert got.dtype == torch.bfloat16
    expected = time_linear(x, w, t, b, 1.0)
    torch.testing.assert_close(got.float(), expected, rtol=0.02, atol=0.3)
    got.float().sum().backward()
    grads = [p.grad.clone() for p in (x, w, t, b)]
    for p in (x, w, t, b):
        p.grad = None
    expected.sum().backward()
    for grad, p in zip(grads, (x, w, t, b), strict=True):
        assert (grad - p.grad).norm() <= 0.02 * p.grad.norm()


def test_odd_shapes() -> None:
    w, t, b = leaf(4, 5), leaf(4), leaf(4)
    for shape in [(0, 5), (5,), (1, 1, 5), (2, 0, 5)]:
        x = leaf(*shape)
        assert time_linear(x, w, t, b, 1.0).shape == (*shape[:-1], 4)
        gradients(lambda x: time_linear(x, w, t, b, 1.0), x)
    x = leaf(5, 6).t()
    torch.testing.assert_close(time_linear(x, w, t, b, 1.0), formula(x, w, t, b, 1.0))


def test_vmap_and_compile() -> None:
    x, w, t, b = (leaf(*s, dtype=torch.float32) for s in [(6, 5), (4, 5), (4,), (4,)])
    models = [torch.stack([p, 2 * p]) for p in (w, t, b)]
    both = torch.vmap(lambda w, t, b: time_linear(x, w, t, b, 1.0))(*models)
    torch.testing.assert_close(both[1], time_linear(x, 2 * w, 2 * t, 2 * b, 1.0))
    assert_compiles(lambda x, w, t, b: time_linear(x, w, t, b, 1.3), x, w, t, b)


def test_per_sample_gradients_and_vmap_over_any_argument() -> None:
    x, w, t, b = leaf(6, 5), leaf(4, 5), leaf(4), leaf(4)

    def loss(x: Tensor, w: Tensor, t: Tensor, b: Tensor) -> Tensor:
        return time_linear(x, w, t, b, 1.3).square().sum()

    grads = torch.vmap(torch.func.grad(loss, (0, 1, 2, 3)), (0, None, None, None))(x, w, t, b)
    for i in range(6):
        alone = torch.autograd.grad(loss(x[i], w, t, b), (x, w, t, b))
        torch.testing.assert_close(grads[0][i], alone[0][i])
        for many, one in zip(grads[1:], alone[1:], strict=True):
            torch.testing.assert_close(many[i], one)
    for which, argument in enumerate((x, w, t, b)):
        batch = torch.stack([argument, 2 * argument])
        dims = tuple(0 if i == which else None for i in range(4))
        given = [batch if i == which else a for i, a in enumerate((x, w, t, b))]
        many = torch.vmap(lambda *a: time_linear(*a, 1.3), dims)(*given)
        given[which] = 2 * argument
        torch.testing.assert_close(many[1], time_linear(*given, 1.3))
        grads = torch.vmap(torch.func.grad(loss, which), dims)(
            *[batch if i == which else a for i, a in enumerate((x, w, t, b))]
        )
        torch.testing.assert_close(
            grads[0], torch.autograd.grad(loss(x, w, t, b), (x, w, t, b)[which])[0]
        )
