"""A map that takes time in and out: against its five steps, in its limits, what is kept of it."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import Tensor

from beltrami.kernels.hyplora import boosted_linear as module
from beltrami.kernels.hyplora.boosted_linear import CAP, boosted_linear
from beltrami.kernels.hyplora.gained_linear import gained_linear
from tests.kernels.checks import leaf, saved_bytes

F64 = torch.float64
CURVATURES = pytest.mark.parametrize("c", [0.01, 0.3, 1.0, 2.5])


def five_steps(
    u: Tensor, b: Tensor, n2: Tensor, c: Tensor, time_in: Tensor, time_out: Tensor
) -> Tensor:
    """exp0, A with its time column, the time of that, B with its own, and log0."""
    radius = c**-0.5
    n = n2.sqrt()
    z = radius * torch.sinh(n / radius) / n * u + radius * torch.cosh(n / radius) * time_in
    time = torch.sqrt(z.square().sum(-1, keepdim=True) + radius**2)
    w = z @ b.mT + time * time_out
    size = w.norm(dim=-1, keepdim=True)
    return radius * torch.asinh(size / radius) * w / size


def arguments(dtype: torch.dtype = F64, c: float = 0.7) -> tuple[Tensor, ...]:
    """u (3, 5, 4), B (7, 4), n² (3, 5, 1), c (1,), and the time columns (4,) and (7,)."""
    norms = torch.promote_types(dtype, torch.float32)
    return (
        leaf(3, 5, 4, dtype=dtype),
        leaf(7, 4, dtype=dtype),
        (0.1 + 3 * torch.rand(3, 5, 1, dtype=norms)).requires_grad_(),
        torch.tensor([c], dtype=norms, requires_grad=True),
        leaf(4, dtype=dtype),
        leaf(7, dtype=dtype),
    )


# --- values ---------------------------------------------------------------------------------------


@CURVATURES
def test_is_the_five_steps(c: float) -> None:
    given = arguments(c=c)
    expected = five_steps(*given)
    found = boosted_linear(*given)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-13)
    number = boosted_linear(*given[:3], c, *given[4:])
    torch.testing.assert_close(number, expected, rtol=1e-12, atol=1e-13)
    base = torch.randn(3, 5, 7, dtype=F64)
    scaled = boosted_linear(*given, scaling=-1.7, add_to=base)
    torch.testing.assert_close(scaled, base - 1.7 * found, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("root", [1e-3, 5.0, 20.0, 39.0])
def test_far_out_in_float32(root: float) -> None:
    """Where the squares of sinh and cosh have left float32, too."""
    u, b, n2, c, time_in, time_out = (t.detach() for t in arguments(torch.float32))
    n2 = torch.full_like(n2, root**2 / 0.7)
    given = (u, b, n2, c, time_in, time_out)
    expected = five_steps(*(t.double() for t in given))
    found = boosted_linear(*given).double()
    torch.testing.assert_close(found, expected, rtol=1e-5 * max(1.0, root / 5), atol=1e-5)


def test_without_time_columns_it_is_gained_linear() -> None:
    u, b, n2, c, *times = arguments()
    none = [torch.zeros_like(t) for t in times]
    found = boosted_linear(u, b, n2, c, *none)
    torch.testing.assert_close(found, gained_linear(u, b, n2, c), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("cap", [0.8, CAP, 1000.0, None])
def test_longest_draws_long_norms_in(cap: float | None) -> None:
    """None is the most, and so is all above."""
    u, b, n2, c, *times = arguments()
    with torch.no_grad():
        n2[0] *= 1e4
    cap_squared = min(cap or CAP, CAP) ** 2 / 0.7
    beyond = n2 > cap_squared
    assert 0 < beyond.sum() < beyond.numel()
    found = boosted_linear(u, b, n2, c, *times, cap=cap)
    expected = boosted_linear(u, b, torch.where(beyond, cap_squared, n2), c, *times)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-13)
    (dn2,) = torch.autograd.grad(found.sum(), n2)
    assert torch.equal(dn2 == 0, beyond)


@pytest.mark.parametrize("c", [1e-3, 1.0, 100.0])
@pytest.mark.parametrize("u", [0.0, 1e-20, 1.0])
@pytest.mark.parametrize("alpha", [0.0, 1e-20, 1.0])
def test_the_longest_tokens_in_float32(c: float, u: float, alpha: float) -> None:
    """Also where only B's time column does anything."""
    torch.manual_seed(0)
    narrow = [
        torch.full((1, 4), u),
        torch.randn(7, 4),
        torch.full((1, 1), (1.01 * CAP) ** 2 / c),
        torch.tensor([c]),
        torch.full((4,), alpha),
        torch.rand(7),
    ]
    exact = [t.double().requires_grad_() for t in narrow]
    narrow = [t.requires_grad_() for t in narrow]
    found, expected = boosted_linear(*narrow), boosted_linear(*exact)
    torch.testing.assert_close(found.double(), expected, rtol=1e-3, atol=0)
    for a in torch.autograd.grad(found.sum(), narrow):
        assert a.isfinite().all()


