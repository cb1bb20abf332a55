"""Documents of numbers in the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from beltrami.cli.console import make_console, print_json, print_path
from beltrami.cli.tables import print_tables

if TYPE_CHECKING:
    from beltrami.recipes.documents import Written
    from beltrami.report.page import Table


def print_written(
    written: Written,
    name: str,
    tables: Callable[[dict[str, Any]], Sequence[Table]],
    texts: Callable[[dict[str, Any]], Sequence[str]],
    *,
    as_json: bool,
) -> None:
    """Tables, texts and paths of a document; or the document itself, and the paths by name."""
    if as_json:
        files = {name: str(written.path), "report": str(written.report)}
        print_json({**written.document, "files": files})
        return
    console = make_console()
    print_tables(console, tables(written.document))
    for text in texts(written.document):
        console.print(text, markup=False, highlight=False, soft_wrap=True)
    print_path(console, "Report", str(written.report))
    print_path(console, "Numbers", str(written.path))
