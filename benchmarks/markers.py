"""Generated parts of hand-written Markdown: everything between a pair of marker comments."""

from __future__ import annotations

import re
from pathlib import Path


def _lines(name: str) -> tuple[str, str]:
    return f"<!-- generated: {name} -->", f"<!-- end: {name} -->"


def replace(page: Path, name: str, text: str) -> None:
    """Put `text` between the markers called `name` of an existing page."""
    begin, end = _lines(name)
    old = page.read_text(encoding="utf-8")
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    new, count = pattern.subn(lambda _: f"{begin}\n\n{text.strip()}\n\n{end}", old)
    if count != 1:
        raise ValueError(f"{page} has {count} parts marked '{begin}' ... '{end}', expected 1")
    page.write_text(new, encoding="utf-8")


def read(page: Path, name: str) -> str:
    """The text between the markers called `name`."""
    begin, end = _lines(name)
    _, _, rest = page.read_text(encoding="utf-8").partition(begin)
    return rest.partition(end)[0].strip()
