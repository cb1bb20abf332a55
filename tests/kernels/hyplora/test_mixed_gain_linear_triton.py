"""The fused rows of `mixed_gain_linear` against the plain ones, and against `gained_linear`'s.

They run in Triton's interpreter where there is no GPU, and compiled where there is.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from beltrami.kernels.hyplora import gained_linear as one_curvature
from beltrami.kernels.hyplora import mixed_gain_linear as plain
from beltrami.kernels.hyplora.gain import Gain
from beltrami.kernels.hyplora.mixed_gain_linear import mixed_gain_linear
from tests.gpu import no_waiting

pytest.importorskip("triton", reason="Triton comes for Linux alone")
from beltrami.kernels.hyplora import gained_linear_triton, mixed_gain_linear_triton
from beltrami.kernels.launch import triton_math

from .test_gained_linear_triton import DTYPES, TOLERANCE, assert_rows_close, tokens

RANKS = pytest.mark.parametrize("rank", [1, 5, 33])
COUNTS = pytest.mark.parametrize("count", [1, 3])
OWN = pytest.mark.parametrize("own", [False, True], ids=["for all", "of each"])


def curvatures(count: int, own: bool, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Curvatures about those the tokens' norms are made for, and weights."""
    c = 0.7 * (0.5 + torch.rand(*(shape if own else ()), count))
    return c, torch.softmax(torch.randn(*shape, count), -1)


def check_rows(
    dz: Tensor,
    u: Tensor,
    weight: Tensor,
    n2: Tensor,
    c: Tensor,
    weights: Tensor | None,
    device: str,
    cap: float | None = None,
) -> None:
    gram = one_curvature.gram_matrix(weight)
    gain = Gain(c, 1.3, cap)
    z, m2 = plain._rows(u, gram, n2, gain, weights)
    expected = plain._rows_backward(dz, u, gram, n2, m2, gain, weights, True)
    there = [t.to(device) for t in (dz, u, gram, n2, m2)]
    gain = Gain(c.to(device), 1.3, cap)
    there_weights = None if weights is None else weights.to(device)
    found = mixed_gain_linear_triton.rows(*there[1:4], gain, there_weights)
    for a, b in zip(found, (z, m2), strict=True):
        assert_rows_close(a, b)
    for by_c in (False, True):
        backwards = mixed_gain_linear_triton.rows_backward(*there, gain, there_weights, by_c)
        for a, b in zip(backwards[:4], expected[:4], strict=True):
            assert_rows_close(a, b)
        if weights is None:
            assert backwards[5] is None
        else:
            # Each for itself: gains of two curvatures differ by orders of magnitude.
            torch.testing.assert_close(backwards[5].cpu(), expected[5], rtol=1e-4, atol=1e-30)
    # The share of c is a difference, of terms that are about √p times as large.
    torch.testing.assert_close(backwards[4].cpu(), expected[4], rtol=2e-3, atol=1e-5)


@DTYPES
@RANKS
@COUNTS
@OWN
@pytest.mark.parametrize("cap", [None, 20.5])
def test_fused_rows_are_the_plain_ones(
    rank: int, count: int, own: bool, dtype: torch.dtype, cap: float | None, device: str
) -> None:
    dz, u, weight, n2 = tokens(rank, dtype)
    c, weights = curvatures(count, own, tuple(u.shape[:-1]))
    check_rows(dz, u, weight, n2, c, weights, device, cap)
    if count == 1:
        check_rows(dz, u, weight, n2, c, None, device, cap)


@pytest.mark.parametrize("size", [0.0, 1e-6, 1e-3, 10.0, 1e6])
def test_short_and_long_maps(size: float, device: str) -> None:
    """v below and above 1, in series and closed forms."""
    dz, u, weight, n2 = tokens(5, torch.float32, 2)
    check_rows(dz, u, size * weight, n2, *curvatures(3, True, tuple(u.shape[:-1])), device)


def test_largest_rank_and_most_curvatures(device: str) -> None:
    dz, u, weight, n2 = tokens(gained_linear_triton.MAX_RANK, torch.float32, 2)
    most = mixed_gain_linear_triton.MOST_CURVATURES
    check_rows(dz, u, weight, n2, *curvatures(most, True, tuple(u.shape[:-1])), device)


