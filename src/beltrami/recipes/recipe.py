"""What a recipe is: arms with their twins, and how to build, train and evaluate one.

A recipe answers one question: does the geometry help here? It names its arms, each with the
arm that is its control (its Euclidean twin), and says how one of them is built, trained and
measured. The runner does the rest: seeds, choices, checkpoints, summaries, files, the page.
"""

from __future__ import annotations

import dataclasses
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

import torch
from torch import nn

from beltrami.recipes.config import RunConfig

if TYPE_CHECKING:
    from beltrami.embeddings.embedding import Embedding
    from beltrami.recipes.results import ArmResult, RunResult
    from beltrami.report.page import Page, Table
    from beltrami.train.progress import ProgressListener
    from beltrami.train.session import Session

TERMINAL_ROWS = 12  # of several groups; the report has all
Config = TypeVar("Config", bound=RunConfig)
Settings = TypeVar("Settings")  # a frozen dataclass: what a training depends on, JSON-able


@dataclass(frozen=True)
class Metric:
    """A number by which arms are compared.

    Args:
        key: its name in metrics.json.
        title: its name for people.
        hint: what it says, and which way is better, in a few words.
        better: which way is better; None for numbers that only describe.
        digits: decimals to show.
    """

    key: str
    title: str
    hint: str
    better: Literal["higher", "lower"] | None
    digits: int = 3


@dataclass(frozen=True)
class Arm(Generic[Settings]):
    """A model that takes part: one geometry at one size.

    Args:
        model: what it is, such as "lorentz".
        group: what it is compared within, such as "5 dimensions".
        settings: a frozen dataclass of everything else that its result depends on, JSON-able.
        twin: the model of the same group that is its control; None for a control itself.
        choices: alternatives, such as learning rates, each other values of some settings. All are
            trained on the first seed, and the best one by the recipe's `chosen_by` runs the others.
        choice_of: an earlier model of the same group, such as the one that this is an ablation of:
            its choice is taken, and no other one is tried.
    """

    model: str
    group: str
    settings: Settings
    twin: str | None = None
    choices: Sequence[Mapping[str, Any]] = ({},)
    choice_of: str | None = None

    def trial(
        self, seed: int, choice: Mapping[str, Any], experiment: Mapping[str, Any] | None = None
    ) -> Trial[Settings]:
        """The trial of a seed and one of the choices."""
        settings: Any = dataclasses.replace(self.settings, **choice)  # type: ignore[type-var]
        return Trial(self.model, self.group, seed, settings, dict(choice), dict(experiment or {}))


@dataclass(frozen=True)
class Trial(Generic[Settings]):
    """One thing to train: an arm, one of its choices, and a seed.

    Args:
        model, group: of the arm.
        seed: from 0.
        settings: of the arm, with the values of the choice.
        choice: names and values of the settings that were chosen.
        experiment: recipe, method and digest of the data.
    """

    model: str
    group: str
    seed: int
    settings: Settings
    choice: Mapping[str, Any] = field(default_factory=dict)
    experiment: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Unique within a run, and fit for a file name."""
        words = [self.model, self.group, *(f"{k}={v}" for k, v in self.choice.items())]
        text = "-".join(word for word in [*words, f"seed{self.seed}"] if word)
        return re.sub(r"[^A-Za-z0-9.=_-]+", "_", text)

    def record(self) -> dict[str, Any]:
        """Everything the result depends on, as JSON reads it back."""
        plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self), allow_nan=False))
        settings = {k: v for k, v in plain["settings"].items() if k not in self.choice}
        plain["settings"] = {**plain.pop("experiment"), **settings}
        return plain


@dataclass(frozen=True)
class Evaluation:
    """What is measured of a trained model.

    Args:
        metrics: a number each, by the keys of the recipe's metrics. An infinite one is kept as
            None; one that is not a number counts as not measured.
        curves: lists of numbers that the page draws.
        texts: lists of texts that the page shows.
    """

    metrics: Mapping[str, float | None]
    curves: Mapping[str, Sequence[float]] = field(default_factory=dict)
    texts: Mapping[str, Sequence[str]] = field(default_factory=dict)


def settings_from(kind: type[Settings], source: object, **own: Any) -> Settings:
    """Settings with the values of a config's fields of the same names, and those given."""
    names = [f.name for f in dataclasses.fields(kind) if f.name not in own]  # type: ignore[arg-type]
    return kind(**{name: getattr(source, name) for name in names}, **own)


class Recipe(ABC, Generic[Config, Settings]):
    """An experiment that can be run: `beltrami run NAME`.

    The constructor takes the config and loads the data; whatever the user got wrong raises a
    `ValueError` there, before any work is done.
    """

    name: ClassVar[str]  # as in the config's `recipe`
    title: ClassVar[str]  # of the page
    method: ClassVar[int] = 1  # raise it when results change, so that older ones are not reused
    chosen_by: ClassVar[str] = "loss"  # the metric that decides between choices

    def __init__(self, config: Config) -> None:
        config.check()
        self.config = config

    @property
    @abstractmethod
    def metrics(self) -> tuple[Metric, ...]:
        """The numbers by which arms are compared."""

    @property
    def names(self) -> Mapping[str, str]:
        """What to call the models, where not by their key."""
        return {}

    @abstractmethod
    def data_facts(self) -> dict[str, Any]:
        """Name, sizes and digest of the data, JSON-able."""

    @abstractmethod
    def arms(self) -> Sequence[Arm[Settings]]:
        """Who takes part; every one that is not a control names its twin."""

    @property
    def trials(self) -> int:
        """How many there will be: all choices of a first seed, then one of the others each."""
        others = self.config.seeds - 1
        return sum((1 if c.choice_of else len(c.choices)) + others for c in self.arms())

    def prepare(self, listener: ProgressListener, device: torch.device) -> None:
        """Do what takes long and all trials share, before the first of them.

        Called in the first process, and in the others when it is done there.
        """

    @abstractmethod
    def build(self, trial: Trial[Settings]) -> nn.Module:
        """The untrained model of a trial, on the CPU; depends on the trial alone."""

    @abstractmethod
    def train(self, model: nn.Module, trial: Trial[Settings], session: Session) -> None:
        """Train in place; the session keeps checkpoints and logs and says where to go on."""

    @abstractmethod
    def evaluate(self, model: nn.Module, trial: Trial[Settings], session: Session) -> Evaluation:
        """Measure a trained model."""

    def embedding(self, model: nn.Module, trial: Trial[Settings]) -> Embedding | None:
        """The labelled points of a trained model, which the run writes; None where it has none."""
        return None

    def findings(self, arm_results: Sequence[ArmResult]) -> dict[str, Any]:
        """What all trials together say, for metrics.json; JSON-able, none by default."""
        return {}

    def save(self, run_result: RunResult, folder: Path) -> None:
        """Write what the run's folder shall hold beside its metrics; nothing by default."""

    @abstractmethod
    def page(self, run_result: RunResult) -> Page:
        """The page for people."""

    def tables(self, run_result: RunResult) -> Sequence[Table]:
        """What the terminal shows: a row a metric and group, a column an arm."""
        from beltrami.recipes.tables import result_tables

        return result_tables(run_result, self.names, most=TERMINAL_ROWS)

    def metric(self, key: str) -> Metric:
        """The metric with this key."""
        for metric in self.metrics:
            if metric.key == key:
                return metric
        known = ", ".join(metric.key for metric in self.metrics)
        raise LookupError(f"recipe {self.name} has no metric {key!r}, only {known}")
