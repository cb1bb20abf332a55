"""Text files, read with bounded memory: UTF-8 or an error that names the file and the line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path

MAX_LINE = 1 << 20  # bytes; beyond any line of labels, and small enough to refuse binary files
MAX_WHOLE_FILE = 1 << 28  # bytes; for formats that cannot be read line by line
QUOTED_CHARACTERS = 80  # of a line, at most, in an error
_LONE_RETURN = re.compile(r"(?<=\r)(?!\n)")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_lines(
    path: Path, *, error: type[ValueError] = ValueError, max_bytes: int = MAX_LINE
) -> Iterator[tuple[int, str]]:
    """(line number from 1, text without its line end) of each line that is not blank.

    Lines may end in a carriage return alone, as some spreadsheets write them. A byte-order mark is
    skipped. What cannot be read, is too long, is not UTF-8 or holds a NUL raises `error`.
    """
    for number, text in read_raw_lines(path, error=error, max_bytes=max_bytes):
        if "\0" in text:
            raise _nul_error(path, number, error)
        if text.strip():
            yield number, text.rstrip("\r\n")


def read_raw_lines(
    path: Path, *, error: type[ValueError] = ValueError, max_bytes: int = MAX_LINE
) -> Iterator[tuple[int, str]]:
    """(line number from 1, text with its line end) of each line; see `read_lines`."""
    returns = 0  # carriage returns that ended a line on their own
    try:
        with path.open("rb") as file:
            for number in count(1):
                raw = file.readline(max_bytes + 1)
                if not raw:
                    return
                if len(raw) > max_bytes:
                    raise error(
                        f"{path}, line {number + returns}: longer than {max_bytes} bytes; is this "
                        "a text file with one record a line?"
                    )
                text = _decoded(raw, number + returns, path, error)
                pieces = [text]
                if "\r" in text:
                    pieces = [piece for piece in _LONE_RETURN.split(text) if piece]
                yield from enumerate(pieces, start=number + returns)
                returns += len(pieces) - 1
    except OSError as problem:
        raise error(f"cannot read {path}: {problem.strerror or problem}") from problem


def whole_text(path: Path, *, error: type[ValueError]) -> str:
    """A UTF-8 file as one text whose lines end in a newline character."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_WHOLE_FILE + 1)
    except OSError as problem:
        raise error(f"cannot read {path}: {problem.strerror or problem}") from problem
    if len(data) > MAX_WHOLE_FILE:
        raise error(
            f"{path} is larger than {MAX_WHOLE_FILE >> 20} MiB, too large for this format; "
            "pass it as a TSV file of two columns, child and parent"
        )
    data = data.removeprefix(_BYTE_ORDER_MARK)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as problem:
        start = data.rfind(b"\n", 0, problem.start) + 1
        line = data.count(b"\n", 0, problem.start) + 1
        raise _encoding_error(path, line, problem.start - start, error) from problem
    if "\0" in text:
        raise _nul_error(path, text.count("\n", 0, text.index("\0")) + 1, error)
    return text.replace("\r\n", "\n").replace("\r", "\n")


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
        return raw.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as problem:
        raise _encoding_error(path, number, problem.start, error) from problem


def _encoding_error(path: Path, line: int, byte: int, error: type[ValueError]) -> ValueError:
    return error(
        f"{path}, line {line}: not UTF-8 text (byte {byte} of the line); save the file as UTF-8"
    )


def _nul_error(path: Path, line: int, error: type[ValueError]) -> ValueError:
    return error(
        f"{path}, line {line}: holds a NUL byte, so it is not a UTF-8 text file; save it as one"
    )
