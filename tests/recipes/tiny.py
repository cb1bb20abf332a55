"""A recipe that takes milliseconds and still has all that may go wrong: choices, an optimiser with
state, a generator of its own, and dropout, which draws from torch's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from beltrami.recipes.config import RunConfig, option
from beltrami.recipes.pages import run_facts, training_figure
from beltrami.recipes.recipe import Arm, Evaluation, Metric, Recipe, Trial
from beltrami.recipes.results import RunResult, TrialResult
from beltrami.recipes.tables import result_tables
from beltrami.report.page import Page
from beltrami.train.progress import ProgressListener
from beltrami.train.session import Session

NAMES = {"curved": "Curved [bold]", "flat": "Flat"}


@dataclass(frozen=True)
class TinyConfig(RunConfig):
    """Fit a line, for tests.

    A second paragraph.
    """

    recipe: ClassVar[str] = "tiny"

    steps: int = 4
    """Steps of a training."""

    rates: tuple[float, ...] = option((0.1, 0.2), adds_runs=True)
    """Learning rates."""

    diverges_from: float = option(1e9, adds_runs=True)
    """Learning rates from here on make the loss nan."""

    word: str = option("words", adds_runs=True)
    """Anything."""

    checkpoint_seconds: float = 0.0

    def data_name(self) -> str:
        return "line"


@dataclass(frozen=True)
class TinySettings:
    steps: int
    rate: float


class TinyRecipe(Recipe[TinyConfig, TinySettings]):
    name: ClassVar[str] = "tiny"
    title: ClassVar[str] = "A line"
    names = NAMES
    chosen_by: ClassVar[str] = "error"
    metrics = (
        Metric("error", "Error", "0 is perfect", "lower", 6),
        Metric("loss", "Loss", "of the last step", None),
    )

    def data_facts(self) -> dict[str, Any]:
        return {"name": "line", "digest": "0123"}

    def arms(self) -> Sequence[Arm[Any]]:
        rates = tuple({"rate": rate} for rate in self.config.rates)
        settings = TinySettings(self.config.steps, self.config.rates[0])
        return [
            Arm("curved", "2 dimensions", settings, "flat", rates),
            Arm("flat", "2 dimensions", settings, None, rates),
        ]

    def build(self, trial: Trial) -> nn.Module:
        with torch.random.fork_rng([]):
            torch.manual_seed(trial.seed)
            layers = [nn.Linear(3, 3), nn.Tanh() if trial.model == "curved" else nn.Identity()]
            model = nn.Sequential(*layers, nn.Dropout(0.2), nn.Linear(3, 3)).double()
        model[3].weight = model[0].weight  # tied
        return model

    def train(self, model: nn.Module, trial: Trial, session: Session) -> None:
        draws = torch.Generator().manual_seed(trial.seed)
        optimizer = torch.optim.Adam(model.parameters(), lr=trial.settings.rate)
        steps = self.config.steps
        done = session.begin(steps, model=model, optimizer=optimizer, draws=draws)
        for step in range(done, steps):
            x = torch.randn(8, 3, generator=draws, dtype=torch.float64)
            optimizer.zero_grad()
            loss = wrong(model, session.processes.shard(x)).sum() / 8
            loss.backward()
            session.processes.all_reduce_gradients(model.parameters())
            optimizer.step()
            if trial.settings.rate >= self.config.diverges_from:
                loss = loss * float("nan")
            session.step(step + 1, loss=session.processes.all_reduce(loss.detach()))

    def evaluate(self, model: nn.Module, trial: Trial, session: Session) -> Evaluation:
        model.eval()
        x = torch.linspace(-1, 1, 30, dtype=torch.float64).view(10, 3)
        error = wrong(model, x).mean().item()
        return Evaluation(
            {"error": error, "loss": session.history[-1]["loss"]}, {"x": [0.0, error]}
        )

    def page(self, run_result: RunResult) -> Page:
        names = self.names
        figures = (training_figure(run_result, names),)
        table, *_ = result_tables(run_result, names)
        facts = run_facts(run_result, names)
        return Page(self.title, "A <lead>.", figures, table, (), facts, run_result.command, "End.")


def wrong(model: nn.Module, x: Tensor) -> Tensor:
    return (model(x) - 2 * x.flip(-1)).square().sum(-1)


class Witness(ProgressListener):
    """A listener that remembers."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.planned = 0
        self.began: list[tuple[str, int]] = []
        self.steps = 0
        self.results: list[tuple[TrialResult, bool]] = []
        self.parts: list[float] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def on_run_begin(self, trials: int) -> None:
        self.planned = trials

    def on_train_begin(self, name: str, steps: int, done: int) -> None:
        self.began.append((name, done))

    def on_step_end(self, done: int) -> None:
        self.steps += 1

    def on_parallel_progress(self, parts: float) -> None:
        self.parts.append(parts)

    def on_trial_end(self, result: TrialResult, reused: bool) -> None:
        self.results.append((result, reused))

    @property
    def reused(self) -> int:
        return sum(reused for _, reused in self.results)


class Interrupter(Witness):
    """A listener that stops the run when it hears of its nth step."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at

    def on_step_end(self, done: int) -> None:
        super().on_step_end(done)
        if self.steps == self.at:
            raise KeyboardInterrupt


def numbers(document: dict[str, Any]) -> dict[str, Any]:
    """What a run found, without what differs from one time to another."""
    trials = [{k: v for k, v in trial.items() if k != "seconds"} for trial in document["trials"]]
    return {"summary": document["summary"], "trials": trials, "settings": document["settings"]}
