"""Yes-or-no questions about a taxonomy: is this a kind of that?

As many have the answer yes as no, at every number of steps between two nodes. A "no" asks of the
same node about another that is as deep as the right one, or asks the right pair the wrong way
round.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from beltrami.checks import check_integer
from beltrami.data.hierarchy import Hierarchy
from beltrami.data.word_problems.answers import MARK
from beltrami.data.word_problems.problem import WordProblem

YES, NO = "yes", "no"
TURNED = 0.25  # share of the wrong questions that are a right pair turned round
TRIES = 50  # to draw a node that is not an ancestor
_SENSE = re.compile(r"\.[a-z]\.\d+$")  # WordNet's, as in dog.n.01

Way = tuple[int, ...]  # from a node up to an ancestor


def plain_name(label: str) -> str:
    """A node's name in a sentence: without WordNet's sense, with spaces for underscores."""
    return _SENSE.sub("", label).replace("_", " ")


def taxonomy_facts(hierarchy: Hierarchy) -> list[str]:
    """A sentence for each edge that does not follow from others."""
    names = [plain_name(label) for label in hierarchy.labels]
    return [_fact(names, child, parent) for child, parent in hierarchy.reduction().edges.tolist()]


def taxonomy_questions(
    hierarchy: Hierarchy, count: int, *, seed: int = 0, most_steps: int = 4
) -> list[WordProblem]:
    """Different questions, drawn; fewer than `count` where the taxonomy has no more.

    The way to a "yes" is written out, edge by edge, and its edges are the `steps`; a "no" has the
    steps of the "yes" it was made from. Names that several nodes share are not asked about.

    Args:
        hierarchy: the taxonomy.
        count: how many.
        seed: of the draws.
        most_steps: the longest way from a node to an ancestor.
    """
    check_integer("count", count, 2)
    check_integer("most_steps", most_steps)
    draws = random.Random(f"taxonomy questions {seed}")
    names = [plain_name(label) for label in hierarchy.labels]
    often = Counter(names)
    asked_of = [often[name] == 1 for name in names]
    ancestors: list[set[int]] = [set() for _ in names]
    for node, above in hierarchy.closure().tolist():
        ancestors[node].add(above)
    depth: list[int] = hierarchy.depth.tolist()
    level: dict[int, list[int]] = {}
    for node, d in enumerate(depth):
        level.setdefault(d, []).append(node)

    made: dict[tuple[int, int], WordProblem] = {}
    for way in _mixed(draws, _ways(hierarchy, most_steps)):
        if len(made) + 1 >= count:
            break
        node, top = way[0], way[-1]
        wrong = _wrong(draws, node, top, ancestors[node], level[depth[top]])
        if wrong is None or wrong in made or not all(asked_of[i] for i in (node, top, *wrong)):
            continue
        steps = len(way) - 1
        proof = "\n".join(_fact(names, a, b) for a, b in pairwise(way))
        made[node, top] = WordProblem(_ask(names, node, top), YES, f"{proof}\n{MARK} {YES}", steps)
        made[wrong] = WordProblem(_ask(names, *wrong), NO, f"{MARK} {NO}", steps)
    problems = list(made.values())
    draws.shuffle(problems)
    return problems


def _ways(hierarchy: Hierarchy, most_steps: int) -> Iterator[Way]:
    """A shortest way from every node to each of its ancestors that is near enough."""
    parents: list[list[int]] = [[] for _ in hierarchy.labels]
    for child, parent in hierarchy.reduction().edges.tolist():
        parents[child].append(parent)
    for node in range(len(hierarchy)):
        seen = {node}
        last: list[Way] = [(node,)]
        for _ in range(most_steps):
            longer: list[Way] = []
            for way in last:
                for parent in parents[way[-1]]:
                    if parent not in seen:
                        seen.add(parent)
                        longer.append((*way, parent))
            yield from longer
            last = longer


def _mixed(draws: random.Random, ways: Iterator[Way]) -> Iterator[Way]:
    """Shuffled, and as many of each length as there are, in turn."""
    by_length: dict[int, list[Way]] = {}
    for way in ways:
        by_length.setdefault(len(way), []).append(way)
    piles = [by_length[length] for length in sorted(by_length)]
    for pile in piles:
        draws.shuffle(pile)
    while piles:
        for pile in piles:
            yield pile.pop()
        piles = [pile for pile in piles if pile]


def _wrong(
    draws: random.Random, node: int, top: int, ancestors: set[int], level: Sequence[int]
) -> tuple[int, int] | None:
    """A pair to ask about whose answer is no; None where none was found."""
    if draws.random() < TURNED:
        return top, node
    for _ in range(TRIES):
        other = draws.choice(level)
        if other != node and other not in ancestors:
            return node, other
    return None


def _fact(names: Sequence[str], child: int, parent: int) -> str:
    return f"{names[child]} is a kind of {names[parent]}."


def _ask(names: Sequence[str], node: int, top: int) -> str:
    return f"Is {names[node]} a kind of {names[top]}?"
