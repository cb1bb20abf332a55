from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest

from beltrami.recipes.history import RunError, find_runs, read_run, side_by_side
from tests.recipes.tiny import TinyConfig

METRIC = {"key": "map", "title": "MAP", "better": "higher", "digits": 3}


def write_run(
    path: Path,
    values: dict[int, float | None],
    *,
    recipe: str = "tiny",
    model: str = "lorentz",
    data: str = "line",
    finished: bool = True,
) -> Path:
    """A run's folder, with one arm and a value a seed."""
    path.mkdir(parents=True)
    config: dict[str, Any] = {
        "schema": "beltrami.run/1",
        "recipe": recipe,
        "command": "beltrami run tiny --out=x",
        "settings": {"seeds": len(values)},
        "data": {"name": data, "digest": data},
    }
    (path / "config.json").write_text(json.dumps(config))
    trials = [
        {"group": "g", "model": model, "seed": seed, "metrics": {"map": value}}
        for seed, value in values.items()
    ]
    interval = {"mean": 0.5, "half_width": None}
    summary = [{"group": "g", "model": model, "metrics": {"map": {"value": interval}}}]
    if finished:
        document = {**config, "metrics": [METRIC], "summary": summary, "trials": trials}
        (path / "metrics.json").write_text(json.dumps(document))
    return path


def test_all_runs_below_a_folder(tmp_path: Path) -> None:
    write_run(tmp_path / "b" / "deep", {0: 0.5})
    write_run(tmp_path / "a", {0: 0.5}, finished=False)
    (tmp_path / "a" / "trials" / "x").mkdir(parents=True)
    for name in ("result.json", "model.safetensors"):
        (tmp_path / "a" / "trials" / "x" / name).touch()
    write_run(tmp_path / "a" / "inner", {0: 0.5})
    foreign = {"model": '{"model_type": "bert"}', "text": "hello", "list": "[]", "bytes": "\x00"}
    for name, content in foreign.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(content)
    (tmp_path / "loop").symlink_to(tmp_path)
    found = find_runs(tmp_path)
    assert [run.path.relative_to(tmp_path).as_posix() for run in found] == [
        "a",
        "a/inner",
        "b/deep",
    ]
    assert [run.is_finished for run in found] == [False, True, True]
    assert [run.finished_trials for run in found] == [1, 0, 0]
    with pytest.raises(RunError, match="is not a folder"):
        find_runs(tmp_path / "nowhere")


@pytest.mark.parametrize("missing", ["recipe", "command", "settings", "data"])
def test_a_config_of_another_shape_is_no_run(tmp_path: Path, missing: str) -> None:
    path = write_run(tmp_path / "a", {0: 0.5}) / "config.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, missing: 3}))
    with pytest.raises(RunError, match="holds no run"):
        read_run(path.parent)
    assert find_runs(tmp_path) == []


@pytest.mark.parametrize(
    "damage",
    [
        "{", "", "null", '{"schema": "beltrami.run/1"}',
        {"metrics": [{}]}, {"summary": {}}, {"trials": [3]}, {"summary": [{"group": "g"}]},
        {"trials": [{"group": "g", "model": "m", "seed": 0, "metrics": {"map": "high"}}]},
        {"metrics": [{**METRIC, "digits": -1}]}, {"metrics": [{**METRIC, "digits": 10**9}]},
        {"metrics": [{**METRIC, "digits": math.nan}]},
        {"trials": [{"group": "g", "model": "m", "seed": 0, "metrics": {"map": math.nan}}]},
        {"summary": [{"group": "g", "model": "m", "metrics": {"map": {"value": {
            "mean": 10**400, "half_width": None}}}}]},
        {"elsewhere": [[math.inf]]},
    ],
)  # fmt: skip
def test_damaged_metrics_are_an_unfinished_run(tmp_path: Path, damage: Any) -> None:
    path = write_run(tmp_path / "a", {0: 0.5}) / "metrics.json"
    changed = damage if isinstance(damage, str) else {**json.loads(path.read_text()), **damage}
    path.write_text(changed if isinstance(changed, str) else json.dumps(changed))
    run = read_run(path.parent)
    assert run.metrics is None
    assert not run.is_finished
    with pytest.raises(RunError, match="is not finished; continue it with: beltrami run tiny"):
        side_by_side(run, run)


