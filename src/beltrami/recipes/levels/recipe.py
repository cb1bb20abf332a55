"""The levels recipe: arms, models and measures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from beltrami.analysis import ClassTables, class_tables, level_scores, tree_errors
from beltrami.embeddings import Embedding
from beltrami.models.level_classifier import (
    LevelClassifier,
    LevelConfig,
    evaluate_levels,
    matched_twin,
    predict_levels,
)
from beltrami.models.level_classifier.tasks import ROWS_AT_ONCE
from beltrami.models.parameters import count_parameters
from beltrami.recipes.levels.config import NAMES, TWIN, LevelsConfig
from beltrami.recipes.levels.samples import load_samples
from beltrami.recipes.levels.training import LevelsSettings, train_levels
from beltrami.recipes.recipe import Arm, Evaluation, Metric, Recipe, Trial, settings_from
from beltrami.train.seeding import seeded
from beltrami.train.session import Session

if TYPE_CHECKING:
    from beltrami.recipes.results import RunResult
    from beltrami.report.page import Page

MOST_LEVELS = 12  # with an accuracy of their own; deeper ones count in the mean
MOST_CLASSES = 5_000  # for errors in the tree, whose tables are quadratic
METRICS = (
    Metric("hierarchical_f1", "Hierarchical F1", "micro; too deep is wrong", "higher"),
    Metric("mean_accuracy", "Mean accuracy", "over levels; 1 is perfect", "higher"),
    Metric("exact", "Right at every level", "share of leaves", "higher"),
    Metric("tie", "Tree-induced error", "edges to the right class, level given", "lower"),
    Metric("lca_height", "LCA height", "of right and found class, level given", "lower"),
    Metric("jaccard", "Jaccard", "of the ancestors of both, level given", "higher"),
)


class LevelsRecipe(Recipe[LevelsConfig, LevelsSettings]):
    """Classes of a taxonomy's leaves, in hyperbolic and in flat space."""

    name: ClassVar[str] = "levels"
    method: ClassVar[int] = 2  # 2: prototypes move by root mean square changes of a coordinate
    title: ClassVar[str] = "Classification by level"
    names = NAMES
    chosen_by: ClassVar[str] = "validation_f1"

    def __init__(self, config: LevelsConfig) -> None:
        super().__init__(config)
        self.samples = load_samples(config)

    @cached_property
    def metrics(self) -> tuple[Metric, ...]:
        """Metrics over all levels, of each level and of the training."""
        levels = (
            Metric(f"accuracy_{depth}", f"Accuracy, {title}", hint, "higher")
            for depth, (title, hint) in self.level_names.items()
            if depth < MOST_LEVELS
        )
        return (
            *METRICS,
            *levels,
            Metric("validation_f1", "Validation F1", "the settings were chosen by it", "higher"),
            Metric("loss", "Loss", "of the last step", None),
        )

    @property
    def level_names(self) -> dict[int, tuple[str, str]]:
        """What to call each level, and where it is: a rank, or so many edges below the root."""
        labels = self.samples.labels
        if labels.ranks:
            ranks = zip(labels.depths, labels.ranks, strict=True)
            return {depth: (rank, f"rank {depth} from the top") for depth, rank in ranks}
        return {depth: (f"level {depth}", f"{depth} below the root") for depth in labels.depths}

    @cached_property
    def _facts(self) -> dict[str, Any]:
        labels = self.samples.labels
        return {
            "name": self.samples.hierarchy.name,
            "nodes": len(self.samples.hierarchy),
            "leaves": len(self.samples),
            "features": self.samples.features.shape[1],
            "classes": {str(d): size for d, size in zip(labels.depths, labels.sizes, strict=True)},
            "digest": self.samples.digest(),
        }

    def data_facts(self) -> dict[str, Any]:
        """Name, sizes and digest."""
        return self._facts

    @cached_property
    def tree_tables(self) -> ClassTables | None:
        """For errors in the tree; None for a forest, and for more classes than tables can hold."""
        classes = torch.cat(self.samples.labels.classes).unique()
        whole = len(self.samples.hierarchy.roots) == 1 and len(classes) <= MOST_CLASSES
        return class_tables(self.samples.hierarchy, classes) if whole else None

    def arms(self) -> Sequence[Arm[LevelsSettings]]:
        """The hyperbolic classifier and its twin."""
        config, labels = self.config, self.samples.labels
        curved = LevelConfig(
            self.samples.features.shape[1],
            labels.sizes,
            config.widths,
            geometry=config.geometry,
            head=config.head,
            dropout=config.dropout,
        )
        twin = matched_twin(curved, lambda c: count_parameters(lambda: LevelClassifier(c)))
        rates = tuple({"learning_rate": rate} for rate in config.learning_rates)
        levels = f"{len(labels.depths)} levels"
        return [
            Arm(
                model,
                levels,
                settings_from(
                    LevelsSettings, config, model=shape, learning_rate=config.learning_rates[0]
                ),
                None if model == TWIN else TWIN,
                rates,
            )
            for model, shape in ((config.geometry, curved), (TWIN, twin))
        ]

    def build(self, trial: Trial[LevelsSettings]) -> nn.Module:
        """The classifier of a trial."""
        with seeded(trial.seed):
            return LevelClassifier(trial.settings.model)

    def train(self, model: nn.Module, trial: Trial[LevelsSettings], session: Session) -> None:
        """Batches of leaves; the best epoch on validation leaves is kept."""
        train, validation, _ = (self._part(rows) for rows in self.samples.parts(trial.seed))
        train_levels(model, train, validation, trial, session)

    def evaluate(
        self, model: nn.Module, trial: Trial[LevelsSettings], session: Session
    ) -> Evaluation:
        """Accuracy by level, hierarchical F1, and errors in the tree of the lowest classes."""
        _, validation, test = self.samples.parts(trial.seed)
        features, targets = self._part(test)
        predicted = predict_levels(model, features)
        scores = level_scores(predicted, targets)
        accuracy = scores.accuracy
        known = [value for value in accuracy if not math.isnan(value)]
        metrics = {
            "hierarchical_f1": scores.micro_f1,
            "mean_accuracy": sum(known) / len(known),
            "exact": scores.exact,
            **self._tree_errors(predicted, targets),
            **{
                f"accuracy_{depth}": value
                for depth, value in zip(self.samples.labels.depths, accuracy, strict=True)
                if depth < MOST_LEVELS and not math.isnan(value)
            },
            "validation_f1": evaluate_levels(model, *self._part(validation))["micro_f1"],
        }
        metrics = session.processes.mean(metrics)
        curve = {"level": list(map(float, self.samples.labels.depths)), "accuracy": list(accuracy)}
        return Evaluation(
            {**metrics, "loss": session.history[-1]["loss"]},
            {key: [v if not math.isnan(v) else -1.0 for v in vs] for key, vs in curve.items()},
        )

    @torch.no_grad()
    def embedding(self, model: nn.Module, trial: Trial[LevelsSettings]) -> Embedding:
        """The leaves, as the encoder places their features."""
        assert isinstance(model, LevelClassifier)
        model.eval()
        device = next(model.parameters()).device
        blocks = self.samples.features.split(ROWS_AT_ONCE)
        points = torch.cat([model.encoder(block.to(device)).cpu() for block in blocks])
        labels = self.samples.hierarchy.labels
        leaves = [labels[node] for node in self.samples.labels.nodes.tolist()]
        return Embedding(leaves, points, model.manifold, name=self.samples.hierarchy.name)

    def page(self, run_result: RunResult) -> Page:
        """The page for people."""
        from beltrami.recipes.levels.report import levels_page

        return levels_page(self, run_result)

    def _part(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        return self.samples.features[rows], self.samples.labels.targets[rows]

    def _tree_errors(self, predicted: Tensor, targets: Tensor) -> dict[str, float]:
        """How far the class found at a leaf's lowest level is from the right one.

        The level is taken from the leaf, not from the prediction, which has no depth of its own.
        """
        if self.tree_tables is None:
            return {}
        known = targets >= 0
        lowest = known.shape[1] - 1 - known.flip(1).int().argmax(1)  # the last level with a class
        rows = torch.arange(len(targets))
        nodes = [
            torch.stack(
                [
                    self.samples.labels.classes[level][label]
                    for level, label in zip(lowest.tolist(), labels.tolist(), strict=True)
                ]
            )
            for labels in (predicted[rows, lowest], targets[rows, lowest])
        ]
        guessed, right = (torch.searchsorted(self.tree_tables.classes, n) for n in nodes)
        errors = tree_errors(self.tree_tables, guessed, right)
        return {"tie": errors.tie, "lca_height": errors.lca_height, "jaccard": errors.jaccard}
