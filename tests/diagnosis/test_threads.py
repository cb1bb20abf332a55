"""Small matrices take one thread: waiting for a busy machine's others costs a hundredfold."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import torch

from beltrami.analysis.curvature_fit import CurvatureFit, fit_curvature
from beltrami.analysis.matrices import flat_distances
from beltrami.analysis.null_models import gaussian_like
from beltrami.diagnosis import curvature, pictures
from beltrami.diagnosis.explore import vector_cloud
from beltrami.diagnosis.source import Drawn, Source


class Noise(Source):
    """Random points."""

    def draw(self, rows: torch.Tensor) -> Drawn:
        g = torch.Generator().manual_seed(0)
        points = torch.randn(len(rows), 4, generator=g, dtype=torch.float64)
        return Drawn(rows, flat_distances(points), points)

    def null(self, drawn: Drawn, seed: int) -> torch.Tensor:
        assert drawn.points is not None
        return flat_distances(gaussian_like(drawn.points, seed=seed))


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def silent(share: float) -> None:
    pass


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("part", [curvature, pictures, vector_cloud], ids=lambda m: m.__name__)
def test_fits_take_one_thread(part: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []

    def watched(*arguments: Any, **options: Any) -> CurvatureFit:
        threads.append(torch.get_num_threads())
        return fit_curvature(*arguments, **options)

    monkeypatch.setattr(part, "fit_curvature", watched)
    source = Noise("noise", "")
    source.count = 30
    rows = torch.arange(30)
    drawn = source.draw(rows)
    if part is curvature:
        curvature.curvature(source, drawn, 2, 0, silent)
    elif part is pictures:
        pictures.pictures(source, drawn, 0, silent)
    else:
        vector_cloud._by_distances(source, rows, 0)
    assert set(threads) == {1}
    assert torch.get_num_threads() == 2
