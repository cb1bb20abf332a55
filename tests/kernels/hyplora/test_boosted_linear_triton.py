"""The fused rows of `boosted_linear` against the plain ones.

They run in Triton's interpreter where there is no GPU, and compiled where there is.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from beltrami.kernels.hyplora import boosted_linear as plain
from beltrami.kernels.hyplora.boosted_linear import CAP, boosted_linear
from beltrami.kernels.hyplora.gain import Gain
from tests.gpu import no_waiting

pytest.importorskip("triton", reason="Triton comes for Linux alone")
from beltrami.kernels.hyplora import boosted_linear_triton, gained_linear_triton
from beltrami.kernels.launch import triton_math

from .test_gained_linear_triton import DTYPES, TOLERANCE

ROOTS = (0.0, 0.5, 5.0, 19.0, 30.0, 39.0)  # √p of tokens
RANKS = pytest.mark.parametrize("rank", [1, 5, 7, 16, 33])
C = 0.7


def tokens(rank: int, dtype: torch.dtype, count: int = 7) -> tuple[Tensor, ...]:
    """do, u, B, n² and the time columns, of `count` tokens at each of the roots; one u is zero."""
    u = torch.randn(count, len(ROOTS), rank)
    u[0, 0] = 0.0
    do = 0.5 + torch.rand(count, len(ROOTS), rank + 1)
    n2 = (torch.tensor(ROOTS) ** 2 / C).view(1, -1, 1).expand(count, -1, 1)
    b, time_in, time_out = torch.randn(9, rank) / rank**0.5, torch.rand(rank), torch.rand(9)
    return *(t.to(dtype) for t in (do, u, b)), n2, time_in.to(dtype), time_out.to(dtype)


def assert_close(found: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    """Within a tolerance of the largest number of each row, in the dtype of all that went in."""
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    size = expected.float().abs().amax(-1, keepdim=True)
    off = (found.cpu().float() - expected.float()).abs()
    assert (off <= TOLERANCE[dtype] * size + 1e-30).all(), (off / size).max()


def check_rows(
    do: Tensor,
    u: Tensor,
    weight: Tensor,
    n2: Tensor,
    time_in: Tensor,
    time_out: Tensor,
    device: str,
    cap: float = CAP,
) -> None:
    rank = u.shape[-1]
    both = plain._both(weight, time_out, u.dtype)
    padded = boosted_linear_triton.both(weight.to(device), time_out.to(device), u.dtype)
    assert padded.shape[-1] % 8 == 0
    assert torch.equal(padded[:, : rank + 1].cpu(), both)
    assert not padded[:, rank + 1 :].any()
    gram, wide_gram = plain.gram_matrix(both), plain.gram_matrix(padded)
    wide_do = do.new_zeros(*do.shape[:-1], padded.shape[-1])
    wide_do[..., : rank + 1] = do
    there = [t.to(device) for t in (wide_do, u, wide_gram, n2)]
    c = torch.tensor([C])
    gain = Gain(c, 1.3, cap)
    forwards = plain._rows(u, gram, n2, gain, time_in)
    *backwards, shares = plain._rows_backward(do, u, gram, n2, gain, time_in)
    for curvature in (C, c.to(device)):
        rest = (Gain(curvature, 1.3, cap), time_in.to(device))
        rows = [boosted_linear_triton.rows(*there[1:], *rest)]
        *more, found_shares = boosted_linear_triton.rows_backward(*there, *rest)
        for a, b in zip(rows + more, [forwards, *backwards], strict=True):
            if a.shape[-1] > b.shape[-1]:
                assert not a[..., rank + 1 :].any()
                a = a[..., : rank + 1]
            assert_close(a, b, torch.float32 if u.dtype == torch.float32 else a.dtype)
        # Those of tokens far out are differences of numbers that are √p times as large.
        size = shares.abs().sum(0)
        off = (found_shares.cpu().sum(0) - shares.sum(0)).abs()
        assert (off <= 2e-3 * size).all(), off / size


@DTYPES
@RANKS
@pytest.mark.parametrize("cap", [20.5, CAP])
def test_fused_rows_are_the_plain_ones(
    rank: int, dtype: torch.dtype, cap: float, device: str
) -> None:
    check_rows(*tokens(rank, dtype), device, cap)


@pytest.mark.parametrize("size", [0.0, 1e-9, 1e-3, 10.0, 1e6])
def test_short_and_long_maps(size: float, device: str) -> None:
    """v below and above 1, in series and closed forms."""
    do, u, weight, n2, time_in, time_out = tokens(5, torch.float32, 2)
    check_rows(do, u, size * weight, n2, time_in, size * time_out, device)


def test_largest_rank(device: str) -> None:
    check_rows(*tokens(gained_linear_triton.MAX_RANK, torch.float32, 2), device)


@pytest.mark.parametrize("rank", [1, 5, 33])
def test_against_float64(rank: int, device: str) -> None:
    """What the fused one loses is float32's own."""
    _, u, weight, n2, time_in, time_out = tokens(rank, torch.float32)
    there = [t.to(device) for t in (weight, time_out, u, n2, time_in)]
    padded = boosted_linear_triton.both(*there[:2], torch.float32)
    gain = Gain(C, cap=CAP)
    found = boosted_linear_triton.rows(
        there[2], plain.gram_matrix(padded), there[3], gain, there[4]
    )
    both = plain._both(weight, time_out, torch.float64)
    exact = plain._rows(u.double(), plain.gram_matrix(both), n2.double(), gain, time_in.double())
    off = (found[..., : rank + 1].cpu().double() - exact).abs()
    assert (off <= 5e-5 * exact.abs().amax(-1, keepdim=True)).all()


