"""The largest gains of rows, plain and fused; in Triton's interpreter where there is no GPU."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from beltrami.kernels.pairs.row_gaps import row_gaps
from tests.kernels.compiling import spills_of

SIZES = [1, 2, 3, 17, 64, 65, 130]


def matrix(n: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    a = torch.randn(n, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (a + a.mT).to(dtype).fill_diagonal_(-torch.inf)


def by_hand(a: Tensor, first: int, last: int) -> list[float]:
    found = []
    for i in range(first, last):
        gains = [float(torch.minimum(a[i], a[:, j]).max() - a[i, j]) for j in range(i + 1, len(a))]
        found.append(max(gains, default=float("-inf")))
    return found


@pytest.mark.parametrize("n", SIZES)
def test_the_definition(n: int) -> None:
    a = matrix(n)
    assert row_gaps(a, 0, n).tolist() == by_hand(a, 0, n)
    assert row_gaps(a, n // 2, n).tolist() == by_hand(a, n // 2, n)
    assert len(row_gaps(a, n, n)) == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("n", SIZES)
def test_fused_is_the_plain_one(n: int, dtype: torch.dtype, device: str) -> None:
    pytest.importorskip("triton", reason="Triton comes for Linux alone")
    a = matrix(n, dtype).to(device)
    for first, last in ((0, n), (n // 3, n - n // 4)):
        found = row_gaps(a, first, last, fused=True)
        assert found.dtype == dtype
        assert torch.equal(found.cpu(), row_gaps(a.cpu(), first, last, fused=False))


def test_fused_takes_a_view(device: str) -> None:
    pytest.importorskip("triton", reason="Triton comes for Linux alone")
    a = matrix(40).to(device)[::2, ::2]
    assert torch.equal(row_gaps(a, 0, 20, fused=True).cpu(), row_gaps(a.cpu(), 0, 20, fused=False))


@pytest.mark.parametrize(
    ("a", "rows", "error", "match"),
    [
        (torch.zeros(3, 3, dtype=torch.float16), (0, 3), TypeError, "float16"),
        ([[0.0]], (0, 1), TypeError, "list"),
        (torch.zeros(3, 4), (0, 3), ValueError, r"\(3, 4\)"),
        (torch.zeros(3, 3), (2, 1), ValueError, "got 2 to 1"),
        (torch.zeros(3, 3), (0, 4), ValueError, "got 0 to 4"),
    ],
)
def test_bad_input(a: Tensor, rows: tuple[int, int], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        row_gaps(a, *rows)


def test_registers_hold_the_tile() -> None:
    assert spills_of("row_gaps") == [0, 0]
