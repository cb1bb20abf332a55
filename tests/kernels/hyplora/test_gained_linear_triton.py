"""The fused rows of `gained_linear` against the plain ones.

They run in Triton's interpreter where there is no GPU, and compiled where there is.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from beltrami.kernels.hyplora import gained_linear as plain
from beltrami.kernels.hyplora.gain import Gain
from beltrami.kernels.hyplora.gained_linear import gained_linear
from beltrami.kernels.hyplora.norm_linear import norm_linear

pytest.importorskip("triton", reason="Triton comes for Linux alone")
from beltrami.kernels.hyplora import gained_linear_triton
from beltrami.kernels.launch import triton_math

ROOTS = (0.0, 0.5, 19.0, 25.0, 95.0, 300.0)  # √p of tokens
# float32 in another order, with up to √p eps of a logarithm; and what narrow dtypes round.
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 2.0**-6, torch.float16: 2.0**-9}
NARROW = pytest.param(torch.float16, marks=pytest.mark.gpu)
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, NARROW], ids=str)
RANKS = pytest.mark.parametrize("rank", [1, 5, 16, 33])
C = 0.7


def tokens(rank: int, dtype: torch.dtype, count: int = 7) -> tuple[Tensor, ...]:
    """dz, u, W and n², of `count` tokens at each of the roots; the first of all is zero.

    dz points where u does: a sum that cancels says nothing about its terms.
    """
    u = torch.randn(count, len(ROOTS), rank)
    u[0, 0] = 0.0
    dz = u + 0.3 * torch.rand(u.shape) * u
    n2 = (torch.tensor(ROOTS) ** 2 / C).view(1, -1, 1).expand(count, -1, 1)
    return dz.to(dtype), u.to(dtype), torch.randn(9, rank).to(dtype) / rank**0.5, n2


def assert_rows_close(found: Tensor, expected: Tensor) -> None:
    """Within a tolerance of the largest number of each row."""
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    size = expected.float().abs().amax(-1, keepdim=True)
    off = (found.cpu().float() - expected.float()).abs()
    assert (off <= TOLERANCE[found.dtype] * size).all(), (off / size).max()


def check_rows(
    dz: Tensor,
    u: Tensor,
    weight: Tensor,
    n2: Tensor,
    device: str,
    cap: float | None = None,
    stereographic: bool = False,
) -> None:
    gram = plain.gram_matrix(weight)
    c = torch.tensor([C])
    gain = Gain(c, 1.3, cap, stereographic)
    z, m2 = plain._rows(u, gram, n2, gain)
    backwards = plain._rows_backward(dz, u, gram, n2, m2, gain)
    there = [t.to(device) for t in (dz, u, gram, n2, m2)]
    for curvature in (C, c.to(device)):
        gain = Gain(curvature, 1.3, cap, stereographic)
        found = gained_linear_triton.rows(*there[1:4], gain)
        for a, b in zip(found, (z, m2), strict=True):
            assert_rows_close(a, b)
        found = gained_linear_triton.rows_backward(*there, gain)
        for a, b in zip(found[:4], backwards[:4], strict=True):
            assert_rows_close(a, b)
        if curvature is C:
            assert found[4] is None
            continue
        # The share of c is a difference, of terms that are about √p times as large.
        torch.testing.assert_close(found[4].cpu(), backwards[4], rtol=2e-3, atol=1e-5)


@DTYPES
@RANKS
@pytest.mark.parametrize("cap", [None, 20.5])
def test_fused_rows_are_the_plain_ones(
    rank: int, dtype: torch.dtype, cap: float | None, device: str
) -> None:
    check_rows(*tokens(rank, dtype), device, cap)


@DTYPES
@RANKS
def test_fused_stereographic_rows_are_the_plain_ones(
    rank: int, dtype: torch.dtype, device: str
) -> None:
    check_rows(*tokens(rank, dtype), device, 1.9, stereographic=True)


@RANKS
@pytest.mark.parametrize("size", [0.0, 1e-6, 1e-3, 10.0, 1e6])
def test_short_and_long_maps(size: float, rank: int, device: str) -> None:
    """v below and above 1, in series and closed forms."""
    dz, u, weight, n2 = tokens(rank, torch.float32, 2)
    check_rows(dz, u, size * weight, n2, device)


def test_largest_rank(device: str) -> None:
    check_rows(*tokens(gained_linear_triton.MAX_RANK, torch.float32, 2), device)


@pytest.mark.parametrize("rank", [1, 5, 33])
def test_against_float64(rank: int, device: str) -> None:
    """What the fused one loses is float32's own."""
    _, u, weight, n2 = tokens(rank, torch.float32)
    gram = plain.gram_matrix(weight)
    there = [t.to(device) for t in (u, gram, n2)]
    exact = plain._rows(u.double(), plain.gram_matrix(weight.double()), n2.double(), Gain(C))
    for a, b in zip(gained_linear_triton.rows(*there, Gain(C)), exact, strict=True):
        torch.testing.assert_close(a.cpu().double(), b, rtol=3e-5, atol=1e-30)


