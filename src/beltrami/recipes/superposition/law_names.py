"""Names of laws of frequencies on the command line; without torch, which takes long to load."""

from __future__ import annotations

from pathlib import Path

FORMS = "power:EXPONENT, linear, exponential:SCALE or counts:FILE"


def check_law(text: str) -> None:
    """Raise a `ValueError` for a name that is no law, without making it."""
    kind, colon, rest = text.partition(":")
    if kind == "linear" and not colon:
        return
    if kind == "counts" and rest:
        return
    if kind in ("power", "exponential") and colon:
        law_number(text)
        return
    raise ValueError(f"--laws must be {FORMS}, got {text!r}")


def law_title(text: str) -> str:
    """What to call it on a page."""
    kind, _, rest = text.partition(":")
    if kind == "counts":
        return f"counts of {Path(rest).name}"
    if kind == "linear":
        return kind
    return f"{'power law' if kind == 'power' else kind} {law_number(text):g}"


def law_number(text: str) -> float:
    """The number after the colon: an exponent, 0 or more, or a scale, above 0."""
    kind, _, digits = text.partition(":")
    try:
        value = float(digits)
    except ValueError:
        value = float("nan")
    fits = value >= 0 if kind == "power" else value > 0
    if not fits or value == float("inf"):
        least = "of 0 or more" if kind == "power" else "above 0"
        raise ValueError(f"--laws {text!r} needs a number {least} after the colon")
    return value
