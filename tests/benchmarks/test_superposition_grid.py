"""The grid of toy models beside the published one: what is kept, and what is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from beltrami.recipes.registry import create
from beltrami.recipes.runner import run as run_recipe
from beltrami.recipes.superposition import published as theirs
from beltrami.recipes.superposition.config import SuperpositionConfig
from benchmarks import markers, superposition_grid
from benchmarks.superposition_grid import Cell, Options, judged, merge, page

WIDTHS = (10, 15, 25, 39, 63, 100)


def cell(a: float, gamma: float, exponent: float, *, seed: int = 0, density: float = 1.0) -> Cell:
    losses = tuple(2.0 * m**-exponent for m in WIDTHS)
    return Cell(a, density, gamma, seed, losses, (1.0,) * 6, (0.5,) * 6)


def test_statements_that_hold_and_do_not() -> None:
    cells = [cell(0.5, -0.333, 1.05), cell(1.0, -0.556, 0.97), cell(2.0, -0.778, 1.5)]
    found = {row[0]: row for row in judged(cells)}
    assert len(found) == 2
    strong = "strong superposition (γ = −0.778, −0.556, −0.333), data exponent"
    one = found[f"{strong} up to 1: the exponent is 1"]
    assert one[1] == "2"
    assert one[3] == "0.04 (−0.03 to +0.05)".replace("−", "-")
    assert one[-1] == "holds"
    steep = found[f"{strong} above 1.5: the exponent is 2(a − 1)"]
    assert steep[-1] == "does not hold"


def test_statements_are_on_the_gammas_that_they_name() -> None:
    """Those of the paper's figure; beyond them it makes no statement."""
    gammas = (-1.0, -0.778, -0.556, -0.333, -0.111, 0.111, 0.333, 0.556, 0.778, 1.0)
    rows = judged([cell(a, gamma, 1.0) for a in (0.5, 1.25, 1.75) for gamma in gammas])
    assert [row[1] for row in rows] == ["3"] * 4
    assert [row[0].split("), ")[0] for row in rows[1:3]] == [
        "strong superposition (γ = −0.778, −0.556, −0.333",
        "weak superposition (γ = 0.111, 0.333, 0.556",
    ]


def test_a_statement_that_holds_in_a_window() -> None:
    losses = (1.2, 1.1, 1.0, 25 / 39, 25 / 63, 25 / 100)  # 1/m from m = 25 on
    bent = Cell(1.0, 1.0, -0.778, 0, losses, (1.0,) * 6, (1.0,) * 6)
    ((*_, verdict),) = judged([bent])
    assert verdict == "holds for m ≥ 25 only"


def test_the_page_has_ours_and_theirs() -> None:
    cells = [cell(1.0, -0.556, 1.2, seed=s) for s in (0, 1)] + [cell(0.3, 0.5, 0.1)]
    text = page(merge({}, [({"command": "c", "hardware": "H", "torch": "2"}, cells)], "abc"))
    assert "| 1 | 1.20 (1.06) | – |" in text
    assert "| 0.3 | – | 0.10 |" in text
    assert "ours (1 to 2 seeds)" in text
    assert "Over 1 cells the two differ by 0.14" in text
    assert "(0.6902, " in text
    assert "Commit abc. H, torch 2." in text
    # Those of the figure with one width, and of represented features.
    assert f"| -0.556 | {2 * 63**-1.2:.3f} (0.116) |" in text
    assert "Shares of represented features, φ½ of m = 39: over 1 cells" in text


def test_losses_of_several_seeds_have_intervals() -> None:
    theirs_here = theirs.published_losses(1.0, -0.556, 1.0)
    assert theirs_here is not None
    up, down = ([x * (1 + s) for x in theirs_here] for s in (0.01, -0.01))
    three = [*[1.05 * x for x in theirs_here[:-1]], 2 * theirs_here[-1]]
    cells = [
        Cell(1.0, 1.0, -0.556, seed, tuple(losses), (1.0,) * 6, (0.5,) * 6)
        for seed, losses in enumerate((up, down, three))
    ]
    about = {"command": "c", "hardware": "H", "torch": "2"}
    text = page(merge({}, [(about, cells)], "a"))
    assert "ours (3 seeds)" in text
    # Two near and one apart by 5 % lie around it; the last by 100 %, which widens its interval.
    assert "5 of 6 within 10%, 6 inside the interval" in text
    assert "(0.6902, +2%)" in text
    assert text.count(" ± ") >= 6


def test_later_cells_take_the_place_of_earlier_ones() -> None:
    about = {"command": "c", "hardware": "H", "torch": "2"}
    first = merge({}, [(about, [cell(1.0, -1.0, 1.0), cell(1.5, -1.0, 1.0)])], "a")
    again = json.loads(superposition_grid.as_text(first))
    both = merge(again, [(about, [cell(1.0, -1.0, 2.0)])], "b")
    assert len(both["cells"]) == 2
    assert [made["commit"] for made in both["made"]] == ["a", "b"]
    assert both["cells"][0]["losses"][0] == pytest.approx(0.02)


def test_a_run_from_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the paper's settings made small."""
    small = {"features": 30, "widths": [2, 3, 4, 5, 6, 7], "batch": 20, "steps": 12}
    monkeypatch.setitem(theirs.published(), "settings", small)
    monkeypatch.setitem(theirs.published(), "represented_width", 4)
    config = SuperpositionConfig(
        preset="paper",
        features=30,
        widths=(2, 3, 4, 5, 6, 7),
        batch=20,
        steps=12,
        laws=("power:1", "linear"),
        densities=(0.0, 0.5),
        gammas=(-0.556, 0.333),
        seeds=1,
        jobs=1,
        device="cpu",
        check_steps=False,
        out=tmp_path / "run",
    )
    run_recipe(create(config))
    monkeypatch.setattr(superposition_grid, "FILE", tmp_path / "kept/grid.json")
    monkeypatch.setattr(superposition_grid, "PAGE", tmp_path / "page.md")
    (tmp_path / "page.md").write_text(
        "<!-- generated: superposition grid -->\n<!-- end: superposition grid -->\n"
    )
    assert superposition_grid.run(Options((tmp_path / "run",), commit="abc")) == 0
    kept = json.loads((tmp_path / "kept/grid.json").read_text())
    assert len(kept["cells"]) == 4  # of the power law alone
    assert str(tmp_path) not in (tmp_path / "kept/grid.json").read_text()
    text = markers.read(tmp_path / "page.md", "superposition grid")
    assert "| 1 | " in text
    assert superposition_grid.run(Options()) == 0


def test_other_folders_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert superposition_grid.run(Options((tmp_path,))) == 2
    assert "holds no finished run" in capsys.readouterr().err
    (tmp_path / "metrics.json").write_text('{"recipe": "graph"}')
    assert superposition_grid.run(Options((tmp_path,))) == 2
    assert "is a run of graph" in capsys.readouterr().err
