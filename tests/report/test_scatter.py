"""Points in the disk without edges, and pictures that results give."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import torch

from beltrami.report.disk import RADIUS
from beltrami.report.picture import Picture
from beltrami.report.scatter import scatter_svg

SVG = "{http://www.w3.org/2000/svg}"
POINTS = torch.tensor([[0.0, 0.0], [0.5, -0.25], [-0.9, 0.3]])


def test_every_point_is_drawn_at_its_place_with_its_label() -> None:
    svg = ElementTree.fromstring(
        scatter_svg(POINTS, ["a", "<b>", "c & d"], title="T", description="D")
    )
    dots = svg.findall(f".//{SVG}circle[@cx]")
    places = [(float(dot.get("cx", 0)) / RADIUS, float(dot.get("cy", 0)) / RADIUS) for dot in dots]
    torch.testing.assert_close(torch.tensor(places), POINTS, atol=1e-5, rtol=0)
    assert [dot.findtext(f"{SVG}title") for dot in dots] == ["a", "<b>", "c & d"]
    assert {text.text for text in svg.iter(f"{SVG}text")} == {"a", "<b>", "c & d"}


def test_crowded_points_are_not_all_labelled() -> None:
    points = 0.01 * torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    svg = scatter_svg(points, [f"point {i}" for i in range(200)], title="T", description="D")
    assert 0 < svg.count("<text") < 40


@pytest.mark.parametrize(
    ("points", "labels", "match"),
    [
        (torch.zeros(2, 3), ["a", "b"], r"\(2, 3\)"),
        (torch.zeros(2, 2), ["a"], "1 labels"),
        (torch.zeros(0, 2), [], r"\(0, 2\)"),
        (torch.tensor([[0.8, 0.8]]), ["a"], "unit disk"),
        (torch.tensor([[float("nan"), 0.0]]), ["a"], "finite"),
    ],
)
def test_what_cannot_be_drawn(points: torch.Tensor, labels: list[str], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        scatter_svg(points, labels, title="T", description="D")


def test_a_picture_is_shown_by_notebooks_and_saved(tmp_path: Path) -> None:
    picture = Picture("<svg/>")
    assert picture._repr_svg_() == "<svg/>"
    path = picture.save(tmp_path / "a.svg")
    assert path.read_text(encoding="utf-8") == "<svg/>"
    assert list(tmp_path.iterdir()) == [path]
