from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from beltrami.data.vectors import Vectors, VectorsError, open_vectors
from tests.data.vectors.tables import MATRIX, WORDS, check_reads


def opened(folder: Path, text: str, name: str = "a.csv", **options: Any) -> Vectors:
    (folder / name).write_bytes(text.encode("utf-8"))
    return open_vectors(folder / name, **options)


def whole(vectors: Vectors) -> Tensor:
    return torch.cat([block for _, block in vectors.blocks()])


@pytest.mark.parametrize(("name", "delimiter"), [("a.csv", ","), ("a.tsv", "\t"), ("A.CSV", ",")])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_header_labels_and_extras(tmp_path: Path, name: str, delimiter: str, end: str) -> None:
    kinds = ["animal", "plant", "animal", "plant"]
    rows = [["word", "x", "kind", "y", "z"]] + [
        [word, str(x), kind, str(y), str(z)]
        for word, kind, (x, y, z) in zip(WORDS, kinds, MATRIX.tolist(), strict=True)
    ]
    text = "".join(delimiter.join(row) + end for row in rows)
    vectors = opened(tmp_path, text, name)
    check_reads(vectors)
    assert vectors.name == name
    assert vectors.labels == WORDS
    assert vectors.extras == {"kind": kinds}
    assert vectors.words is None


def test_numbers_alone(tmp_path: Path) -> None:
    vectors = opened(tmp_path, "1,2\n\n3,4e1\n")
    assert whole(vectors).tolist() == [[1, 2], [3, 40]]
    assert vectors.labels is None


def test_the_label_column_may_hold_numbers(tmp_path: Path) -> None:
    text = "id,x,word\n07,1,dog\n8,2,oak\n"
    vectors = opened(tmp_path, text, label="id")
    assert whole(vectors).tolist() == [[1], [2]]
    assert vectors.labels == ["07", "8"]
    assert vectors.extras == {"word": ["dog", "oak"]}
    assert vectors.digest() != opened(tmp_path, text).digest()


def test_labels_without_a_header_lose_no_row(tmp_path: Path) -> None:
    vectors = opened(tmp_path, "dog,0.5,1\noak,2,3\n")
    assert vectors.labels == ["dog", "oak"]
    assert whole(vectors).tolist() == [[0.5, 1], [2, 3]]
    vectors = opened(tmp_path, "dog,0.5,1\n")
    assert vectors.labels == ["dog"]


@pytest.mark.parametrize("header", [",0,1,2", "word,1,2,3", "word,2019,2020,2021", "word,x,y,3"])
def test_columns_named_by_counting_are_a_header(tmp_path: Path, header: str) -> None:
    vectors = opened(tmp_path, f"{header}\ndog,5,6,7\noak,8,9,1\n")
    assert vectors.labels == ["dog", "oak"]
    assert vectors.width == 3


def test_a_column_without_a_name_numbers_the_rows(tmp_path: Path) -> None:
    """As pandas writes a table: those numbers are no dimension."""
    vectors = opened(tmp_path, ",x,y\n0,5,6\n1,8,9\n")
    assert whole(vectors).tolist() == [[5, 6], [8, 9]]
    assert vectors.labels == ["0", "1"]
    vectors = opened(tmp_path, ",word,x\n0,dog,6\n1,oak,9\n")
    assert whole(vectors).tolist() == [[6], [9]]
    assert vectors.labels == ["dog", "oak"]
    assert opened(tmp_path, "x,,y\n0,5,6\n1,8,9\n").width == 3  # only before all others
    assert opened(tmp_path, ",x,y\n0.5,5,6\n1.5,8,9\n").width == 3  # and fractions number nothing


def test_numbers_that_are_no_dimensions(tmp_path: Path) -> None:
    text = "word,year,x,y\ndog,1900,5,6\noak,?,8,9\nelm,2000,1,2\n"
    vectors = opened(tmp_path, text, besides=["year"])
    assert whole(vectors).tolist() == [[5, 6], [8, 9], [1, 2]]
    assert vectors.labels == ["dog", "oak", "elm"]
    years = list(vectors.extras["year"])
    assert years[::2] == [1900.0, 2000.0]
    assert isinstance(years[1], float)
    assert math.isnan(years[1])
    other = opened(tmp_path, text.replace("?", "1"))
    assert other.width == 3
    with pytest.raises(VectorsError, match=r"no column 'yaer' for besides= .*'year'"):
        opened(tmp_path, text, besides=["yaer"])


def test_byte_order_mark(tmp_path: Path) -> None:
    vectors = opened(tmp_path, "\ufeffword,x\ndog,1\n", label="word")
    assert vectors.labels == ["dog"]


