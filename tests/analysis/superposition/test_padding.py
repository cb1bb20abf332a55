"""Padding of vocabularies: zeros, the same rows, and rows that are the same but for rounding."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from beltrami.analysis.superposition import overlaps, unused_rows


def tokens(n: int, d: int = 64, seed: int = 0) -> Tensor:
    """With a common part, as those of language models have."""
    g = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=g) + 2 * torch.randn(d, generator=g)


def test_trained_rows_are_used() -> None:
    assert not unused_rows(tokens(3000)).any()
    assert not unused_rows(tokens(3000).bfloat16()).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("block", [100, 1 << 22])
def test_the_same_rows_and_zeros(
    dtype: torch.dtype, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("beltrami.analysis.superposition.row_blocks.BLOCK", block)
    x = tokens(500)
    x[100:103] = 0
    x[470:] = x[470].clone()
    expected = torch.zeros(500, dtype=torch.bool)
    expected[100:103] = expected[470:] = True
    assert torch.equal(unused_rows(x.to(dtype)), expected)


@pytest.mark.parametrize("seed", range(5))
def test_rows_that_are_the_same_but_for_rounding(seed: int) -> None:
    """Rounded to bfloat16 from rows that differ by less."""
    x = tokens(800, seed=seed)
    g = torch.Generator().manual_seed(seed)
    x[600:] = x[600] * (1 + 2e-3 * torch.randn(200, 64, generator=g))
    found = unused_rows(x.bfloat16())
    assert found[600:].all()
    assert not found[:600].any()
    assert not unused_rows(x.bfloat16(), within=0).any()


def test_several_groups_in_any_order() -> None:
    x = tokens(900)
    g = torch.Generator().manual_seed(1)
    order = torch.randperm(900, generator=g)
    x[order[:40]] = x[order[0]].clone()
    x[order[40:55]] = x[order[40]].clone()
    x[order[55:62]] = x[order[55]].clone()  # seven are no crowd
    found = unused_rows(lambda: x.split(37))
    assert found[order[:55]].all()
    assert not found[order[55:]].any()
    assert unused_rows(x, least=7)[order[:62]].all()


def test_the_same_direction_is_not_the_same_row() -> None:
    x = torch.randn(1, 32) * torch.linspace(1, 3, 50)[:, None]
    assert not unused_rows(x).any()


def test_overlaps_without_padding() -> None:
    x = tokens(400)
    padded = torch.cat([x, x[:1] * 0 + 0.01, torch.full((99, 64), 0.01), torch.zeros(4, 64)])
    unused = unused_rows(padded)
    assert unused.tolist() == [False] * 400 + [True] * 104
    assert overlaps(padded, used=~unused).mean_squared == pytest.approx(overlaps(x).mean_squared)


def test_all_rows_may_be_unused() -> None:
    assert unused_rows(torch.zeros(5, 3)).all()
    assert unused_rows(torch.ones(20, 3)).all()


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="least must be at least 2"):
        unused_rows(tokens(4), least=1)
    with pytest.raises(ValueError, match="within must be from 0"):
        unused_rows(tokens(4), within=1.0)