# --- the whole operation --------------------------------------------------------------------------


def results(
    x: Tensor, a: Tensor, b: Tensor, *, fused: bool, device: str = "cpu", adds: bool = True
) -> list[Tensor]:
    """The update and the gradients of a weighted sum of it, on the CPU."""
    c = torch.tensor([C], device=device, requires_grad=True)
    x, a, b = (t.detach().to(device).requires_grad_() for t in (x, a, b))
    u, n2 = norm_linear(x, a, fused=fused)
    base = torch.ones(*x.shape[:-1], b.shape[0], dtype=x.dtype, device=device)
    y = gained_linear(u, b, n2, c, scaling=1.3, add_to=base if adds else None, fused=fused)
    g = torch.Generator().manual_seed(7)
    scale = torch.rand(y.shape, generator=g).to(y)
    gradients = torch.autograd.grad((y * scale).sum(dtype=torch.float64), (x, a, b, c))
    return [t.detach().cpu() for t in (y, *gradients)]


def check(x: Tensor, a: Tensor, b: Tensor, device: str) -> None:
    """To a few roundings of the largest number of each result."""
    for adds in (False, True):
        found = results(x, a, b, fused=True, device=device, adds=adds)
        expected = results(x, a, b, fused=False, adds=adds)
        for s, t in zip(found, expected, strict=True):
            assert (s.dtype, s.shape) == (t.dtype, t.shape)
            if t.numel():
                off = (s.float() - t.float()).abs().max()
                assert off <= 4 * TOLERANCE[x.dtype] * t.float().abs().max()


@DTYPES
@RANKS
def test_fused_is_the_plain_one(rank: int, dtype: torch.dtype, device: str) -> None:
    x = 0.3 * torch.randn(3, 11, 37)
    x[1, 2] = 0.0
    a, b = torch.randn(rank, 37) / 6, torch.randn(21, rank) / rank**0.5
    check(x.to(dtype), a.to(dtype), b.to(dtype), device)


@pytest.mark.parametrize("shape", [(7,), (0, 7), (2, 0, 7), (1, 7), (65, 7)])
def test_every_shape(shape: tuple[int, ...], device: str) -> None:
    check(torch.randn(shape), torch.randn(4, 7), torch.randn(5, 4), device)


@DTYPES
def test_non_contiguous(dtype: torch.dtype, device: str) -> None:
    x = (0.3 * torch.randn(6, 40, 9)).to(dtype)[:, ::2].mT
    a, b = (0.3 * torch.randn(20, 5)).to(dtype).mT, torch.randn(5, 8).to(dtype).mT
    assert not any(t.is_contiguous() for t in (x, a, b))
    check(x, a, b, device)
    dz, u, weight, n2 = tokens(5, dtype)
    turned = [t.mT.contiguous().mT for t in (dz, u)]
    assert not any(t.is_contiguous() for t in turned)
    check_rows(*turned, weight, n2, device)


