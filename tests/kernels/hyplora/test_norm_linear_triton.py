"""The fused product and norms against the plain ones.

They run in Triton's interpreter where there is no GPU, and compiled where there is.
"""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor

from beltrami.kernels.hyplora import norm_linear as plain
from beltrami.kernels.hyplora.norm_linear import norm_linear, norm_linear_beside
from beltrami.kernels.launch import dispatch

pytest.importorskip("triton", reason="Triton comes for Linux alone")
from beltrami.kernels.hyplora import norm_linear_triton
from beltrami.kernels.launch import triton_math

# Of the largest number of a result: float32 sums in another order, and what narrow dtypes round.
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10}
NARROW = pytest.param(torch.float16, marks=pytest.mark.gpu)
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, NARROW], ids=str)


@pytest.fixture(params=[False, True], ids=["two passes", "one pass"])
def _passes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(norm_linear_triton, "ONE_PASS", 0 if request.param else 10**9)


def results(
    x: Tensor, weight: Tensor, *, fused: bool, device: str = "cpu", dtype: torch.dtype | None = None
) -> list[Tensor]:
    """Product, norms, and the gradients of a weighted sum of both, on the CPU.

    x and the weight go to `dtype` for it, if there is one, and keep the strides they have.
    """
    x, weight = (t.detach().to(device, dtype or t.dtype).requires_grad_() for t in (x, weight))
    u, n2 = norm_linear(x, weight, fused=fused)
    g = torch.Generator().manual_seed(7)
    scales = [torch.randn(t.shape, generator=g).to(t) for t in (u, n2)]
    total = sum((t * s).sum(dtype=torch.float64) for t, s in zip((u, n2), scales, strict=True))
    gradients = torch.autograd.grad(total, (x, weight))
    return [t.detach().cpu() for t in (u, n2, *gradients)]


def check(x: Tensor, weight: Tensor, device: str) -> None:
    """To float32's rounding of sums, and to one of the dtype: the plain one rounds oftener."""
    found = results(x, weight, fused=True, device=device)
    plainly = results(x, weight, fused=False)
    exact = results(x, weight, fused=False, dtype=torch.float32)
    for a, b, c in zip(found, plainly, exact, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        if c.numel():
            assert (a.float() - c).abs().max() <= TOLERANCE[a.dtype] * c.abs().max()


@DTYPES
@pytest.mark.usefixtures("_passes")
@pytest.mark.parametrize("rank", [1, 5, 16, 33])
def test_fused_is_the_plain_one(rank: int, dtype: torch.dtype, device: str) -> None:
    check(torch.randn(3, 13, 150).to(dtype), torch.randn(rank, 150).to(dtype), device)


@pytest.mark.usefixtures("_passes")
@pytest.mark.parametrize("shape", [(7,), (0, 7), (2, 0, 7), (5, 0), (1, 1), (32, 128), (33, 513)])
def test_every_shape(shape: tuple[int, ...], device: str) -> None:
    check(torch.randn(shape), torch.randn(4, shape[-1]), device)


@pytest.mark.usefixtures("_passes")
def test_largest_rank(device: str) -> None:
    rank = norm_linear_triton.MAX_RANK
    check(torch.randn(5, 20), torch.randn(rank, 20), device)


@DTYPES
@pytest.mark.usefixtures("_passes")
def test_non_contiguous(dtype: torch.dtype, device: str) -> None:
    weight = torch.randn(20, 5).to(dtype).mT
    x = torch.randn(6, 40, 9).to(dtype)
    views = [x[:, ::2].mT, x.mT[::2, :, 3:23], x[:, :20, :1].mT.expand(6, 3, 20)]
    for t in (*views, x[0, :20].mT, x.view(6, 360)[:, 3:23]):
        assert not t.is_contiguous()
        check(t, weight, device)


@DTYPES
@pytest.mark.usefixtures("_passes")
def test_zero_tokens(dtype: torch.dtype, device: str) -> None:
    x = torch.randn(4, 30).to(dtype)
    x[1] = 0.0
    u, n2, _, _ = results(x, torch.randn(5, 30).to(dtype), fused=True, device=device)
    assert not u[1].any()
    assert not n2[1].any()


@pytest.mark.usefixtures("_passes")
def test_norms_are_summed_in_float32(device: str) -> None:
    x = torch.full((2, 4096), 8.0, dtype=torch.bfloat16, device=device)
    _, n2 = norm_linear(x, torch.zeros(3, 4096, dtype=torch.bfloat16, device=device), fused=True)
    assert torch.equal(n2.cpu(), torch.full((2, 1), 64.0 * 4096))


@DTYPES
@pytest.mark.usefixtures("_passes")
def test_the_same_bits_each_time(dtype: torch.dtype, device: str) -> None:
    x, weight = torch.randn(70, 300).to(dtype), torch.randn(16, 300).to(dtype)
    first, second = (results(x, weight, fused=True, device=device) for _ in range(2))
    assert all(map(torch.equal, first, second))


@pytest.mark.parametrize("used", [0, 1])
def test_gradients_of_one_result_alone(used: int, device: str) -> None:
    found = []
    for where, fused in ((device, True), ("cpu", False)):
        x, weight = (torch.linspace(-1, 1, 7 * n, device=where).view(n, 7) for n in (5, 3))
        x.requires_grad_()
        result = norm_linear(x, weight, fused=fused)[used]
        found.append(torch.autograd.grad(result.sum(), x)[0].cpu())
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-5)


