"""Lines of text files: numbers, ends, marks, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from beltrami.data.text import quoted, read_lines


def test_numbers_count_blank_lines_and_ends_are_dropped(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes("\ufeffa\r\n\n  \nb \n\ufeffc".encode())
    assert list(read_lines(file)) == [(1, "a"), (4, "b "), (5, "\ufeffc")]


def test_the_limit_counts_the_line_end(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"abc\nabcd\n")
    assert len(list(read_lines(file, max_length=5))) == 2
    with pytest.raises(ValueError, match="line 2: longer than 4 characters"):
        list(read_lines(file, max_length=4))


def test_errors_are_of_the_given_kind(tmp_path: Path) -> None:
    class ReaderError(ValueError):
        pass

    with pytest.raises(ReaderError, match=r"cannot read .*: No such file"):
        list(read_lines(tmp_path / "absent", error=ReaderError))
    (tmp_path / "latin").write_bytes(b"ok\ncaf\xe9\n")
    with pytest.raises(ReaderError, match=r"line 2: not UTF-8 text \(byte 3 of the line\)"):
        list(read_lines(tmp_path / "latin", error=ReaderError))


def test_quotes_are_short() -> None:
    assert quoted("a\tb") == r"'a\tb'"
    assert len(quoted("x" * 1000)) < 100
