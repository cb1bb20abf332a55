"""`beltrami diagnose` and `beltrami explore` as a user types them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from beltrami.cli import main


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COLUMNS", "150")
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.random.default_rng(0).normal(size=(80, 6)))


SMALL = ("--sample=40", "--repeats=2")


def test_a_table_a_verdict_and_two_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", "x.npy", *SMALL]) == 0
    out, err = capsys.readouterr()
    assert "Excess of δ over noise" in out
    assert "not more tree-like than noise" in out
    assert Path("runs/diagnose-x.npy/report.html").is_file()
    assert "tree-likeness: done" in err
    assert main(["diagnose", "x.npy", *SMALL]) == 0
    assert "tree-likeness: found finished" in capsys.readouterr().err


def test_a_name_that_is_no_utf8_is_shown_as_well_as_can_be(
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = os.fsdecode(b"bad\xff.npy")
    try:
        Path("x.npy").rename(name)
    except OSError:
        pytest.skip("this file system takes only UTF-8")
    assert main(["diagnose", name, *SMALL, "--only=tree-likeness", "--out=d"]) == 0
    document = json.loads(Path("d/diagnosis.json").read_text(encoding="utf-8"))
    assert document["source"]["name"] == name
    assert name in document["command"]
    assert "bad\ufffd.npy: how tree-like?" in Path("d/report.html").read_text(encoding="utf-8")
    assert main(["explore", name, "--out=page.html"]) == 0
    assert "<h1>bad\ufffd.npy</h1>" in Path("page.html").read_text(encoding="utf-8")


def test_the_columns_of_a_table_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    rows = np.random.default_rng(0).normal(size=(30, 2)).round(3)
    lines = [f"{x},{y},{i % 2}" for i, (x, y) in enumerate(rows)]
    Path("v.csv").write_text("\n".join(["x,y,group", *lines]))
    assert main(["diagnose", "v.csv", *SMALL, "--only", "tree-likeness"]) == 0
    out = capsys.readouterr().out
    assert "Columns: 'x', 'y', 'group'" in out
    assert "Note: dimensions with whole numbers alone, unlike others: 'group'; if one" in out
    assert main(["explore", "v.csv"]) == 0
    assert "note: v.csv: dimensions with whole numbers" in capsys.readouterr().err


def test_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", "x.npy", *SMALL, "--only", "tree-likeness", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert list(document["parts"]) == ["tree-likeness"]
    assert Path(document["files"]["diagnosis"]).is_file()


def test_what_is_constant_is_said_and_the_rest_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"{i},{1 - 2 * (i % 2)},1" for i in range(40)]
    Path("v.csv").write_text("\n".join(["name,a,b", *rows]), encoding="utf-8")
    counts = [f"{i},{100 // (i + 1)}" for i in range(40)]
    Path("f.csv").write_text("\n".join(counts), encoding="utf-8")
    assert main(["diagnose", "v.csv", "--label=name", "--frequencies=f.csv", "--only=words"]) == 0
    assert "not measured: all norms are equal" in capsys.readouterr().out
    page = Path("runs/diagnose-v.csv/report.html").read_text(encoding="utf-8")
    assert "correlation of norm and frequency is not measured: all norms are equal.</p>" in page
    assert "Power law of the frequencies" in page


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere.npy"], "nowhere.npy"),
        (["x.npy", "--sample=1"], "--sample must be at least 20, got 1"),
        (["x.npy", "--kind=distances"], "80 × 6"),
        (["x.npy", "--texts=x.npy"], "need a model of transformers, and x.npy is a file"),
        (["x.npy", "--out=x.npy"], "is a file"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diagnose", *arguments, *([] if "--sample=1" in arguments else SMALL)]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert "Traceback" not in err


def test_an_interruption_says_how_to_go_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("beltrami.diagnosis.diagnose.tree_likeness", stop)
    assert main(["diagnose", "x.npy", *SMALL]) == 130
    assert "Continue with: beltrami diagnose x.npy" in capsys.readouterr().err


def test_exploring_prints_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explore", "x.npy"]) == 0
    assert capsys.readouterr().out == "Page: runs/explore-x.npy.html\n"
    assert "row 79" in Path("runs/explore-x.npy.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["x.npy", "--points=0"], "--points must be at least 4, got 0"),
        (["x.npy", "--out=."], "is a folder"),
        (["x.npy", "--out=x.npy/page.html"], "a part of this path is a file"),
        (["no-such-thing"], "no-such-thing"),
    ],
)
def test_bad_input_of_the_explorer(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explore", *arguments]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert "beltrami explore --help" in err
