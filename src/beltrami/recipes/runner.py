"""Run a recipe: every arm over all seeds, resumably, then the summary and the page.

metrics.json is written at the end, an object with what config.json has (see `folder`), and
    environment   python and torch versions, device and its name, number of processes, threads, jobs
    started, finished   UTC, of the process that ended the run
    metrics       a list: key, title, better ("higher", "lower" or null) and digits to show
    summary       a list, one entry an arm:
        group, model, twin   the arm, and the model that is its control or null
        choice        what was chosen on the first seed, such as a learning rate
        metrics       by key: value and difference, each {mean, half_width} of a 95% t-interval,
                      and verdict ("better", "worse", "no difference" or "")
    trials        a list, one entry an arm and seed: group, model, seed, choice, parameters,
                  seconds, and metrics by key
    findings      what the recipe concludes of all of them, where it does (`Recipe.findings`)

A mean or metric that is infinite is null; a half width is null for one seed; a difference is the
arm's minus its twin's, paired by seed, and null for a control. A metric that was not
measured is left out.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import torch
from torch import nn

import beltrami
from beltrami.data.atomic import to_json, write_atomically
from beltrami.embeddings.embedding import Embedding
from beltrami.recipes.folder import EXPLORER, SCHEMA, RunFolder
from beltrami.recipes.recipe import Arm, Evaluation, Recipe, Trial
from beltrami.recipes.results import ArmResult, RunResult, TrialResult, compare, interval_json
from beltrami.recipes.side_by_side import threads_each, train_side_by_side
from beltrami.report.page import render
from beltrami.train.processes import Processes, ProcessLostError, process_group
from beltrami.train.progress import ProgressListener
from beltrami.train.session import Session, TrainingDivergedError, has_tensorboard

MOST_EXPLORED = 10_000  # points in the explorer's page that a run writes by itself


def run(recipe: Recipe[Any, Any], listener: ProgressListener | None = None) -> RunResult:
    """Train and evaluate all arms, and write the run's folder.

    Under `torchrun` all processes train together; the first one writes and prints.
    """
    recipe.data_facts()  # may find the data unfit: before any folder is made
    with process_group(recipe.config.device) as processes:
        folder = RunFolder(recipe.config.folder)
        if not processes.is_main_process:
            if processes.broadcast(0):  # wait until the folder is ready
                raise ProcessLostError("process 0 did not start, and says why")
            recipe.prepare(ProgressListener(), processes.device)
            return TrialRunner(recipe, folder, ProgressListener(), processes).run()
        with contextlib.ExitStack() as held:
            try:
                folder.check_writable()
                held.enter_context(folder.locked())
                _prepare(recipe, folder)
                recipe.prepare(listener or ProgressListener(), processes.device)
            except BaseException:
                processes.broadcast(1)  # let the others go
                raise
            processes.broadcast(0)
            listener, began = listener or ProgressListener(), _now()
            if recipe.config.jobs > 1:
                _note_missing_logs(listener)
                train_side_by_side(recipe, processes, listener, _trial_runner)
                listener = ProgressListener()  # has heard of all trials
            return TrialRunner(recipe, folder, listener, processes, began).run()


def _trial_runner(
    recipe: Recipe[Any, Any], listener: ProgressListener, processes: Processes
) -> TrialRunner:
    return TrialRunner(recipe, RunFolder(recipe.config.folder), listener, processes)


def _prepare(recipe: Recipe[Any, Any], folder: RunFolder) -> None:
    """Settle what happens to a run that is already there, and say what this one is."""
    config = recipe.config
    if folder.holds_a_run():
        if config.fresh:
            folder.clear()
        elif not config.resume:
            raise ValueError(
                f"{folder.path} holds a run already; give --resume to go on with it, --fresh to "
                "delete it and start over, or another --out"
            )
    _check_unmixed(recipe, folder)
    folder.sweep()
    document = {"schema": SCHEMA, **_what(recipe)}
    write_atomically(folder.config, to_json(document))


def _check_unmixed(recipe: Recipe[Any, Any], folder: RunFolder) -> None:
    """Refuse what would mix two experiments, before anything is changed or computed."""
    before = (folder.run_config() or {}).get("recipe", recipe.name)
    if before != recipe.name:
        raise ValueError(
            f"{folder.path} holds a run of the recipe {before}, not {recipe.name}; give another "
            "--out, or --fresh to start over"
        )
    _check_same_experiment(recipe, folder)
    seen: dict[str, Trial[Any]] = {}
    for arm in recipe.arms():
        for choice in arm.choices:
            for seed in range(recipe.config.seeds):
                trial = _trial_of(recipe, arm, choice, seed)
                if seen.setdefault(trial.name, trial) != trial:
                    raise RuntimeError(f"recipe {recipe.name} has two trials {trial.name}")
                folder.check_settings(trial)


def _check_same_experiment(recipe: Recipe[Any, Any], folder: RunFolder) -> None:
    """Other data, or other settings than those that add trials, are another experiment."""
    before = folder.run_config() or {}
    remedy = "give another --out, or --fresh to start over"
    if (before.get("data") or {}).get("digest") not in (None, recipe.data_facts()["digest"]):
        raise ValueError(f"{folder.path} holds a run on other data; {remedy}")
    then = before.get("settings") or {}
    for key, value in recipe.config.settings().items():
        known = recipe.config.known(key)
        if known.adds_runs or known.in_data_digest or then.get(key, value) == value:
            continue
        raise ValueError(
            f"{folder.path} holds a run with other settings ({key} was {then[key]!r}, now "
            f"{value!r}); {remedy}"
        )


def _trial_of(
    recipe: Recipe[Any, Any], arm: Arm[Any], choice: Mapping[str, Any], seed: int
) -> Trial[Any]:
    experiment = {
        "recipe": recipe.name,
        "method": recipe.method,
        "data": recipe.data_facts()["digest"],
    }
    return arm.trial(seed, choice, experiment)


def _what(recipe: Recipe[Any, Any]) -> dict[str, Any]:
    return {
        "recipe": recipe.name,
        "beltrami": beltrami.__version__,
        "command": recipe.config.command(),
        "settings": recipe.config.settings(),
        "data": recipe.data_facts(),
    }


class TrialRunner:
    """Trains trials, or finds them on disk, and compares them."""

    def __init__(
        self,
        recipe: Recipe[Any, Any],
        folder: RunFolder,
        listener: ProgressListener,
        processes: Processes,
        began: str | None = None,
    ) -> None:
        self.began = began or _now()
        self.recipe = recipe
        self.folder = folder
        self.listener = listener
        self.processes = processes

    def run(self) -> RunResult:
        """All trials, then the summary and the page."""
        arms = list(self.recipe.arms())
        seeds = self.recipe.config.seeds
        self.listener.on_run_begin(self.recipe.trials)
        _note_missing_logs(self.listener)
        chosen: dict[tuple[str, str | None], TrialResult] = {}
        for arm in arms:
            given = chosen[arm.group, arm.choice_of].trial.choice if arm.choice_of else None
            best = self.choose(arm) if given is None else self.train(arm, given, 0)
            chosen[arm.group, arm.model] = best
        results = [
            [best, *(self.train(c, best.trial.choice, seed) for seed in range(1, seeds))]
            for c, best in zip(arms, chosen.values(), strict=True)
        ]
        arm_results = self._arm_results(arms, results)
        run_result = RunResult(
            arm_results, self._document(arm_results), self.recipe.config.command()
        )
        if self.processes.is_main_process:
            embeddings = self._embeddings(arm_results, run_result.document)
            self.folder.save_embeddings(embeddings)
            self.recipe.save(run_result, self.folder.path)
            write_atomically(self.folder.metrics, to_json(run_result.document))
            page = self.recipe.page(run_result)
            if self._explorer([embedding for embedding, _ in embeddings.values()]):
                link = "Walk through the points in the explorer", EXPLORER
                page = dataclasses.replace(page, links=(*page.links, link))
            write_atomically(self.folder.report, render(page))
        return run_result

    def _embeddings(
        self, arm_results: Sequence[ArmResult], document: Mapping[str, Any]
    ) -> dict[str, tuple[Embedding, dict[str, Any]]]:
        """The points of the best trial of each arm, with what is known of them."""
        embeddings = {}
        metric = next((m for m in self.recipe.metrics if m.key == self.recipe.chosen_by), None)
        if metric is None:  # there is no best trial
            return {}
        for arm_result in arm_results:
            best = min(arm_result.results, key=self._badness)
            trial = best.trial
            model = self.recipe.build(trial)
            model.load_state_dict(dict(best.state))
            embedding = self.recipe.embedding(model, trial)
            if embedding is None:
                continue
            value = best.metrics.get(metric.key)
            facts = {
                "recipe": self.recipe.name,
                "model": trial.model,
                "group": trial.group,
                "trial": trial.name,
                "seed": trial.seed,
                "choice": dict(trial.choice),
                "metric": {
                    "key": metric.key,
                    "title": metric.title,
                    "better": metric.better,
                    "value": value,
                },
                "data": document["data"],
                "command": document["command"],
                "beltrami": document["beltrami"],
            }
            embeddings[trial.name] = embedding, facts
        return embeddings

    def _explorer(self, embeddings: Sequence[Embedding]) -> bool:
        """Write explorer.html, unless there are no points or too many to look at."""
        from beltrami.diagnosis.explore.config import ExploreConfig
        from beltrami.diagnosis.explore.explore import explore

        path = self.folder.explorer
        path.unlink(missing_ok=True)
        if not embeddings or len(embeddings[0]) > MOST_EXPLORED:
            return False
        try:
            explore(ExploreConfig(str(self.folder.path), out=path))
        except Exception as error:  # all points coincide, say: no reason to lose the report
            self.listener.note(f"there is no explorer: {error}")
            return False
        return True

    def _badness(self, result: TrialResult) -> float:
        """The metric that decides between trials, as a number of which the least is best."""
        metric = self.recipe.metric(self.recipe.chosen_by)
        value = result.value(metric.key)
        if not math.isfinite(value):
            return math.inf
        return -value if metric.better == "higher" else value

    def choose(self, arm: Arm[Any]) -> TrialResult:
        """The first seed's result under the best of the arm's choices."""
        results = [
            self.train(arm, choice, 0, may_diverge=len(arm.choices) > 1) for choice in arm.choices
        ]
        trained = [result for result in results if not result.diverged]
        if not trained:
            raise TrainingDivergedError(results[0].diverged)
        if len(trained) == 1:
            return trained[0]
        best = min(range(len(trained)), key=lambda i: self._badness(trained[i]))
        return trained[self.processes.broadcast(best)]  # rounding may differ, the choice must not

    def train(
        self,
        arm: Arm[Any],
        choice: Mapping[str, Any],
        seed: int,
        *,
        may_diverge: bool = False,
    ) -> TrialResult:
        """A trial's result: from disk, or trained and then written there."""
        trial = _trial_of(self.recipe, arm, choice, seed)
        result = self.folder.load(trial) if self.processes.is_main_process else None
        if self.processes.broadcast(int(result is not None)):
            # The others need only what the choice depends on, and that is on disk.
            result = result or self.folder.load(trial)
            if result is None:
                raise OSError(f"process {self.processes.rank} cannot read {self.folder.path}")
            self.listener.on_trial_end(result, True)
            return result
        result = self._train(trial, may_diverge)
        if self.processes.is_main_process:
            self.folder.save(result)
        self.processes.broadcast(0)  # nobody looks for the file before it is there
        self.listener.on_trial_end(result, False)
        return result

    def on_disk(self, arm: Arm[Any], choice: Mapping[str, Any], seed: int) -> TrialResult | None:
        """A finished trial."""
        return self.folder.load(_trial_of(self.recipe, arm, choice, seed))

    def _train(self, trial: Trial[Any], may_diverge: bool) -> TrialResult:
        session = Session(
            trial.name,
            trial.record(),
            checkpoint=self.folder.checkpoint(trial),
            logs=self.folder.logs(trial),
            processes=self.processes,
            listener=self.listener,
            checkpoint_seconds=self.recipe.config.checkpoint_seconds,
        )
        # What draws from torch's own generators depends on the seed and not on what ran before.
        with torch.random.fork_rng(_generators_of(session.device)), contextlib.closing(session):
            torch.manual_seed(trial.seed)
            model = self.recipe.build(trial).to(session.device)
            parameters = sum(p.numel() for p in model.parameters() if p.requires_grad)
            try:
                evaluation = self._train_and_evaluate(model, trial, session)
            except TrainingDivergedError as error:
                if not may_diverge:
                    raise
                seconds = round(session.seconds, 2)
                return TrialResult(
                    trial, {}, {}, session.history, parameters, seconds, {}, str(error)
                )
            metrics = _measured(evaluation.metrics)
            session.end(metrics)
            embedding = self.recipe.embedding(model, trial)
        return TrialResult(
            trial,
            metrics,
            evaluation.curves,
            session.history,
            parameters,
            round(session.seconds, 2),
            dict(model.state_dict()),
            texts=evaluation.texts,
            metadata={} if embedding is None else embedding.metadata(),
        )

    def _train_and_evaluate(
        self, model: nn.Module, trial: Trial[Any], session: Session
    ) -> Evaluation:
        """Train and evaluate; an error in evaluating a model that is not finite is divergence."""
        try:
            self.recipe.train(model, trial, session)
            evaluation = self.recipe.evaluate(model, trial, session)
        except TrainingDivergedError:
            raise
        except ValueError as error:
            if _is_finite(model):
                raise
            raise TrainingDivergedError(
                f"{trial.name}: the model is not finite any more ({error}); a smaller learning "
                "rate is the usual remedy"
            ) from error
        for key, curve in evaluation.curves.items():
            if not all(map(math.isfinite, curve)):
                raise TrainingDivergedError(
                    f"{trial.name}: what was measured is not finite ({key}); a smaller learning "
                    "rate is the usual remedy"
                )
        return evaluation

    def _arm_results(
        self, arms: Sequence[Arm[Any]], results: Sequence[Sequence[TrialResult]]
    ) -> list[ArmResult]:
        by_name = {(c.group, c.model): trials for c, trials in zip(arms, results, strict=True)}
        arm_results = []
        for arm, trials in zip(arms, results, strict=True):
            twins = by_name[arm.group, arm.twin] if arm.twin else None
            compared = compare(trials, twins, self.recipe.metrics)
            arm_results.append(ArmResult(arm, trials[0].trial.choice, trials, compared))
        return arm_results

    def _document(self, arm_results: Sequence[ArmResult]) -> dict[str, Any]:
        findings = self.recipe.findings(arm_results)
        return {
            "schema": SCHEMA,
            **_what(self.recipe),
            "environment": {
                "python": platform.python_version(),
                "torch": torch.__version__,
                "device": str(self.processes.device),
                "hardware": _hardware(self.processes.device),
                "processes": self.processes.world_size,
                "threads": threads_each(self.recipe.config.jobs),
                "jobs": self.recipe.config.jobs,
            },
            "started": self.began,
            "finished": _now(),
            "metrics": [
                {"key": m.key, "title": m.title, "better": m.better, "digits": m.digits}
                for m in self.recipe.metrics
            ],
            "summary": [_arm_json(arm_result) for arm_result in arm_results],
            "trials": [
                {
                    "group": result.trial.group,
                    "model": result.trial.model,
                    "seed": result.trial.seed,
                    "choice": dict(result.trial.choice),
                    "parameters": result.parameters,
                    "seconds": result.seconds,
                    "metrics": dict(result.metrics),
                }
                for arm_result in arm_results
                for result in arm_result.results
            ],
            **({"findings": findings} if findings else {}),
        }


