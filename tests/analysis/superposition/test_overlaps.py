"""Overlaps of all pairs without all pairs, in blocks, and about the mean."""

from __future__ import annotations

import importlib
import math
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from beltrami.analysis.superposition import overlaps
from beltrami.analysis.superposition.overlaps import Overlaps, random_shares

# The package gives the function under this name.
MODULE = importlib.import_module("beltrami.analysis.superposition.overlaps")


@pytest.fixture
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Small blocks, and no comparison of all pairs: the way of large matrices."""
    monkeypatch.setattr(MODULE, "ALL_PAIRS", 2)
    monkeypatch.setattr(MODULE, "COLUMNS", 3)
    monkeypatch.setattr("beltrami.analysis.superposition.row_blocks.BLOCK", 50)
    return monkeypatch


def drawn(n: int, d: int, seed: int = 0, shift: float = 0.5) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=g, dtype=torch.float64) + shift


def cosines(x: Tensor) -> Tensor:
    unit = torch.nn.functional.normalize(x.double(), dim=-1)
    return (unit @ unit.mT)[torch.ones(len(x), len(x)).triu(1).bool()]


def simplex(d: int) -> Tensor:
    """d + 1 directions in d dimensions, all equally far from each other."""
    corners = torch.eye(d + 1, dtype=torch.float64) - 1 / (d + 1)
    return corners @ torch.linalg.svd(corners).Vh[:d].mT


def check_against_all_pairs(x: Tensor, found: Overlaps, rel: float = 1e-9) -> None:
    centred = x.double() - x.double().mean(0)
    for values, end in ((cosines(x), ""), (cosines(centred), "_centred")):
        kappa = found.welch
        squared = getattr(found, f"mean_squared{end}")
        assert squared == pytest.approx(values.square().mean().item(), rel=rel)
        absolute = getattr(found, f"mean_absolute{end}")
        assert absolute == pytest.approx(values.abs().mean().item(), rel=rel)
        off = (values.square() - kappa).square().mean().sqrt() / kappa
        assert getattr(found, f"etf_distance{end}") == pytest.approx(off.item(), rel=rel)


def test_all_pairs() -> None:
    x = drawn(40, 7)
    found = overlaps(x)
    check_against_all_pairs(x, found)
    assert (found.rows, found.left_out, found.dimensions, found.pairs) == (40, 0, 7, 780)
    assert found.exact
    assert found.random == 1 / 7
    assert found.welch == pytest.approx(33 / (7 * 39))
    assert found.mean_squared > 1.1 * found.mean_squared_centred  # the shift is what they share


def test_the_way_of_large_matrices_gives_the_same(few_at_once: pytest.MonkeyPatch) -> None:
    """All 780 pairs are drawn, each once, as they are fewer than were asked for."""
    x = drawn(40, 7)
    found = overlaps(x)
    assert not found.exact
    check_against_all_pairs(x, found)


@pytest.mark.parametrize("block", [1, 7, 33, 1 << 22])
@pytest.mark.parametrize("way", [2, 4096])
def test_blocks_of_any_size_give_the_same(
    block: int, way: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MODULE, "ALL_PAIRS", way)
    monkeypatch.setattr("beltrami.analysis.superposition.row_blocks.BLOCK", block)
    x = drawn(60, 9)
    found = overlaps(x, pairs=100)
    assert found.mean_squared == pytest.approx(cosines(x).square().mean().item())
    assert found.mean_squared_centred == pytest.approx(
        cosines(x - x.mean(0)).square().mean().item()
    )


@pytest.mark.parametrize("size", [1, 4, 60])
def test_rows_can_be_read_from_a_function(size: int, few_at_once: pytest.MonkeyPatch) -> None:
    x = drawn(60, 9)
    calls = 0

    def read() -> Iterable[Tensor]:
        nonlocal calls
        calls += 1
        return iter(x.split(size))

    found = overlaps(read, pairs=100)
    assert calls == 3
    whole = overlaps(x, pairs=100)
    assert found.as_dict() == pytest.approx(whole.as_dict(), rel=1e-12)
    assert (found.counts, found.counts_centred) == (whole.counts, whole.counts_centred)


def test_float32_products_of_half_precision_rows(few_at_once: pytest.MonkeyPatch) -> None:
    few_at_once.setattr(MODULE, "IN_FLOAT64", 0)
    x = drawn(300, 20).bfloat16()
    found = overlaps(x)
    check_against_all_pairs(x, found, rel=2e-6)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_lengths_do_not_matter(scale: float) -> None:
    x = drawn(30, 5).float()
    assert overlaps(x * scale).mean_squared == pytest.approx(overlaps(x).mean_squared, rel=1e-6)
    unequal = x * torch.rand(30, 1, generator=torch.Generator().manual_seed(0))
    assert overlaps(unequal).mean_squared == pytest.approx(overlaps(x).mean_squared, rel=1e-6)


@pytest.mark.parametrize("d", [2, 5, 16])
def test_a_simplex_reaches_the_bound(d: int) -> None:
    found = overlaps(simplex(d))
    assert found.welch == pytest.approx(1 / d**2)
    assert found.mean_squared == pytest.approx(found.welch, rel=1e-12)
    assert found.mean_absolute == pytest.approx(1 / d)
    assert found.etf_distance < 1e-12
    assert found.mean_squared_centred == pytest.approx(found.welch, rel=1e-12)  # its mean is 0


def test_bases_together_reach_the_bound_but_are_no_etf(few_at_once: pytest.MonkeyPatch) -> None:
    """A union of orthonormal bases is a tight frame: the mean is κ², and no pair has it."""
    d = 8
    bases = [torch.linalg.qr(drawn(d, d, seed)).Q for seed in range(3)]
    found = overlaps(torch.cat(bases))
    assert found.mean_squared == pytest.approx(found.welch, rel=1e-12)
    assert found.etf_distance > 0.5


def test_orthogonal_rows_do_not_overlap() -> None:
    found = overlaps(torch.eye(6, dtype=torch.float64) * 3)
    assert found.mean_squared == found.mean_absolute == found.welch == 0
    assert math.isnan(found.etf_distance)
    assert found.mean_squared_centred == pytest.approx(1 / 25)  # a simplex of 5 dimensions


def test_random_directions(few_at_once: pytest.MonkeyPatch) -> None:
    few_at_once.setattr("beltrami.analysis.superposition.row_blocks.BLOCK", 1 << 22)
    found = overlaps(drawn(5000, 50, shift=0.0))
    assert found.mean_squared == pytest.approx(1 / 50, rel=0.01)
    assert found.mean_absolute == pytest.approx(math.sqrt(2 / (math.pi * 50)), rel=0.02)
    assert found.etf_distance == pytest.approx(math.sqrt(2), rel=0.05)
    assert found.pairs == 200_000
    shares = torch.tensor(found.counts) / 200_000
    expected = torch.tensor(random_shares(50, found.edges))
    assert float((shares - expected).abs().max()) < 0.003
    assert float(expected.sum()) == pytest.approx(1)


def test_drawn_pairs_are_right_on_average(few_at_once: pytest.MonkeyPatch) -> None:
    """Also from a part of the rows, where all are too many."""
    x = drawn(2000, 10)
    few_at_once.setattr("beltrami.analysis.superposition.row_blocks.BLOCK", 1 << 22)
    expected = cosines(x).abs().mean().item()
    few_at_once.setattr(MODULE, "DRAWN_NUMBERS", 5000)
    found = [overlaps(x, pairs=5000, seed=seed) for seed in range(10)]
    assert len({one.mean_squared for one in found}) == 1  # exact, whatever is drawn
    means = [one.mean_absolute for one in found]
    assert len(set(means)) == 10
    assert sum(means) / 10 == pytest.approx(expected, rel=0.02)
    assert found[3] == overlaps(x, pairs=5000, seed=3)


def test_rows_that_are_left_out(few_at_once: pytest.MonkeyPatch) -> None:
    x = drawn(30, 6)
    padded = torch.cat([x[:10], torch.zeros(3, 6), x[10:], torch.ones(7, 6)]).double()
    used = torch.ones(40, dtype=torch.bool)
    used[33:] = False
    found, plain = overlaps(padded, used=used), overlaps(x)
    assert (found.rows, found.left_out) == (30, 10)
    assert found.mean_squared == pytest.approx(plain.mean_squared)
    assert found.mean_squared_centred == pytest.approx(plain.mean_squared_centred)


@pytest.mark.parametrize("way", [2, 4096])
def test_rows_that_are_all_the_same_have_no_centred_direction(
    way: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MODULE, "ALL_PAIRS", way)
    found = overlaps(torch.full((9, 4), 0.1))
    assert found.mean_squared == pytest.approx(1)
    assert math.isnan(found.mean_squared_centred)
    assert math.isnan(found.mean_absolute_centred)
    assert sum(found.counts_centred) == 0
    found.plot()


def test_random_shares_of_few_dimensions() -> None:
    """In the plane θ is uniform; in space |cos| is."""
    edges = (0.0, 0.1, 0.5, 1.0)
    assert random_shares(3, edges) == pytest.approx((0.1, 0.4, 0.5), abs=1e-4)
    plane = [math.asin(e) / (math.pi / 2) for e in edges]
    assert random_shares(2, edges) == pytest.approx([b - a for a, b in pairwise(plane)])
    assert random_shares(1, edges) == (0, 0, 1)


def test_the_picture_has_what_it_is_compared_with() -> None:
    found = overlaps(drawn(200, 20))
    told = " ".join(ElementTree.fromstring(found.plot().svg).itertext())
    for name in ("these rows", "without their mean", "random directions", "equal overlaps (ETF)"):
        assert name in told
    assert "ETF" not in overlaps(drawn(5, 20)).plot().svg
    assert found.as_dict()["mean_squared"] == found.mean_squared


def test_bad_input() -> None:
    x = drawn(4, 3)
    with pytest.raises(ValueError, match="there are 1 to compare"):
        overlaps(torch.cat([x[:1], torch.zeros(3, 3)]))
    with pytest.raises(ValueError, match="got inf in row 2"):
        overlaps(torch.tensor([[1.0], [1.0], [math.inf]]))
    with pytest.raises(ValueError, match="3 entries, and there are more"):
        overlaps(x, used=torch.ones(3, dtype=torch.bool))
    with pytest.raises(ValueError, match="5 entries, and there are 4"):
        overlaps(x, used=torch.ones(5, dtype=torch.bool))
    with pytest.raises(ValueError, match="booleans"):
        overlaps(x, used=torch.ones(4))
    with pytest.raises(ValueError, match="no rows"):
        overlaps(list)
    with pytest.raises(ValueError, match="got 2 after 3"):
        overlaps(lambda: [torch.ones(1, 3), torch.ones(1, 2)])
    with pytest.raises(ValueError, match="floating point"):
        overlaps(torch.ones(3, 3, dtype=torch.int64))
    with pytest.raises(ValueError, match="pairs must be at least 1"):
        overlaps(x, pairs=0)


def test_rows_that_can_be_read_only_once() -> None:
    once = iter(drawn(30, 5).split(4))
    with pytest.raises(ValueError, match="no rows"):
        overlaps(lambda: once)
