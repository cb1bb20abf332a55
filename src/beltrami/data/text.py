"""Text files, read with bounded memory: UTF-8 or an error that names the file and the line."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import IO

MAX_LINE = 1 << 20  # characters; beyond any line of labels, and few enough to refuse binary files
MAX_WHOLE_FILE = 1 << 28  # characters; for formats that cannot be read line by line
MISSING_VALUES = {"NA", "NaN", "nan", "None", "null", "NULL"}  # what programs write for no value
QUOTED_CHARACTERS = 80  # of a line, at most, in an error


class DataWarning(UserWarning):
    """A file was read, but not as it stands; the message says what was changed."""


def read_lines(
    path: Path, *, error: type[ValueError] = ValueError, max_length: int = MAX_LINE
) -> Iterator[tuple[int, str]]:
    """(line number from 1, text without its line end) of each line that is not blank.

    Lines may end in a carriage return alone, as some spreadsheets write them. A byte-order mark is
    skipped. What cannot be read, is too long, is not UTF-8 or holds a NUL raises `error`.
    """
    for number, text in read_raw_lines(path, error=error, max_length=max_length):
        check_nul(text, path, number, error)
        if text.strip():
            yield number, text.rstrip("\r\n")


def read_raw_lines(
    path: Path, *, error: type[ValueError] = ValueError, max_length: int = MAX_LINE
) -> Iterator[tuple[int, str]]:
    """(line number from 1, text with its line end) of each line; see `read_lines`.

    A file whose name ends in .gz is uncompressed.
    """
    try:
        with _open(path) as file:
            for number in count(1):
                text = file.readline(max_length + 1)
                if not text:
                    return
                if len(text) > max_length:
                    raise error(
                        f"{path}, line {number}: longer than {max_length} characters; is this a "
                        "text file with one record a line?"
                    )
                _check_encoding(text, path, number, error)
                yield number, text
    except (OSError, EOFError, zlib.error) as problem:  # the last two of a damaged .gz
        reason = getattr(problem, "strerror", None) or problem
        raise error(f"cannot read {path}: {reason}") from problem


def _open(path: Path) -> IO[str]:
    opener = gzip.open if path.suffix == ".gz" else open
    return opener(path, "rt", encoding="utf-8-sig", errors="surrogateescape", newline="")


def whole_text(path: Path, *, error: type[ValueError]) -> str:
    """A UTF-8 file as one text whose lines end in a newline character."""
    try:
        with path.open(encoding="utf-8-sig", errors="surrogateescape") as file:
            text = file.read(MAX_WHOLE_FILE + 1)
    except OSError as problem:
        raise error(f"cannot read {path}: {problem.strerror or problem}") from problem
    if len(text) > MAX_WHOLE_FILE:
        raise error(
            f"{path} is larger than {MAX_WHOLE_FILE >> 20} MiB, too large for this format; "
            "pass it as a TSV file of two columns, child and parent"
        )
    _check_encoding(text, path, 1, error)
    check_nul(text, path, 1, error)
    return text


def _check_encoding(text: str, path: Path, line: int, error: type[ValueError]) -> None:
    """Refuse bytes that are not UTF-8, which `surrogateescape` lets through."""
    try:
        text.encode()
    except UnicodeEncodeError as problem:
        start = text.rfind("\n", 0, problem.start) + 1
        line += text.count("\n", 0, start)
        byte = len(text[start : problem.start].encode())
        raise error(
            f"{path}, line {line}: not UTF-8 text (byte {byte} of the line); save the file as UTF-8"
        ) from None


def check_nul(text: str, path: Path, line: int, error: type[ValueError]) -> None:
    """Refuse a NUL, which texts do not hold; `line` is the number of the first line."""
    if "\0" in text:
        line += text.count("\n", 0, text.index("\0"))
        raise error(
            f"{path}, line {line}: holds a NUL byte, so it is not a UTF-8 text file; save it as one"
        )


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
