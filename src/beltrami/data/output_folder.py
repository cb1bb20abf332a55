"""The folder that a command writes to: it can be written, and one process at a time works there."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from beltrami.data.lock import locked


class OutputFolder:
    """A folder for results."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def check_writable(self) -> None:
        """Make the folder and try to write there, so that it fails now and not in an hour."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path):
                pass
        except OSError as error:
            raise not_writable(self.path, error) from error

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep a second process from working here; its attempt is a `ValueError`."""

        def refuse() -> None:
            raise ValueError(
                f"another process is working in {self.path}; wait for it, or give another --out"
            )

        with locked(self.path / ".lock", refuse):
            yield

    def document(self, name: str, schema: str, what: str) -> dict[str, Any] | None:
        """A document of ours, None where there is none; another file of that name is an error."""
        path = self.path / name
        if not path.exists():
            return None
        document = read_object(path)
        if document is None or document.get("schema") != schema:
            raise ValueError(f"{path} is not a {what}; give another --out, or move it away")
        return document


def not_writable(path: Path, error: OSError) -> ValueError:
    """What is wrong with --out, in words."""
    if isinstance(error, FileExistsError):
        return ValueError(f"--out {path} is a file; give a folder")
    if isinstance(error, NotADirectoryError):
        return ValueError(f"--out {path}: a part of this path is a file; give a folder")
    reason = error.strerror or error
    return ValueError(f"--out {path} cannot be written ({reason}); give a folder of your own")


def read_object(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file; None where it is missing, damaged or something else."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None
