"""Text files that hold hierarchies, read with bounded memory and with errors that name the line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from beltrami.data.hierarchy import HierarchyError
from beltrami.data.lines import read_lines

MAX_LINE = 1 << 20  # bytes
MAX_WHOLE_FILE = 1 << 28  # bytes; for formats that cannot be read line by line
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a UTF-8 file that are not blank, without their ends, numbered from 1.

    Lines may end in a carriage return alone, as some spreadsheets write them.
    """
    returns = 0
    for number, text in read_lines(path, error=HierarchyError, max_bytes=MAX_LINE):
        for piece_number, piece in enumerate(text.split("\r"), start=number + returns):
            if "\0" in piece:
                raise _nul_error(path, piece_number)
            if piece.strip():
                yield piece_number, piece
        returns += text.count("\r")


def whole_text(path: Path) -> str:
    """A UTF-8 file as one text whose lines end in a newline character."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_WHOLE_FILE + 1)
    except OSError as error:
        raise HierarchyError(f"cannot read {path}: {error.strerror or error}") from error
    if len(data) > MAX_WHOLE_FILE:
        raise HierarchyError(
            f"{path} is larger than {MAX_WHOLE_FILE >> 20} MiB, too large for this format; "
            "pass it as a TSV file of two columns, child and parent"
        )
    data = data.removeprefix(_BYTE_ORDER_MARK)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        byte = error.start - data.rfind(b"\n", 0, error.start) - 1
        raise HierarchyError(
            f"{path}, line {line}: not UTF-8 text (byte {byte} of the line); save the file as UTF-8"
        ) from error
    if "\0" in text:
        raise _nul_error(path, text.count("\n", 0, text.index("\0")) + 1)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _nul_error(path: Path, line: int) -> HierarchyError:
    return HierarchyError(
        f"{path}, line {line}: holds a NUL byte, so it is no UTF-8 text file; save it as one"
    )