def test_labels_may_look_like_numbers_now_and_then(tmp_path: Path) -> None:
    vectors = opened(tmp_path, "word,x\n1984,1\ndog,2\nnan,3\noak,4\nNA,5\nelm,6\n")
    assert vectors.labels == ["1984", "dog", "nan", "oak", "NA", "elm"]


def test_nan_and_infinity_are_kept(tmp_path: Path) -> None:
    vectors = opened(tmp_path, "x,y\n1,nan\ninf,-Infinity\n")
    check_reads(vectors, torch.tensor([[1, torch.nan], [torch.inf, -torch.inf]]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"a\.csv is empty; it needs rows"),
        ("word,x\n", r"a\.csv is empty: it has a header, but no rows"),
        ("x,y\n1,2\n3\n", r"a\.csv, line 3: 1 columns, but line 1 has 2; correct it.*'3'"),
        ("x,y\n1,2\n3,4,5\n", r"a\.csv, line 3: 3 columns"),
        ('w,x\n"a\nb",1\nc,1\nd\n', r"a\.csv, line 5: 1 columns"),
        (
            "x,y\n1,2\n3,four\n5,6\n",
            r"a\.csv, line 3: 'four' in column 'y' is not a number.*2 of its 3",
        ),
        ("x,y\n1,2\n3,\n5,6\n", r"line 3: '' in column 'y' is not a number.*write nan"),
        ("dog,NA,0.5\noak,2,3\nelm,3,3\n", r"line 1: 'NA' in column 'column 2' is not a number"),
        ("x,y\n1,2\n3,\n", r"line 3: '' in column 'y' is not a number, but 1 of its 2 values"),
        ("x,y\n1,NA\n3,NA\n4,n/a\n5,2\n", r"line 2: 'NA' in column 'y' is not a number.*write nan"),
        ("x,y\n1,2\n3,dog\n", r"line 3: 'dog' in column 'y' is not a number.*label= \(--label\)"),
        ("x,y\n1,2\n3,1_000\n5,6\n", r"line 3: '1_000' in column 'y' is not a number"),
        ("x,y\n1,2\n3,1e39\n", r"a\.csv, line 3: '1e39' is beyond float32.*scale"),
        ("x,y\n1,2\n3,-1e400\n", r"a\.csv, line 3: '-1e400' is beyond float32"),
        ("child,parent\ndog,canine\n", r"a\.csv has no column of numbers.*'child', 'parent'"),
        ("w,k,k,x\na,b,c,1\n", r"a\.csv: two columns are called 'k'; rename one"),
        ('x,y\n1,2\n"3,4\n5,6\n', r"a\.csv, line 3: .*is a quote opened there"),
        ('x,y\n1,"2"3\n', r"a\.csv, line 2: .*is a quote opened there"),
    ],
)
def test_errors_name_line_and_value(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(VectorsError, match=message):
        opened(tmp_path, text)


def test_the_label_column_must_be_there_once(tmp_path: Path) -> None:
    with pytest.raises(VectorsError, match=r"no column 'wrod' for label=.*did you mean 'word'"):
        opened(tmp_path, "word,x\ndog,1\n", label="wrod")
    with pytest.raises(VectorsError, match="2 columns are called 'w'; rename one"):
        opened(tmp_path, "w,w,x\na,b,1\n", label="w")


def test_other_encodings(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("word,x\ncafé,1\n".encode("latin-1"))
    with pytest.raises(VectorsError, match=r"a\.csv, line 2: not UTF-8.*save"):
        open_vectors(tmp_path / "a.csv")


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
FLOATS = st.floats(width=32, allow_nan=False)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(st.tuples(TEXT, TEXT, FLOATS, FLOATS), min_size=1, max_size=8),
    ending=st.sampled_from([".csv", ".tsv"]),
)
def test_round_trip_of_any_floats_and_texts(
    tmp_path: Path, rows: list[tuple[str, str, float, float]], ending: str
) -> None:
    text = io.StringIO()
    writer = csv.writer(
        text, delimiter={".csv": ",", ".tsv": "\t"}[ending], quoting=csv.QUOTE_NONNUMERIC
    )
    writer.writerow(["word", "note", "x", "y"])
    writer.writerows((word, f"#{note}", x, y) for word, note, x, y in rows)
    vectors = opened(tmp_path, text.getvalue(), f"a{ending}", label="word")
    assert vectors.labels == [row[0] for row in rows]
    assert vectors.extras == {"note": [f"#{row[1]}" for row in rows]}
    check_reads(vectors, torch.tensor([row[2:] for row in rows]))
