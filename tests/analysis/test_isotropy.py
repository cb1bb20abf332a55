"""Cosines of all pairs without all pairs, and dimensions of a covariance."""

from __future__ import annotations

import math

import pytest
import torch

from beltrami.analysis import rows
from beltrami.analysis.isotropy import isotropy


def test_against_all_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(40, 7, generator=torch.Generator().manual_seed(0)) + 0.5
    unit = torch.nn.functional.normalize(x.double(), dim=-1)
    cosines = (unit @ unit.mT)[~torch.eye(40, dtype=torch.bool)]
    values = torch.linalg.eigvalsh(x.double().T.cov())
    for block in (21, 1 << 22):
        monkeypatch.setattr(rows, "_SLICE_ELEMENTS", block)
        found = isotropy(x)
        assert found.mean_cosine == pytest.approx(cosines.mean().item())
        assert found.mean_squared_cosine == pytest.approx(cosines.square().mean().item())
        assert found.effective_dimensions == pytest.approx(
            (values.sum() ** 2 / values.square().sum()).item()
        )
        assert found.first_share == pytest.approx((values[-1] / values.sum()).item())


def test_a_tight_frame_has_the_least_overlap() -> None:
    """Three directions in the plane, 120° apart."""
    around = torch.arange(3) * 2 * math.pi / 3
    found = isotropy(torch.stack([around.cos(), around.sin()], 1))
    assert found.mean_squared_cosine == pytest.approx(found.least_overlap)
    assert found.least_overlap == pytest.approx(0.25)
    assert found.random_overlap == 0.5


def test_random_directions() -> None:
    found = isotropy(torch.randn(3000, 50, generator=torch.Generator().manual_seed(1)))
    assert abs(found.mean_cosine) < 1e-3
    assert found.mean_squared_cosine == pytest.approx(1 / 50, rel=0.02)
    assert found.effective_dimensions > 48


def test_rows_of_zeros_have_no_direction() -> None:
    found = isotropy(torch.cat([torch.zeros(2, 3), torch.eye(3)]))
    assert (found.used, found.points) == (3, 5)
    assert found.mean_cosine == 0
    for value in (1.0, 0.1):
        constant = isotropy(torch.full((7, 3), value, dtype=torch.float64))
        assert constant.mean_cosine == pytest.approx(1)
        assert math.isnan(constant.effective_dimensions)
        assert math.isnan(constant.first_share)
    assert math.isnan(isotropy(torch.zeros(4, 3)).mean_cosine)


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="compares rows, and there are 1"):
        isotropy(torch.zeros(1, 3))
    with pytest.raises(ValueError, match="finite"):
        isotropy(torch.full((4, 3), math.inf))
