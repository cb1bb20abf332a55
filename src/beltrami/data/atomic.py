"""Files that are written whole or not at all, and JSON as we write it everywhere."""

from __future__ import annotations

import json
import os
import tempfile
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
        temporary.chmod(0o666 & ~umask())  # mkstemp makes files that only their owner can read
        temporary.replace(path)
    except BaseException:  # also on Ctrl-C
        temporary.unlink(missing_ok=True)
        raise


def umask() -> int:
    """The bits that new files must not have; the only way to read it is to set it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def to_json(value: Any) -> str:
    """JSON as we write it everywhere: indented, in the given order, with strict numbers.

    Python has lone surrogates for the bytes of a file's name that are no UTF-8, which cannot be
    encoded. They are escaped as JSON does it, so that the same text is read again.
    """
    text = json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