@DTYPES
@pytest.mark.parametrize("length", ROOTS)
def test_finite_everywhere(length: float, dtype: torch.dtype, device: str) -> None:
    """Tokens at √c·|x| = length, and a zero token among them; a map, and no map."""
    x = torch.nn.functional.normalize(torch.randn(4, 6), dim=-1) * length / C**0.5
    x[1] = 0.0
    a, b = torch.randn(3, 6), torch.randn(5, 3)
    maps = [b, torch.zeros_like(b)]
    if dtype == torch.float16 and length > 1:
        maps.pop()  # the gain is sinhc itself, and z more than float16 holds
    for weight in maps:
        y, *gradients = results(
            x.to(dtype), a.to(dtype), weight.to(dtype), fused=True, device=device
        )
        assert all(t.isfinite().all() for t in (y, *gradients))
        unmoved = y[1] if weight is b else y
        assert torch.equal(unmoved, torch.ones_like(unmoved))


@DTYPES
def test_the_same_bits_each_time(dtype: torch.dtype, device: str) -> None:
    x = (0.3 * torch.randn(70, 40)).to(dtype)
    a, b = (0.3 * torch.randn(16, 40)).to(dtype), torch.randn(24, 16).to(dtype)
    first, second = (results(x, a, b, fused=True, device=device) for _ in range(2))
    assert all(map(torch.equal, first, second))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
def test_curvature_of_any_dtype(dtype: torch.dtype, device: str) -> None:
    _, u, weight, n2 = tokens(5, torch.float32)
    c = torch.tensor(C, dtype=dtype, device=device, requires_grad=True)
    there = [t.to(device) for t in (u, weight, n2)]
    y = gained_linear(*there, c, fused=True)
    expected = gained_linear(u, weight, n2, c.item(), fused=False)
    torch.testing.assert_close(y.cpu(), expected, rtol=1e-4, atol=1e-4)
    (gradient,) = torch.autograd.grad(y.sum(), c)
    assert gradient.dtype == dtype
    assert gradient.isfinite()


# --- when it is taken -----------------------------------------------------------------------------


@pytest.mark.gpu
def test_is_taken_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without being asked for; the plain one would be called otherwise."""
    monkeypatch.delattr(plain, "_rows")
    u, weight, n2 = (torch.ones(*s, device="cuda") for s in ((5, 4), (7, 4), (5, 1)))
    assert gained_linear(u, weight, n2, 1.0).isfinite().all()


def test_needs_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the interpreter, which is not asked here."""
    monkeypatch.setattr(triton_math, "interpreted", lambda: False)
    u, weight, n2 = torch.ones(5, 4), torch.ones(7, 4), torch.ones(5, 1)
    with pytest.raises(ValueError, match=r"fused=True.*CUDA device, and u is on cpu"):
        gained_linear(u, weight, n2, 1.0, fused=True)
    assert gained_linear(u, weight, n2, 1.0).isfinite().all()


@pytest.mark.parametrize(
    ("rank", "dtypes", "text"),
    [
        (129, (torch.float32, torch.float32), "up to 128 there, got 129"),
        (3, (torch.float64, torch.float64), "in float32, got torch.float64"),
        (3, (torch.float32, torch.float64), "got torch.float32 and norms of torch.float64"),
    ],
)
def test_says_what_it_cannot_take(
    rank: int, dtypes: tuple[torch.dtype, torch.dtype], text: str, device: str
) -> None:
    u, weight = (torch.ones(n, rank, dtype=dtypes[0], device=device) for n in (5, 7))
    n2 = torch.ones(5, 1, dtype=dtypes[1], device=device)
    with pytest.raises(ValueError, match=f"fused=True.*{text}"):
        gained_linear(u, weight, n2, 1.0, fused=True)
    assert gained_linear(u, weight, n2, 1.0).isfinite().all()
