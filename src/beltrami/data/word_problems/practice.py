"""Text that a small model learns numbers and words from before it is given problems.

Sums on their own, and stories of one or two events with the sums behind them. Nothing ends with a
question or with the sign of an answer, every number matters, and no story has three events: that is
left to learn.
"""

from __future__ import annotations

import random

from beltrami.data.word_problems.generate import LARGEST, make_problem

SUMS = 9  # in a text of them
STORIES = {1: 2, 2: 1}  # by events, in a text of them
SHARE_OF_SUMS = 0.4


def practice_text(draws: random.Random, *, largest: int = LARGEST) -> str:
    """One text, drawn.

    Args:
        draws: where from.
        largest: number in it.
    """
    if draws.random() < SHARE_OF_SUMS:
        return "".join(f"{_sum(draws, largest)}\n" for _ in range(SUMS))
    events = draws.choice(list(STORIES))
    return "".join(_story(draws, events, largest) for _ in range(STORIES[events]))


def _sum(draws: random.Random, largest: int) -> str:
    sign = draws.choice("+-*/")
    if sign == "+":
        a = draws.randint(1, largest - 2)
        b = draws.randint(2, largest - a)
        return f"{a} + {b} = {a + b}"
    if sign == "-":
        a = draws.randint(3, largest)
        b = draws.randint(2, a - 1)
        return f"{a} - {b} = {a - b}"
    b = draws.randint(2, 5 if sign == "*" else 9)
    a = draws.randint(1, largest // b)
    return f"{a} * {b} = {a * b}" if sign == "*" else f"{a * b} / {b} = {a}"


def _story(draws: random.Random, events: int, largest: int) -> str:
    problem = make_problem(draws, events, 0, largest)
    told, _ = problem.question.rsplit(" How many ", 1)
    worked, _ = problem.solution.rsplit("\n", 1)
    return f"{told}\n{worked}\n"
