"""The one reader of text files with rows and columns: CSV, TSV, edge lists, triples.

A row is one line, with its number, so that whatever is wrong later can name it. What the columns
mean is for the readers that use this: `edge_list`, `rank_table`, `outline`, `graph_files`,
`triples` and `vectors.csv_file`.
"""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from beltrami.data.text import quoted, read_lines, read_raw_lines

COMMENT_MARKS = ("#", "%")
SEPARATORS = {"\t": "tab", ",": "comma", ";": "semicolon", ">": ">", "/": "/", None: "space"}

_MAX_LEADING_COMMENTS = 10_000
_LINES_LOOKED_AT = 100
_TWO_INTEGERS = re.compile(r"\s*-?\d+\s+-?\d+\s*")
_IN_QUOTES = re.compile(r'"[^"]*"')


class Row(NamedTuple):
    """A row of a file: its line, its fields without spaces around them, and its text."""

    line: int
    fields: list[str]
    text: str


class Rows:
    """The rows of a file's lines that are not blank, once.

    The delimiter is that of the first line that is not a comment; see `find_delimiter`.

    Args:
        path: of the file.
        error: the kind of error to raise.
        words: whether spaces may separate columns of words.
        comments: whether lines that begin with # or % may be comments: they do not decide on the
            delimiter, and are left out where they are not rows.
        delimiter: of the columns, where that is known.
        quotes: whether fields may be quoted as CSV allows.
    """

    def __init__(
        self,
        path: Path,
        *,
        error: type[ValueError],
        words: bool = False,
        comments: bool = False,
        delimiter: str | None = "",
        quotes: bool = True,
    ) -> None:
        self.source, self._error = str(path), error
        self._comments, self._quotes = comments, quotes
        self.delimiter, self._lines = delimiter, read_lines(path, error=error)
        if not delimiter:
            self._find_delimiter(words)

    def _find_delimiter(self, words: bool) -> None:
        """Look ahead for the first lines that are not comments."""
        marks = COMMENT_MARKS if self._comments else ()
        read: list[tuple[int, str]] = []
        texts: list[str] = []
        for line in itertools.islice(self._lines, _MAX_LEADING_COMMENTS):
            read.append(line)
            if not line[1].lstrip().startswith(marks):
                texts.append(line[1])
                if len(texts) == _LINES_LOOKED_AT:
                    break
        self.delimiter = find_delimiter(texts or [text for _, text in read[:1]] or [""], words)
        self._lines = itertools.chain(read, self._lines)

    def __iter__(self) -> Iterator[Row]:
        for line, text in self._lines:
            if fields := self._fields(line, text):
                yield Row(line, fields, text)

    @property
    def separator(self) -> str:
        """What separates columns, for errors: "tab", "comma" or "space"."""
        return SEPARATORS[self.delimiter]

    def is_comment(self, text: str) -> bool:
        """Whether a line begins like a comment; % is one only where spaces separate columns."""
        return text.lstrip().startswith(COMMENT_MARKS if self.delimiter is None else "#")

    def problem(self, line: int, what: str) -> ValueError:
        """An error at a line."""
        return self._error(f"{self.source}, line {line}: {what}")

    def wrong_columns(self, row: Row, expected: int, names: str) -> ValueError:
        """An error at a row that has not as many columns as it must have."""
        return self.problem(
            row.line,
            f"expected {expected} {self.separator}-separated columns ({names}), found "
            f"{len(row.fields)}: {quoted(row.text.strip())}",
        )

    def _fields(self, line: int, text: str) -> list[str]:
        if self.delimiter is None:
            return text.split()
        if not self._quotes or '"' not in text:
            return [field.strip() for field in text.split(self.delimiter)]
        try:
            reader = csv.reader(
                [text], delimiter=self.delimiter, strict=True, skipinitialspace=True
            )
            fields = next(reader)
        except csv.Error as error:
            if self._comments and self.is_comment(text):
                return []
            if "unexpected end" not in str(error):
                raise self.problem(line, str(error)) from error
            what = "a quoted field does not end on its line; put each field on one line"
            raise self.problem(line, what) from None
        return [field.strip() for field in fields]


def find_delimiter(lines: Sequence[str], words: bool = False) -> str | None:
    """The delimiter of the first of some lines: a tab, if there is one; None, which is spaces, if
    it is two integers, or of `words` without comma and semicolon; else a comma or a semicolon.

    Of both outside quotes it is the one that all lines have equally often, else the more frequent.
    """
    first = lines[0]
    if "\t" in first:
        return "\t"
    if _TWO_INTEGERS.fullmatch(first) or (words and not set(",;") & set(first)):
        return None
    comma, semicolon = ([count_outside_quotes(line, mark) for line in lines] for mark in ",;")
    if comma[0] and semicolon[0] and (len(set(comma)) == 1) != (len(set(semicolon)) == 1):
        return "," if len(set(comma)) == 1 else ";"
    return ";" if semicolon[0] > comma[0] else ","


def count_outside_quotes(text: str, mark: str) -> int:
    """How often a mark is in a line, but for its quoted fields."""
    return _IN_QUOTES.sub("", text).count(mark)


def first_lines(path: Path, *, error: type[ValueError]) -> list[str]:
    """The first lines of a file that are neither blank nor comments, which show its format."""
    lines = itertools.islice(read_lines(path, error=error), _MAX_LEADING_COMMENTS)
    texts = (text for _, text in lines if not text.lstrip().startswith(COMMENT_MARKS))
    return list(itertools.islice(texts, _LINES_LOOKED_AT))


def read_records(
    path: Path, delimiter: str, *, error: type[ValueError], max_length: int = 1 << 24
) -> Iterator[tuple[int, list[str]]]:
    """(first line, fields as they are) of each record of a CSV file, whose fields may have lines.

    Args:
        path: of the file. delimiter: between its columns.
        error: the kind of error to raise.
        max_length: characters of a line.
    """
    line = 1
    lines = (text for _, text in read_raw_lines(path, error=error, max_length=max_length))
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    try:
        for fields in reader:
            if fields:
                yield line, fields
            line = reader.line_num + 1
    except csv.Error as problem:
        raise error(
            f"{path}, line {line}: {problem}; is a quote opened there that nothing closes?"
        ) from problem
