"""Answers in texts: which number a solution ends with, and whether two are the same."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

MARK = "####"  # GSM8K's sign in front of the answer
_NUMBERS = re.compile(r"-?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|-?\.\d+")
_SAYING = re.compile(rf"answer\s*(?:is|:|=)|{MARK}", re.IGNORECASE)
_CHOICE = re.compile(r"\b([A-E])\b")


def find_answer(text: str, *, choice: bool = False) -> str | None:
    """The answer a text gives: what it says after `####` or "answer is", else its last number.

    The last such saying counts, and in it the first number. A text that goes on after its answer,
    as small models do, is thus not judged by what follows.

    Args:
        text: a solution.
        choice: look for a letter from A to E instead of a number.

    Returns: None if there is none.
    """
    pattern = _CHOICE if choice else _NUMBERS
    said = None
    for start in _SAYING.finditer(text):
        found = pattern.search(text, start.end())
        if found and "\n" not in text[start.end() : found.start()].strip(" "):
            said = found.group(1) if choice else found.group()
    if said is not None:
        return said if choice else said.replace(",", "")
    every = [m.group(1) if choice else m.group() for m in pattern.finditer(text)]
    if not every:
        return None
    return every[-1] if choice else every[-1].replace(",", "")


def same_answer(found: str | None, expected: str) -> bool:
    """Whether two answers are the same number to 4 digits after the point, or the same letter."""
    if found is None:
        return False
    a, b = _number(found), _number(expected)
    if a is None or b is None:
        return found.strip().upper() == expected.strip().upper()
    return abs(a - b) <= Decimal("0.00005")


def _number(text: str) -> Decimal | None:
    try:
        value = Decimal(text.replace(",", "").replace("$", "").strip())
    except InvalidOperation:
        return None
    return value if value.is_finite() else None
