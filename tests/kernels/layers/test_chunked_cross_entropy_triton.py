"""The fused passes over a chunk against the plain ones.

They run in Triton's interpreter where there is no GPU, and compiled where there is.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from beltrami.kernels.launch import dispatch
from beltrami.kernels.layers import chunked_cross_entropy as plain
from beltrami.kernels.layers.chunked_cross_entropy import Settings, chunked_cross_entropy
from tests.kernels.layers.test_word_scores import F64, KINDS, inputs, terms_of

pytest.importorskip("triton", reason="Triton comes for Linux alone")
from beltrami.kernels.layers import chunked_cross_entropy_triton as fused

STRIP = fused.ROWS * fused.STEPS
TOLERANCE = {
    torch.float32: {"rtol": 1e-5, "atol": 1e-6},
    torch.bfloat16: {"rtol": 8e-3, "atol": 1e-5},
    torch.float16: {"rtol": 1e-3, "atol": 1e-5},
}


def chunk(kind: str, n: int, words: int) -> tuple[Tensor, Tensor | None, Any, Tensor]:
    """p, r, the columns and labels, of which some are ignored."""
    given = [t.detach() for t in inputs(n=n, words=words, dtype=torch.float32)]
    terms = terms_of(kind, *given)  # type: ignore[arg-type]
    columns = tuple(None if t is None else t.expand(words).contiguous() for t in terms.columns)
    labels = torch.randint(0, words, (n,))
    labels[::3] = -100
    return given[0] @ given[1].mT, terms.row, columns, labels


def check(
    kind: str,
    n: int,
    words: int,
    device: str,
    dtype: torch.dtype = torch.float32,
    smoothing: float = 0.1,
) -> None:
    p, row, columns, labels = chunk(kind, n, words)
    settings = Settings(kind, -100, smoothing, 0.01)  # type: ignore[arg-type]
    wanted = [True, True, row is not None, *(t is not None for t in columns)]

    def on_device(t: Tensor | None) -> Tensor | None:
        return None if t is None else t.clone().to(device)

    there = [on_device(p), on_device(row), tuple(map(on_device, columns)), on_device(labels)]
    sums = plain._row_sums(p, row, columns, labels, settings)
    got = fused.row_sums(*there, settings)
    real = labels >= 0
    torch.testing.assert_close(got[0].cpu(), sums[0], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(got[1].cpu()[real], sums[1][real], rtol=1e-6, atol=1e-6)
    if smoothing:
        torch.testing.assert_close(got[2].cpu(), sums[2], rtol=1e-5, atol=1e-6)
    rest = settings, wanted, dtype
    by_p, by_row, by_columns = plain._gradients(p, row, columns, labels, sums[0], *rest)
    got = fused.gradients(*there, sums[0].to(device), *rest)
    assert got[0].dtype == dtype
    torch.testing.assert_close(got[0].cpu(), by_p, **TOLERANCE[dtype])
    for a, b in zip((got[1], *got[2]), (by_row, *by_columns), strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a.cpu(), b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@KINDS
def test_every_dtype(kind: str, dtype: torch.dtype, device: str) -> None:
    check(kind, 5, 77, device, dtype)


@pytest.mark.parametrize(
    ("n", "words"), [(1, 1), (3, fused.COLUMNS - 1), (STRIP + 1, fused.COLUMNS + 81), (2, 1000)]
)
@KINDS
def test_every_shape(kind: str, n: int, words: int, device: str) -> None:
    check(kind, n, words, device, smoothing=0.0)


@KINDS
def test_delicate_arguments(kind: str, device: str) -> None:
    """Values and slopes near 0, below it, and where squares would overflow."""
    u = torch.tensor([[-1e30, -1e9, -3.0, -1e-20, 0.0, 1e-30, 1e-3, 0.999, 1.001, 50.0, 1e12]])
    label, lse = torch.zeros(1, dtype=torch.long), torch.zeros(1)
    columns = (None, None, None, torch.full((u.shape[1],), 1e-30 if kind == "linear" else 1e-3))
    settings = Settings(kind, -100, 0.0, 0.0)  # type: ignore[arg-type]
    wanted = [True, True, *[False] * 4, True]
    rest = settings, wanted, torch.float32
    expected = plain._gradients(u.clone(), None, columns, label, lse, *rest)
    there = tuple(None if t is None else t.to(device) for t in columns)
    got = fused.gradients(
        u.clone().to(device), None, there, label.to(device), lse.to(device), *rest
    )
    torch.testing.assert_close(got[0].cpu(), expected[0], rtol=1e-5, atol=1e-15)
    torch.testing.assert_close(got[2][3].cpu(), expected[2][3], rtol=1e-5, atol=0)


def test_the_same_bits_each_time(device: str) -> None:
    given = [t.detach().to(device).requires_grad_() for t in inputs(n=30, dtype=torch.float32)]
    labels = torch.randint(0, 11, (30,), device=device)
    results = []
    for _ in range(2):
        terms = terms_of("hyperplane", *given)  # type: ignore[arg-type]
        loss = chunked_cross_entropy(given[0], given[1], labels, terms, fused=True)
        results.append([loss, *torch.autograd.grad(loss, given[:4])])
    assert all(map(torch.equal, *results))


def test_a_label_that_is_no_word_is_nan(device: str) -> None:
    """A GPU is not asked for the values of labels; on a CPU it is an error before."""
    p, row, columns, labels = chunk("linear", 3, 9)
    assert row is not None
    labels[:] = torch.tensor([2, 9, -1])
    there = [t.to(device) for t in (p, row)]
    on_device = tuple(None if t is None else t.to(device) for t in columns)
    settings = Settings("linear", -100, 0.0, 0.0)
    at_label = fused.row_sums(*there, on_device, labels.to(device), settings)[1]
    assert at_label.isnan().tolist() == [False, True, True]


def test_says_what_it_cannot_take(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w, *_ = inputs(dtype=F64)
    labels = torch.zeros(7, dtype=torch.long)
    with pytest.raises(ValueError, match=r"fused=True.*computes in float32, got torch.float64"):
        chunked_cross_entropy(x, w, labels, fused=True)
    monkeypatch.setattr(dispatch, "triton_module", lambda name: None)
    with pytest.raises(ValueError, match=r"fused=True.*Triton is not installed"):
        chunked_cross_entropy(x.float(), w.float(), labels, fused=True)


@pytest.mark.gpu
def test_is_taken_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without being asked for; the plain one would be called otherwise."""
    monkeypatch.delattr(plain, "_row_sums")
    x, w, *_ = (t.detach().cuda().requires_grad_() for t in inputs(dtype=torch.float32))
    labels = torch.zeros(7, dtype=torch.long, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = chunked_cross_entropy(x, w, labels, chunk_size=4)
    loss.backward()
    expected = torch.nn.functional.cross_entropy(x @ w.mT, labels)
    torch.testing.assert_close(loss, expected, rtol=0.02, atol=0.02)
    for t, g in zip((x, w), torch.autograd.grad(expected, (x, w)), strict=True):
        assert (t.grad - g).norm() <= 0.02 * g.norm()
