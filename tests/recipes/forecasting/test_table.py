"""Tables of users: what they may look like, and what is said of those that are wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from beltrami.recipes.forecasting.table import read_losses

WIDTHS, LOSSES = [64.0, 128.0, 256.0], [3.5, 3.0, 2.75]


def save(tmp_path: Path, content: str, name: str = "t.csv") -> Path:
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", "width,loss\n64,3.5\n128,3\n256,2.75\n"),
        ("t.csv", "\ufeffmodel; d_model ;Test Loss\n\na;64;3.5\nb;128;3.0\nc;256;2.75"),
        ("t.tsv", "hidden_size\tval_loss\tnote\n64\t3.5\tx, y\n128\t3\n256\t2.75\t"),
        ("t.txt", 'Width\t"eval loss"\n64\t3.5\n128\t3\n256\t2.75\n'),
        (
            "t.json",
            json.dumps(
                [{"m": w, "L": x, "seed": None} for w, x in zip(WIDTHS, LOSSES, strict=True)]
            ),
        ),
        ("t.json", json.dumps({"about": "x", "width": WIDTHS, "loss": LOSSES})),
        (
            "t.jsonl",
            "\n".join(
                json.dumps({"width": w, "loss": x}) for w, x in zip(WIDTHS, LOSSES, strict=True)
            ),
        ),
    ],
)
def test_tables_of_all_kinds(tmp_path: Path, name: str, content: str) -> None:
    found = read_losses(save(tmp_path, content, name))
    assert found.widths == WIDTHS
    assert found.losses == LOSSES


def test_columns_by_name(tmp_path: Path) -> None:
    path = save(tmp_path, "a,train loss,val loss\n64,9,3.5\n128,9,3\n256,9,2.75\n")
    found = read_losses(path, width="A", loss="val_loss")
    assert (found.width_column, found.loss_column) == ("a", "val loss")
    assert found.losses == LOSSES


def test_the_plainest_name_wins(tmp_path: Path) -> None:
    path = save(tmp_path, "width,hidden,test_loss,loss\n64,1,9,3.5\n128,1,9,3\n256,1,9,2.75\n")
    found = read_losses(path)
    assert (found.widths, found.losses) == (WIDTHS, LOSSES)


ROWS = "64,3\n128,2\n256,1\n"


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("t.csv", "width,loss\n64,3\n128,abc\n256,1\n", r"line 3: loss is 'abc', no number"),
        ("t.csv", "width,loss\n64,3\n128,-2\n256,1\n", r"line 3: loss is -2; .*above 0"),
        ("t.csv", "width,loss\n64,3\n0,2\n256,1\n", r"line 3: width is 0"),
        ("t.csv", "width,loss\n64,3\n128,nan\n", r"line 3: loss is nan"),
        ("t.csv", "width,loss\n64,3\n128,\n256,1\n", r"line 3 has no loss; fill it in"),
        ("t.csv", "width,loss\n64,3\n128\n256,1\n", r"line 3 has no loss"),
        ("t.csv", "width,loss\n64,3,4\n", r"line 2 has 3 fields, and the first line names 2"),
        ("t.csv", f"a,loss\n{ROWS}", r"no column 'width'; name one with --width: it has a, loss"),
        ("t.csv", f"width,a\n{ROWS}", "no column 'loss'"),
        ("t.csv", "m,test_loss,val_loss\n1,1,1\n", r"several columns for loss .*--loss"),
        ("t.csv", ROWS, "first line has numbers; name the columns there: width,loss"),
        ("t.csv", "loss,loss\n1,1\n", "two columns are called 'loss'"),
        ("t.csv", "width,loss\n64,3\n64,2\n", r"2 rows have 1 different widths \(64\).*needs 3"),
        ("t.csv", "width,loss\n64,3\n128,2\n", "needs 3: add models of other widths"),
        ("t.csv", "width,loss\n", "has no rows"),
        ("t.csv", "", "has no rows"),
        ("t.json", "{", "is not valid JSON"),
        ("t.json", "3", "expected a list of objects"),
        ("t.json", "[3]", "row 1: expected an object"),
        ("t.json", '[{"width": true, "loss": 1}]', "row 1: width is True, no number"),
        ("t.json", '{"width": [1, 2], "loss": [1]}', r"not equally long \(width 2, loss 1\)"),
        ("t.jsonl", '{"width": 1, "loss": 1}\n[]', "line 2: expected an object"),
        ("t.xlsx", "", r"expected a file that ends in \.csv"),
    ],
)
def test_tables_that_are_wrong(tmp_path: Path, name: str, content: str, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        read_losses(save(tmp_path, content, name))


def test_columns_that_are_not_there(tmp_path: Path) -> None:
    path = save(tmp_path, f"width,loss\n{ROWS}")
    with pytest.raises(ValueError, match=r"no column 'x' \(--width\); it has width, loss"):
        read_losses(path, width="x")
    with pytest.raises(ValueError, match="both name 'loss'"):
        read_losses(path, width="loss")
    with pytest.raises(ValueError, match=r"no\.csv is not a file"):
        read_losses(tmp_path / "no.csv")


def test_a_file_that_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"width,loss\n\xe9,1\n")
    with pytest.raises(ValueError, match="line 2 is not UTF-8"):
        read_losses(path)
