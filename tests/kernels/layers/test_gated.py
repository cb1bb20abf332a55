"""The gate of an MLP: kernels against the plain form."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from beltrami.kernels.layers.gated import gated
from tests.kernels.checks import assert_compiles_fused, assert_fused, results, saved_bytes


def inputs(*shape: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(shape).to(dtype), torch.randn(shape).to(dtype), torch.tensor([1.3])


def function(gate: Tensor, up: Tensor, radius: Tensor, **options: Any) -> tuple[Tensor | None, ...]:
    return gated(gate, up, radius=radius, **options)


def test_gradients() -> None:
    given = [t.double().requires_grad_() for t in inputs(3, 5)]
    assert torch.autograd.gradcheck(lambda *t: function(*t, fused=False), given)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(2, 3, 40), (0, 4), (1, 1), (7,), (3, 2500)])
def test_fused_is_the_plain_one(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> None:
    given = inputs(*shape, dtype=dtype)
    assert_fused(function, *given, device=device)
    assert_fused(lambda g, u, **k: gated(g, u, **k), *given[:2], device=device)


def test_non_contiguous(device: str) -> None:
    gate, up, radius = inputs(6, 8)
    assert_fused(function, gate.t(), up.t(), radius, device=device)
    both = torch.cat([gate, up], -1)
    assert_fused(lambda b, r, **k: function(*b.chunk(2, -1), r, **k), both, radius, device=device)


def test_keeps_its_inputs(device: str) -> None:
    given = tuple(t.to(device).requires_grad_() for t in inputs(16, 64))
    kept = saved_bytes(lambda: function(*given, fused=True)[0], besides=given)  # type: ignore[arg-type, return-value]
    assert kept == 16 * 4  # the time, which it returns


def test_other_activations_have_no_kernel() -> None:
    gate, up, _ = inputs(3, 4)
    assert torch.equal(gated(gate, up, activation=F.gelu)[0], F.gelu(gate) * up)
    with pytest.raises(ValueError, match="silu"):
        gated(gate, up, activation=F.gelu, fused=True)


def test_compiled_graphs_get_the_plain_form_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_compiles_fused(functools.partial(function, fused=True), lambda n: inputs(2, n, 8))
    monkeypatch.setenv("BELTRAMI_KERNELS", "fused")
    assert_compiles_fused(lambda *t: function(*t), lambda n: inputs(2, n, 8))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_on_a_gpu(dtype: torch.dtype) -> None:
    """Eager and compiled, at the sizes of models."""
    given = inputs(500, 4096, dtype=dtype)
    assert_fused(function, *given, device="cuda")
    compiled = torch.compile(functools.partial(function, fused=True), fullgraph=True)
    for a, b in zip(
        results(compiled, *given, device="cuda"),
        results(function, *given, device="cuda"),
        strict=True,
    ):
        torch.testing.assert_close(a, b)