def test_non_contiguous(device: str) -> None:
    dz, u, weight, n2 = tokens(5, torch.float32)
    c, weights = curvatures(3, True, tuple(u.shape[:-1]))
    turned = [t.mT.contiguous().mT for t in (dz, u)]
    rest = [t.mT.contiguous().mT for t in (c, weights)]
    assert not any(t.is_contiguous() for t in turned + rest)
    check_rows(*turned, weight, n2, *rest, device)
    check_rows(dz, u, weight, n2, c[:1, :1].expand_as(c), weights, device)


@DTYPES
def test_one_curvature_is_gained_linear(dtype: torch.dtype, device: str) -> None:
    """But for products that a compiler may add up in one step or in two."""
    dz, u, weight, n2 = tokens(5, dtype)
    c = torch.tensor([0.7], device=device)
    dz, u, gram, n2 = (t.to(device) for t in (dz, u, one_curvature.gram_matrix(weight), n2))
    gain = Gain(c, 1.3, 20.5)
    one = gained_linear_triton.rows(u, gram, n2, gain)
    found = mixed_gain_linear_triton.rows(u, gram, n2, gain, None)
    one += gained_linear_triton.rows_backward(dz, u, gram, n2, one[1], gain)
    found += mixed_gain_linear_triton.rows_backward(dz, u, gram, n2, found[1], gain, None, True)
    for a, b in zip(found[:-1], one, strict=True):
        assert_rows_close(a, b.cpu())


@pytest.mark.parametrize("rank", [1, 5, 33])
def test_against_float64(rank: int, device: str) -> None:
    """What the fused one loses is float32's own."""
    _, u, weight, n2 = tokens(rank, torch.float32)
    c, weights = curvatures(3, True, tuple(u.shape[:-1]))
    gram = one_curvature.gram_matrix(weight)
    u, gram, n2, c, weights = (t.to(device) for t in (u, gram, n2, c, weights))
    fused = mixed_gain_linear_triton.rows(u, gram, n2, Gain(c), weights)
    gram = one_curvature.gram_matrix(weight.double())
    u, gram, n2, c, weights = (t.double().cpu() for t in (u, gram, n2, c, weights))
    for a, b in zip(fused, plain._rows(u, gram, n2, Gain(c), weights), strict=True):
        torch.testing.assert_close(a.cpu().double(), b, rtol=5e-5, atol=1e-30)


# --- the whole operation --------------------------------------------------------------------------


def results(
    *given: Tensor | None, fused: bool, device: str = "cpu", adds: bool = True
) -> list[Tensor]:
    """The update and the gradients of a weighted sum of it, on the CPU."""
    there = [None if t is None else t.detach().to(device).requires_grad_() for t in given]
    u, b = there[:2]
    base = torch.ones(*u.shape[:-1], b.shape[0], dtype=u.dtype, device=device)
    y = mixed_gain_linear(*there, scaling=1.3, add_to=base if adds else None, fused=fused)
    g = torch.Generator().manual_seed(7)
    scale = torch.rand(y.shape, generator=g).to(y)
    wanted = [t for t in there if t is not None]
    gradients = torch.autograd.grad((y * scale).sum(dtype=torch.float64), wanted)
    return [t.detach().cpu() for t in (y, *gradients)]


def check(*given: Tensor | None, device: str) -> None:
    """To a few roundings of the largest number of each result."""
    for adds in (False, True):
        found = results(*given, fused=True, device=device, adds=adds)
        expected = results(*given, fused=False, adds=adds)
        for s, t in zip(found, expected, strict=True):
            assert (s.dtype, s.shape) == (t.dtype, t.shape)
            if t.numel():
                off = (s.float() - t.float()).abs().max()
                assert off <= 4 * TOLERANCE[given[0].dtype] * t.float().abs().max()


@DTYPES
@RANKS
@COUNTS
@OWN
def test_fused_is_the_plain_one(
    rank: int, count: int, own: bool, dtype: torch.dtype, device: str
) -> None:
    u, b = 0.3 * torch.randn(3, 11, rank), torch.randn(21, rank) / rank**0.5
    u[1, 2] = 0.0
    c, weights = curvatures(count, own, (3, 11))
    given = (u.to(dtype), b.to(dtype), 4 * torch.rand(3, 11, 1), c)
    check(*given, weights, device=device)
    if count == 1:
        check(*given, None, device=device)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (1,), (65,)])
