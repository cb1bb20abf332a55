"""The tour: one tree in the hyperbolic plane and in the Euclidean plane, side by side.

The method is in `embedding`. A tour chooses a learning rate for each geometry, by the lowest final
loss of seed 0 over LEARNING_RATES, and then runs every seed at that rate; seed 0's winning run is
also its result. Loss and measures are those of the fit itself: nothing is held out, since the
question is how well each plane can hold the tree.

Below the output folder:

    metrics.json              the numbers, written at the end
    report.html               the page for people, written at the end
    runs-<hash>/<run>.json    one finished run, with .safetensors beside it; see `store`

`metrics.json` has these fields; lengths and counts are plain numbers, and a `null` half-width means
that there is no interval (one seed), a `null` worst distortion that it is infinite:

    schema                 "beltrami.tour/1"
    beltrami               version of the package
    tree                   name, nodes, edges, depth, sha256 of labels and parents
    settings               steps, curvature, seeds, learning_rates, parameters (a geometry)
    chosen_learning_rate   {hyperbolic, euclidean}
    sweep                  [{geometry, learning_rate, loss}] for seed 0
    runs                   [{geometry, seed, learning_rate, loss, average_distortion,
                             worst_distortion, map, seconds}]
    summary                {measure: {hyperbolic, euclidean, difference: {mean, half_width}}};
                           the difference is hyperbolic minus Euclidean, paired by seed
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

import beltrami
from beltrami.analysis.intervals import Interval, mean_interval
from beltrami.data import Tree, load_taxonomy, read_edges
from beltrami.data.atomic import to_json, write_atomically
from beltrami.recipes import embedding
from beltrami.recipes.embedding import DIM, GEOMETRIES, Geometry
from beltrami.recipes.folder import RunFolder
from beltrami.recipes.store import RunStore
from beltrami.recipes.tour_config import TourConfig
from beltrami.recipes.tour_report import tour_page

LEARNING_RATES = (0.03, 0.1, 0.3)
METHOD = 1  # raise when the method changes, so that older runs are not taken for new ones
MEASURES = ("average_distortion", "worst_distortion", "map")

__all__ = ["Observer", "Run", "Silence", "Tour", "TourConfig", "TourResult", "summarise"]


@dataclass(frozen=True)
class Run:
    """One finished fit."""

    geometry: Geometry
    seed: int
    learning_rate: float
    loss: float
    average_distortion: float
    worst_distortion: float
    map: float
    seconds: float
    points: Tensor

    def results(self) -> dict[str, Any]:
        """Everything but the points, for JSON."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        del values["points"]
        values["worst_distortion"] = _finite_or_none(self.worst_distortion)
        return values


class Observer(Protocol):
    """Who wants to follow a tour: the command line's progress bar, a notebook, a test."""

    def started(self, runs: int, steps: int) -> None:
        """`runs` runs of `steps` steps each will be needed."""

    def stepped(self, steps: int) -> None:
        """`steps` more steps of the current run are done."""

    def finished(self, run: Run, reused: bool) -> None:
        """A run is done, or was found finished on disk."""


class Silence:
    """The observer that ignores all events."""

    def started(self, runs: int, steps: int) -> None:
        """Ignore the start."""

    def stepped(self, steps: int) -> None:
        """Ignore the steps."""

    def finished(self, run: Run, reused: bool) -> None:
        """Ignore the end."""


@dataclass(frozen=True)
class TourResult:
    """What a tour found, and where it is on disk."""

    metrics: dict[str, Any]
    summary: dict[str, dict[str, Interval]]
    metrics_path: Path
    report_path: Path


