"""The parts of the benchmarks that decide what their tables say."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from benchmarks import accuracy_grid, markers, numerics_page
from benchmarks.accuracy_grid import Axes, Row

ROOT = Path(__file__).resolve().parents[2]


def row(ratio: float, **changes: object) -> Row:
    fields: dict[str, object] = {
        "module": "lorentz",
        "case": "dist far",
        "dtype": "float32",
        "radius": 1.0,
        "cells": 20,
        "value": 1e-7,
        "gradient": 2e-7,
        "c_gradient": 0.0,
        "value_ratio": ratio,
        "gradient_ratio": ratio / 2,
        "c_gradient_ratio": 0.0,
        "where": (1.0, 3),
    }
    return Row(**{**fields, **changes})  # type: ignore[arg-type]


def test_every_cases_module_joins_the_grid() -> None:
    found = {t.module for t in accuracy_grid.tasks("", Axes())}
    on_disk = {p.stem for p in (ROOT / "tests/accuracy").glob("cases_*.py")}
    assert {f"cases_{name}" for name in found} == on_disk


def test_a_task_is_within_bounds() -> None:
    axes = Axes(radii=(1.0,), curvatures=(1.0,), dims=(2,))
    for task in accuracy_grid.tasks("lorentz dist0", axes):
        measured = accuracy_grid.run_task(task)
        assert measured.cells == 1
        assert 0 < measured.ratio <= 1


def test_a_case_that_raises_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> None:
        raise ZeroDivisionError("no")

    monkeypatch.setattr(accuracy_grid.g, "measure", broken)
    (task, *_) = accuracy_grid.tasks("lorentz dist0", Axes(radii=(1.0,), dims=(2,)))
    measured = accuracy_grid.run_task(task)
    assert math.isinf(measured.ratio)
    assert "ZeroDivisionError" in measured.error


def test_the_page_says_when_a_bound_is_exceeded() -> None:
    good = [row(0.5), row(0.3, dtype="float64")]
    assert "0.50 of its bound" in numerics_page.status(good)
    bad = [row(math.inf), row(0.3, dtype="float64")]
    assert "lorentz dist far (float32)" in numerics_page.status(bad)


@pytest.mark.parametrize(
    ("error", "words"),
    [(None, ""), (math.inf, "**NaN**"), (0.0, "0"), (1.6e-7, "2e-7"), (1.2, "1"), (3e11, "3e11")],
)
def test_numbers(error: float | None, words: str) -> None:
    assert numerics_page.number(error) == words


def test_markers_keep_the_prose(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- generated: a -->\nold\n<!-- end: a -->\nafter\n")
    markers.replace(page, "a", "new \\1")
    assert markers.read(page, "a") == "new \\1"
    assert page.read_text().startswith("before\n")
    assert page.read_text().endswith("after\n")
    with pytest.raises(ValueError, match="expected 1"):
        markers.replace(page, "b", "text")


def test_results_have_a_place_for_the_table() -> None:
    assert markers.read(ROOT / "benchmarks/RESULTS.md", "speed")
