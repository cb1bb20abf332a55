"""A document of numbers and its page, for commands that have no arms and trials."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import beltrami
from beltrami.data.atomic import to_json, write_atomically
from beltrami.report.page import Page, render


@dataclass(frozen=True)
class Written:
    """A document, and where it and its page were written."""

    document: dict[str, Any]
    path: Path
    report: Path


def head(config: Any, schema: str) -> dict[str, Any]:
    """What every document begins with: `schema`, the version that ran, command and settings."""
    return {
        "schema": schema,
        "beltrami": beltrami.__version__,
        "command": config.command(),
        "settings": config.settings(),
    }


def write(folder: Path, name: str, document: dict[str, Any], page: Page) -> Written:
    """Put the document and its page, report.html, into a folder."""
    written = Written(document, folder / name, folder / "report.html")
    write_atomically(written.path, to_json(document))
    write_atomically(written.report, render(page))
    return written
