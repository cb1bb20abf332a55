"""How bad a wrong class is, by where it stands in a hierarchy.

With A⁺(x) the ancestors of a class x and x itself, and A(x) the ancestors alone:

    TIE (tree-induced error)    edges on the shortest path between predicted and true class
    lca_height                  height (longest way down to a leaf) of the lowest node of
                                A⁺(p) ∩ A⁺(t), their lowest common ancestor
    lca_steps                   |A⁺(p)| − |A⁺(p) ∩ A⁺(t)|: in a tree, steps from the prediction up
                                to the lowest common ancestor; 0 if right, 1 for a sibling
    lca_published               |A(p)| − |A(p) ∩ A(t)| + 1, as HyCoCLIP and PHyCLIP compute it: at
                                least 1, and 1 for a wrong sibling as for a right answer
    precision, recall, F1,      of the predicted set of ancestors against the true one
    Jaccard

The sets of the last line are A⁺, or A with `include_self=False`, as in the published tables: there
a wrong sibling scores 1, like a right answer. All but TIE are defined by ancestor sets, so they
hold for nodes with several parents as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from beltrami.analysis.checks import check_range, check_same_length, integers
from beltrami.analysis.overlap import SetScores, overlap_scores, weighted_mean
from beltrami.analysis.rows import rows_at_once
from beltrami.checks import check_choice
from beltrami.data.hierarchy import Hierarchy

Average = Literal["samples", "classes"]

MAX_CLASSES = 16_384
"""The tables have the square of this many entries: three of them take 2.5 GB."""

_NODES_AT_ONCE = 4096  # columns of ancestor sets that are multiplied at a time


@dataclass(frozen=True, eq=False)
class ClassTables:
    """What is needed of a hierarchy to judge predictions among some of its nodes.

    Made once by `class_tables`; tables are (C, C) for C classes.

    Args:
        classes: the nodes, int64 of shape (C,).
        hops: edges on the shortest path.
        common: |A⁺(p) ∩ A⁺(t)|.
        lca_height: height of the lowest common ancestor.
        above: whether class t is p itself or an ancestor of it, [p, t].
    """

    classes: Tensor
    hops: Tensor
    common: Tensor
    lca_height: Tensor
    above: Tensor


@dataclass(frozen=True)
class TreeErrors(SetScores):
    """How good predictions are in a hierarchy; the measures are at the head of the file.

    Args:
        accuracy: share of right predictions.
        tie: mean tree-induced error; 0 is perfect.
        lca_height: mean height of the lowest common ancestor; 0 is perfect if classes are leaves.
        lca_steps: mean steps up to the lowest common ancestor; 0 is perfect.
        lca_published: the one-sided published variant; 1 is its least value.
    """

    accuracy: float
    tie: float
    lca_height: float
    lca_steps: float
    lca_published: float


def class_tables(hierarchy: Hierarchy, classes: Tensor | None = None) -> ClassTables:
    """Tables of a hierarchy for some of its nodes, by default its leaves.

    Args:
        hierarchy: a tree, or a graph in which every two classes have a common ancestor.
        classes: the nodes that are predicted, integers of shape (C,), each once. Predictions are
            numbers of their positions, 0..C − 1.
    """
    classes = hierarchy.leaves if classes is None else integers("classes", classes, 1).cpu()
    check_range("classes", classes, len(hierarchy), "nodes")
    if len(classes.unique()) != len(classes):
        raise ValueError("classes names a node more than once: give each once")
    if not 0 < len(classes) <= MAX_CLASSES:
        raise ValueError(f"classes must be 1 to {MAX_CLASSES:,} nodes, got {len(classes):,}")
    position = torch.full((len(hierarchy),), -1, dtype=torch.int64)
    position[classes] = torch.arange(len(classes))
    below, ancestor = hierarchy.closure().t()
    used = position[below] >= 0
    # All (position of class, node of A⁺), as two vectors.
    which = torch.cat([torch.arange(len(classes)), position[below[used]]])
    node = torch.cat([classes, ancestor[used]])
    common, lca_height = _common_ancestors(hierarchy, which, node, len(classes))
    apart = common == 0
    if bool(apart.any()):
        labels = [hierarchy.labels[int(classes[i])] for i in apart.nonzero()[0]]
        raise ValueError(
            f"classes {labels[0]!r} and {labels[1]!r} of {hierarchy.name} have no common ancestor: "
            "add a root above both"
        )
    above = torch.zeros(len(classes), len(classes), dtype=torch.bool)
    inside = position[node] >= 0
    above[which[inside], position[node[inside]]] = True
    return ClassTables(classes, _hops(hierarchy, classes, common), common, lca_height, above)


def tree_errors(
    tables: ClassTables,
    predicted: Tensor,
    target: Tensor,
    *,
    include_self: bool = True,
    average: Average = "samples",
) -> TreeErrors:
    """Measures of predictions in a hierarchy.

    Args:
        tables: of the hierarchy, from `class_tables`.
        predicted: positions among the classes, integers of shape (samples,). target: the true ones.
        include_self: whether a class belongs to its own set, for precision, recall, F1, Jaccard.
        average: "samples", all alike, or "classes": each true class that occurs weighs the same.
    """
    check_choice("average", average, ("samples", "classes"))
    p, t = integers("predicted", predicted, 1).cpu(), integers("target", target, 1).cpu()
    check_same_length("predicted", p, "target", t)
    for name, value in (("predicted", p), ("target", t)):
        check_range(name, value, len(tables.classes), "classes")
    weight = torch.ones(len(t), dtype=torch.float64)
    if average == "classes":
        weight /= t.bincount(minlength=len(tables.classes))[t]
    size = tables.common.diagonal()
    common, p_size, t_size = tables.common[p, t], size[p], size[t]
    same = (p == t).to(torch.int64)
    # what p and t themselves contribute to the intersection of A⁺(p) and A⁺(t)
    own = tables.above[p, t].to(torch.int64) + tables.above[t, p].to(torch.int64) - same
    without = common - own, p_size - 1, t_size - 1
    sets = (common, p_size, t_size) if include_self else without

    return TreeErrors(
        **overlap_scores(*sets, weight),
        accuracy=weighted_mean(same, weight),
        tie=weighted_mean(tables.hops[p, t], weight),
        lca_height=weighted_mean(tables.lca_height[p, t], weight),
        lca_steps=weighted_mean(p_size - common, weight),
        lca_published=weighted_mean(without[1] - without[0] + 1, weight),
    )


def _hops(hierarchy: Hierarchy, classes: Tensor, common: Tensor) -> Tensor:
    """Edges on the shortest path between classes, (C, C)."""
    if hierarchy.is_tree:  # up to the lowest common ancestor and down again
        size = common.diagonal()
        return size[:, None] + size - 2 * common
    rows = rows_at_once(len(hierarchy), torch.device("cpu"), None)
    return torch.cat([hierarchy.hops(part)[:, classes] for part in classes.split(rows)])


def _heights(edges: Tensor, count: int) -> Tensor:
    """The longest way down from each node, in edges."""
    height = torch.zeros(count, dtype=torch.int64)
    child, parent = edges.t()
    while True:
        higher = height.scatter_reduce(0, parent, height[child] + 1, "amax")
        if torch.equal(higher, height):
            return height
        height = higher


def _common_ancestors(
    hierarchy: Hierarchy, which: Tensor, node: Tensor, count: int
) -> tuple[Tensor, Tensor]:
    """|A⁺(p) ∩ A⁺(t)| and the height of its lowest node (−1 if it is empty), both (C, C)."""
    height = _heights(hierarchy.edges, len(hierarchy))
    common = torch.zeros(count, count, dtype=torch.int32)
    lowest = torch.full((count, count), -1, dtype=torch.int32)
    for level in height[node].unique().tolist():  # ascending, so the first hit is the lowest
        at = height[node] == level
        nodes, column = node[at].unique(return_inverse=True)
        rows = which[at]
        shared = torch.zeros(count, count)
        for begin in range(0, len(nodes), _NODES_AT_ONCE):
            inside = (column >= begin) & (column < begin + _NODES_AT_ONCE)
            sets = torch.zeros(count, min(_NODES_AT_ONCE, len(nodes) - begin))
            sets[rows[inside], column[inside] - begin] = 1
            shared += sets @ sets.t()
        common += shared.to(torch.int32)
        lowest[(lowest < 0) & (shared > 0)] = level
    return common, lowest