class Tour:
    """A checked tour: everything the user can get wrong raises `ValueError` here, before any work.

    >>> Tour(TourConfig(steps=200)).run()
    """

    def __init__(self, config: TourConfig) -> None:
        config.check()
        self.config = config
        self.tree = read_edges(config.edges) if config.edges else load_taxonomy("carnivores")
        RunFolder(config.out).check_writable()
        self.store = RunStore(config.out, self._run_settings())

    def run(self, observer: Observer | None = None) -> TourResult:
        """Fit, measure, and write metrics.json and report.html."""
        observer = observer or Silence()
        seeds, rates = range(self.config.seeds), LEARNING_RATES
        observer.started(len(GEOMETRIES) * (len(rates) + len(seeds) - 1), self.config.steps)
        sweep = {
            g: [self._finished_run(g, 0, rate, observer) for rate in rates] for g in GEOMETRIES
        }
        best = {g: min(runs, key=lambda run: run.loss) for g, runs in sweep.items()}
        runs = {
            g: [
                best[g],
                *(self._finished_run(g, s, best[g].learning_rate, observer) for s in seeds[1:]),
            ]
            for g in GEOMETRIES
        }
        summary = summarise(runs)
        metrics = self._metrics(sweep, runs, summary)
        return self._write(metrics, summary, runs)

    def _run_settings(self) -> dict[str, Any]:
        """What a single run depends on, besides its geometry, seed and learning rate."""
        return {
            "beltrami": beltrami.__version__,
            "method": METHOD,
            "tree": tree_digest(self.tree),
            "steps": self.config.steps,
            "curvature": self.config.curvature,
        }

    def _finished_run(
        self, geometry: Geometry, seed: int, learning_rate: float, observer: Observer
    ) -> Run:
        name = f"{geometry}-seed{seed}-lr{learning_rate:g}"
        run = None if self.config.fresh else self._load(name)
        reused = run is not None
        if run is None:
            run = self._fit(geometry, seed, learning_rate, observer)
            self.store.save(name, run.results(), {"points": run.points})
        observer.finished(run, reused)
        return run

    def _load(self, name: str) -> Run | None:
        stored = self.store.load(name)
        if stored is None:
            return None
        results, tensors = stored
        worst = results["worst_distortion"]
        results["worst_distortion"] = math.inf if worst is None else worst
        return Run(points=tensors["points"], **results)

    def _fit(self, geometry: Geometry, seed: int, learning_rate: float, observer: Observer) -> Run:
        began = time.perf_counter()
        fit = embedding.fit_tree(
            self.tree,
            geometry,
            seed=seed,
            learning_rate=learning_rate,
            steps=self.config.steps,
            curvature=self.config.curvature,
            on_steps=observer.stepped,
        )
        if not math.isfinite(fit.loss):
            raise FloatingPointError(
                f"the {geometry} run with seed {seed} and learning rate {learning_rate:g} "
                f"ended with loss {fit.loss}"
            )
        quality = embedding.measure(self.tree, fit.points, geometry, self.config.curvature)
        seconds = round(time.perf_counter() - began, 2)
        return Run(
            geometry=geometry,
            seed=seed,
            learning_rate=learning_rate,
            loss=fit.loss,
            seconds=seconds,
            points=fit.points,
            **dataclasses.asdict(quality),
        )

    def _metrics(
        self,
        sweep: dict[Geometry, list[Run]],
        runs: dict[Geometry, list[Run]],
        summary: dict[str, dict[str, Interval]],
    ) -> dict[str, Any]:
        tree = self.tree
        return {
            "schema": "beltrami.tour/1",
            "beltrami": beltrami.__version__,
            "tree": {
                "name": tree.name,
                "nodes": len(tree),
                "edges": len(tree) - 1,
                "depth": max(tree.depth),
                "sha256": tree_digest(tree),
            },
            "settings": {
                "steps": self.config.steps,
                "curvature": self.config.curvature,
                "seeds": self.config.seeds,
                "learning_rates": list(LEARNING_RATES),
                "parameters": DIM * len(tree),
            },
            "chosen_learning_rate": {g: runs[g][0].learning_rate for g in GEOMETRIES},
            "sweep": [
                {"geometry": g, "learning_rate": run.learning_rate, "loss": run.loss}
                for g in GEOMETRIES
                for run in sweep[g]
            ],
            "runs": [run.results() for g in GEOMETRIES for run in runs[g]],
            "summary": {
                measure: {
                    column: {
                        "mean": _finite_or_none(interval.mean),
                        "half_width": interval.half_width,
                    }
                    for column, interval in columns.items()
                }
                for measure, columns in summary.items()
            },
        }

    def _write(
        self,
        metrics: dict[str, Any],
        summary: dict[str, dict[str, Interval]],
        runs: dict[Geometry, list[Run]],
    ) -> TourResult:
        page = tour_page(self.config, self.tree, metrics, summary, runs)
        result = TourResult(
            metrics, summary, self.config.out / "metrics.json", self.config.out / "report.html"
        )
        write_atomically(result.metrics_path, to_json(metrics))
        write_atomically(result.report_path, page)
        return result


def summarise(runs: dict[Geometry, list[Run]]) -> dict[str, dict[str, Interval]]:
    """For each measure: both geometries over seeds, and their difference paired by seed."""
    summary = {}
    for measure in MEASURES:
        hyperbolic, euclidean = ([getattr(run, measure) for run in runs[g]] for g in GEOMETRIES)
        difference = [h - e for h, e in zip(hyperbolic, euclidean, strict=True)]
        summary[measure] = {
            "hyperbolic": mean_interval(hyperbolic),
            "euclidean": mean_interval(euclidean),
            "difference": mean_interval(difference),
        }
    return summary


def tree_digest(tree: Tree) -> str:
    """SHA-256 of the tree's labels and parents."""
    content = json.dumps([tree.labels, tree.parent], ensure_ascii=False)
    return hashlib.sha256(content.encode("utf-8")).hexdigest()


def _finite_or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None
