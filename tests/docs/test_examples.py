"""The code in the documentation runs, and prints what the page says it prints."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

from beltrami.geometry import lorentz

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("docs/*.md"), ROOT / "README.md"])

# A Python block and, where one follows at once, the text block with its output.
BLOCK = re.compile(r"^```python\n(.*?)^```(?:\n+^```text\n(.*?)^```)?", re.DOTALL | re.MULTILINE)


def blocks(page: Path) -> list[tuple[str, str | None, int]]:
    text = page.read_text(encoding="utf-8")
    return [(m.group(1), m.group(2), text.count("\n", 0, m.start(1))) for m in BLOCK.finditer(text)]


@pytest.mark.parametrize(
    "page", [p for p in PAGES if p.exists() and blocks(p)], ids=lambda p: p.name
)
def test_examples_run(page: Path) -> None:
    """One namespace a page: later blocks use what earlier ones define."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    for source, expected, line in blocks(page):
        code = compile("\n" * line + source, str(page), "exec")  # errors show the page's own line
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, namespace)
        if expected is not None:
            assert printed.getvalue() == expected


def test_there_are_examples() -> None:
    assert {"index.md", "space-only.md", "bad-input.md"} <= {p.name for p in PAGES if blocks(p)}


def test_reference_lists_all_of_lorentz() -> None:
    """Its page has an order of its own, so that a new function must be put somewhere."""
    listed = (ROOT / "docs/api/lorentz.md").read_text(encoding="utf-8").split()
    assert set(lorentz.__all__) <= set(listed)
