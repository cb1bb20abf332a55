"""Text in pictures and pages: escaping it, and guessing how much room it takes.

Labels are whatever a user's file holds. A picture cannot ask a browser how wide a text will be, so
widths are estimates from above, for an ordinary sans-serif font.
"""

from __future__ import annotations

import re
import unicodedata
from html import escape
from importlib.resources import files
from itertools import accumulate

# XML 1.0 has no way to write these, not even escaped; lone surrogates cannot be encoded at all.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")
# Widths in units of the font size.
_NARROW, _DIGIT, _SMALL, _CAPITAL, _WIDE = 0.38, 0.64, 0.62, 0.76, 1.0
_NARROW_LETTERS = frozenset("iIjl.,:;'|!()[]tfr ")
_WIDE_LETTERS = frozenset("mwMW@%—…")


def markup(text: str) -> str:
    """The text as HTML and XML show it literally, also inside a quoted attribute."""
    if not isinstance(text, str):
        raise TypeError(f"expected a text (str), got {text!r}; convert it first")
    return escape(_FORBIDDEN.sub("\ufffd", text))


def asset(name: str) -> str:
    """The text of a file of this package: a style or a script."""
    return files("beltrami.report").joinpath(name).read_text(encoding="utf-8")


def text_width(text: str, font: float) -> float:
    """Roughly how wide a text is in a sans-serif font of that size, rather too wide."""
    return font * sum(_letter_width(letter) for letter in text)


def shorten(text: str, room: float, font: float) -> str:
    """The text on one line, cut with an ellipsis where it would be wider than `room`."""
    text = " ".join(text.split())
    if text_width(text, font) <= room:
        return text
    left = room - text_width("…", font)
    widths = accumulate(font * _letter_width(letter) for letter in text)
    count = sum(width <= left for width in widths)
    return text[:count].rstrip() + "…"


def _letter_width(letter: str) -> float:
    if letter in _NARROW_LETTERS:
        return _NARROW
    if letter in _WIDE_LETTERS or unicodedata.east_asian_width(letter) in "WF":
        return _WIDE
    if unicodedata.combining(letter):
        return 0.0
    if letter.isdigit():
        return _DIGIT
    return _CAPITAL if letter.isupper() else _SMALL
