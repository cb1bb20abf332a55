"""What results draw: pictures that hold the numbers of the result."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ElementTree

import pytest
import torch

from beltrami.analysis.curvature_fit import LADDER, fit_curvature
from beltrami.analysis.gromov import delta_hyperbolicity
from beltrami.analysis.hmds import hmds
from beltrami.analysis.horopca import horopca
from beltrami.analysis.null_models import sphere_distances, tree_distances
from beltrami.analysis.power_law import power_law_fit
from beltrami.analysis.tangent_pca import tangent_pca
from beltrami.report.picture import Picture

SVG = "{http://www.w3.org/2000/svg}"


def texts(picture: Picture) -> str:
    return " ".join(ElementTree.fromstring(picture.svg).itertext())


def test_delta_is_drawn_beside_others() -> None:
    tree = delta_hyperbolicity(tree_distances(40), "distances")
    sphere = delta_hyperbolicity(sphere_distances(40), "distances", sample=20, repeats=3)
    told = texts(tree.plot(sphere=sphere))
    assert "these points" in told
    assert "sphere" in told
    assert f"{sphere.relative:.2f}"[:3] in told


def test_a_fit_of_curvature_draws_its_ladder() -> None:
    fit = fit_curvature(tree_distances(30))
    picture = fit.plot()
    told = texts(picture)
    assert "2 dimensions" in told
    assert "flat" in told
    marks = picture.svg.count('class="mark')
    assert marks >= len(LADDER)


def test_maps_to_the_plane_draw_their_points() -> None:
    seen = hmds(tree_distances(20), 0.5)
    dots = ElementTree.fromstring(seen.plot([f"n{i}" for i in range(20)]).svg)
    assert len(dots.findall(f".//{SVG}circle[@cx]")) == 20
    high = hmds(tree_distances(20), 0.5, components=4)
    with pytest.raises(ValueError, match="2 dimensions"):
        high.plot()
    for lower in (tangent_pca, horopca):
        assert "19" in texts(lower(high.points, 0.5).plot())


def test_a_power_law_draws_counts_and_law() -> None:
    g = torch.Generator().manual_seed(0)
    draws = torch.rand(3000, generator=g, dtype=torch.float64)
    counts = (0.5 * (1 - draws) ** (-1 / 1.5) + 0.5).floor().long().clamp(min=1)
    fit = power_law_fit(counts, draws=0)
    told = texts(fit.plot())
    assert f"α = {fit.exponent:.2f}" in told
    values, shares = zip(*fit.survival, strict=True)
    assert list(values) == sorted(values)
    assert values[0] == float(counts.min())
    assert shares[0] == 1.0
    for value, share in fit.survival:
        assert math.isclose(share, float((counts >= value).double().mean()))