# --- gradients ------------------------------------------------------------------------------------


@pytest.mark.parametrize("cap", [None, 0.9])
@pytest.mark.parametrize("adds", [False, True])
def test_gradients(cap: float | None, adds: bool) -> None:
    base = (leaf(3, 5, 7),) if adds else ()

    def function(*given: Tensor) -> Tensor:
        add_to = given[6] if adds else None
        return boosted_linear(*given[:6], scaling=1.7, cap=cap, add_to=add_to)

    assert torch.autograd.gradcheck(function, (*arguments(), *base))


@CURVATURES
@pytest.mark.parametrize("size", [1e-9, 1e-3, 1.0, 1e3])
def test_gradients_are_those_of_the_five_steps(c: float, size: float) -> None:
    """v below and above 1, in series and closed forms."""
    u, b, n2, c_tensor, time_in, time_out = arguments(c=c)
    b, time_out = ((size * t.detach()).requires_grad_() for t in (b, time_out))
    given = (u, b, n2, c_tensor, time_in, time_out)
    ours, theirs = (
        torch.autograd.grad((f(*given) / size).sin().sum(), given)
        for f in (boosted_linear, five_steps)
    )
    for a, e in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, e, rtol=1e-8, atol=1e-9 * float(e.abs().max()))


@pytest.mark.parametrize("root", [15.0, 30.0, 39.0])
def test_gradients_far_out(root: float) -> None:
    u, b, n2, c, *times = arguments()
    n2 = torch.full_like(n2, root**2 / 0.7).requires_grad_()
    given = (u, b, n2, c, *times)
    ours, theirs = (
        torch.autograd.grad(f(*given).sin().sum(), given) for f in (boosted_linear, five_steps)
    )
    for a, e in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, e, rtol=1e-8, atol=1e-10 * float(e.abs().max()))


@pytest.mark.parametrize("wanted", range(7))
def test_gradients_of_one_argument_alone(wanted: int) -> None:
    tensors = [*(t.detach() for t in arguments()), torch.randn(3, 5, 7, dtype=F64)]

    def function(alone: bool) -> Tensor:
        given = [t.clone().requires_grad_(not alone or i == wanted) for i, t in enumerate(tensors)]
        out = boosted_linear(*given[:6], add_to=given[6])
        return torch.autograd.grad(out.sin().sum(), given[wanted])[0]

    assert torch.equal(function(True), function(False))


# --- limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("length", [0.0, 1.0, 19.0, 40.0, 300.0])
@pytest.mark.parametrize("size", [0.0, 1e-18, 1e-9, 1.0])
@pytest.mark.parametrize("c", [1e-7, 0.5, 1e3])
def test_finite_everywhere(length: float, size: float, c: float, dtype: torch.dtype) -> None:
    """Zero tokens, without time even, long and short maps; a map of 0 moves nothing."""
    for time in (0.0, 1.0):
        u, b, n2, _, time_in, time_out = (t.detach() for t in arguments(dtype))
        u[0, 0] = 0.0
        given = [
            u,
            size * b,
            torch.full_like(n2, length**2 / c),
            torch.tensor([c]),
            time * time_in,
            size * time_out,
        ]
        given = [t.requires_grad_() for t in given]
        out = boosted_linear(*given, add_to=torch.ones(3, 5, 7, dtype=dtype))
        assert not out.isnan().any()
        if size == 0:
            assert torch.equal(out, torch.ones_like(out))
        gradients = torch.autograd.grad(out.float().sum(), given)
        assert not any(t.isnan().any() for t in gradients)
        if dtype != torch.float16 and length < 50 and c > 1e-6:
            assert out.isfinite().all()
            assert all(t.isfinite().all() for t in gradients)


