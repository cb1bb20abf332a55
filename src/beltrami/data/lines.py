"""Text files of strangers, line by line: UTF-8 or a named error, and never a line without end."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

# Far beyond any line of labels, and small enough to refuse a binary file at once.
MAX_LINE_BYTES = 1 << 16

# An error quotes at most this many characters of a line.
QUOTED_CHARACTERS = 80


def read_lines(
    path: Path, *, error: type[ValueError] = ValueError, max_bytes: int = MAX_LINE_BYTES
) -> Iterator[tuple[int, str]]:
    """(line number from 1, text without its line end) of each line that is not blank.

    Reads at most `max_bytes` + 1 bytes at a time, whatever the file holds. A byte-order mark is
    skipped. What cannot be read, is too long or is not UTF-8 raises `error`, with file and line.
    """
    try:
        with path.open("rb") as file:
            for number in count(1):
                raw = file.readline(max_bytes + 1)
                if not raw:
                    return
                if len(raw) > max_bytes:
                    raise error(
                        f"{path}, line {number}: longer than {max_bytes} bytes; is this a text "
                        "file with one record a line?"
                    )
                text = _decoded(raw, number, path, error)
                if text.strip():
                    yield number, text
    except OSError as problem:
        raise error(f"cannot read {path}: {problem.strerror or problem}") from problem


def is_number(text: str) -> bool:
    """Whether a text is what `float` reads, infinities and NaN included."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def quoted(text: str) -> str:
    """A line, or its beginning, as errors show it."""
    short = text if len(text) <= QUOTED_CHARACTERS else text[:QUOTED_CHARACTERS] + "…"
    return repr(short)


def _decoded(raw: bytes, number: int, path: Path, error: type[ValueError]) -> str:
    try:
        text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as problem:
        raise error(
            f"{path}, line {number}: not UTF-8 text (byte {problem.start} of the line); "
            "save the file as UTF-8"
        ) from problem
    return text.rstrip("\r\n")