def _measured(metrics: Mapping[str, float | None]) -> dict[str, float | None]:
    """Metrics as JSON can hold them: None for infinity, and nothing for what is not a number."""
    finite: dict[str, float | None] = {}
    for key, value in metrics.items():
        if value is None or math.isinf(value):
            finite[key] = None
        elif not math.isnan(value):
            finite[key] = float(value)
    return finite


def _hardware(device: torch.device) -> str:
    """The name of the GPU; of a CPU the architecture."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} CPU"


def _generators_of(device: torch.device) -> list[int]:
    """The GPU whose generator a trial uses, as `fork_rng` wants it."""
    if device.type != "cuda":
        return []
    return [torch.cuda.current_device() if device.index is None else device.index]


def _arm_json(arm_result: ArmResult) -> dict[str, Any]:
    arm = arm_result.arm
    return {
        "group": arm.group,
        "model": arm.model,
        "twin": arm.twin,
        "choice": dict(arm_result.choice),
        "metrics": {
            c.metric.key: {
                "value": interval_json(c.value),
                "difference": interval_json(c.difference),
                "verdict": c.verdict,
            }
            for c in arm_result.comparisons
        },
    }


def _is_finite(model: nn.Module) -> bool:
    return all(bool(torch.isfinite(p).all()) for p in model.parameters())


def _note_missing_logs(listener: ProgressListener) -> None:
    if not has_tensorboard():
        listener.note(
            'no TensorBoard logs will be written: pip install "beltrami[logs]" brings them'
        )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
