"""Small graphs and models with random, not initial, parameters."""

from __future__ import annotations

import torch
from torch import Tensor

from beltrami.data.triples import TripleSet
from beltrami.models.knowledge_graph import KnowledgeGraphConfig, KnowledgeGraphModel

ENTITIES, RELATIONS, DIM = 23, 3, 6


def random_model(
    variant: str, *, radius: float = 1.0, dtype: torch.dtype = torch.float64, **settings: object
) -> KnowledgeGraphModel:
    config = KnowledgeGraphConfig(
        **({"entities": ENTITIES, "relations": RELATIONS, "dim": DIM} | settings), variant=variant
    )
    model = KnowledgeGraphModel(config).to(dtype)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_()
            if name in ("entity", "translation", "pre_translation"):
                parameter.mul_(radius / config.dim**0.5)
    return model


def random_triples(m: int, *, entities: int = ENTITIES, relations: int = 2 * RELATIONS) -> Tensor:
    ends = torch.randint(entities, (m, 2))
    return torch.stack([ends[:, 0], torch.randint(relations, (m,)), ends[:, 1]], 1)


def tree_graph(depth: int = 5) -> TripleSet:
    """A binary tree: each node is a child of its parent; a tenth of the edges are held out."""
    n = 2**depth - 1
    child = torch.arange(1, n)
    edges = torch.stack([child, torch.zeros_like(child), (child - 1) // 2], 1)
    held = torch.arange(len(edges)) % 10 == 9
    return TripleSet(
        "tree",
        tuple(f"node {i}" for i in range(n)),
        ("child of",),
        edges[~held],
        edges[held],
        edges[held],
    )
