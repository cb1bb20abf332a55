"""`beltrami forecast` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from beltrami.cli import main

TABLE = "model,width,loss\na,64,4.1\nb,128,3.4\nc,256,2.95\nd,512,2.66\ne,1024,2.5\n"


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COLUMNS", "150")
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text(TABLE, encoding="utf-8")


def test_tables_an_answer_and_two_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["forecast", "t.csv", "--target=2.4"]) == 0
    out = capsys.readouterr().out
    for text in ("Regime", "width ≥ 128", "reaches 2.4 at a width of", "Width for it"):
        assert text in out
    assert "Report: runs/forecast-t.csv/report.html" in out
    assert Path("runs/forecast-t.csv/forecast.json").is_file()


def test_another_forecast_is_not_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    path = Path("runs/forecast-t.csv/forecast.json")
    assert main(["forecast", "t.csv", "--target=2.4"]) == 0
    before = path.read_text(encoding="utf-8")
    assert main(["forecast", "t.csv", "--target=2.4"]) == 0  # the same once more
    capsys.readouterr()
    assert main(["forecast", "t.csv", "--target=2.3"]) == 2
    refused = "forecast.json is of other data or options; give --fresh to replace it"
    assert refused in capsys.readouterr().err
    Path("t.csv").write_text(TABLE.replace("4.1", "4.2"), encoding="utf-8")
    assert main(["forecast", "t.csv", "--target=2.4"]) == 2
    assert path.read_text(encoding="utf-8") == before
    assert main(["forecast", "t.csv", "--target=2.3", "--fresh"]) == 0
    assert json.loads(path.read_text(encoding="utf-8"))["settings"]["target"] == 2.3
    assert "--fresh" not in json.loads(path.read_text(encoding="utf-8"))["command"]


def test_warnings_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    Path("t.csv").write_text("width,loss\n64,3\n96,2.5\n128,2.7\n", encoding="utf-8")
    assert main(["forecast", "t.csv"]) == 0
    assert "Warning: there are 3 different widths" in capsys.readouterr().out


def test_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["forecast", "t.csv", "--json", "--width", "width", "--out=x"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["forecast"]["points"] == 5
    assert Path(document["files"]["report"]) == Path("x/report.html")


@pytest.mark.parametrize(
    ("content", "arguments", "said"),
    [
        (TABLE, ["nowhere.csv"], "nowhere.csv is not a file"),
        (TABLE, ["t.csv", "--loss=x"], "no column 'x' (--loss); it has model, width, loss"),
        (TABLE, ["t.csv", "--target=0"], "--target must be a positive number, got 0"),
        (TABLE, ["t.csv", "--out=t.csv"], "is a file"),
        (TABLE.replace("3.4", "x"), ["t.csv"], "t.csv, line 3: loss is 'x', no number"),
        (TABLE.replace("3.4", "-3"), ["t.csv"], "t.csv, line 3: loss is -3"),
        ("width,loss\n64,3\n64,3.1\n", ["t.csv"], "1 different widths"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    content: str, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("t.csv").write_text(content, encoding="utf-8")
    assert main(["forecast", *arguments]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert "Traceback" not in err
    assert "beltrami forecast --help" in err


def test_a_file_must_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["forecast"]) == 2
    assert "FILE" in capsys.readouterr().err.upper()


@pytest.mark.parametrize("command", ["forecast", "family"])
def test_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    assert "Writes" in capsys.readouterr().out
