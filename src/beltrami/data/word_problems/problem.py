"""A word problem, and sets of them that do not overlap."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass


class WordProblemError(ValueError):
    """A file of problems that cannot be understood; the message names the file and the record."""


@dataclass(frozen=True)
class WordProblem:
    """A question and its answer.

    Args:
        question: in words.
        answer: a number, or the letter of a choice.
        solution: the way to it, in words; empty where the set has none.
        steps: operations it takes; 0 where not known.
        distractors: sentences with numbers that do not matter.
    """

    question: str
    answer: str
    solution: str = ""
    steps: int = 0
    distractors: int = 0

    @property
    def key(self) -> str:
        """What two problems share if they are the same but for spaces, case and punctuation."""
        return " ".join(re.findall(r"[a-z0-9.]*[a-z0-9]", self.question.lower()))


def without_overlap(
    problems: Iterable[WordProblem], others: Iterable[WordProblem]
) -> list[WordProblem]:
    """Problems whose question is not among `others` and did not come before."""
    seen = {other.key for other in others}
    apart = []
    for problem in problems:
        if problem.key not in seen:
            seen.add(problem.key)
            apart.append(problem)
    return apart
