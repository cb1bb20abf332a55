"""Runs on disk, read back: all below a folder, and two of them side by side."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beltrami.recipes.folder import SCHEMA, RunFolder
from beltrami.recipes.intervals import Interval, mean_interval, t975


class RunError(ValueError):
    """A folder that is no run, or not the run that is needed."""


@dataclass(frozen=True)
class PastRun:
    """A run as its folder tells it.

    Args:
        path: its folder.
        config: config.json.
        metrics: metrics.json; None while it is not finished.
        finished_trials: how many trials are complete.
    """

    path: Path
    config: Mapping[str, Any]
    metrics: Mapping[str, Any] | None
    finished_trials: int

    @property
    def recipe(self) -> str:
        """The recipe's name."""
        return str(self.config["recipe"])

    @property
    def data(self) -> str:
        """The data's name."""
        return str(self.config["data"]["name"])

    def key_metric(self) -> Mapping[str, Any] | None:
        """The recipe's first metric: key, title, which way is better, digits."""
        if self.metrics is None:
            return None
        first: Mapping[str, Any] = self.metrics["metrics"][0]
        return first


def read_run(path: Path) -> PastRun:
    """The run in a folder; a `RunError` says what is wrong with it."""
    folder = RunFolder(path)
    config = _document(folder.config)
    if config is None:
        raise RunError(f"{path} holds no run: there is no config.json of ours in it")
    return PastRun(path, config, _document(folder.metrics), folder.finished())


def find_runs(root: Path) -> list[PastRun]:
    """All runs in a folder and below it, by path; folders of other things are passed over."""
    if not root.is_dir():
        raise RunError(f"{root} is no folder; give the one that holds your runs")
    found = []
    for config in sorted(root.rglob("config.json")):
        if config.parent.parent.name == "trials" or config.is_symlink():
            continue
        try:
            found.append(read_run(config.parent))
        except RunError:
            continue
    return found


def _document(path: Path) -> dict[str, Any] | None:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) and document.get("schema") == SCHEMA else None


@dataclass(frozen=True)
class SideBySide:
    """One metric of one contestant in two runs.

    The difference is the second run's minus the first's: paired where both have the same seeds,
    by Welch's interval elsewhere; None where it has no meaning.
    """

    group: str
    model: str
    title: str
    better: str | None
    digits: int
    first: Interval
    second: Interval
    difference: Interval | None
    paired: bool


def side_by_side(first: PastRun, second: PastRun) -> list[SideBySide]:
    """The metrics of all contestants that two finished runs share."""
    for run in (first, second):
        if run.metrics is None:
            raise RunError(
                f"{run.path} is not finished; continue it with: {run.config['command']} --resume"
            )
    rows = list(_shared(first.metrics or {}, second.metrics or {}))
    if not rows:
        raise RunError(
            f"{first.path} ({first.recipe}) and {second.path} ({second.recipe}) share no model "
            "and metric; compare runs of one recipe"
        )
    return rows


def _shared(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[SideBySide]:
    values = [_by_contestant(first), _by_contestant(second)]
    titles = {metric["key"]: metric for metric in first["metrics"]}
    for (group, model, key), one in values[0].items():
        other = values[1].get((group, model, key))
        if other is None or key not in titles:
            continue
        metric = titles[key]
        paired = set(one) == set(other)
        yield SideBySide(
            group,
            model,
            metric["title"],
            metric["better"],
            metric["digits"],
            mean_interval(list(one.values())),
            mean_interval(list(other.values())),
            _difference(one, other, paired),
            paired,
        )


def _by_contestant(document: Mapping[str, Any]) -> dict[tuple[str, str, str], dict[int, float]]:
    found: dict[tuple[str, str, str], dict[int, float]] = {}
    for trial in document["trials"]:
        for key, value in trial["metrics"].items():
            place = found.setdefault((trial["group"], trial["model"], key), {})
            place[trial["seed"]] = math.inf if value is None else value
    return found


def _difference(
    one: Mapping[int, float], other: Mapping[int, float], paired: bool
) -> Interval | None:
    if not all(map(math.isfinite, [*one.values(), *other.values()])):
        return None
    if paired:
        return mean_interval([other[seed] - one[seed] for seed in one])
    gap = statistics.fmean(other.values()) - statistics.fmean(one.values())
    if min(len(one), len(other)) < 2:
        return Interval(gap, None)
    return Interval(gap, _welch(list(one.values()), list(other.values())))


def _welch(a: list[float], b: list[float]) -> float:
    """Half the 95% interval of a difference of means, of samples of different spread."""
    parts = [statistics.variance(x) / len(x) for x in (a, b)]
    error = sum(parts)
    if error == 0:
        return 0.0
    degrees = error**2 / sum(p**2 / (len(x) - 1) for p, x in zip(parts, (a, b), strict=True))
    return t975(max(1, math.floor(degrees))) * math.sqrt(error)
