"""The one reader of rows and columns: delimiters, quotes, comments, errors that name the line."""

from __future__ import annotations

from pathlib import Path

import pytest

from beltrami.data.delimited import Rows, read_records
from beltrami.data.text import read_lines


class ReaderError(ValueError):
    pass


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def rows(text: str, **options: bool | str) -> Rows:
    path = Path("a.txt")
    path.write_text(text)
    return Rows(path, error=ReaderError, **options)  # type: ignore[arg-type]


def fields(text: str, **options: bool | str) -> list[list[str]]:
    return [row.fields for row in rows(text, **options)]


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("a\tb, c\nd\te", {}, [["a", "b, c"], ["d", "e"]]),
        ("a, b\nc,d", {}, [["a", "b"], ["c", "d"]]),
        ('"a,b",c\nd,"e ""f"""', {}, [["a,b", "c"], ["d", 'e "f"']]),
        (" 1  2 \n3 4", {}, [["1", "2"], ["3", "4"]]),
        ("a b\nc d", {}, [["a b"], ["c d"]]),
        ("a b\nc d", {"words": True}, [["a", "b"], ["c", "d"]]),
        ("# x\n1 2", {"comments": True}, [["#", "x"], ["1", "2"]]),
        ('# x,"y\na,b', {"comments": True}, [["a", "b"]]),
        ('"a\tb"', {"delimiter": "\t", "quotes": False}, [['"a', 'b"']]),
        ("", {}, []),
    ],
)
def test_fields(text: str, options: dict[str, bool | str], expected: list[list[str]]) -> None:
    assert fields(text, **options) == expected


def test_errors_name_file_line_and_text() -> None:
    table = rows("a,b\n\nc,d,e")
    _, row = table
    assert (row.line, row.text, table.separator) == (3, "c,d,e", "comma")
    error = table.wrong_columns(row, 2, "child, parent")
    assert isinstance(error, ReaderError)
    assert str(error) == (
        "a.txt, line 3: expected 2 comma-separated columns (child, parent), found 3: 'c,d,e'"
    )
    with pytest.raises(
        ReaderError, match=r"a\.txt, line 2: a quoted field does not end on its line"
    ):
        fields('a,b\n"c,d')
    with pytest.raises(ReaderError, match=r"line 2: a quoted .*; put each field on one line$"):
        fields('a,b\n"c\nd",e\n')


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_may_end_in_any_way(tmp_path: Path, end: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(end.join(["\ufeffa,b", "", "c,d"]).encode())
    assert list(read_lines(path)) == [(1, "a,b"), (3, "c,d")]
    assert list(read_records(path, ",", error=ReaderError)) == [(1, ["a", "b"]), (3, ["c", "d"])]


def test_quoted_fields_keep_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b'a,"b\r\n\rc"\nd,e\n"f\n')
    found = read_records(path, ",", error=ReaderError)
    assert next(found) == (1, ["a", "b\r\n\rc"])
    assert next(found) == (4, ["d", "e"])
    with pytest.raises(ReaderError, match=r"line 5: .*is a quote opened there that nothing closes"):
        next(found)
