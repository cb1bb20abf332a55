"""Files and folders that are written whole or not at all, and JSON as we write it everywhere."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def write_atomically(path: Path, content: bytes | str) -> None:
    """Write a file so that a reader, or a crash, sees the old content or the new, never a part."""
    data = content.encode("utf-8") if isinstance(content, str) else content
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())  # mkstemp makes files that only their owner can read
        temporary.replace(path)
    except BaseException:  # also on Ctrl-C
        temporary.unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextmanager
def scratch_folder(parent: Path, name: str) -> Iterator[Path]:
    """A hidden folder that is gone afterwards, unless it was renamed."""
    path = Path(tempfile.mkdtemp(dir=parent, prefix=f".{name}~", suffix=".tmp"))
    try:
        path.chmod(0o777 & ~_umask())  # mkdtemp makes folders for their owner alone
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def sweep(parent: Path, name: str) -> None:
    """Remove scratch folders that a killed process left; for who is alone there."""
    for left in parent.glob(f".{name}~*.tmp"):
        shutil.rmtree(left, ignore_errors=True)


def to_json(value: Any) -> str:
    """JSON as we write it everywhere: indented, in the given order, with strict numbers.

    Python has lone surrogates for the bytes of a file's name that are no UTF-8, which cannot be
    encoded. They are escaped as JSON does it, so that the same text is read again.
    """
    text = json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