# --- with another use of x beside it --------------------------------------------------------------


def gradients_beside(
    x: Tensor, weight: Tensor, uses: tuple[bool, bool, bool], *, fused: bool, device: str
) -> tuple[list[Tensor | None], Tensor]:
    """Gradients of x and the weight for a sum of some of the results; and what x goes on as."""
    x, weight = (t.detach().to(device).requires_grad_() for t in (x, weight))
    after, u, n2 = norm_linear_beside(x, weight, fused=fused)
    results = (after.sin(), u, 0.1 * n2)
    total = sum(t.sum(dtype=torch.float64) for t, used in zip(results, uses, strict=True) if used)
    found = torch.autograd.grad(total, (x, weight), allow_unused=True)
    return [None if t is None else t.cpu() for t in found], after


@DTYPES
@pytest.mark.parametrize("uses", list(product((False, True), repeat=3))[1:], ids=str)
def test_another_gradient_is_added(
    uses: tuple[bool, bool, bool], dtype: torch.dtype, device: str
) -> None:
    """By the kernel where all three are used; whatever is missing, they are autograd's."""
    x, weight = torch.randn(3, 13, 150).to(dtype), torch.randn(5, 150).to(dtype)
    found, after = gradients_beside(x, weight, uses, fused=True, device=device)
    expected, _ = gradients_beside(x, weight, uses, fused=False, device="cpu")
    assert torch.equal(after.cpu(), x)
    for a, b in zip(found, expected, strict=True):
        assert (a is None) == (b is None)
        if a is not None and b is not None:
            assert a.dtype == dtype
            off = (a.float() - b.float()).abs().max()
            assert off <= 2 * TOLERANCE[dtype] * b.float().abs().max()


def test_one_kernel_makes_both_gradients(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = []
    own = norm_linear_triton.input_gradient

    def noted(*arguments: Tensor) -> Tensor:
        given.append(arguments[4])
        return own(*arguments)

    monkeypatch.setattr(norm_linear_triton, "input_gradient", noted)
    x, weight = torch.randn(6, 20), torch.randn(5, 20)
    gradients_beside(x, weight, (True, True, True), fused=True, device=device)
    assert len(given) == 1
    torch.testing.assert_close(given[0].cpu(), x.cos())


# --- when it is taken -----------------------------------------------------------------------------


@pytest.mark.gpu
def test_is_taken_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without being asked for; the plain one would be called otherwise."""
    monkeypatch.delattr(plain, "_squares")
    _, n2 = norm_linear(torch.ones(5, 7, device="cuda"), torch.ones(3, 7, device="cuda"))
    assert torch.equal(n2.cpu(), torch.full((5, 1), 7.0))


def test_needs_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the interpreter, which is not asked here."""
    monkeypatch.setattr(triton_math, "interpreted", lambda: False)
    x, weight = torch.ones(5, 7), torch.ones(3, 7)
    with pytest.raises(ValueError, match=r"fused=True.*CUDA device, and x is on cpu"):
        norm_linear(x, weight, fused=True)
    assert norm_linear(x, weight)[1].isfinite().all()


def test_knows_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    assert triton_math.interpreted() is not torch.cuda.is_available()
    monkeypatch.setattr(triton_math.triton, "JITFunction", object)
    assert not triton_math.interpreted()


@pytest.mark.parametrize(
    ("rank", "dtype", "text"),
    [
        (129, torch.float32, "up to 128 rows, got 129"),
        (3, torch.float64, "float16, bfloat16 or float32, got torch.float64"),
    ],
)
def test_says_what_it_cannot_take(rank: int, dtype: torch.dtype, text: str, device: str) -> None:
    x, weight = (torch.ones(n, 7, dtype=dtype, device=device) for n in (2, rank))
    with pytest.raises(ValueError, match=f"fused=True.*{text}"):
        norm_linear(x, weight, fused=True)
    assert norm_linear(x, weight)[1].isfinite().all()


def test_needs_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "triton_module", lambda name: None)
    with pytest.raises(ValueError, match=r"fused=True.*Triton is not installed"):
        norm_linear(torch.ones(2, 7), torch.ones(3, 7), fused=True)
