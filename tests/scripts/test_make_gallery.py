from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from scripts import make_gallery

ROOT = Path(__file__).resolve().parents[2]
LARGEST = 150_000  # bytes of a picture


def is_picture(svg: str) -> bool:
    return ElementTree.fromstring(make_gallery.as_picture(svg)).tag.endswith("svg")


def test_the_page_shows_every_picture_that_there_is() -> None:
    page = (ROOT / "docs/gallery.md").read_text(encoding="utf-8")
    shown = re.findall(r"\]\(figures/gallery-([\w-]+)\.svg\)", page)
    assert shown == list(make_gallery.PICTURES)
    files = sorted((ROOT / "docs/figures").glob("gallery-*.svg"))
    assert {file.stem.removeprefix("gallery-") for file in files} == set(shown)
    assert max(file.stat().st_size for file in files) < LARGEST


def test_a_picture_is_light_in_every_theme() -> None:
    chart = make_gallery.curvature_chart({"curvature q_proj": [1.0], "curvature q_proj block": [0]})
    assert "prefers-color-scheme" in chart
    assert "prefers-color-scheme" not in make_gallery.as_picture(chart)
    assert is_picture(chart)


def test_a_disk_is_the_same_every_time() -> None:
    first = make_gallery.disk(epochs=2)
    assert is_picture(first)
    assert "carnivore" in first
    assert make_gallery.disk(epochs=2) == first


def test_dimensions_side_by_side(tmp_path: Path) -> None:
    small = {"data": "carnivores", "dims": (2, 3), "epochs": 2, "learning_rates": (1.0,)}
    svg = make_gallery.sweep(tmp_path, seeds=1, **small)
    assert is_picture(svg)
    assert "Precision (MAP)" in svg


def test_four_diagnoses(tmp_path: Path) -> None:
    svg = make_gallery.diagnoses(tmp_path, rows=40, sample=30, repeats=2)
    assert is_picture(svg)
    for title in make_gallery.tables(tmp_path / "again", rows=5):
        assert title in svg


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")  # of Trainer
def test_learned_curvatures_of_every_kind_of_layer(tmp_path: Path) -> None:
    svg = make_gallery.curvatures(tmp_path, layers=2, steps=2)
    assert is_picture(svg)
    assert "q_proj" in svg
    assert "down_proj" in svg


def test_superposition_by_width_and_decay(tmp_path: Path) -> None:
    small = {"features": 20, "widths": (2, 3, 5), "gammas": (-0.5, 0.4), "steps": 20, "batch": 16}
    svg = make_gallery.superposition(tmp_path, **small)
    assert is_picture(svg)
    assert "m = 3" in svg
