from __future__ import annotations

import pytest
import torch

from scripts import make_figures


def test_the_error_is_the_least_over_all_scales() -> None:
    wanted = torch.ones(12, 12, dtype=torch.float64)
    found = torch.rand(12, 12, dtype=torch.float64) ** 3 + 0.01
    rows, columns = torch.triu_indices(12, 12, 1)
    ratio = found[rows, columns]
    scales = torch.linspace(0.1, 20, 20_000, dtype=torch.float64)[:, None]
    least = (scales * ratio - 1).abs().mean(-1).min().item()
    mean, worst = make_figures.distortion(found, wanted)
    assert mean <= least
    assert mean == pytest.approx(least, rel=1e-3)
    assert worst == pytest.approx((ratio.max() / ratio.min()).item())


def test_the_fit_with_the_lowest_error_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_figures, "STEPS", 20)
    wanted = make_figures.tree_distances(3)
    start = make_figures.radial_layout(3)
    rates = make_figures.LEARNING_RATES
    fits = {error: x for x, error in (make_figures.fit_plane(start, wanted, r) for r in rates)}
    assert torch.equal(make_figures.euclidean_tree(3, wanted), fits[min(fits)])
