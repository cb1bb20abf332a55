"""A product times the gain: against its five steps, in its limits, and what is kept of it."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import Tensor

from beltrami.kernels.hyplora import gained_linear as gained_linear_module
from beltrami.kernels.hyplora.gained_linear import gained_linear
from beltrami.kernels.hyplora.norm_linear import norm_linear
from tests.kernels.checks import leaf, saved_bytes

F64 = torch.float64
CURVATURES = pytest.mark.parametrize("c", [0.01, 0.3, 1.0, 2.5])


def update(x: Tensor, a: Tensor, b: Tensor, c: Tensor | float, **options: Any) -> Tensor:
    """A low-rank update B·A of x through the Lorentz model."""
    u, n2 = norm_linear(x, a)
    return gained_linear(u, b, n2, c, **options)


def five_steps(x: Tensor, a: Tensor, b: Tensor, c: float) -> Tensor:
    """Up by exp0, the space part times A and B, its time again, and down by log0."""
    radius = c**-0.5
    n = x.norm(dim=-1, keepdim=True)
    space = radius * torch.sinh(n / radius) * x / n
    space = space @ a.mT @ b.mT
    time = torch.sqrt(space.square().sum(-1, keepdim=True) + radius**2)
    return radius * torch.acosh(time / radius) * space / space.norm(dim=-1, keepdim=True)


def matrices(dtype: torch.dtype = F64) -> tuple[Tensor, Tensor, Tensor]:
    """x (3, 5, 6), A (4, 6) and B (7, 4)."""
    return leaf(3, 5, 6, dtype=dtype), leaf(4, 6, dtype=dtype), leaf(7, 4, dtype=dtype)


# --- values ---------------------------------------------------------------------------------------


@CURVATURES
def test_is_the_five_steps(c: float) -> None:
    x, a, b = matrices()
    found = update(x, a, b, c)
    torch.testing.assert_close(found, five_steps(x, a, b, c), rtol=1e-12, atol=0)
    base = torch.randn(3, 5, 7, dtype=F64)
    torch.testing.assert_close(
        update(x, a, b, c, scaling=-1.7, add_to=base), base - 1.7 * found, rtol=1e-13, atol=1e-13
    )


@pytest.mark.parametrize("tokens", [1, 3, 4])
@pytest.mark.parametrize(
    ("dtype", "close"), [(F64, 1e-13), (torch.float32, 2e-6), (torch.bfloat16, 2e-2)]
)
@pytest.mark.parametrize("cap", [None, 0.5])
def test_few_tokens_without_gradients_are_the_same(
    tokens: int, dtype: torch.dtype, close: float, cap: float | None
) -> None:
    """No Gram matrix is made for them."""
    torch.manual_seed(0)
    u, b = leaf(tokens, 4, dtype=dtype), leaf(7, 4, dtype=dtype)
    n2 = torch.rand(tokens, 1)
    base = torch.randn(tokens, 7)
    for c in (0.7, torch.tensor(0.7)):
        options: dict[str, Any] = {"scaling": -1.7, "cap": cap}
        for more in ({}, {"add_to": base}, {"add_to": base.to(dtype)}):
            expected = gained_linear(u, b, n2, c, **options, **more)
            with torch.no_grad():
                found = gained_linear(u, b, n2, c, **options, **more)
            assert found.dtype == expected.dtype
            torch.testing.assert_close(found, expected, rtol=close, atol=close)


def test_no_gram_matrix_for_few_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    gram = gained_linear_module.gram_matrix
    monkeypatch.setattr(
        gained_linear_module, "gram_matrix", lambda w: made.append(w.shape) or gram(w)
    )
    u, b = leaf(5, 4), leaf(7, 4)
    with torch.no_grad():
        gained_linear(u[:4], b, torch.ones(4, 1), 1.0)
        assert not made
        gained_linear(u, b, torch.ones(5, 1), 1.0)
    gained_linear(u[:4], b, torch.ones(4, 1), 1.0)
    assert len(made) == 2


def test_a_tensor_is_a_curvature() -> None:
    x, a, b = matrices()
    expected = update(x, a, b, 0.7)
    for c in (torch.tensor(0.7, dtype=F64), torch.tensor([0.7], dtype=F64)):
        torch.testing.assert_close(update(x, a, b, c), expected, rtol=1e-15, atol=1e-15)


def test_longest_draws_long_norms_in() -> None:
    x, a, b = matrices()
    c, cap = 0.7, 1.5
    u, n2 = norm_linear(x, a)
    beyond = c * n2 > cap**2
    assert beyond.any()
    assert not beyond.all()
    expected = gained_linear(u, b, torch.where(beyond, cap**2 / c, n2), c)
    torch.testing.assert_close(gained_linear(u, b, n2, c, cap=cap), expected)
    (dn2,) = torch.autograd.grad(gained_linear(u, b, n2, c, cap=cap).sum(), n2)
    assert torch.equal(dn2 == 0, beyond)


def test_first_correction() -> None:
    """B·A·x·(1 + c/6·(|x|² − |BAx|²)), with an error that falls as c²."""
    x, a, b = (t.detach() for t in matrices())
    flat = x @ a.mT @ b.mT
    first = (x.square().sum(-1, keepdim=True) - flat.square().sum(-1, keepdim=True)) / 6 * flat
    errors = [
        (update(x, a, b, c) - flat - c * first).abs().max().item() / c**2
        for c in (1e-4, 1e-5, 1e-6)
    ]
    assert errors[0] == pytest.approx(errors[1], rel=0.2)
    assert errors[1] == pytest.approx(errors[2], rel=0.2)


def test_small_curvature_is_the_plain_product() -> None:
    x, a, b = (t.detach() for t in matrices(torch.float32))
    flat = x @ a.mT @ b.mT
    torch.testing.assert_close(update(x, a, b, 1e-12), flat, rtol=1e-6, atol=1e-6)
    base = torch.randn(3, 5, 7)
    expected = base + 2 * flat
    found = update(x, a, b, 1e-12, scaling=2.0, add_to=base)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


# --- gradients ------------------------------------------------------------------------------------


@pytest.mark.parametrize("cap", [None, 1.2])
@pytest.mark.parametrize("adds", [False, True])
def test_gradients(cap: float | None, adds: bool) -> None:
    c = torch.tensor([0.3], dtype=F64, requires_grad=True)
    base = (leaf(3, 5, 7),) if adds else ()

    def function(x: Tensor, a: Tensor, b: Tensor, c: Tensor, *base: Tensor) -> Tensor:
        add_to = base[0] if base else None
        return update(x, a, b, c, scaling=1.7, cap=cap, add_to=add_to)

    assert torch.autograd.gradcheck(function, (*matrices(), c, *base))


@CURVATURES
def test_gradients_are_those_of_the_five_steps(c: float) -> None:
    arguments = matrices()
    ours, theirs = (
        torch.autograd.grad(f(*arguments, c).sin().sum(), arguments) for f in (update, five_steps)
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("wanted", range(5))
def test_gradients_of_one_argument_alone(wanted: int) -> None:
    x, a, b = (t.detach() for t in matrices())
    u, n2 = norm_linear(x, a)
    arguments = [u, b, n2, torch.tensor([0.3], dtype=F64), torch.randn(3, 5, 7, dtype=F64)]

    def function(alone: bool) -> Tensor:
        given = [
            t.clone().requires_grad_(not alone or i == wanted) for i, t in enumerate(arguments)
        ]
        out = gained_linear(*given[:4], add_to=given[4])
        return torch.autograd.grad(out.sin().sum(), given[wanted])[0]

    assert torch.equal(function(True), function(False))


# --- limits ---------------------------------------------------------------------------------------


def finite_with_gradients(x: Tensor, a: Tensor, b: Tensor, c: float) -> Tensor:
    curvature = torch.tensor([c], requires_grad=True)
    arguments = [t.detach().requires_grad_() for t in (x, a, b)]
    out = update(*arguments, curvature, add_to=torch.ones(*x.shape[:-1], b.shape[0]).to(x))
    assert out.isfinite().all()
    for gradient in torch.autograd.grad(out.float().sum(), (*arguments, curvature)):
        assert gradient.isfinite().all()
    return out


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("length", [0.0, 1.0, 69.0, 100.0, 300.0])
def test_finite_everywhere(length: float, dtype: torch.dtype) -> None:
    """Tokens at √c·|x| = length, and a zero token among them; a map, and no map."""
    c = 0.5
    x = torch.nn.functional.normalize(torch.randn(4, 6), dim=-1) * length / c**0.5
    x[1] = 0.0
    a, b = torch.randn(3, 6), torch.randn(5, 3)
    out = finite_with_gradients(x.to(dtype), a.to(dtype), b.to(dtype), c)
    assert torch.equal(out[1], torch.ones(5, dtype=dtype))
    out = finite_with_gradients(x.to(dtype), a.to(dtype), torch.zeros(5, 3, dtype=dtype), c)
    assert torch.equal(out, torch.ones(4, 5, dtype=dtype))


def test_no_tokens() -> None:
    x, a, b = torch.zeros(0, 6, requires_grad=True), torch.randn(4, 6), leaf(7, 4)
    weight = b.detach().float().requires_grad_()
    out = update(x, a, weight, 1.0)
    assert out.shape == (0, 7)
    dx, dw = torch.autograd.grad(out.sum(), (x, weight))
    assert dx.shape == (0, 6)
    assert not dw.any()


# --- dtypes, memory, compiling --------------------------------------------------------------------


def test_gradients_are_the_same_inside_autocast() -> None:
    """Where the backward pass is called in it, its sums must not be rounded either."""
    found = []
    for inside in (False, True):
        torch.manual_seed(0)
        x, a, b = matrices(torch.float32)
        y = update(x, a, b, 0.5)
        with torch.autocast("cpu", torch.bfloat16, enabled=inside):
            found.append(torch.autograd.grad(y.square().sum(), (x, a, b)))
    assert all(map(torch.equal, *found))


def test_autocast() -> None:
    x, a, b = matrices(torch.float32)
    base = torch.randn(3, 5, 7)
    with torch.autocast("cpu", torch.bfloat16):
        alone = update(x, a, b, 0.5)
        narrow = update(x, a, b, 0.5, add_to=base.bfloat16())
        added = update(x, a, b, 0.5, add_to=base)
    assert [t.dtype for t in (alone, narrow, added)] == [torch.bfloat16] * 2 + [torch.float32]
    exact = update(x, a, b, 0.5)
    torch.testing.assert_close(alone.float(), exact, rtol=0.05, atol=0.05)
    torch.testing.assert_close(added, base + exact, rtol=0.05, atol=0.05)
    for gradient in torch.autograd.grad(added.sum() + narrow.float().sum(), (x, a, b)):
        assert gradient.dtype == torch.float32
        assert gradient.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_keeps_nothing_as_wide_as_the_result(dtype: torch.dtype) -> None:
    """u, two numbers a token and the Gram matrix, besides x, the weights and c."""
    tokens, rank = 50, 4
    x = leaf(tokens, 64, dtype=dtype)
    a, b = leaf(rank, 64, dtype=dtype), leaf(128, rank, dtype=dtype)
    c = torch.tensor([0.5], requires_grad=True)
    base = leaf(tokens, 128, dtype=dtype)
    kept = saved_bytes(lambda: update(x, a, b, c, add_to=base), besides=(x, a, b, c))
    assert kept == tokens * (rank * x.element_size() + 2 * 4) + 4 * rank**2


@pytest.mark.parametrize("cap", [None, 1.2])
def test_compiles(cap: float | None) -> None:
    x, a, b = matrices(torch.float32)
    c = torch.tensor([0.5], requires_grad=True)
    base = torch.randn(3, 5, 7)
    function = functools.partial(update, scaling=1.7, cap=cap, add_to=base)
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    ours, theirs = (
        (out, *torch.autograd.grad(out.sin().sum(), (x, a, b, c)))
        for out in (compiled(x, a, b, c), function(x, a, b, c))
    )
    torch.testing.assert_close(ours, theirs)


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"c": torch.ones(2, 1)}, r"c must be one number.*\(2, 1\)"),
        ({"weight": torch.ones(7, 3)}, r"must fit together.*\(5, 4\), \(7, 3\) and \(5, 1\)"),
        ({"n2": torch.ones(5)}, r"must fit together.*\(5, 4\), \(7, 4\) and \(5,\)"),
        ({"n2": torch.ones(4, 1)}, r"must fit together.*\(5, 4\), \(7, 4\) and \(4, 1\)"),
    ],
)
def test_errors(arguments: dict[str, Any], text: str) -> None:
    good = {"u": torch.ones(5, 4), "weight": torch.ones(7, 4), "n2": torch.ones(5, 1), "c": 1.0}
    options = good | arguments
    with pytest.raises(ValueError, match=text):
        gained_linear(options.pop("u"), **options)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_does_not_round_the_gram_matrix(dtype: torch.dtype, monkeypatch) -> None:
    """Of nearly parallel columns it would be wrong by tens of percent."""
    seen = []
    whole = gained_linear_module._rows

    def rows(u: Tensor, gram: Tensor, *rest: object) -> tuple[Tensor, Tensor]:
        seen.append(gram.dtype)
        return whole(u, gram, *rest)

    monkeypatch.setattr(gained_linear_module, "_rows", rows)
    u, weight, n2 = torch.randn(5, 3), torch.randn(7, 3), torch.rand(5, 1)
    with torch.autocast("cpu", dtype=dtype):
        gained_linear(u.to(dtype), weight, n2, 1.0)
    assert seen == [torch.float32]


def test_unbounded_gains_stay_numbers_in_float16() -> None:
    """A new adapter has W = 0; infinity times 0 would be no number."""
    u = torch.ones(2, 3, dtype=torch.float16, requires_grad=True)
    weight = torch.zeros(4, 3, dtype=torch.float16, requires_grad=True)
    out = gained_linear(u, weight, torch.full((2, 1), 9e4), 1.0)
    assert not out.any()
    out.sum().backward()
    assert weight.grad is not None
    assert not weight.grad.isnan().any()
