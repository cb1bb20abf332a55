"""A product times several gains: against the written-out sum, in its limits, what is kept of it."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import Tensor

from beltrami.kernels.hyplora import mixed_gain_linear as module
from beltrami.kernels.hyplora.gained_linear import gained_linear
from beltrami.kernels.hyplora.mixed_gain_linear import mixed_gain_linear
from tests.kernels.checks import leaf, saved_bytes

F64 = torch.float64
NUMBERS = (0.1, 0.7, 2.5)


def written_out(u: Tensor, b: Tensor, n2: Tensor, c: Tensor, weights: Tensor | None) -> Tensor:
    """Each curvature's own update by exp0 and log0, and their weighted sum."""
    parts = []
    for k in range(c.shape[-1]):
        radius = c[..., k : k + 1] ** -0.5
        n = n2.sqrt()
        space = radius * torch.sinh(n / radius) / n * (u @ b.mT)
        size = space.norm(dim=-1, keepdim=True)
        part = radius * torch.asinh(size / radius) * space / size
        parts.append(part if weights is None else weights[..., k : k + 1] * part)
    return torch.stack(parts).sum(0)


def arguments(count: int = 3, *, own: bool = True, dtype: torch.dtype = F64) -> tuple[Tensor, ...]:
    """u (3, 5, 4), B (7, 4), n² (3, 5, 1), curvatures of all or of each, and weights."""
    narrow = torch.promote_types(dtype, torch.float32)
    u, b = leaf(3, 5, 4, dtype=dtype), leaf(7, 4, dtype=dtype)
    n2 = (0.1 + 3 * torch.rand(3, 5, 1, dtype=narrow)).requires_grad_()
    c = (0.1 + torch.rand(*((3, 5) if own else ()), count, dtype=narrow)).requires_grad_()
    weights = torch.rand(3, 5, count, dtype=narrow).requires_grad_()
    return u, b, n2, c, weights


OWN = pytest.mark.parametrize("own", [False, True], ids=["for all", "of each"])


# --- values ---------------------------------------------------------------------------------------


@OWN
@pytest.mark.parametrize("count", [1, 2, 5])
def test_is_the_sum_of_the_updates(count: int, own: bool) -> None:
    given = arguments(count, own=own)
    found = mixed_gain_linear(*given)
    torch.testing.assert_close(found, written_out(*given), rtol=1e-12, atol=1e-14)
    base = torch.randn(3, 5, 7, dtype=F64)
    scaled = mixed_gain_linear(*given, scaling=-1.7, add_to=base)
    torch.testing.assert_close(scaled, base - 1.7 * found, rtol=1e-13, atol=1e-13)


def test_numbers_are_curvatures() -> None:
    u, b, n2, _, weights = arguments()
    expected = mixed_gain_linear(u, b, n2, torch.tensor(NUMBERS, dtype=F64), weights)
    for numbers in (NUMBERS, list(NUMBERS)):
        assert torch.equal(mixed_gain_linear(u, b, n2, numbers, weights), expected)


@pytest.mark.parametrize("cap", [None, 0.6])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, F64], ids=str)
def test_one_curvature_is_gained_linear(dtype: torch.dtype, cap: float | None) -> None:
    """To the last digit, gradients included."""
    u, b, n2, c, _ = arguments(1, own=False, dtype=dtype)
    found = []
    for function in (gained_linear, mixed_gain_linear):
        out = function(u, b, n2, c, scaling=1.3, cap=cap)
        found.append((out, *torch.autograd.grad(out.float().sin().sum(), (u, b, n2))))
    assert all(map(torch.equal, *found))


def test_one_of_several_is_that_one() -> None:
    u, b, n2, _, _ = arguments()
    chosen = torch.nn.functional.one_hot(torch.randint(3, (3, 5)), 3).double()
    found = mixed_gain_linear(u, b, n2, NUMBERS, chosen)
    own = (chosen @ torch.tensor(NUMBERS, dtype=F64)).unsqueeze(-1)
    torch.testing.assert_close(found, mixed_gain_linear(u, b, n2, own), rtol=1e-13, atol=1e-14)


def test_longest_draws_long_norms_in() -> None:
    """Each curvature's own: the same norm is long for one and short for another."""
    u, b, n2, c, weights = arguments()
    cap = 0.8
    beyond = c * n2 > cap**2
    assert 0 < beyond.sum() < beyond.numel()
    parts = [
        weights[..., k : k + 1]
        * mixed_gain_linear(
            u, b, torch.where(beyond, cap**2 / c, n2)[..., k : k + 1], c[..., k : k + 1]
        )
        for k in range(3)
    ]
    found = mixed_gain_linear(u, b, n2, c, weights, cap=cap)
    torch.testing.assert_close(found, sum(parts), rtol=1e-12, atol=1e-14)
    (dn2,) = torch.autograd.grad(found.sum(), n2)
    assert torch.equal(dn2 == 0, beyond.all(-1, keepdim=True))