def test_no_tokens() -> None:
    u, b, n2, c, *times = arguments(torch.float32)
    given = (u[:0], b, n2[:0], c, *times)
    out = boosted_linear(*given)
    assert out.shape == (0, 5, 7)
    gradients = torch.autograd.grad(out.sum(), given)
    assert [t.shape for t in gradients] == [t.shape for t in given]
    assert not any(t.any() for t in gradients)


# --- dtypes, memory, compiling --------------------------------------------------------------------


def test_autocast() -> None:
    given = arguments(torch.float32)
    narrow = (given[0].bfloat16(), *given[1:])
    base = torch.randn(3, 5, 7)
    exact = boosted_linear(*given)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(boosted_linear(*given), exact)
        added = boosted_linear(*narrow, add_to=base)
        inside = torch.autograd.grad(added.square().sum(), given)
    assert added.dtype == torch.float32
    torch.testing.assert_close(added, base + exact, rtol=0.05, atol=0.1)
    outside = torch.autograd.grad(boosted_linear(*narrow, add_to=base).square().sum(), given)
    assert all(map(torch.equal, inside, outside))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
def test_curvature_of_any_dtype(dtype: torch.dtype) -> None:
    """A rounded curvature is not computed with in its own dtype, and no dtype spreads."""
    u, b, n2, _, *times = arguments(torch.float32)
    for shape in ((), (1,)):
        c = torch.full(shape, 0.7, dtype=dtype, requires_grad=True)
        out = boosted_linear(u, b, n2, c, *times)
        torch.testing.assert_close(out, boosted_linear(u, b, n2, c.item(), *times))
        (gradient,) = torch.autograd.grad(out.sum(), c)
        assert (gradient.dtype, gradient.shape) == (dtype, c.shape)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_keeps_nothing_as_wide_as_the_result(dtype: torch.dtype) -> None:
    """[B b] and its Gram matrix, besides what it was given: nothing new for each token."""
    kept = []
    for tokens in (50, 500):
        u, b, times = leaf(tokens, 4, dtype=dtype), leaf(128, 4, dtype=dtype), [leaf(4), leaf(128)]
        n2, c = torch.rand(tokens, 1, requires_grad=True), torch.ones(1, requires_grad=True)
        base = leaf(tokens, 128, dtype=dtype)
        given = (u, b, n2, c, *times)
        function = functools.partial(boosted_linear, *given, add_to=base)
        kept.append(saved_bytes(function, besides=given))
    assert kept == [128 * 5 * u.element_size() + 5 * 5 * 4] * 2


@pytest.mark.parametrize("cap", [None, 0.9])
def test_compiles(cap: float | None) -> None:
    given = arguments(torch.float32)
    base = torch.randn(3, 5, 7)
    function = functools.partial(boosted_linear, scaling=1.7, cap=cap, add_to=base)
    torch._dynamo.reset()  # all partial functions share one limit of recompilations
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    ours, theirs = (
        (out, *torch.autograd.grad(out.sin().sum(), given))
        for out in (f(*given) for f in (compiled, function))
    )
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_does_not_round_the_gram_matrix(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    whole = module._rows

    def rows(u: Tensor, gram: Tensor, *rest: Any) -> Tensor:
        seen.append(gram.dtype)
        return whole(u, gram, *rest)

    monkeypatch.setattr(module, "_rows", rows)
    u, *rest = arguments(torch.float32)
    with torch.autocast("cpu", dtype=dtype):
        boosted_linear(u.to(dtype), *rest)
    assert seen == [torch.float32]


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"c": torch.ones(2)}, r"c must be one number.*\(2,\)"),
        ({"weight": torch.ones(7, 3)}, r"must fit together.*\(5, 4\), \(7, 3\) and \(5, 1\)"),
        ({"n2": torch.ones(5)}, r"must fit together.*\(5, 4\), \(7, 4\) and \(5,\)"),
        ({"time_in": torch.ones(7)}, r"have shapes \(4,\) and \(7,\), got \(7,\) and \(7,\)"),
        ({"time_out": torch.ones(1)}, r"have shapes \(4,\) and \(7,\), got \(4,\) and \(1,\)"),
    ],
)
def test_errors(changes: dict[str, Any], text: str) -> None:
    good = {
        "u": torch.ones(5, 4),
        "weight": torch.ones(7, 4),
        "n2": torch.ones(5, 1),
        "c": 1.0,
        "time_in": torch.ones(4),
        "time_out": torch.ones(7),
    }
    options = good | changes
    with pytest.raises(ValueError, match=text):
        boosted_linear(options.pop("u"), **options)
