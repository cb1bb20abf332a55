"""The superposition recipe: laws of frequencies, ways to read features, and their models.

A trial is a whole stack: all widths and gammas of one law, one read-out and one seed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from beltrami.models.superposition import FeatureSamples, ToyStack, denser
from beltrami.recipes.recipe import Arm, Evaluation, Metric, Recipe, Trial, settings_from
from beltrami.recipes.superposition.config import (
    CURVED,
    HALVES,
    LARGE,
    NAMES,
    TWIN,
    SuperpositionConfig,
)
from beltrami.recipes.superposition.laws import frequencies, law_title
from beltrami.recipes.superposition.measures import (
    StackSettings,
    StackShape,
    evaluation,
    metrics_of,
)
from beltrami.recipes.superposition.results import (
    findings_json,
    regime_tables,
    settling,
    settling_table,
)
from beltrami.recipes.superposition.training import StackTraining
from beltrami.train.session import Session
from beltrami.train.threads import one_thread

if TYPE_CHECKING:
    from beltrami.recipes.results import ArmResult, RunResult
    from beltrami.report.page import Page, Table
    from beltrami.train.progress import ProgressListener

_LARGE_SCALE = 100  # of the loss, in the paper's experiment with many features


class SuperpositionRecipe(Recipe[SuperpositionConfig, StackSettings]):
    """How the loss of toy models falls with their width."""

    name: ClassVar[str] = "superposition"
    title: ClassVar[str] = "Superposition"
    names = NAMES

    def __init__(self, config: SuperpositionConfig) -> None:
        super().__init__(config)
        self.frequencies: dict[str, Tensor] = {}
        self._laws: dict[str, str] = {}
        n = config.chosen.features
        for law in config.chosen.laws:
            p = frequencies(law, n)
            for share in config.densities:
                dense = denser(p, share)
                many = f", {float(dense.sum()):.3g} features a sample" if share else ""
                group = law_title(law) + many
                if group in self.frequencies:
                    raise ValueError(
                        f"--laws and --densities have two that are both called {group!r}; rename "
                        "a file, or leave one out"
                    )
                self.frequencies[group] = dense
                self._laws[group] = law
        self._losses: dict[str, Tensor] = {}

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Those of every gamma."""
        return metrics_of(self.shape.regimes)

    @cached_property
    def shape(self) -> StackShape:
        """What all trials share."""
        config, chosen = self.config, self.config.chosen
        large = config.preset == LARGE
        by_width = large and config.learning_rate is None
        samples = chosen.batch * chosen.features
        return StackShape(
            features=chosen.features,
            widths=tuple(sorted(chosen.widths)),
            gammas=tuple(sorted(chosen.gammas)),
            unit=config.unit,
            batch=chosen.batch,
            rates="by width" if by_width else chosen.learning_rate,
            warm_up=chosen.warm_up,
            scale=2 * _LARGE_SCALE / samples if large else None,
            matrices="TF32" if config.tf32 else None,
        )

    def prepare(self, listener: ProgressListener, device: torch.device) -> None:
        """Refuse what only a GPU can."""
        if self.config.tf32 and device.type != "cuda":
            raise ValueError(f"--tf32 is for a GPU, and this run is on {device}; leave it out")

    def data_facts(self) -> dict[str, Any]:
        """Laws, features and digest."""
        features = self.config.chosen.features
        return {
            "name": ", ".join(self.frequencies),
            "features": features,
            # Laws may be added to a run; each trial has the digest of its own frequencies.
            "digest": hashlib.sha256(str(features).encode()).hexdigest(),
        }

    def arms(self) -> Sequence[Arm[StackSettings]]:
        """Each way to read features, for each law; and each with half the steps."""
        steps = self.config.chosen.steps
        arms = []
        for group, p in self.frequencies.items():
            for readout in (TWIN, *(r for r in self.config.readouts if r != TWIN)):
                settings = settings_from(
                    StackSettings,
                    self.shape,
                    law=self._laws[group],
                    density=round(float(p.sum()), 3),
                    frequencies=hashlib.sha256(p.numpy().tobytes()).hexdigest(),
                    steps=steps,
                    readout=readout,
                    curvature=self.config.curvature if readout in CURVED else None,
                )
                control = None if readout == TWIN else TWIN
                arms.append(Arm(readout, group, settings, control))
                if self.config.check_steps:
                    half = replace(settings, steps=steps // 2)
                    arms.append(Arm(HALVES[readout], group, half, readout))
        return arms

    def build(self, trial: Trial[StackSettings]) -> nn.Module:
        """The stack of a trial."""
        settings = trial.settings
        c = 1.0 if settings.curvature is None else settings.curvature
        return ToyStack(
            settings.features, settings.members, readout=settings.readout, c=c, seed=trial.seed
        )

    def train(self, model: nn.Module, trial: Trial[StackSettings], session: Session) -> None:
        """All members at once, on the same samples."""
        assert isinstance(model, ToyStack)
        p, settings = self.frequencies[trial.group], trial.settings
        data = FeatureSamples(p, settings.batch, seed=trial.seed, device=session.device)
        training = StackTraining(
            model,
            data,
            steps=settings.steps,
            warm_up=round(settings.warm_up * settings.steps),
            scale=settings.scale,
            tf32=settings.matrices is not None,
        )
        # Matrices of this size are multiplied as quickly by one thread.
        with one_thread() if session.device.type == "cpu" else nullcontext():
            self._losses[trial.name] = training.run(session).cpu()

    def evaluate(
        self, model: nn.Module, trial: Trial[StackSettings], session: Session
    ) -> Evaluation:
        """Losses of the last steps, lengths of rows, overlaps and exponents."""
        assert isinstance(model, ToyStack)
        losses = self._losses.pop(trial.name)
        return evaluation(model, losses, self.frequencies[trial.group], trial.settings)

    def findings(self, arm_results: Sequence[ArmResult]) -> dict[str, Any]:
        """Exponents of each regime by window, and whether the steps were enough."""
        return findings_json(arm_results)

    def page(self, run_result: RunResult) -> Page:
        """The page for people."""
        from beltrami.recipes.superposition.report import superposition_page

        return superposition_page(self, run_result)

    def tables(self, run_result: RunResult) -> Sequence[Table]:
        """A row a regime, and whether half the steps would have done."""
        settlings = settling(run_result.arm_results)
        last = [settling_table(settlings)] if settlings else []
        return [*regime_tables(self, run_result), *last]