@pytest.mark.parametrize("tokens", [1, 3, 4])
@pytest.mark.parametrize(
    ("dtype", "close"), [(F64, 1e-13), (torch.float32, 2e-6), (torch.bfloat16, 2e-2)]
)
def test_few_tokens_without_gradients_are_the_same(
    tokens: int, dtype: torch.dtype, close: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No Gram matrix is made for them."""
    u, b, n2, c, weights = (t.detach() for t in arguments(dtype=dtype))
    given = (u[0, :tokens], b, n2[0, :tokens], c[0, :tokens], weights[0, :tokens])
    base = torch.randn(tokens, 7)
    options: dict[str, Any] = {"scaling": -1.7, "cap": 0.9}
    for more in ({}, {"add_to": base}, {"add_to": base.to(dtype)}):
        expected = mixed_gain_linear(*given, **options, **more)
        with torch.no_grad(), monkeypatch.context() as patch:
            patch.delattr(module, "gram_matrix")
            found = mixed_gain_linear(*given, **options, **more)
        assert found.dtype == expected.dtype
        torch.testing.assert_close(found, expected, rtol=close, atol=close)


# --- gradients ------------------------------------------------------------------------------------


@OWN
@pytest.mark.parametrize("cap", [None, 0.8])
@pytest.mark.parametrize("adds", [False, True])
def test_gradients(cap: float | None, own: bool, adds: bool) -> None:
    base = (leaf(3, 5, 7),) if adds else ()

    def function(*given: Tensor) -> Tensor:
        add_to = given[5] if adds else None
        return mixed_gain_linear(*given[:5], scaling=1.7, cap=cap, add_to=add_to)

    assert torch.autograd.gradcheck(function, (*arguments(own=own), *base))


@OWN
@pytest.mark.parametrize("count", [1, 3])
def test_gradients_are_those_of_the_written_out_sum(count: int, own: bool) -> None:
    given = arguments(count, own=own)
    given = given if count > 1 else given[:4]
    ours, theirs = (
        torch.autograd.grad(f(*given).sin().sum(), given)
        for f in (mixed_gain_linear, lambda *g: written_out(*g, *([None] if count == 1 else [])))
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("wanted", range(6))
def test_gradients_of_one_argument_alone(wanted: int) -> None:
    tensors = [*(t.detach() for t in arguments()), torch.randn(3, 5, 7, dtype=F64)]

    def function(alone: bool) -> Tensor:
        given = [t.clone().requires_grad_(not alone or i == wanted) for i, t in enumerate(tensors)]
        out = mixed_gain_linear(*given[:5], add_to=given[5])
        return torch.autograd.grad(out.sin().sum(), given[wanted])[0]

    assert torch.equal(function(True), function(False))


# --- limits ---------------------------------------------------------------------------------------


@OWN
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("length", [0.0, 1.0, 69.0, 100.0, 300.0])
def test_finite_everywhere(length: float, dtype: torch.dtype, own: bool) -> None:
    """Tokens at √c·n = length of one of the curvatures, a zero token; a map, and no map."""
    u, b = torch.randn(4, 3), torch.randn(5, 3)
    u[1] = 0.0
    c = torch.tensor([0.01, 0.5, 1.0])
    c = c.expand(4, 3).clone() if own else c
    for weight in (b, torch.zeros_like(b)):
        given = [
            *(t.to(dtype).requires_grad_() for t in (u.clone(), weight.clone())),
            torch.full((4, 1), length**2 / 0.5).requires_grad_(),
            c.clone().requires_grad_(),
            torch.softmax(torch.randn(4, 3), -1).requires_grad_(),
        ]
        out = mixed_gain_linear(*given, add_to=torch.ones(4, 5, dtype=dtype))
        assert out.isfinite().all()
        unmoved = out[1] if weight is b else out
        assert torch.equal(unmoved, torch.ones_like(unmoved))
        gradients = torch.autograd.grad(out.float().sum(), given)
        assert not any(t.isnan().any() for t in gradients)
        if dtype != torch.float16:
            assert all(t.isfinite().all() for t in gradients)


def test_no_tokens() -> None:
    u, b = torch.zeros(0, 4, requires_grad=True), leaf(7, 4, dtype=torch.float32)
    c, weights = torch.ones(3, requires_grad=True), torch.ones(0, 3, requires_grad=True)
    out = mixed_gain_linear(u, b, torch.ones(0, 1), c, weights)
    assert out.shape == (0, 7)
    gradients = torch.autograd.grad(out.sum(), (u, b, c, weights))
    assert [t.shape for t in gradients] == [t.shape for t in (u, b, c, weights)]
    assert not any(t.any() for t in gradients)


# --- dtypes, memory, compiling --------------------------------------------------------------------


def test_autocast() -> None:
    u, b, n2, c, weights = arguments(dtype=torch.float32)
    base = torch.randn(3, 5, 7)
    exact = mixed_gain_linear(u, b, n2, c, weights)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(mixed_gain_linear(u, b, n2, c, weights), exact)
        added = mixed_gain_linear(u.bfloat16(), b, n2, c, weights, add_to=base)
        inside = torch.autograd.grad(added.square().sum(), (u, b, n2, c, weights))
    assert added.dtype == torch.float32
    torch.testing.assert_close(added, base + exact, rtol=0.05, atol=0.05)
    added = mixed_gain_linear(u.bfloat16(), b, n2, c, weights, add_to=base)
    outside = torch.autograd.grad(added.square().sum(), (u, b, n2, c, weights))
    assert all(map(torch.equal, inside, outside))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_keeps_nothing_as_wide_as_the_result(dtype: torch.dtype) -> None:
    """m² and the Gram matrix, besides what it was given."""
    tokens, rank = 50, 4
    u, b = leaf(tokens, rank, dtype=dtype), leaf(128, rank, dtype=dtype)
    n2, weights = leaf(tokens, 1, dtype=torch.float32), leaf(tokens, 3, dtype=torch.float32)
    base = leaf(tokens, 128, dtype=dtype)
    for c in (NUMBERS, torch.rand(3, requires_grad=True), torch.rand(tokens, 3)):
        given = (u, b, n2.square(), c, weights)
        kept = saved_bytes(
            functools.partial(mixed_gain_linear, *given, add_to=base),
            besides=tuple(t for t in given if isinstance(t, Tensor)),
        )
        numbers = 0 if isinstance(c, Tensor) else 3 * 4
        assert kept == tokens * 4 + 4 * rank**2 + numbers


@OWN
@pytest.mark.parametrize("cap", [None, 0.8])
def test_compiles(cap: float | None, own: bool) -> None:
    u, b, n2, c, weights = arguments(own=own, dtype=torch.float32)
    base = torch.randn(3, 5, 7)
    function = functools.partial(mixed_gain_linear, scaling=1.7, cap=cap, add_to=base)
    torch._dynamo.reset()  # all partial functions share one limit of recompilations
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    for curvatures in (c, NUMBERS):
        learned = (u, b, n2, weights) if curvatures is NUMBERS else (u, b, n2, weights, c)
        ours, theirs = (
            (out, *torch.autograd.grad(out.sin().sum(), learned))
            for out in (f(u, b, n2, curvatures, weights) for f in (compiled, function))
        )
        torch.testing.assert_close(ours, theirs)


def test_numbers_seen_first_in_inference_can_be_trained_with() -> None:
    """They are kept as tensors, and a tensor of inference mode cannot be saved."""
    u, b, n2, _, weights = arguments()
    numbers = (0.123, 0.456, 0.789)
    with torch.inference_mode():
        mixed_gain_linear(u, b, n2, numbers, weights)
    (gradient,) = torch.autograd.grad(mixed_gain_linear(u, b, n2, numbers, weights).sum(), u)
    assert gradient.isfinite().all()


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"c": torch.tensor(1.0)}, r"c must have shape \(k,\) or \(..., k\).*\(5, 4\), got \(\)"),
        ({"c": torch.ones(4, 2)}, r"c must have shape.*got \(4, 2\)"),
        ({"c": (1.0, 2.0, 3.0)}, r"weights must have shape \(5, 3\), got \(5, 2\)"),
        ({"weights": torch.ones(5, 1)}, r"weights must have shape \(5, 2\), got \(5, 1\)"),
        ({"weights": None}, r"2 curvatures need weights, \(..., 2\)"),
        ({"weight": torch.ones(7, 3)}, r"must fit together.*\(5, 4\), \(7, 3\) and \(5, 1\)"),
        ({"n2": torch.ones(4, 1)}, r"must fit together.*\(5, 4\), \(7, 4\) and \(4, 1\)"),
    ],
)
def test_errors(changes: dict[str, Any], text: str) -> None:
    good = {
        "u": torch.ones(5, 4),
        "weight": torch.ones(7, 4),
        "n2": torch.ones(5, 1),
        "c": torch.ones(2),
        "weights": torch.ones(5, 2),
    }
    options = good | changes
    with pytest.raises(ValueError, match=text):
        mixed_gain_linear(options.pop("u"), **options)
