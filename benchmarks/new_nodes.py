"""How well new nodes are placed: `python -m benchmarks.new_nodes`.

Leaves of a hierarchy are left out of the training and then added by their parents
(`Embedding.add`). Average precision of their ancestors among their nearest points is printed
beside that of leaves that took part in the training, and of new nodes put on top of a parent.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import tyro
from torch import Tensor

from beltrami.analysis import average_precision
from beltrami.data import load_hierarchy
from beltrami.embeddings import Embedding
from beltrami.recipes.hierarchy import HierarchyEmbedding


@dataclass(frozen=True)
class Options:
    """Place new nodes, and print how precisely their ancestors are found."""

    data: str = "wordnet-mammals"
    """The hierarchy."""
    dim: int = 5
    """Dimensions."""
    geometry: str = "lorentz"
    """As of `HierarchyEmbedding`."""
    leaves: int = 100
    """How many are left out."""
    epochs: int = 200
    """Of the training."""
    seed: int = 0
    """Of the choice of leaves and of the training."""


def precision(embedding: Embedding, point: Tensor, ancestors: list[int], own: int = -1) -> float:
    """Average precision of rows among the nearest to a point."""
    wanted = torch.zeros(len(embedding), dtype=torch.bool)
    wanted[ancestors] = True
    others = torch.arange(len(embedding)) != own
    distance = embedding.manifold.dist(point, embedding.points)
    return float(average_precision(-distance[others], wanted[others]))


def run(options: Options) -> dict[str, float]:
    """Mean average precision of trained leaves, of new nodes, and of copies of a parent."""
    hierarchy = load_hierarchy(options.data)
    draws = torch.Generator().manual_seed(options.seed)
    order = torch.randperm(len(hierarchy.leaves), generator=draws)
    left_out = {hierarchy.labels[i] for i in hierarchy.leaves[order[: options.leaves]].tolist()}
    pairs = [(hierarchy.labels[a], hierarchy.labels[b]) for a, b in hierarchy.edges.tolist()]
    model = HierarchyEmbedding(
        options.dim,
        options.geometry,  # type: ignore[arg-type]
        options.epochs,
        learning_rates=(1.0,),
        seed=options.seed,
    ).fit([pair for pair in pairs if pair[0] not in left_out])
    trained = model.embedding_
    graph = trained.hierarchy
    assert graph is not None
    scores: dict[str, list[float]] = {"trained leaves": [], "new leaves": [], "on a parent": []}
    for row in graph.leaves.tolist():
        label = trained.labels[row]
        above = [trained.index(name) for name in trained.ancestors(label)]
        scores["trained leaves"].append(precision(trained, trained[label], above, row))
    for label in sorted(left_out):
        parents = [parent for child, parent in pairs if child == label]
        if not all(parent in trained for parent in parents):
            continue
        fresh = Embedding(trained.labels, trained.points, trained.manifold, edges=trained.edges)
        point = fresh.add(label, parents)
        names = fresh.ancestors(label)
        above = [trained.index(name) for name in names]
        scores["new leaves"].append(precision(trained, point, above))
        scores["on a parent"].append(precision(trained, trained[parents[0]], above))
    return {name: sum(values) / len(values) for name, values in scores.items()}


def main() -> None:
    """Print the means."""
    for name, value in run(tyro.cli(Options)).items():
        print(f"{name}: {value:.3f}")


if __name__ == "__main__":
    main()
