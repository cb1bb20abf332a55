"""A product and the norms of what went in: values, gradients, what is kept, and errors."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from beltrami.kernels.hyplora.norm_linear import norm_linear, norm_linear_beside
from tests.kernels.checks import leaf, saved_bytes


def both(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    return F.linear(x, weight), x.square().sum(-1, keepdim=True)


@pytest.mark.parametrize("shape", [(6,), (0, 6), (5, 6), (2, 3, 6)])
def test_values_and_gradients(shape: tuple[int, ...]) -> None:
    x, weight = leaf(*shape), leaf(4, 6)
    found, expected = norm_linear(x, weight), both(x, weight)
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-13)
    ours, theirs = (
        torch.autograd.grad(u.sin().sum() + n2.sin().sum(), (x, weight))
        for u, n2 in (found, expected)
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_gradcheck() -> None:
    assert torch.autograd.gradcheck(norm_linear, (leaf(2, 3, 6), leaf(4, 6)))


@pytest.mark.parametrize("used", [0, 1])
def test_gradients_of_one_result_alone(used: int) -> None:
    x, weight = leaf(5, 6), leaf(4, 6)
    ours, theirs = (
        torch.autograd.grad(f(x, weight)[used].sin().sum(), (x, weight), allow_unused=True)
        for f in (norm_linear, both)
    )
    for a, b in zip(ours, theirs, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("wanted", [0, 1])
def test_gradients_of_one_argument_alone(wanted: int) -> None:
    arguments = [torch.randn(5, 6).double(), torch.randn(4, 6).double()]
    arguments[wanted].requires_grad_()
    ours, theirs = (
        torch.autograd.grad(sum(t.sin().sum() for t in f(*arguments)), arguments[wanted])
        for f in (norm_linear, both)
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_norms_are_summed_in_float32(dtype: torch.dtype) -> None:
    """4096 squares of 8 are 262144: more than float16 holds, and beyond bfloat16's digits."""
    x = torch.full((2, 4096), 8.0, dtype=dtype)
    u, n2 = norm_linear(x, torch.zeros(3, 4096, dtype=dtype))
    assert (u.dtype, n2.dtype) == (dtype, torch.float32)
    assert torch.equal(n2, torch.full((2, 1), 64.0 * 4096))


def test_autocast() -> None:
    x, weight = leaf(5, 6, dtype=torch.float32), leaf(4, 6, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        u, n2 = norm_linear(x, weight)
    assert (u.dtype, n2.dtype) == (torch.bfloat16, torch.float32)
    assert torch.equal(n2, norm_linear(x.bfloat16(), weight.bfloat16())[1])
    found = torch.autograd.grad(u.float().sum() + n2.sum(), (x, weight))
    assert [g.dtype for g in found] == [torch.float32, torch.float32]


def test_beside_another_use_of_x() -> None:
    """The plain one hands x itself on."""
    x, weight = leaf(5, 6), leaf(4, 6)
    after, u, n2 = norm_linear_beside(x, weight)
    assert after is x
    assert all(map(torch.equal, (u, n2), norm_linear(x, weight)))
    with torch.no_grad():
        assert all(map(torch.equal, norm_linear_beside(x, weight), (x, u, n2)))


def test_zero_has_a_gradient() -> None:
    x, weight = torch.zeros(2, 6, requires_grad=True), leaf(4, 6, dtype=torch.float32)
    u, n2 = norm_linear(x, weight)
    assert not u.any()
    assert not n2.any()
    (gradient,) = torch.autograd.grad(u.sum() + n2.sum(), x)
    torch.testing.assert_close(gradient, weight.detach().sum(0).expand(2, 6))


def test_keeps_nothing_but_its_arguments() -> None:
    x, weight = leaf(50, 6), leaf(4, 6)
    assert saved_bytes(lambda: norm_linear(x, weight)[0], besides=(x, weight)) == 0


def test_compiles() -> None:
    x, weight = leaf(5, 6, dtype=torch.float32), leaf(4, 6, dtype=torch.float32)
    compiled = torch.compile(norm_linear, fullgraph=True, backend="aot_eager")
    ours, theirs = (
        (*found, *torch.autograd.grad(found[0].sin().sum() + found[1].sum(), (x, weight)))
        for found in (compiled(x, weight), norm_linear(x, weight))
    )
    torch.testing.assert_close(ours, theirs)


def test_shapes_must_fit() -> None:
    with pytest.raises(ValueError, match=r"x must have 6 features.*\(4, 6\).*got \(5, 7\)"):
        norm_linear(torch.ones(5, 7), torch.ones(4, 6))
