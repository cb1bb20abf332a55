"""Notes and warnings, which are kept as clauses, as the sentences of a page."""

from __future__ import annotations


def sentence(text: str) -> str:
    """With a full stop, and a capital but for symbols: α is no Α."""
    first = text[:1]
    return f"{first.upper() if first.isascii() else first}{text[1:]}."
