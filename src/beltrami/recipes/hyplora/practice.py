"""Text that a small model learns numbers and words from before it is given problems.

A text is a page: its number behind the sign that answers will have, then sums, or stories of one or
two events with their sums behind them, or problems without an answer. So every word is known, but
not what to do with a question, with numbers that do not matter, or with three events.
"""

from __future__ import annotations

import random

from beltrami.data.word_problems.answers import MARK
from beltrami.data.word_problems.generate import LARGEST, make_problem

SUMS = 8  # on a page of them
STORIES = {1: 2, 2: 1}  # by events, on a page of them
ASKED_EVENTS, ASKED_DISTRACTORS = (1, 2, 3), (0, 1)
SHARES = {"sums": 0.35, "stories": 0.45, "questions": 0.2}


def practice_text(draws: random.Random, *, largest: int = LARGEST) -> str:
    """One page, drawn.

    Args:
        draws: where from.
        largest: number in it.
    """
    (kind,) = draws.choices(list(SHARES), list(SHARES.values()))
    if kind == "sums":
        body = "".join(f"{_sum(draws, largest)}\n" for _ in range(SUMS))
    elif kind == "stories":
        events = draws.choice(list(STORIES))
        body = "".join(_story(draws, events, largest) for _ in range(STORIES[events]))
    else:
        events, aside = draws.choice(ASKED_EVENTS), draws.choice(ASKED_DISTRACTORS)
        body = f"{make_problem(draws, events, aside, largest).question}\n"
    return f"{MARK} {draws.randint(1, largest)}\n{body}"


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
    story, _ = problem.question.rsplit(" How many ", 1)
    worked, _ = problem.solution.rsplit("\n", 1)
    return f"{story}\n{worked}\n"
