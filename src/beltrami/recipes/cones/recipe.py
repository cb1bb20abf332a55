"""The cones recipe: arms, models, training and measures.

Under torchrun the processes share each batch and add up their gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from torch import nn

from beltrami.data import Hierarchy, load_hierarchy
from beltrami.embeddings import Embedding
from beltrami.geometry import Euclidean, Lorentz, Manifold, PoincareBall
from beltrami.models.hierarchy.closure_split import ClosureSplit, split_closure
from beltrami.models.hierarchy.cones import ConeEmbedding, judge_cones
from beltrami.recipes.cones.config import NAMES, TWIN, ConesConfig
from beltrami.recipes.cones.layout import tree_layout
from beltrami.recipes.cones.training import ConesSettings, train_cones
from beltrami.recipes.recipe import Arm, Evaluation, Metric, Recipe, Trial, settings_from
from beltrami.train.session import Session

if TYPE_CHECKING:
    from beltrami.recipes.results import RunResult
    from beltrami.report.page import Page

MANIFOLDS: dict[str, Manifold] = {
    "lorentz": Lorentz(1.0),
    "poincare": PoincareBall(1.0),
    "euclidean": Euclidean(),
}


class ConesRecipe(Recipe[ConesConfig, ConesSettings]):
    """Entailment cones in hyperbolic and in flat space."""

    name: ClassVar[str] = "cones"
    method: ClassVar[int] = 2  # 2: learning rates are root mean square changes of a coordinate
    title: ClassVar[str] = "Entailment cones"
    names = NAMES
    chosen_by: ClassVar[str] = "validation_f1"
    metrics = (
        Metric("f1", "F1", "of held-out pairs; 1 is perfect", "higher"),
        Metric("average_precision", "Average precision", "of held-out pairs", "higher"),
        Metric("roc_auc", "ROC AUC", "of held-out pairs", "higher"),
        Metric("precision", "Precision", "at the threshold of validation", "higher"),
        Metric("recall", "Recall", "at the threshold of validation", "higher"),
        Metric("validation_f1", "Validation F1", "the settings were chosen by it", "higher"),
        Metric("loss", "Loss", "a shown pair, in the last step", None),
    )

    def __init__(self, config: ConesConfig) -> None:
        super().__init__(config)
        self.hierarchy: Hierarchy = load_hierarchy(
            config.data, root=config.root, strict=config.strict
        )
        self.split(max(config.shares), 0)  # too small a hierarchy shows now

    @lru_cache(maxsize=8)  # noqa: B019 - a recipe lives as long as its run
    def split(self, share: float, seed: int) -> ClosureSplit:
        """Which pairs are shown and asked for."""
        return split_closure(self.hierarchy, share=share, seed=seed)

    @cached_property
    def _facts(self) -> dict[str, Any]:
        return {
            "name": self.hierarchy.name,
            "nodes": len(self.hierarchy),
            "edges": len(self.hierarchy.edges),
            "pairs": len(self.hierarchy.closure()),
            "depth": int(self.hierarchy.depth.max()),
            "digest": self.hierarchy.digest(),
        }

    def data_facts(self) -> dict[str, Any]:
        """Name, sizes and digest."""
        return self._facts

    def arms(self) -> Sequence[Arm[ConesSettings]]:
        """Each geometry at each share; the Euclidean twin is there in every group."""
        config = self.config
        rates = tuple({"learning_rate": rate} for rate in config.learning_rates)
        return [
            Arm(
                model,
                f"{percent(share)}% of the implied pairs shown",
                settings_from(
                    ConesSettings, config, share=share, learning_rate=config.learning_rates[0]
                ),
                None if model == TWIN else TWIN,
                rates,
            )
            for share in config.shares
            for model in (*config.models, TWIN)
        ]

    def build(self, trial: Trial[ConesSettings]) -> ConeEmbedding:
        """The tree's layout, as points of the trial's space."""
        manifold = MANIFOLDS[trial.model]
        layout = tree_layout(self.hierarchy, trial.settings.dim, trial.seed)
        return ConeEmbedding(
            manifold.exp0(layout), manifold=manifold, min_radius=trial.settings.min_radius
        )

    def train(self, model: nn.Module, trial: Trial[ConesSettings], session: Session) -> None:
        """Riemannian Adam on shown pairs against fresh false ones; the best epoch is kept."""
        assert isinstance(model, ConeEmbedding)
        split = self.split(trial.settings.share, trial.seed)
        train_cones(model, split, trial, session)

    def evaluate(
        self, model: nn.Module, trial: Trial[ConesSettings], session: Session
    ) -> Evaluation:
        """Held-out pairs, at the threshold that is best on validation pairs."""
        assert isinstance(model, ConeEmbedding)
        split = self.split(trial.settings.share, trial.seed)
        scores, valid = judge_cones(model, split), judge_cones(model, split, "valid")
        metrics = {
            "f1": scores.f1,
            "average_precision": scores.average_precision,
            "roc_auc": scores.roc_auc,
            "precision": scores.precision,
            "recall": scores.recall,
            "validation_f1": valid.f1,
        }
        return Evaluation({**session.processes.mean(metrics), "loss": session.history[-1]["loss"]})

    def embedding(self, model: nn.Module, trial: Trial[ConesSettings]) -> Embedding:
        """The apexes of the cones."""
        assert isinstance(model, ConeEmbedding)
        return Embedding(self.hierarchy, model.weight, model.manifold, facts={"cones": True})

    def page(self, run_result: RunResult) -> Page:
        """The page for people."""
        from beltrami.recipes.cones.report import cones_page

        return cones_page(self, run_result)


def percent(share: float) -> str:
    """A hundred times the share, with all its digits, so that no two shares have the same text."""
    exact = (Decimal(repr(share)) * 100).normalize()
    return str(exact) if 0 < share < 1e-9 else f"{exact:f}"
