"""The superposition recipe: runs from end to end, and what they say."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from beltrami.recipes.registry import create
from beltrami.recipes.runner import run
from beltrami.recipes.superposition.config import SuperpositionConfig
from beltrami.recipes.superposition.standings import regime_results, settling
from tests.recipes.interruption import run_interrupted


def tiny(**changes: object) -> SuperpositionConfig:
    options: dict[str, object] = {
        "features": 30,
        "widths": (5, 2, 3),
        "gammas": (0.4, -0.5),
        "laws": ("power:1",),
        "steps": 60,
        "batch": 64,
        "seeds": 2,
        "jobs": 1,
        "device": "cpu",
    }
    return SuperpositionConfig(**{**options, **changes})  # type: ignore[arg-type]


def test_an_interrupted_run_ends_as_it_would_have(tmp_path: Path) -> None:
    outcome = run_interrupted(tiny(), tmp_path, training=1, step=40)
    whole, half = outcome.standings
    assert (whole.contestant.model, half.contestant.model) == ("linear", "half")
    assert half.contestant.twin == "linear"
    assert [m["key"] for m in outcome.document["metrics"]][:2] == ["loss -0.5", "exponent -0.5"]
    first = regime_results(whole)[0]
    assert first.widths == (2, 3, 5)  # sorted
    assert len(first.losses) == 3
    page = (tmp_path / "broken" / "report.html").read_text()
    assert "γ = −0.5" in page
    assert "Half the steps give other numbers" in page  # sixty steps are nothing
    assert "Give more --steps" in page
    assert "half the steps" not in page.split("Is it trained long enough?")[0].split("<table")[1]


def test_tf32_is_for_a_gpu_and_makes_other_trials(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"--tf32 is for a GPU, and this run is on cpu"):
        run(create(tiny(tf32=True, out=tmp_path / "run")))
    rough, exact = (create(tiny(tf32=yes)).contestants()[0].settings for yes in (True, False))
    assert rough == {**exact, "matrices": "TF32"}


def test_laws_densities_and_readouts_are_groups_and_models(tmp_path: Path) -> None:
    config = tiny(
        laws=("linear", "exponential:8"),
        densities=(0.0, 0.1),
        readouts=("busemann", "linear", "distance"),
        check_steps=False,
        unit=True,
        seeds=1,
        steps=30,
        out=tmp_path / "run",
    )
    outcome = run(create(config))
    groups = outcome.groups()
    assert list(groups) == [
        "linear",
        "linear, 2.45 features a sample",
        "exponential 8",
        "exponential 8, 1.73 features a sample",
    ]
    for standings in groups.values():
        assert [s.contestant.model for s in standings] == ["linear", "busemann", "distance"]
        assert len({s.results[0].parameters for s in standings}) == 1  # as many parameters
        assert len(regime_results(standings[0])) == 3
    page = (tmp_path / "run/report.html").read_text()
    assert "Exponents by law and gamma" in page
    assert "Represented features by width and gamma" in page
    assert "rows of length 1, hyperbolic distance" in page
    assert "was not checked" in page.split("</header>")[0] + page.split("<table")[0]
    assert "One seed." in page
    assert "95 % intervals" not in page
    assert "with fitted lines" not in page
    unit = regime_results(outcome.standings[0])[-1]
    assert all(math.isnan(share) for share in unit.above_one)  # as it would be up to rounding
    assert all(0 < overlap < 1 for overlap in unit.overlaps)  # of all rows


def test_laws_can_be_added_and_nothing_else(tmp_path: Path) -> None:
    config = tiny(seeds=1, out=tmp_path)
    first = run(create(config)).document
    more = run(create(replace(config, laws=("power:1", "linear"), resume=True))).document
    kept = [t for t in more["trials"] if t["group"] == "power law 1"]
    assert kept == first["trials"]
    with pytest.raises(ValueError, match="other settings"):
        run(create(replace(config, widths=(2, 3, 6), resume=True)))


def test_a_short_training_shows_both_regimes(tmp_path: Path) -> None:
    """All features in the one, few in the other, whose loss is what was left out."""
    config = tiny(
        features=60, widths=(3, 5, 8), steps=1500, batch=128, seeds=1, out=tmp_path,
        check_steps=False,
    )  # fmt: skip
    (standing,) = run(create(config)).standings
    strong, weak = regime_results(standing)
    assert min(strong.shares) > 0.8
    assert max(weak.shares) < 0.5
    assert weak.losses[-1].mean == pytest.approx(weak.unlearned[-1], rel=0.35)
    assert strong.losses[-1].mean < weak.losses[-1].mean
    assert strong.exponent.mean > weak.exponent.mean


def test_what_is_settled(tmp_path: Path) -> None:
    outcome = run(create(tiny(seeds=1, out=tmp_path)))
    (whole, half) = outcome.standings
    strong, weak = settling(outcome.standings)
    assert (strong.group, strong.regime, weak.regime) == ("power law 1", "γ = −0.5", "γ = 0.4")
    assert not strong.settled
    unmoved = replace(half, results=whole.results, comparisons=whole.comparisons)
    for one in settling([whole, unmoved]):
        assert one.settled
        assert (one.change, one.after) == (0.0, one.before)
    worse = replace(strong, before=1.0, after=1.0, change=0.5)
    assert not worse.settled  # a loss that rises is not at its end either
    assert settling([whole]) == []


def test_every_read_out_is_checked_and_the_numbers_are_kept(tmp_path: Path) -> None:
    config = tiny(seeds=1, out=tmp_path, readouts=("linear", "distance"))
    outcome = run(create(config))
    models = [s.contestant.model for s in outcome.standings]
    assert models == ["linear", "half", "distance", "half-distance"]
    assert outcome.standings[-1].contestant.settings["steps"] == 30
    assert outcome.standings[-1].contestant.twin == "distance"
    findings = json.loads((tmp_path / "metrics.json").read_text())["findings"]
    assert [(r["model"], r["gamma"]) for r in findings["regimes"]] == [
        ("linear", -0.5),
        ("linear", 0.4),
        ("distance", -0.5),
        ("distance", 0.4),
    ]
    first = findings["regimes"][0]
    expected = regime_results(outcome.standings[0])[0]
    assert [loss["mean"] for loss in first["losses"]] == [i.mean for i in expected.losses]
    assert [w["from"] for w in first["windows"]] == list(first["widths"][: len(first["windows"])])
    assert first["windows"][0]["exponent"] == expected.windows.fits[0].exponent
    told = findings["convergence"]
    assert told["settled"] is False
    assert len(told["regimes"]) == 4
    bare = run(create(tiny(seeds=1, out=tmp_path / "bare", check_steps=False)))
    assert bare.document["findings"]["convergence"] == {"settled": None, "regimes": []}