# --- the whole operation --------------------------------------------------------------------------


def results(*given: Tensor, fused: bool, device: str = "cpu", adds: bool = True) -> list[Tensor]:
    """The update and the gradients of a weighted sum of it, on the CPU."""
    there = [t.detach().to(device).requires_grad_() for t in given]
    u, b = there[:2]
    base = torch.ones(*u.shape[:-1], b.shape[0], dtype=u.dtype, device=device)
    y = boosted_linear(*there, scaling=1.3, add_to=base if adds else None, fused=fused)
    g = torch.Generator().manual_seed(7)
    scale = torch.rand(y.shape, generator=g).to(y)
    gradients = torch.autograd.grad((y * scale).sum(dtype=torch.float64), there)
    return [t.detach().cpu() for t in (y, *gradients)]


def check(*given: Tensor, device: str) -> None:
    """To a few roundings of the largest number of each result."""
    for adds in (False, True):
        found = results(*given, fused=True, device=device, adds=adds)
        expected = results(*given, fused=False, adds=adds)
        for s, t in zip(found, expected, strict=True):
            assert (s.dtype, s.shape) == (t.dtype, t.shape)
            if t.numel():
                off = (s.float() - t.float()).abs().max()
                assert off <= 4 * TOLERANCE[given[0].dtype] * t.float().abs().max()


def arguments(shape: tuple[int, ...], rank: int, dtype: torch.dtype) -> list[Tensor]:
    u, b = 0.3 * torch.randn(*shape, rank), torch.randn(21, rank) / rank**0.5
    times = [0.3 * torch.randn(rank), 0.3 * torch.randn(21)]
    n2 = 4 * torch.rand(*shape, 1)
    return [u.to(dtype), b.to(dtype), n2, torch.tensor([C]), *(t.to(dtype) for t in times)]


@DTYPES
@RANKS
def test_fused_is_the_plain_one(rank: int, dtype: torch.dtype, device: str) -> None:
    given = arguments((3, 11), rank, dtype)
    given[0][1, 2] = 0.0
    check(*given, device=device)


def test_weights_of_another_dtype(device: str) -> None:
    """Of an adapter in float32 under autocast: gradients come in theirs."""
    u, *rest = arguments((3, 11), 5, torch.float32)
    check(u.bfloat16(), *rest, device=device)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (1,), (65,)])
def test_every_shape(shape: tuple[int, ...], device: str) -> None:
    check(*arguments(shape, 4, torch.float32), device=device)


def test_non_contiguous(device: str) -> None:
    given = [
        t.mT.contiguous().mT if t.ndim > 1 else torch.stack([t, t], -1)[:, 0]
        for t in arguments((6, 20), 5, torch.float32)
    ]
    assert not any(t.is_contiguous() for t in (*given[:2], *given[4:]))
    check(*given, device=device)


@DTYPES
@pytest.mark.parametrize("length", [0.0, 0.5, 19.0, 40.0, 300.0])
@pytest.mark.parametrize("size", [0.0, 1e-18, 1.0])
def test_finite_everywhere(length: float, size: float, dtype: torch.dtype, device: str) -> None:
    """Zero tokens, without time even, long and short maps; a map of 0 moves nothing."""
    for time in (0.0, 1.0):
        u, b, n2, c, time_in, time_out = arguments((4,), 3, dtype)
        u[1] = 0.0
        n2 = torch.full_like(n2, length**2 / C)
        given = (u, size * b, n2, c, time * time_in, size * time_out)
        y, *gradients = results(*given, fused=True, device=device)
        assert not any(t.isnan().any() for t in (y, *gradients))
        if size == 0:
            assert torch.equal(y, torch.ones_like(y))
        if dtype != torch.float16 and length < 50:
            assert all(t.isfinite().all() for t in (y, *gradients))


@DTYPES
def test_the_same_bits_each_time(dtype: torch.dtype, device: str) -> None:
    given = arguments((70,), 16, dtype)
    first, second = (results(*given, fused=True, device=device) for _ in range(2))
    assert all(map(torch.equal, first, second))


# --- when it is taken -----------------------------------------------------------------------------


@pytest.mark.gpu
def test_is_taken_on_a_gpu_and_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without being asked for; the plain one would be called otherwise."""
    monkeypatch.delattr(plain, "_rows")
    monkeypatch.delattr(plain, "_rows_backward")
    given = [t.cuda().requires_grad_() for t in arguments((5,), 4, torch.float32)]
    with no_waiting():
        boosted_linear(*given).sum().backward()
        boosted_linear(*given[:3], C, *given[4:]).sum().backward()
    assert all(t.grad.isfinite().all() for t in given)


def test_needs_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the interpreter, which is not asked here."""
    monkeypatch.setattr(triton_math, "interpreted", lambda: False)
    given = arguments((5,), 4, torch.float32)
    with pytest.raises(ValueError, match=r"fused=True.*CUDA device, and u is on cpu"):
        boosted_linear(*given, fused=True)
    assert boosted_linear(*given).isfinite().all()


@pytest.mark.parametrize(
    ("rank", "dtype", "text"),
    [
        (129, torch.float32, "up to 128 there, got 129"),
        (3, torch.float64, "in float32, got torch.float64"),
    ],
)
def test_says_what_it_cannot_take(rank: int, dtype: torch.dtype, text: str, device: str) -> None:
    given = [t.to(device, dtype) for t in arguments((5,), rank, dtype)]
    with pytest.raises(ValueError, match=f"fused=True.*{text}"):
        boosted_linear(*given, fused=True)
    assert boosted_linear(*given).isfinite().all()
