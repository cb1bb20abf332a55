"""Pairs for learning a hierarchy's order relation: which are shown, which are asked for.

The protocol of Ganea, Bécigneul and Hofmann (2018). The closure of a hierarchy has all pairs
(descendant, ancestor). Those that are implied by no others, the *basic* pairs, are always shown. Of
the rest 5% each are kept for validation and test, and a chosen share is shown as well. Each pair of
validation and test comes with ten false ones: five with another ancestor, five with another
descendant, none of them in the closure.

As there, a node that is above all others is left out with its pairs: it would be guessed for free.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from beltrami.data.hierarchy import Hierarchy
from beltrami.geometry.checks import check_integer

HELD_OUT = 0.05  # of the non-basic pairs, for validation and for test each
CORRUPTIONS = 5  # false pairs a true one and end
_TRIES = 30  # rounds of drawing before the partners that are left are listed one by one


@dataclass(frozen=True, eq=False)
class ClosureSplit:
    """Pairs (descendant, ancestor) of nodes, int64 of shape (p, 2).

    Args:
        train: true pairs to learn from: the basic ones, then the chosen share of the others.
        valid: true pairs to choose a threshold by.
        valid_false: false pairs beside them.
        test: true pairs to be judged by.
        test_false: false pairs beside them.
        nodes: how many nodes the hierarchy has.
    """

    train: Tensor
    valid: Tensor
    valid_false: Tensor
    test: Tensor
    test_false: Tensor
    nodes: int


def split_closure(
    hierarchy: Hierarchy,
    *,
    share: float,
    seed: int,
    held_out: float = HELD_OUT,
    corruptions: int = CORRUPTIONS,
    keep_top: bool = False,
) -> ClosureSplit:
    """Split the pairs of a hierarchy's closure as the module describes.

    Equal seeds hold out equal pairs, and a larger share shows those of a smaller one and more.

    Args:
        hierarchy: what is to be learned.
        share: of the non-basic pairs that are shown; published are 0, 0.1, 0.25 and 0.5. At most
            1 − 2·held_out.
        seed: of the choice.
        held_out: share of the non-basic pairs for validation, and for test.
        corruptions: false pairs for each true one and each of its two ends.
        keep_top: whether the pairs of nodes above all others count.
    """
    _check_shares(share, held_out)
    check_integer("corruptions", corruptions)
    generator = torch.Generator().manual_seed(seed)
    n = len(hierarchy)
    closure = hierarchy.closure()
    shown = closure if keep_top else closure[~_above_all(closure, n)[closure[:, 1]]]
    basic_keys = _keys(hierarchy.reduction().edges, n).sort().values
    is_basic = _contains(basic_keys, _keys(shown, n))
    basic, rest = shown[is_basic], shown[~is_basic]
    count = round(held_out * len(rest))
    if not count:
        raise ValueError(
            f"{hierarchy.name} has {len(rest)} pairs that its other pairs imply, too few to hold "
            f"out a share of {held_out:g} of them: use a deeper hierarchy or a larger held_out"
        )
    rest = rest[torch.randperm(len(rest), generator=generator)]
    valid, test = rest[:count], rest[count : 2 * count]
    extra = rest[2 * count : 2 * count + round(share * len(rest))]
    allowed = torch.ones(n, dtype=torch.bool) if keep_top else ~_above_all(closure, n)
    nodes = allowed.nonzero().squeeze(-1)
    valid_false = corrupt_pairs(valid, closure, nodes, count=corruptions, generator=generator)
    test_false = corrupt_pairs(test, closure, nodes, count=corruptions, generator=generator)
    return ClosureSplit(
        train=torch.cat([basic, extra]),
        valid=valid,
        valid_false=valid_false.flatten(0, 1),
        test=test,
        test_false=test_false.flatten(0, 1),
        nodes=n,
    )


def corrupt_pairs(
    pairs: Tensor,
    known: Tensor,
    nodes: Tensor | int,
    *,
    count: int,
    generator: torch.Generator | None = None,
) -> Tensor:
    """False pairs for true ones: each end is replaced `count` times by a random node.

    Uniform over the nodes for which the new pair is not in `known` and its ends differ. If there is
    no such node for an end, the other end is replaced instead; if for neither, the hierarchy is too
    small, which is an error.

    Args:
        pairs: int64 (p, 2).
        known: int64 (q, 2), pairs that count as true.
        nodes: int64 (k,), the nodes to draw from, or their number if they are 0, 1, ….
        count: replacements for each end.
        generator: of the draws.

    Returns:
        int64 (p, 2·count, 2): first those with another ancestor, then with another descendant.
    """
    check_integer("count", count)
    pool = torch.arange(nodes) if isinstance(nodes, int) else nodes
    n = int(max(pool.max(), pairs.max() if len(pairs) else 0, known.max() if len(known) else 0)) + 1
    keys = _keys(known, n).sort().values
    false = pairs[:, None].repeat(1, 2 * count, 1)  # (p, 2·count, 2)
    end = torch.tensor([1] * count + [0] * count).expand(len(pairs), -1).flatten()
    flat = false.view(-1, 2)

    def is_true(rows: Tensor) -> Tensor:
        return (rows[:, 0] == rows[:, 1]) | _contains(keys, _keys(rows, n))

    todo = torch.arange(len(flat))
    for _ in range(_TRIES):
        if not len(todo):
            break
        draw = torch.randint(len(pool), (len(todo),), generator=generator)
        flat[todo, end[todo]] = pool[draw]
        todo = todo[is_true(flat[todo])]
    for row in todo.tolist():
        flat[row] = _listed(pairs[row // (2 * count)], int(end[row]), pool, is_true, generator)
    return false


def _listed(
    pair: Tensor,
    end: int,
    pool: Tensor,
    is_true: Callable[[Tensor], Tensor],
    generator: torch.Generator | None,
) -> Tensor:
    """A false pair chosen from the list of all of them."""
    for which in (end, 1 - end):
        rows = pair.repeat(len(pool), 1)
        rows[:, which] = pool
        rows = rows[~is_true(rows)]
        if len(rows):
            return rows[torch.randint(len(rows), (), generator=generator)]
    raise ValueError(
        f"the pair {tuple(pair.tolist())} has no false pair beside it: every node is related to "
        "both its ends; use a larger hierarchy"
    )


def _above_all(closure: Tensor, n: int) -> Tensor:
    """Booleans (n,): the nodes that every other node descends from."""
    return torch.bincount(closure[:, 1], minlength=n) == n - 1


def _keys(pairs: Tensor, n: int) -> Tensor:
    return pairs[:, 0] * n + pairs[:, 1]


def _contains(ordered: Tensor, keys: Tensor) -> Tensor:
    """Which keys are among the ordered ones."""
    if not len(ordered):
        return torch.zeros(len(keys), dtype=torch.bool)
    place = torch.searchsorted(ordered, keys)
    return ordered[torch.where(place < len(ordered), place, 0)] == keys


def _check_shares(share: float, held_out: float) -> None:
    for name, value in (("share", share), ("held_out", held_out)):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"{name} must be a number, got {type(value).__name__}")
    if not 0 < held_out < 0.5:
        raise ValueError(f"held_out must lie between 0 and 0.5, got {held_out}")
    if not 0 <= share <= 1 - 2 * held_out:
        raise ValueError(
            f"share must lie in 0..{1 - 2 * held_out:g}, what is left beside validation and test; "
            f"got {share}"
        )
