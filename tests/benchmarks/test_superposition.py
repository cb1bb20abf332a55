"""The benchmark of toy models: that it runs, and how it judges."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import markers, superposition
from benchmarks.superposition import ALONE, OURS, Options, Timing, rows


def test_a_run_from_end_to_end(tmp_path: Path) -> None:
    assert superposition.run(Options(quick=True, out=tmp_path)) == 0
    page = tmp_path / "page.md"
    page.write_text("<!-- generated: superposition cpu -->\n<!-- end: superposition cpu -->\n")
    assert superposition.render(tmp_path, page) == ["cpu"]
    text = markers.read(page, "superposition cpu")
    assert "| 4 models, batch 32 | beltrami, one stack |" in text
    assert superposition.render(tmp_path / "nothing", page) == []


@pytest.mark.parametrize(("device", "verdict"), [("cpu", "met"), ("cuda", "**missed**")])
def test_who_meets_the_goal(device: str, verdict: str) -> None:
    ours, other = Timing("c", OURS, (3.0, 2.0)), Timing("c", ALONE, (12.0, 10.0))
    _, body = rows([ours, other], device)
    assert [row[-1] for row in body] == ["", verdict]
    assert body[1][4] == "5.0× as fast"
