"""Answers in texts: which number a solution ends with, and whether two are the same."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

MARK = "####"  # GSM8K's sign in front of the answer
# Behind a number, a word or a bracket a minus takes away or joins: 5-3, (2)-1, step-4.
_SIGN = r"(?:(?<![\w)\]%])-)?"
_NUMBERS = re.compile(rf"{_SIGN}(?:(?:\d{{1,3}}(?:,\d{{3}})+(?!\d)|\d+)(?:\.\d+)?|\.\d+)")
_SAYING = re.compile(rf"answer\s*(?:is|:|=)|{MARK}", re.IGNORECASE)
LETTERS = frozenset("ABCDE")  # of choices
_CHOICE = re.compile(r"\b[A-E]\b")


def find_answer(text: str, *, choice: bool = False) -> str | None:
    """The answer a text gives: what it says after `####` or "answer is", else its last number.

    The last such saying counts, and in it the first number. A text that goes on after its answer,
    as small models do, is thus not judged by what follows. The minus of "5-3" is not a sign.

    Args:
        text: a solution.
        choice: look for a letter from A to E instead of a number.

    Returns: None if there is none.
    """
    pattern = _CHOICE if choice else _NUMBERS
    answers = []
    for start in _SAYING.finditer(text):
        match = pattern.search(text, start.end())
        if match and "\n" not in text[start.end() : match.start()].strip(" "):
            answers.append(match.group())
    answers = answers or [match.group() for match in pattern.finditer(text)]
    return answers[-1].replace(",", "") if answers else None


def find_word(text: str, words: Sequence[str]) -> str | None:
    """The one of some words that a text gives as its answer: behind the last saying, else the last.

    Args:
        text: a solution.
        words: the answers there are, such as yes and no; case does not count.

    Returns: None if there is none.
    """
    longest = sorted(words, key=len, reverse=True)  # "answer10" before "answer1"
    pattern = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, longest))})(?!\w)", re.IGNORECASE)
    behind = [m.end() for m in _SAYING.finditer(text)]
    match = pattern.search(text, behind[-1]) if behind else None
    answer = match.group() if match else next(iter(reversed(pattern.findall(text))), None)
    return next((word for word in words if answer and word.lower() == answer.lower()), None)


def same_answer(answer: str | None, expected: str) -> bool:
    """Whether two answers are the same number to 4 digits after the point, or the same letter."""
    if answer is None:
        return False
    a, b = _number(answer), _number(expected)
    if a is None or b is None:
        return answer.strip().upper() == expected.strip().upper()
    return abs(a - b) <= Decimal("0.00005")


def gives_answer(text: str, expected: str, words: Sequence[str] = ()) -> bool:
    """Whether a text gives the expected answer: one of the words, a letter or a number."""
    if words:
        return same_answer(find_word(text, words), expected)
    return same_answer(find_answer(text, choice=expected in LETTERS), expected)


def _number(text: str) -> Decimal | None:
    try:
        value = Decimal(text.replace(",", "").replace("$", "").strip())
    except InvalidOperation:
        return None
    return value if value.is_finite() else None
