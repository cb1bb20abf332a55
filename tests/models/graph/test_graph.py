"""Graph networks: limits, twins of equal size, tasks that are learned."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from beltrami.data.graph_splits import split_links, split_nodes
from beltrami.data.graph_trees import disease_like_tree
from beltrami.data.graphs import Graph
from beltrami.geometry import Euclidean, Lorentz
from beltrami.models.graph import (
    FermiDirac,
    GraphConfig,
    GraphEncoder,
    LinkPredictor,
    NodeClassifier,
    count_parameters,
    evaluate_links,
    evaluate_nodes,
    link_prediction_loss,
    macro_f1,
    matched_twin,
    node_classification_loss,
)
from beltrami.optim import create_optimizer
from beltrami.train import loop
from beltrami.train.session import Session

TREE = disease_like_tree(branching=3, depth=4)
LAYERS = ("hybonet", "htc", "hgcn", "attention")
SMALL = GraphConfig(features=8, widths=(8, 4), heads=2)


def fit(
    model: nn.Module, loss: Callable[[], Tensor], validate: Callable[[], float], epochs: int = 40
) -> list[float]:
    """Full-batch steps; returns their losses."""
    session = Session()
    optimizer = create_optimizer(model, "adamw", lr=0.02)
    loop.train(
        model,
        optimizer,
        loss,
        lambda epoch, start: iter([()]),
        steps=epochs,
        session=session,
        validate=validate,
        validate_every=5,
    )
    return [entry["loss"] for entry in session.history]


@pytest.mark.parametrize("layer", LAYERS)
def test_encoder_tends_to_its_twin(layer: str) -> None:
    config = replace(SMALL, layer=layer, learn_curvature=False)
    twin = GraphEncoder(replace(config, geometry="euclidean")).double()
    features = TREE.features.double()
    errors = []
    for c in (1e-4, 1e-6, 1e-8):
        torch.manual_seed(1)
        model = GraphEncoder(replace(config, curvature=c)).double()
        with torch.no_grad():
            for name, p in model.named_parameters():
                p.copy_(torch.randn(p.shape, generator=torch.Generator().manual_seed(len(name))))
                p.mul_(0.3)
        twin.load_state_dict(model.state_dict(), strict=False)
        gap = model(features, TREE.edge_index) - twin(features, TREE.edge_index)
        errors.append(gap.abs().max().item())
    assert errors[0] > 5 * errors[1] > 25 * errors[2]
    assert errors[2] < 1e-2


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("widths", [(64, 16), (32, 32, 16)])
def test_twins_have_as_many_parameters(layer: str, widths: tuple[int, ...]) -> None:
    config = GraphConfig(features=11, widths=widths, layer=layer)

    def count(c: GraphConfig) -> int:
        return count_parameters(lambda: NodeClassifier(c, 2))

    twin = matched_twin(config, count)
    assert twin.geometry == "euclidean"
    assert twin.widths[-1] == widths[-1]
    assert count(twin) == pytest.approx(count(config), rel=0.01)
    built = NodeClassifier(twin, 2)
    assert sum(p.numel() for p in built.parameters()) == count(twin)
    if layer == "hgcn":  # no time columns: the same widths
        assert twin.widths == widths


@pytest.mark.parametrize("geometry", ["lorentz", "ball", "euclidean"])
def test_nodes_are_learned(geometry: str) -> None:
    torch.manual_seed(0)
    config = replace(SMALL, layer="hgcn", geometry=geometry, widths=(16, 8))
    model = NodeClassifier(config, 2, head="distance" if geometry == "ball" else "mlr")
    split = split_nodes(TREE.labels, seed=0)
    losses = fit(
        model,
        lambda: node_classification_loss(model, TREE, split),
        lambda: evaluate_nodes(model, TREE, split.validation)["macro_f1"],
    )
    assert losses[-1] < 0.6 * losses[0]
    majority = TREE.labels[split.test].bincount().max() / len(split.test)
    assert evaluate_nodes(model, TREE, split.test)["accuracy"] > majority + 0.05


@pytest.mark.parametrize("layer", ["htc", "attention"])
@pytest.mark.parametrize("geometry", ["lorentz", "euclidean"])
def test_links_are_learned(layer: str, geometry: str) -> None:
    torch.manual_seed(0)
    # Features that say where in the tree a node is: codes of its path from the root.
    codes = torch.zeros(len(TREE), 8)
    for parent, child in TREE.edges.t().tolist():
        codes[child] = codes[parent] + torch.randn(8)
    tree = Graph("tree", TREE.edges, codes / codes.std())
    split = split_links(tree, seed=0, shares=(0.6, 0.2, 0.2))
    model = LinkPredictor(replace(SMALL, layer=layer, geometry=geometry, widths=(16, 8)))
    generator = torch.Generator().manual_seed(0)
    losses = fit(
        model,
        lambda: link_prediction_loss(model, tree, split, generator),
        lambda: evaluate_links(model, tree, split, "validation")["roc_auc"],
    )
    assert losses[-1] < 0.7 * losses[0]
    assert evaluate_links(model, tree, split, "validation")["average_precision"] > 0.65
    assert evaluate_links(model, tree, split)["roc_auc"] > 0.7


def test_hidden_edges_carry_no_messages() -> None:
    """What is asked for in a step, and what messages pass along, are disjoint parts of training."""
    split = split_links(TREE, seed=0)
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []

    class Spy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(1))

        def forward(
            self, features: torch.Tensor, edge_index: torch.Tensor, pairs: torch.Tensor
        ) -> torch.Tensor:
            seen.append((edge_index, pairs))
            return self.weight.expand(pairs.shape[1])

    model = Spy()
    generator = torch.Generator().manual_seed(0)
    for hidden in (0.0, 0.25):
        loss = link_prediction_loss(model, TREE, split, generator, hidden=hidden)
        assert loss.item() == pytest.approx(math.log(2))
        edges, pairs = seen[-1]
        half = pairs.shape[1] // 2
        asked = {tuple(pair) for pair in pairs[:, :half].t().tolist()}
        passed = {tuple(sorted(pair)) for pair in edges.t().tolist()}
        train = {tuple(pair) for pair in split.train.t().tolist()}
        if hidden == 0:
            assert asked == passed == train
        else:
            assert len(asked) == round(hidden * len(train))
            assert not asked & passed
            assert asked | passed == train
        others = {tuple(pair) for pair in pairs[:, half:].t().tolist()}
        assert not others & train
    with pytest.raises(ValueError, match="hidden must be a share below 1, got 1"):
        link_prediction_loss(model, TREE, split, generator, hidden=1)


def test_fermi_dirac() -> None:
    manifold = Lorentz(0.5)
    decoder = FermiDirac(manifold=manifold, radius=1.5, temperature=0.5).double()
    x = manifold.random(5, 3, dtype=torch.float64)
    pairs = torch.tensor([[0, 1, 2], [3, 1, 4]])
    d = manifold.dist(x[pairs[0]], x[pairs[1]])
    expected = 1 / (torch.exp((d**2 - 1.5) / 0.5) + 1)
    torch.testing.assert_close(decoder(x, pairs).sigmoid(), expected)
    assert decoder.manifold_out == Euclidean()
    with pytest.raises(ValueError, match="temperature must be positive, got 0"):
        FermiDirac(manifold=manifold, temperature=0)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30),
)
def test_macro_f1(pairs: list[tuple[int, int]]) -> None:
    scores = []
    for k in range(4):
        hits = sum(p == t == k for p, t in pairs)
        called, true = (sum(pair[i] == k for pair in pairs) for i in (0, 1))
        if called + true:
            precision, recall = hits / max(called, 1), hits / max(true, 1)
            scores.append(2 * precision * recall / (precision + recall) if hits else 0.0)
    predicted, truth = torch.tensor(pairs).unbind(1)
    assert macro_f1(predicted, truth, 4) == pytest.approx(sum(scores) / len(scores))


def test_the_same_seed_gives_the_same_model() -> None:
    scores = []
    for _ in range(2):
        torch.manual_seed(3)
        model = NodeClassifier(replace(SMALL, dropout=0.2), 2)
        split = split_nodes(TREE.labels, seed=3)
        fit(model, partial(node_classification_loss, model, TREE, split), lambda: 0.0, epochs=3)
        scores.append(model.eval()(TREE.features, TREE.edge_index))
    assert torch.equal(*scores)


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="geometry='ball' works with layer='hgcn'"):
        replace(SMALL, geometry="ball")
    with pytest.raises(ValueError, match="layer must be one of"):
        replace(SMALL, layer="gcn")
    with pytest.raises(ValueError, match="aggregate must be centroid or mean"):
        replace(SMALL, layer="attention", aggregate="local")
    with pytest.raises(ValueError, match="features must be at least 1"):
        replace(SMALL, features=0)
    with pytest.raises(ValueError, match="widths must be positive"):
        replace(SMALL, widths=())
    with pytest.raises(ValueError, match="head must be one of mlr, distance; got 'linear'"):
        NodeClassifier(SMALL, 2, head="linear")
    bare = Graph("bare", TREE.edges, TREE.features)
    with pytest.raises(ValueError, match="bare has no labels"):
        evaluate_nodes(NodeClassifier(SMALL, 2), bare, torch.arange(3))
    with pytest.raises(ValueError, match="part must be validation or test, got 'train'"):
        evaluate_links(LinkPredictor(SMALL), TREE, split_links(TREE, seed=0), "train")
    with pytest.raises(ValueError, match="empty"):
        macro_f1(torch.empty(0).long(), torch.empty(0).long(), 2)
