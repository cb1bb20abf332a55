"""Losses and evaluations of the two tasks on graphs."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from beltrami.analysis import average_precision, roc_auc
from beltrami.data.graph_splits import LinkSplit, NodeSplit, sample_negatives
from beltrami.data.graphs import Graph, both_directions

Metrics = dict[str, float]


# --- node classification --------------------------------------------------------------------------


def node_classification_loss(model: nn.Module, graph: Graph, split: NodeSplit) -> Tensor:
    """Cross-entropy on all training nodes."""
    scores = model(graph.features, graph.edge_index)[split.train]
    return F.cross_entropy(scores, _labels(graph)[split.train])


@torch.no_grad()
def evaluate_nodes(model: nn.Module, graph: Graph, nodes: Tensor) -> Metrics:
    """Accuracy and macro-averaged F1 on the given nodes."""
    model.eval()
    predicted = model(graph.features, graph.edge_index)[nodes].argmax(-1)
    truth = _labels(graph)[nodes]
    return {
        "accuracy": (predicted == truth).double().mean().item(),
        "macro_f1": macro_f1(predicted, truth, len(graph.label_names)),
    }


def macro_f1(predicted: Tensor, truth: Tensor, classes: int) -> float:
    """The mean over classes of `2·hits/(predicted + true)`, of those that are in either.

    Args:
        predicted, truth: classes of samples, int64 (n,).
        classes: how many there are.
    """
    hits = torch.bincount(truth[predicted == truth], minlength=classes)
    both = torch.bincount(predicted, minlength=classes) + torch.bincount(truth, minlength=classes)
    present = both > 0
    if not bool(present.any()):
        raise ValueError("predicted and truth are empty, there is no F1")
    return (2 * hits[present].double() / both[present]).mean().item()


def _labels(graph: Graph) -> Tensor:
    if graph.labels is None:
        raise ValueError(f"{graph.name} has no labels, so there are no nodes to classify")
    return graph.labels


# --- link prediction ------------------------------------------------------------------------------


def link_prediction_loss(
    model: nn.Module,
    graph: Graph,
    split: LinkSplit,
    generator: torch.Generator,
    *,
    hidden: float = 0.3,
) -> Tensor:
    """Logistic loss of training edges against as many other pairs, drawn anew.

    The other pairs may be edges of validation or test, which training must not know.

    Args:
        model: a `LinkPredictor`. graph, split: what it is trained on.
        generator: of the draws, on the CPU.
        hidden: share of the training edges, drawn anew, that messages do not pass along in this
            step and that alone are asked for, as those of the test will be. With 0, all are asked
            for and messages pass along all.
    """
    if not 0 <= hidden < 1:
        raise ValueError(f"hidden must be a share below 1, got {hidden}")
    positives, edge_index = split.train, split.edge_index
    if hidden:
        order = torch.randperm(positives.shape[1], generator=generator).to(positives.device)
        shuffled = positives[:, order]
        cut = max(1, round(hidden * positives.shape[1]))
        positives, edge_index = shuffled[:, :cut], both_directions(shuffled[:, cut:])
    count = positives.shape[1]
    negatives = sample_negatives(split.train, split.nodes, count, generator)
    pairs = torch.cat([positives, negatives.to(positives.device)], dim=1)
    scores = model(graph.features, edge_index, pairs)
    truth = torch.zeros_like(scores)
    truth[:count] = 1
    return F.binary_cross_entropy_with_logits(scores, truth)


@torch.no_grad()
def evaluate_links(model: nn.Module, graph: Graph, split: LinkSplit, part: str = "test") -> Metrics:
    """Area under the ROC curve and average precision on the edges of "validation" or "test"."""
    if part not in ("validation", "test"):
        raise ValueError(f"part must be validation or test, got {part!r}")
    model.eval()
    edges: Tensor = getattr(split, part)
    negatives: Tensor = getattr(split, f"{part}_negatives")
    pairs = torch.cat([edges, negatives], dim=1)
    scores = model(graph.features, split.edge_index, pairs)
    truth = torch.arange(pairs.shape[1], device=pairs.device) < edges.shape[1]
    return {
        "roc_auc": roc_auc(scores, truth),
        "average_precision": average_precision(scores, truth),
    }
