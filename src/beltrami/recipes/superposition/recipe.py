"""The superposition recipe: laws of frequencies, ways to read features, and their models.

A trial is a whole stack: all widths and gammas of one law, one read-out and one seed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from beltrami.models.superposition import FeatureSamples, ToyStack, denser
from beltrami.recipes.recipe import Arm, Evaluation, Metric, Recipe, Trial
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
    evaluation,
    members_of,
    metrics_of,
    regimes_of,
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


class SuperpositionRecipe(Recipe[SuperpositionConfig]):
    """How the loss of toy models falls with their width."""

    name: ClassVar[str] = "superposition"
    title: ClassVar[str] = "Superposition"
    names: ClassVar[dict[str, str]] = NAMES

    def __init__(self, config: SuperpositionConfig) -> None:
        super().__init__(config)
        self.frequencies: dict[str, Tensor] = {}
        self._laws: dict[str, str] = {}
        n = config.chosen("features")
        for law in config.chosen("laws"):
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
    def metrics(self) -> tuple[Metric, ...]:  # type: ignore[override]
        """Those of every gamma."""
        return metrics_of(regimes_of(self.settings))

    @cached_property
    def settings(self) -> dict[str, Any]:
        """What all trials share."""
        config, chosen = self.config, self.config.chosen
        large = config.preset == LARGE
        by_width = large and config.learning_rate is None
        samples = chosen("batch") * chosen("features")
        return {
            "features": chosen("features"),
            "widths": sorted(chosen("widths")),
            "gammas": sorted(chosen("gammas")),
            "unit": config.unit,
            "batch": chosen("batch"),
            "rates": "by width" if by_width else chosen("learning_rate"),
            "warm_up": chosen("warm_up"),
            "scale": 2 * _LARGE_SCALE / samples if large else None,
            **({"matrices": "TF32"} if config.tf32 else {}),
        }

    def prepare(self, listener: ProgressListener, device: torch.device) -> None:
        """Refuse what only a GPU can."""
        if self.config.tf32 and device.type != "cuda":
            raise ValueError(f"--tf32 is for a GPU, and this run is on {device}; leave it out")

    def data_facts(self) -> dict[str, Any]:
        """Laws, features and digest."""
        features = self.config.chosen("features")
        return {
            "name": ", ".join(self.frequencies),
            "features": features,
            # Laws may be added to a run; each trial has the digest of its own frequencies.
            "digest": hashlib.sha256(str(features).encode()).hexdigest(),
        }

    def arms(self) -> Sequence[Arm]:
        """Each way to read features, for each law; and each with half the steps."""
        steps = self.config.chosen("steps")
        arms = []
        for group, p in self.frequencies.items():
            common = {
                **self.settings,
                "law": self._laws[group],
                "density": round(float(p.sum()), 3),
                "frequencies": hashlib.sha256(p.numpy().tobytes()).hexdigest(),
                "steps": steps,
            }
            for readout in (TWIN, *(r for r in self.config.readouts if r != TWIN)):
                settings = {**common, "readout": readout}
                if readout in CURVED:
                    settings["curvature"] = self.config.curvature
                control = None if readout == TWIN else TWIN
                arms.append(Arm(readout, group, settings, control))
                if self.config.check_steps:
                    half = {**settings, "steps": steps // 2}
                    arms.append(Arm(HALVES[readout], group, half, readout))
        return arms

    def build(self, trial: Trial) -> nn.Module:
        """The stack of a trial."""
        return ToyStack(
            trial["features"],
            members_of(trial.settings),
            readout=trial["readout"],
            c=trial.settings.get("curvature", 1.0),
            seed=trial.seed,
        )

    def train(self, model: nn.Module, trial: Trial, session: Session) -> None:
        """All members at once, on the same samples."""
        assert isinstance(model, ToyStack)
        p, steps = self.frequencies[trial.group], trial["steps"]
        data = FeatureSamples(p, trial["batch"], seed=trial.seed, device=session.device)
        training = StackTraining(
            model,
            data,
            steps=steps,
            warm_up=round(trial["warm_up"] * steps),
            scale=trial["scale"],
            tf32="matrices" in trial.settings,
        )
        # Matrices of this size are multiplied as quickly by one thread.
        with one_thread() if session.device.type == "cpu" else nullcontext():
            self._losses[trial.name] = training.run(session).cpu()

    def evaluate(self, model: nn.Module, trial: Trial, session: Session) -> Evaluation:
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
