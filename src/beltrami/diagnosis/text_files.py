"""Text files of users: UTF-8, or an error that names them."""

from __future__ import annotations

from pathlib import Path


def read_text(path: Path, option: str) -> str:
    """All of a file; `option` is how errors call it."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise ValueError(
            f"{option} {path}, line {line} is not UTF-8 text; save the file as UTF-8"
        ) from error
    except OSError as error:
        raise ValueError(f"{option} {path} cannot be read: {error.strerror or error}") from error
