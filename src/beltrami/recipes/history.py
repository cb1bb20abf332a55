"""Runs on disk, read back: all below a folder, and two of them side by side."""

from __future__ import annotations

import math
import os
import statistics
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import NoneType
from typing import Any

from beltrami.analysis.intervals import Interval, mean_interval, t975
from beltrami.data.output_folder import read_object
from beltrami.recipes.folder import CONFIG, RunFolder, read_document

# The file of each command that writes a single document, and how its schema begins.
DOCUMENTS = {
    "diagnose": ("diagnosis.json", "beltrami.diagnosis/"),
    "forecast": ("forecast.json", "beltrami.forecast/"),
    "family": ("family.json", "beltrami.family/"),
}


class RunError(ValueError):
    """A folder that is not a run, or not the run that is needed."""


@dataclass(frozen=True)
class PastRun:
    """A run as its folder tells it.

    Args:
        path: its folder.
        config: config.json.
        metrics: metrics.json; None before the run was finished once.
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

    @property
    def date(self) -> str:
        """The day when it was finished, or begun, such as 2026-11-19."""
        if self.metrics is not None and isinstance(self.metrics.get("finished"), str):
            return str(self.metrics["finished"])[:10]
        return file_date(self.path / CONFIG)

    def outcome(self, *, short: bool = False) -> str:
        """The best value of the recipe's first metric and its twin's, in a line; "" before."""
        metric = self.key_metric()
        if metric is None or self.metrics is None:
            return ""
        values = {
            (arm["group"], arm["model"]): arm["metrics"][metric["key"]]["value"]
            for arm in self.metrics["summary"]
            if metric["key"] in arm["metrics"]
        }
        finite = {arm: v for arm, v in values.items() if v["mean"] is not None}
        if not finite:
            return ""
        sign = -1 if metric["better"] == "lower" else 1
        group, model = max(finite, key=lambda arm: sign * finite[arm]["mean"])
        arms = [arm for arm in self.metrics["summary"] if arm["group"] == group]
        twin = next((arm.get("twin") for arm in arms if arm["model"] == model), None)
        others = [twin] if twin else [a["model"] for a in arms if a.get("twin") == model][:1]
        shown = [
            f"{name} {_interval_text(finite[group, name], metric['digits'])}"
            for name in (model, *others)
            if (group, name) in finite
        ]
        if short:
            return f"{metric['title']} {', '.join(text.split(' ± ')[0] for text in shown)}"
        where = f" ({group})" if group else ""
        return f"{metric['title']}: {', '.join(shown)}{where}"

    @property
    def is_finished(self) -> bool:
        """Whether everything that was asked for is done; not so while more seeds are added."""
        return self.metrics is not None and all(
            self.metrics[key] == self.config[key] for key in ("settings", "data")
        )

    def key_metric(self) -> Mapping[str, Any] | None:
        """The recipe's first metric: key, title, which way is better, digits."""
        if self.metrics is None or not self.metrics["metrics"]:
            return None
        first: Mapping[str, Any] = self.metrics["metrics"][0]
        return first


def read_run(path: Path) -> PastRun:
    """The run in a folder; a `RunError` says what is wrong with it."""
    if not path.is_dir():
        raise RunError(f"{path} is not a folder; `beltrami runs` lists the runs there are")
    folder = RunFolder(path)
    config = folder.run_config()
    if config is None or not _fits(config, CONFIG_SHAPE):
        raise RunError(f"{path} holds no run: there is no config.json of ours in it")
    metrics = read_document(folder.metrics)
    whole = metrics is not None and _fits(metrics, METRICS_SHAPE) and _is_finite(metrics)
    return PastRun(path, config, metrics if whole else None, folder.finished())


@dataclass(frozen=True)
class PastDocument:
    """A diagnosis, forecast or family of models: a folder with one document.

    Args:
        path: its folder.
        kind: the command that wrote it.
        data: what it is about.
        date: the day when it was written.
        outcome: what it says, in a line.
    """

    path: Path
    kind: str
    data: str
    date: str
    outcome: str


def find_documents(root: Path) -> list[PastDocument]:
    """All diagnoses, forecasts and families of models in a folder and below it, by path."""
    documents = []
    for kind, (name, schema) in DOCUMENTS.items():
        for path in root.rglob(name):
            document = read_object(path) or {}
            settings = document.get("settings")
            if not str(document.get("schema")).startswith(schema) or not isinstance(settings, dict):
                continue
            data = next(filter(None, map(settings.get, ("source", "file", "models"))), "")
            shown = ", ".join(map(str, data)) if isinstance(data, list) else str(data)
            verdict = document.get("verdict")
            answer = verdict.get("answer", "") if isinstance(verdict, dict) else ""
            outcome = str(answer or document.get("answer") or "").partition(":")[0]
            documents.append(PastDocument(path.parent, kind, shown, file_date(path), outcome))
    return sorted(documents, key=lambda document: document.path)


def file_date(path: Path) -> str:
    """The day when a file was written; "" where it is gone."""
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC).date().isoformat()
    except OSError:
        return ""


def _interval_text(value: Mapping[str, Any], digits: int) -> str:
    return Interval(value["mean"], value["half_width"]).format(digits)


def find_runs(root: Path) -> list[PastRun]:
    """All runs in a folder and below it, by path; folders of other things are passed over."""
    if not root.is_dir():
        raise RunError(f"{root} is not a folder; give the one that holds your runs")
    runs = []
    for place, folders, files in os.walk(root):
        if CONFIG not in files:
            continue
        try:
            runs.append(read_run(Path(place)))
        except RunError:
            continue
        folders[:] = [name for name in folders if name not in ("trials", "logs")]
    return sorted(runs, key=lambda run: run.path)


