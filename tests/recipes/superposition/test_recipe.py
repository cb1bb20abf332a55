"""The superposition recipe: runs from end to end, and what they say."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from beltrami.recipes.registry import create
from beltrami.recipes.runner import run
from beltrami.recipes.superposition.config import SuperpositionConfig
from beltrami.recipes.superposition.results import regime_results, settling
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
    run_result = run_interrupted(tiny(), tmp_path, training=1, step=40)
    whole, half = run_result.arm_results
    assert (whole.arm.model, half.arm.model) == ("linear", "half")
    assert half.arm.twin == "linear"
    assert [m["key"] for m in run_result.document["metrics"]][:2] == ["loss -0.5", "exponent -0.5"]
    first = regime_results(whole)[0]
    assert first.widths == (2, 3, 5)  # sorted
    assert len(first.losses) == 3
    page = (tmp_path / "broken" / "report.html").read_text()
    assert "γ = −0.5" in page
    assert (
        "It has not converged: half the steps give other numbers" in page
    )  # sixty steps are nothing
    assert "Give more --steps" in page
    assert "half the steps" not in page.split("Is it trained long enough?")[0].split("<table")[1]


def test_tf32_is_for_a_gpu_and_makes_other_trials(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"--tf32 is for a GPU, and this run is on cpu"):
        run(create(tiny(tf32=True, out=tmp_path / "run")))
    rough, exact = (create(tiny(tf32=yes)).arms()[0].settings for yes in (True, False))
    assert rough == replace(exact, matrices="TF32")


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
    run_result = run(create(config))
    groups = run_result.groups()
    assert list(groups) == [
        "linear",
        "linear, 2.45 features a sample",
        "exponential 8",
        "exponential 8, 1.73 features a sample",
    ]
    for arm_results in groups.values():
        assert [s.arm.model for s in arm_results] == ["linear", "busemann", "distance"]
        assert len({s.results[0].parameters for s in arm_results}) == 1  # as many parameters
        assert len(regime_results(arm_results[0])) == 3
    page = (tmp_path / "run/report.html").read_text()
    assert "Exponents by law and gamma" in page
    assert "Represented features by width and gamma" in page
    assert "rows of length 1, hyperbolic distance" in page
    assert "was not checked" in page.split("</header>")[0] + page.split("<table")[0]
    assert "One seed." in page
    assert "95 % intervals" not in page
    assert "with fitted lines" not in page
    assert "Fitted lines are left out, as there are more than 6 curves." in page
    for readout in ("linear", "Busemann", "hyperbolic distance"):
        assert f"Represented features: exponential 8, {readout} read-out" in page
        assert f"Represented features by width and gamma, {readout} read-out" in page
    unit = regime_results(run_result.arm_results[0])[-1]
    assert all(math.isnan(share) for share in unit.above_one)  # as it would be up to rounding
    assert all(0 < overlap < 1 for overlap in unit.overlaps)  # of all rows


def loss_figure(folder: Path) -> str:
    """The first picture of a page, with its caption."""
    return (folder / "report.html").read_text().split("<figure")[1].split("</figure>")[0]


@pytest.mark.parametrize(
    ("options", "first", "last"),
    [
        ({"gammas": (0.4,)}, 1, 1),
        ({}, 2, 2),
        ({"unit": True}, 3, 0),
        ({"unit": True, "readouts": ("linear", "distance")}, 6, 0),
        ({"readouts": ("linear", "bent", "margin", "distance")}, 0, 0),
    ],
)
def test_fitted_lines_where_there_is_room(
    options: dict[str, object], first: int, last: int, tmp_path: Path
) -> None:
    """Over all widths for up to six curves, and without the narrowest for one or two."""
    config = tiny(
        widths=(2, 3, 5, 7), steps=10, seeds=1, check_steps=False, out=tmp_path, **options
    )
    run(create(config))
    figure = loss_figure(tmp_path)
    lines = re.findall(r"fit from (\d)</text>", figure)  # of the legend
    assert (lines.count("2"), lines.count("3"), len(lines)) == (first, last, first + last)
    assert ("Fitted lines are left out" in figure) is (first == 0)
    assert "regimes:" not in figure  # none is left out


def test_a_picture_says_which_regimes_it_leaves_out(tmp_path: Path) -> None:
    gammas = (-1.0, -0.6, -0.2, 0.2, 0.6)
    run(create(tiny(gammas=gammas, steps=10, seeds=1, check_steps=False, out=tmp_path)))
    figure = loss_figure(tmp_path)
    assert "3 of 5 regimes: γ = −1, γ = −0.2, γ = 0.6; all are in the table." in figure
    assert "γ = −0.6" not in figure
    assert "γ = −0.2, fit from 2" in figure


def test_one_gamma_has_a_map_of_its_features(tmp_path: Path) -> None:
    run_result = run(
        create(tiny(gammas=(0.4,), steps=10, seeds=1, check_steps=False, out=tmp_path))
    )
    page = (tmp_path / "report.html").read_text()
    picture = page.split("Represented features by width and gamma, linear read-out")[1]
    picture = picture.split("</svg>")[0]
    (one,) = regime_results(run_result.arm_results[0])
    for m, share in zip(one.widths, one.shares, strict=True):
        assert f"m = {m}" in picture
        assert f">{share:.2f}<" in picture


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
    (arm_result,) = run(create(config)).arm_results
    strong, weak = regime_results(arm_result)
    assert min(strong.shares) > 0.8
    assert max(weak.shares) < 0.5
    assert weak.losses[-1].mean == pytest.approx(weak.unlearned[-1], rel=0.35)
    assert strong.losses[-1].mean < weak.losses[-1].mean
    assert strong.exponent.mean > weak.exponent.mean


def test_what_is_settled(tmp_path: Path) -> None:
    run_result = run(create(tiny(seeds=1, out=tmp_path)))
    (whole, half) = run_result.arm_results
    strong, weak = settling(run_result.arm_results)
    assert (strong.group, strong.regime, weak.regime) == ("power law 1", "γ = −0.5", "γ = 0.4")
    assert not strong.settled
    unmoved = replace(half, results=whole.results, comparisons=whole.comparisons)
    for one in settling([whole, unmoved]):
        assert one.steady
        assert (one.change, one.after) == (0.0, one.before)
        assert replace(one, over_zero=1.0).settled
    worse = replace(strong, before=1.0, after=1.0, change=0.5)
    assert not worse.settled  # a loss that rises is not at its end either
    assert settling([whole]) == []


def test_models_worse_than_none_are_not_settled(tmp_path: Path) -> None:
    """Near its start a training hardly changes them, so that half the steps tell nothing."""
    config = tiny(features=200, widths=(5, 10, 20), batch=128, seeds=1, steps=20, out=tmp_path)
    run_result = run(create(config))
    found = settling(run_result.arm_results)
    loss = regime_results(run_result.arm_results[0])[0].losses[-1].mean
    assert all(one.steady for one in found)
    assert found[0].over_zero == pytest.approx(loss / (4 / 3))  # one feature a sample
    assert not any(one.settled for one in found)
    told = run_result.document["findings"]["convergence"]
    assert told["settled"] is False
    assert told["regimes"][0]["over_zero"] == found[0].over_zero
    page = (tmp_path / "report.html").read_text()
    assert "It has not converged: models lose more than answering 0 always would." in page
    assert "alf the steps give other numbers" not in page
    (*_, table) = create(config).tables(run_result)
    assert table.caption.startswith("Not converged: models lose more than answering 0")
    assert table.rows[0].values[-2:] == (f"{found[0].over_zero:.2f}", "no")


def test_what_answering_0_loses_grows_with_the_density(tmp_path: Path) -> None:
    config = tiny(densities=(0.5,), seeds=1, steps=20, out=tmp_path)
    run_result = run(create(config))
    loss = regime_results(run_result.arm_results[0])[0].losses[-1].mean
    p = create(config).frequencies["power law 1, 2.5 features a sample"]
    expected = loss / float(4 / 3 * p.sum())
    assert settling(run_result.arm_results)[0].over_zero == pytest.approx(expected, rel=1e-3)


def test_decay_that_leaves_everything_out_may_settle(tmp_path: Path) -> None:
    """Its loss is that of answering 0, up to the noise of samples."""
    config = tiny(laws=("power:0",), gammas=(20.0,), steps=1000, seeds=1, out=tmp_path)
    (one,) = settling(run(create(config)).arm_results)
    assert one.over_zero == pytest.approx(1, abs=0.05)
    assert one.learned


def test_every_read_out_is_checked_and_the_numbers_are_kept(tmp_path: Path) -> None:
    config = tiny(seeds=1, out=tmp_path, readouts=("linear", "distance"))
    run_result = run(create(config))
    models = [s.arm.model for s in run_result.arm_results]
    assert models == ["linear", "half", "distance", "half-distance"]
    assert run_result.arm_results[-1].arm.settings.steps == 30
    assert run_result.arm_results[-1].arm.twin == "distance"
    findings = json.loads((tmp_path / "metrics.json").read_text())["findings"]
    assert [(r["model"], r["gamma"]) for r in findings["regimes"]] == [
        ("linear", -0.5),
        ("linear", 0.4),
        ("distance", -0.5),
        ("distance", 0.4),
    ]
    first = findings["regimes"][0]
    expected = regime_results(run_result.arm_results[0])[0]
    assert [loss["mean"] for loss in first["losses"]] == [i.mean for i in expected.losses]
    assert [w["from"] for w in first["windows"]] == list(first["widths"][: len(first["windows"])])
    assert first["windows"][0]["exponent"] == expected.windows.fits[0].exponent
    told = findings["convergence"]
    assert told["settled"] is False
    assert len(told["regimes"]) == 4
    bare = run(create(tiny(seeds=1, out=tmp_path / "bare", check_steps=False)))
    assert bare.document["findings"]["convergence"] == {"settled": None, "regimes": []}