def test_a_run_that_is_being_extended_is_not_finished(tmp_path: Path) -> None:
    path = write_run(tmp_path / "a", {0: 0.5, 1: 0.7})
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "settings": {"seeds": 5}}))
    run = read_run(path)
    assert run.metrics is not None
    assert not run.is_finished
    assert side_by_side(run, run)[0].first.mean == pytest.approx(0.6)


def test_the_same_seeds_are_paired(tmp_path: Path) -> None:
    first = read_run(write_run(tmp_path / "a", {0: 0.1, 1: 0.5, 2: 0.9}))
    second = read_run(write_run(tmp_path / "b", {2: 1.0, 0: 0.2, 1: 0.6}))
    (row,) = side_by_side(first, second)
    assert row.paired
    assert row.difference is not None
    assert row.difference.mean == pytest.approx(0.1)
    assert row.difference.half_width == pytest.approx(0.0, abs=1e-12)


def test_other_seeds_have_welchs_interval(tmp_path: Path) -> None:
    stats = pytest.importorskip("scipy.stats")
    draw = random.Random(0)
    for number in range(20):
        a = [draw.gauss(0, 1) for _ in range(draw.randint(2, 8))]
        b = [draw.gauss(1, 3) for _ in range(draw.randint(2, 8))]
        runs = [
            read_run(write_run(tmp_path / f"{number}{name}", dict(enumerate(values, start))))
            for name, values, start in (("a", a, 0), ("b", b, 100))
        ]
        (row,) = side_by_side(*runs)
        assert not row.paired
        expected = stats.ttest_ind(b, a, equal_var=False).confidence_interval(0.95)
        assert row.difference is not None
        assert row.difference.half_width is not None
        assert row.difference.mean == pytest.approx((expected.low + expected.high) / 2)
        width = (expected.high - expected.low) / 2
        # We round the degrees of freedom down, which is on the safe side.
        assert width * (1 - 1e-3) <= row.difference.half_width <= width * 2.2


def test_one_seed_against_several_has_no_interval(tmp_path: Path) -> None:
    first = read_run(write_run(tmp_path / "a", {0: 0.25}))
    second = read_run(write_run(tmp_path / "b", {0: 0.5, 1: 0.75}))
    (row,) = side_by_side(first, second)
    assert row.difference is not None
    assert (row.difference.mean, row.difference.half_width) == (0.375, None)


def test_infinite_numbers_have_no_difference(tmp_path: Path) -> None:
    first = read_run(write_run(tmp_path / "a", {0: None, 1: 1.0}))
    second = read_run(write_run(tmp_path / "b", {0: 0.5, 1: 0.75}))
    (row,) = side_by_side(first, second)
    assert math.isinf(row.first.mean)
    assert row.difference is None


def test_what_cannot_be_compared_is_said(tmp_path: Path) -> None:
    first = read_run(write_run(tmp_path / "a", {0: 0.5}))
    other = read_run(write_run(tmp_path / "b", {0: 0.5}, recipe="graph"))
    with pytest.raises(RunError, match=r"is a run of the recipe tiny and .* one of graph"):
        side_by_side(first, other)
    strange = read_run(write_run(tmp_path / "c", {0: 0.5}, model="sphere"))
    with pytest.raises(RunError, match="share no model and metric"):
        side_by_side(first, strange)
    with pytest.raises(RunError, match="is not a folder"):
        read_run(tmp_path / "nowhere")


def test_a_real_run_is_read(tmp_path: Path) -> None:
    from beltrami.recipes.runner import run
    from tests.recipes.tiny import TinyRecipe

    run_result = run(TinyRecipe(TinyConfig(seeds=2, steps=1, rates=(0.1,), out=tmp_path / "r")))
    (found,) = find_runs(tmp_path)
    assert found.is_finished
    assert (found.recipe, found.data, found.finished_trials) == ("tiny", "line", 4)
    assert found.metrics == run_result.document
    assert found.key_metric() == {"key": "error", "title": "Error", "better": "lower", "digits": 6}
    assert {row.difference.mean for row in side_by_side(found, found) if row.difference} == {0.0}