@OWN
def test_every_shape(shape: tuple[int, ...], own: bool, device: str) -> None:
    u, n2 = torch.randn(*shape, 4), torch.rand(*shape, 1)
    check(u, torch.randn(5, 4), n2, *curvatures(3, own, shape), device=device)


@DTYPES
@pytest.mark.parametrize("length", [0.0, 0.5, 19.0, 25.0, 95.0, 300.0])
def test_finite_everywhere(length: float, dtype: torch.dtype, device: str) -> None:
    """Tokens at √c·n = length, and a zero token among them; a map, and no map."""
    u, b = torch.randn(4, 3), torch.randn(5, 3)
    u[1] = 0.0
    n2 = torch.full((4, 1), length**2 / 0.7)
    maps = [b, torch.zeros_like(b)]
    if dtype == torch.float16 and length > 1:
        maps.pop()  # the gain is sinhc itself, and z more than float16 holds
    for weight in maps:
        given = (u.to(dtype), weight.to(dtype), n2, *curvatures(3, True, (4,)))
        y, *gradients = results(*given, fused=True, device=device)
        assert all(t.isfinite().all() for t in (y, *gradients))
        unmoved = y[1] if weight is b else y
        assert torch.equal(unmoved, torch.ones_like(unmoved))


@DTYPES
def test_the_same_bits_each_time(dtype: torch.dtype, device: str) -> None:
    u, b = torch.randn(70, 16).to(dtype), torch.randn(24, 16).to(dtype)
    given = (u, b, torch.rand(70, 1), *curvatures(3, False, (70,)))
    first, second = (results(*given, fused=True, device=device) for _ in range(2))
    assert all(map(torch.equal, first, second))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
def test_curvatures_and_weights_of_any_dtype(dtype: torch.dtype, device: str) -> None:
    """Gradients come in theirs."""
    u, b, n2 = torch.randn(9, 5), torch.randn(7, 5), torch.rand(9, 1)
    for own in (False, True):
        c, weights = (t.to(dtype) for t in curvatures(2, own, (9,)))
        found = results(u, b, n2, c, weights, fused=True, device=device)
        expected = results(u, b, n2, c, weights, fused=False)
        assert [t.dtype for t in found] == [t.dtype for t in expected]
        for s, t in zip(found, expected, strict=True):
            close = 1e-3 if s.dtype == torch.float64 else None
            torch.testing.assert_close(s, t, rtol=close, atol=close)


# --- when it is taken -----------------------------------------------------------------------------


@pytest.mark.gpu
def test_is_taken_on_a_gpu_and_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without being asked for; the plain one would be called otherwise."""
    monkeypatch.delattr(plain, "_rows")
    monkeypatch.delattr(plain, "_rows_backward")
    u, weight, n2, weights = (
        torch.ones(*s, device="cuda", requires_grad=True) for s in ((5, 4), (7, 4), (5, 1), (5, 2))
    )
    with no_waiting():
        for c in ((0.25, 1.75), torch.ones(2, device="cuda")):
            mixed_gain_linear(u, weight, n2, c, weights).sum().backward()
    assert all(t.grad.isfinite().all() for t in (u, weight, n2, weights))


def test_needs_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the interpreter, which is not asked here."""
    monkeypatch.setattr(triton_math, "interpreted", lambda: False)
    given = torch.ones(5, 4), torch.ones(7, 4), torch.ones(5, 1), (1.0, 2.0), torch.ones(5, 2)
    with pytest.raises(ValueError, match=r"fused=True.*CUDA device, and u is on cpu"):
        mixed_gain_linear(*given, fused=True)
    assert mixed_gain_linear(*given).isfinite().all()


@pytest.mark.parametrize(
    ("rank", "count", "dtype", "text"),
    [
        (129, 2, torch.float32, "up to 128 there, got 129"),
        (3, 17, torch.float32, "up to 16 curvatures, got 17"),
        (3, 2, torch.float64, "in float32, got torch.float64"),
    ],
)
def test_says_what_it_cannot_take(
    rank: int, count: int, dtype: torch.dtype, text: str, device: str
) -> None:
    shapes = (5, rank), (7, rank), (5, 1), (count,), (5, count)
    given = [torch.ones(*s, dtype=dtype, device=device) for s in shapes]
    with pytest.raises(ValueError, match=f"fused=True.*{text}"):
        mixed_gain_linear(*given, fused=True)
    assert mixed_gain_linear(*given).isfinite().all()
