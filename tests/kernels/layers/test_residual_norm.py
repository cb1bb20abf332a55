"""The residual and the norm after it: kernels against the plain form, and that against torch."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import Tensor

from beltrami.kernels.layers.residual import residual
from beltrami.kernels.layers.residual_norm import residual_norm
from tests.kernels.checks import assert_compiles_fused, assert_fused, results, saved_bytes
from tests.kernels.compiling import spills_of

F32, BF16 = torch.float32, torch.bfloat16
FORMS = pytest.mark.parametrize("form", [{}, {"keep": True}, {"scale": 2.5}], ids=str)


def inputs(
    *shape: int, x: torch.dtype = F32, y: torch.dtype = F32, size: float = 1.0
) -> tuple[Tensor, ...]:
    """x, y, g, w, R, τ and w_τ."""
    d = shape[-1]
    return (
        (size * torch.randn(shape)).to(x),
        torch.randn(shape).to(y),
        (1 + 0.3 * torch.randn(d)).to(x),
        torch.tensor([0.7]),
        torch.tensor([1.3]),
        torch.rand(*shape[:-1], 1),
        torch.randn(d),
    )


def function(*tensors: Tensor, **options: Any) -> tuple[Tensor | None, ...]:
    x, y, g, w, radius, tau, column = tensors
    column_of = {"tau": tau, "time_weight": column}
    return residual_norm(x, y, g, w, radius=radius, returns_time=True, **column_of, **options)


@FORMS
def test_gradients(form: dict[str, Any]) -> None:
    given = [t.double().requires_grad_() for t in inputs(3, 5)]
    assert torch.autograd.gradcheck(lambda *t: function(*t, **form), given)


@FORMS
@pytest.mark.parametrize(("x", "y"), [(F32, F32), (F32, BF16), (BF16, BF16)], ids=str)
def test_fused_is_the_plain_one(
    form: dict[str, Any], x: torch.dtype, y: torch.dtype, device: str
) -> None:
    assert_fused(functools.partial(function, **form), *inputs(2, 7, 37, x=x, y=y), device=device)


@pytest.mark.parametrize("shape", [(0, 4), (1, 1), (5,), (2, 3, 64), (9, 300)])
def test_every_shape(shape: tuple[int, ...], device: str) -> None:
    assert_fused(functools.partial(function, keep=True), *inputs(*shape), device=device)


def normed(x: Tensor, y: Tensor, g: Tensor, **options: Any) -> tuple[Tensor | None, ...]:
    return residual_norm(x, y, g, 0.7, radius=1.3, keep=True, **options)


@pytest.mark.parametrize("size", [0.0, 1e-3, 1e3])
def test_lengths(size: float, device: str) -> None:
    x, _, g, *_ = inputs(4, 16, size=size)
    for y in (torch.randn(4, 16), x, torch.zeros_like(x)):
        assert_fused(normed, x, y, g, device=device)


def test_without_its_parts(device: str) -> None:
    def alone(x: Tensor, y: Tensor, **options: Any) -> tuple[Tensor | None, ...]:
        return residual_norm(x, y, weight=0.7, radius=1.3, **options)

    given = inputs(6, 20)
    assert_fused(alone, *given[:2], device=device)
    for used in (lambda *t, **o: normed(*t, **o)[:1], lambda *t, **o: normed(*t, **o)[1:]):
        assert_fused(used, *given[:2], torch.ones(20), device=device)
    x, y = given[:2]
    assert torch.equal(alone(x, y, fused=False)[0], residual(x, y, 0.7, radius=1.3))


def test_non_contiguous(device: str) -> None:
    x, y, g, *rest = inputs(6, 8)
    given = (x.t().contiguous().t(), y[:, :1].expand(6, 8), g.repeat(2)[::2], *rest)
    assert not any(t.is_contiguous() for t in given[:3])
    assert_fused(function, *given, device=device)


def test_the_same_bits_each_time(device: str) -> None:
    given = inputs(40, 100)
    fused = functools.partial(function, fused=True)
    assert all(map(torch.equal, *(results(fused, *given, device=device) for _ in range(2))))


def test_keeps_two_numbers_a_row(device: str) -> None:
    x, y, g, w, radius, tau, column = (t.to(device).requires_grad_() for t in inputs(16, 64))
    given = (x, y, g, w, radius, tau, column)
    kept = saved_bytes(lambda: function(*given, fused=True)[0], besides=given)
    assert kept == 16 * 3 * 4  # and the time, which it returns


def test_autocast_returns_what_products_read(device: str) -> None:
    for fused in (True, False):
        with torch.autocast(device, dtype=BF16):
            given = (t.to(device) for t in inputs(4, 8, y=BF16))
            out, h, time = function(*given, fused=fused)
        assert [t.dtype for t in (out, h, time)] == [F32, BF16, F32]  # type: ignore[union-attr]


def test_compiles() -> None:
    fused = functools.partial(function, keep=True, fused=True)
    assert_compiles_fused(fused, lambda n: inputs(2, n, 8))


def test_says_what_it_cannot_take() -> None:
    x = torch.randn(3, 4)
    for y, word in ((x.double(), "float64"), (x[:1], "one shape")):
        with pytest.raises(ValueError, match=f"fused=True.*{word}"):
            residual_norm(x.to(y.dtype), y, radius=1.0, fused=True)


def test_gpus_take_the_kernels_of_a_block_and_hold_their_tiles() -> None:
    """But for a few bytes backwards here, which let more programs run at a time."""
    assert max(spills_of("helm")) <= 32


@pytest.mark.gpu
@FORMS
@pytest.mark.parametrize("d", [384, 1024, 2048, 8192])
def test_on_a_gpu(form: dict[str, Any], d: int) -> None:
    """Eager and compiled, at the sizes of models."""
    given = inputs(1000, d, y=BF16)
    assert_fused(functools.partial(function, **form), *given, device="cuda")
    compiled = torch.compile(functools.partial(function, **form), fullgraph=True)
    got, expected = (
        results(f, *given, device="cuda") for f in (compiled, functools.partial(function, **form))
    )
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b)