# What the code below relies on; a file of another shape was damaged or written by hand. A list
# stands for any number of such items, a dict with "*" for any keys, a range for its numbers.
DIGITS = range(18)  # a float has no more
_NUMBER = (int, float)
_INTERVAL = {"mean": (*_NUMBER, NoneType), "half_width": (*_NUMBER, NoneType)}
CONFIG_SHAPE = {"recipe": str, "command": str, "settings": dict, "data": {"name": str}}
METRICS_SHAPE = {
    **CONFIG_SHAPE,
    "metrics": [{"key": str, "title": str, "better": (str, NoneType), "digits": DIGITS}],
    "summary": [{"group": str, "model": str, "metrics": {"*": {"value": _INTERVAL}}}],
    "trials": [
        {"group": str, "model": str, "seed": int, "metrics": {"*": (*_NUMBER, NoneType)}},
    ],
}


def _fits(value: Any, shape: Any) -> bool:
    if isinstance(shape, list):
        return isinstance(value, list) and all(_fits(item, shape[0]) for item in value)
    if isinstance(shape, range):
        return isinstance(value, int) and value in shape
    if not isinstance(shape, dict):
        return isinstance(value, shape)
    if not isinstance(value, dict):
        return False
    if "*" in shape:
        return all(_fits(item, shape["*"]) for item in value.values())
    return all(key in value and _fits(value[key], inner) for key, inner in shape.items())


def _is_finite(document: Any) -> bool:
    """Whether all numbers are floats' own: we write none as NaN, and infinite ones as null."""
    pending = [document]
    while pending:  # a stack of our own, as a document may be deeper than Python's
        value = pending.pop()
        if isinstance(value, dict):
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)
        elif isinstance(value, _NUMBER) and not abs(value) <= sys.float_info.max:
            return False
    return True


@dataclass(frozen=True)
class SideBySide:
    """One metric of one arm in two runs.

    The difference is the second run's minus the first's: paired where both have the same seeds,
    by Welch's interval elsewhere; None where a value is infinite.
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

    @property
    def verdict(self) -> str:
        """What the second run is: "better", "worse", "no difference", or "" if it is not known."""
        gap = self.difference
        if gap is None or gap.half_width is None or self.better is None:
            return ""
        if abs(gap.mean) <= gap.half_width:
            return "no difference"
        return "better" if (gap.mean > 0) == (self.better == "higher") else "worse"


def side_by_side(first: PastRun, second: PastRun) -> list[SideBySide]:
    """The metrics of all arms that two finished runs share.

    Of a run to which seeds are being added, the metrics before are taken. Of runs on different
    data neither is better.
    """
    if first.recipe != second.recipe:
        raise RunError(
            f"{first.path} is a run of the recipe {first.recipe} and {second.path} one of "
            f"{second.recipe}; compare runs of one recipe"
        )
    for run in (first, second):
        if run.metrics is None:
            raise RunError(
                f"{run.path} is not finished; continue it with: {run.config['command']} --resume"
            )
    same_data = first.config["data"] == second.config["data"]
    rows = list(_shared(first.metrics or {}, second.metrics or {}, same_data))
    if not rows:
        raise RunError(
            f"{first.path} and {second.path} share no model and metric; compare runs with the "
            "same models and dimensions"
        )
    return rows


def _shared(
    first: Mapping[str, Any], second: Mapping[str, Any], same_data: bool
) -> Iterator[SideBySide]:
    values = [_by_arm(first), _by_arm(second)]
    titles = {metric["key"]: metric for metric in first["metrics"]}
    for (group, model, key), first_values in values[0].items():
        second_values = values[1].get((group, model, key))
        if second_values is None or key not in titles:
            continue
        metric = {**titles[key], "better": titles[key]["better"] if same_data else None}
        paired = set(first_values) == set(second_values)
        yield SideBySide(
            group,
            model,
            metric["title"],
            metric["better"],
            metric["digits"],
            mean_interval(list(first_values.values())),
            mean_interval(list(second_values.values())),
            _difference(first_values, second_values, paired),
            paired,
        )


def _by_arm(document: Mapping[str, Any]) -> dict[tuple[str, str, str], dict[int, float]]:
    values_by_arm: dict[tuple[str, str, str], dict[int, float]] = {}
    for trial in document["trials"]:
        for key, value in trial["metrics"].items():
            place = values_by_arm.setdefault((trial["group"], trial["model"], key), {})
            place[trial["seed"]] = math.inf if value is None else value
    return values_by_arm


def _difference(
    first: Mapping[int, float], second: Mapping[int, float], paired: bool
) -> Interval | None:
    if not all(map(math.isfinite, [*first.values(), *second.values()])):
        return None
    if paired:
        return mean_interval([second[seed] - first[seed] for seed in first])
    gap = statistics.fmean(second.values()) - statistics.fmean(first.values())
    if min(len(first), len(second)) < 2:
        return Interval(gap, None)
    return Interval(gap, _welch(list(first.values()), list(second.values())))


def _welch(a: list[float], b: list[float]) -> float:
    """Half the 95% interval of a difference of means, of samples of different spread."""
    parts = [statistics.variance(x) / len(x) for x in (a, b)]
    error = sum(parts)
    if error == 0:
        return 0.0
    degrees = error**2 / sum(p**2 / (len(x) - 1) for p, x in zip(parts, (a, b), strict=True))
    return t975(max(1, math.floor(degrees))) * math.sqrt(error)
