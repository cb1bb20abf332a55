"""The hierarchy recipe: arms, models and measures."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from beltrami import analysis as measures
from beltrami.data import Hierarchy, load_hierarchy
from beltrami.embeddings import Embedding
from beltrami.geometry import Euclidean, Lorentz, Manifold, PoincareBall, Product
from beltrami.models.hierarchy.relation import Relation
from beltrami.models.hierarchy.table import PointTable
from beltrami.recipes.hierarchy.config import NAMES, TWIN, Geometry, HierarchyConfig
from beltrami.recipes.hierarchy.training import train_table
from beltrami.recipes.recipe import Arm, Evaluation, Metric, Recipe, Trial, settings_from
from beltrami.train.session import Session

if TYPE_CHECKING:
    from beltrami.recipes.results import RunResult
    from beltrami.report.page import Page

FEWEST_NODES = 4
START = 1e-3  # root mean square distance of the points from the origin
DISTORTION_SOURCES = 256  # nodes from which distances are compared with hops
MOST_RATIOS = 1 << 26  # pairs compared with hops
RANKED = 100_000  # nodes whose ancestors are ranked; of more, a sample of so many
SARKAR_DISTORTION = 1.0  # allowed beyond 1; a small one would need hundreds of bits
CURVE_POINTS = 40  # ranks at which the rank curve is kept


@dataclass(frozen=True)
class TableSettings:
    """What the training of a table depends on; see `HierarchyConfig`."""

    dim: int
    batch: int
    pool: int
    epochs: int
    negatives: float
    burn_in: float
    max_step: float
    learning_rate: float


@dataclass(frozen=True)
class PlacedSettings:
    """What Sarkar's construction depends on."""

    dim: int
    max_distortion: float = SARKAR_DISTORTION


Settings = TableSettings | PlacedSettings


class HierarchyRecipe(Recipe[HierarchyConfig, Settings]):
    """Embed a taxonomy in hyperbolic and in flat space."""

    name: ClassVar[str] = "hierarchy"
    title: ClassVar[str] = "Embedding a hierarchy"
    names = NAMES
    chosen_by: ClassVar[str] = "map"
    metrics = (
        Metric("map", "MAP", "ancestors among the nearest points; 1 is perfect", "higher"),
        Metric("mean_rank", "Mean rank", "of an ancestor among negatives; 1 is perfect", "lower"),
        Metric("distortion", "Average distortion", "of hops; 0 is perfect", "lower"),
        Metric("worst_distortion", "Worst distortion", "of hops; 1 is perfect", "lower", 1),
        Metric("depth_correlation", "Depth correlation", "of depth and radius", "higher"),
        Metric("tau_d", "Kendall τ of depth", "of depth and radius", "higher"),
        Metric("loss", "Loss", "of the last step", None),
    )

    def __init__(self, config: HierarchyConfig) -> None:
        super().__init__(config)
        self.hierarchy: Hierarchy = load_hierarchy(
            config.data, root=config.root, strict=config.strict
        )
        self._trees: dict[int, PlacedTree] = {}
        check_size(self.hierarchy, config.data)
        if "sarkar" in config.models:
            for dim in config.dims:
                self._placed(dim)  # now, where it can still be refused

    @cached_property
    def relation(self) -> Relation:
        """The pairs that are embedded."""
        return Relation(self.hierarchy.closure(), len(self.hierarchy))

    @cached_property
    def _digest(self) -> str:
        return self.hierarchy.digest()

    def data_facts(self) -> dict[str, Any]:
        """Name, sizes and digest."""
        return {
            "name": self.hierarchy.name,
            "nodes": len(self.hierarchy),
            "edges": len(self.hierarchy.edges),
            "pairs": len(self.relation.pairs),
            "depth": int(self.hierarchy.depth.max()),
            "digest": self._digest,
        }

    def arms(self) -> Sequence[Arm[Settings]]:
        """Each geometry at each dimension; the Euclidean twin is there whether named or not."""
        config, nodes = self.config, len(self.hierarchy)
        geometries: list[Geometry] = [g for g in config.models if g != TWIN]
        rates = tuple({"learning_rate": rate} for rate in config.learning_rates)
        arms: list[Arm[Settings]] = []
        for dim in config.dims:
            trained = settings_from(
                TableSettings,
                config,
                dim=dim,
                batch=config.batch_of(nodes),
                pool=config.pool_of(nodes),
                learning_rate=config.learning_rates[0],
            )
            group = f"{dim} dimensions"
            for geometry in (*geometries, TWIN):
                twin = None if geometry == TWIN else TWIN
                if geometry == "sarkar":
                    arms.append(Arm(geometry, group, PlacedSettings(dim), twin))
                else:
                    arms.append(Arm(geometry, group, trained, twin, rates))
        return arms

    def build(self, trial: Trial[Settings]) -> nn.Module:
        """A table of points near the origin, or Sarkar's placed ones."""
        dim = trial.settings.dim
        if trial.model == "sarkar":
            return self._placed(dim)
        manifold = manifold_of(trial.model, dim)
        return PointTable(len(self.hierarchy), dim, manifold, radius=START, seed=trial.seed)

    def _placed(self, dim: int) -> PlacedTree:
        """Sarkar's tree, placed once for all seeds."""
        if dim not in self._trees:
            self._trees[dim] = PlacedTree(self.hierarchy, dim)
        return self._trees[dim]

    def train(self, model: nn.Module, trial: Trial[Settings], session: Session) -> None:
        """Train a table; Sarkar's tree is finished as it is."""
        if isinstance(model, PlacedTree):
            session.begin(0)
            return
        assert isinstance(model, PointTable)
        assert isinstance(trial.settings, TableSettings)
        train_table(
            model,
            self.relation,
            self.config,
            learning_rate=trial.settings.learning_rate,
            seed=trial.seed,
            session=session,
        )

    def evaluate(self, model: nn.Module, trial: Trial[Settings], session: Session) -> Evaluation:
        """Reconstruction of the closure, distortion of hops, depth against radius."""
        if isinstance(model, PlacedTree):
            rows = model.rows
            ranking = measures.reconstruction(
                rows, self.relation.pairs, len(self.hierarchy), sample=self.ranked
            )
            stretch = measures.distortion(
                rows, self.hierarchy.hops, len(self.hierarchy), sources=self._sources()
            )
            radius = model.radius
        else:
            assert isinstance(model, PointTable)
            points = model.weight.detach()
            ranking = measures.reconstruct_points(
                points, model.manifold, self.relation.pairs, sample=self.ranked
            )
            stretch = measures.distortion_of_points(
                points.cpu(), model.manifold, self.hierarchy.hops, sources=self._sources()
            )
            radius = measures.radii(points, model.manifold).cpu()
        depth = measures.depth_correlation(self.hierarchy.depth, radius)
        history = session.history
        metrics = {
            "map": ranking.map,
            "mean_rank": ranking.mean_rank,
            "distortion": stretch.average,
            "worst_distortion": stretch.worst,
            "depth_correlation": depth.spearman,
            "tau_d": depth.kendall,
        }
        if history:
            metrics["loss"] = history[-1]["loss"]
        return Evaluation(
            {key: None if math.isinf(value) else value for key, value in metrics.items()},
            _rank_curve(ranking.ranks),
        )

    def embedding(self, model: nn.Module, trial: Trial[Settings]) -> Embedding | None:
        """The table's points; Sarkar's tree is farther out than coordinates of float64 can say."""
        if not isinstance(model, PointTable):
            return None
        return Embedding(self.hierarchy, model.weight, model.manifold)

    def page(self, run_result: RunResult) -> Page:
        """The page for people."""
        from beltrami.recipes.hierarchy.report import hierarchy_page

        return hierarchy_page(self, run_result)

    def _sources(self) -> int | None:
        """From how many nodes distances are compared; None for all."""
        count = len(self.hierarchy)
        most = max(1, min(DISTORTION_SOURCES, MOST_RATIOS // count))
        return most if most < count else None

    @property
    def ranked(self) -> int | None:
        """For how many nodes ancestors are ranked; None for all."""
        return RANKED if len(self.relation.sources) > RANKED else None


class PlacedTree(nn.Module):
    """The spanning tree as Sarkar's construction places it; nothing to train.

    Distances are those of the exact points, whatever float64 could hold of them. Only the tangent
    vectors are kept with the model, for pictures.
    """

    def __init__(self, hierarchy: Hierarchy, dim: int) -> None:
        super().__init__()
        from beltrami.models.hierarchy.sarkar import PrecisionWarning, sarkar

        tree = hierarchy.spanning_tree()
        self._embedding = sarkar(tree, max_distortion=SARKAR_DISTORTION, dim=dim)
        number = {label: i for i, label in enumerate(tree.labels)}
        self._node = torch.tensor([number[label] for label in hierarchy.labels])
        with warnings.catch_warnings():
            # Pictures show less than float64 holds, and nothing else is made from these.
            warnings.simplefilter("ignore", PrecisionWarning)
            tangent = self._embedding.tangent(torch.float64)
        self.register_buffer("tangent", tangent[self._node])

    @property
    def radius(self) -> Tensor:
        """Distances from the root."""
        return torch.as_tensor(self._embedding.radii, dtype=torch.float64)[self._node]

    def rows(self, nodes: Tensor) -> Tensor:
        """Distances from nodes (b,) to all, (b, n)."""
        return self._embedding.distances(self._node[nodes.cpu()])[:, self._node]


def check_size(hierarchy: Hierarchy, name: str) -> None:
    """Refuse what is too small to be embedded."""
    if not len(hierarchy.edges):
        raise ValueError(f"{name} has no edges; there is nothing to embed")
    if len(hierarchy) < FEWEST_NODES:
        raise ValueError(f"{name} has {len(hierarchy)} nodes; at least {FEWEST_NODES} are needed")


def manifold_of(model: str, dim: int) -> Manifold:
    """The space of an arm."""
    if model == "lorentz":
        return Lorentz(1.0)
    if model == "poincare":
        return PoincareBall(1.0)
    if model == "product":
        first = (dim + 1) // 2
        return Product([(Lorentz(1.0), first), (Lorentz(1.0), dim - first)])
    if model == "euclidean":
        return Euclidean()
    raise ValueError(f"no geometry is called {model!r}")


def _rank_curve(ranks: Tensor) -> dict[str, list[float]]:
    """The share of pairs within rank k, at ranks spread evenly on a logarithmic axis."""
    highest = max(2.0, float(ranks.max()))
    points = torch.logspace(0, math.log10(highest), CURVE_POINTS, dtype=torch.float64)
    at = points.round().unique()
    ordered = ranks.double().cpu().sort().values
    share = torch.searchsorted(ordered, at, right=True) / len(ordered)
    return {"rank": at.tolist(), "share": share.tolist()}
