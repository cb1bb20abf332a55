from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from beltrami.cli import main
from tests.recipes.test_history import write_run


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def test_no_runs_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["runs"]) == 0
    assert "No runs in runs. Start one with: beltrami run" in capsys.readouterr().out
    assert main(["runs", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"runs": [], "documents": []}
    assert main(["runs", "elsewhere"]) == 2
    assert "elsewhere is not a folder" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_runs_are_listed_whatever_they_are_called(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "[bold red]a[/]", {0: 0.5, 1: 0.7})
    write_run(tmp_path / "b\x1b[31mred\u202e", {0: 0.5}, finished=False)
    write_run(tmp_path / "c", {0: 0.5}, data="[link=file:///]\x1b]0;title\x07")
    assert main(["runs", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "[bold red]a[/]" in printed
    assert "b\\x1b[31mred\\u202e" in printed
    assert "[link=file:///]\\x1b]0;title\\x07" in printed
    assert "\x1b" not in printed
    assert "unfinished, 0 trials done" in printed
    assert "MAP: lorentz 0.500 (g)" in printed


def test_runs_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "a", {0: 0.5, 1: 0.7})
    write_run(tmp_path / "b", {0: 0.5}, finished=False)
    assert main(["runs", str(tmp_path), "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)["runs"]
    assert (first["path"], first["finished"]) == (str(tmp_path / "a"), True)
    assert (first["recipe"], first["data"]) == ("tiny", "line")
    assert first["summary"][0]["metrics"]["map"]["value"]["mean"] == 0.5
    assert (second["finished"], second["summary"]) == (False, None)


def test_two_runs_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = write_run(tmp_path / "[b]a", {0: 0.1, 1: 0.2, 2: 0.3})
    second = write_run(tmp_path / "b", {0: 0.5, 1: 0.6, 2: 0.7, 3: 0.8}, data="other")
    assert main(["compare", str(first), str(second)]) == 0
    printed = capsys.readouterr().out
    for word in ("A: ", "[b]a", "MAP", "0.450", "Welch", "The data differ, line and other"):
        assert word in printed
    assert "better" not in printed.replace("called better", "")
    assert main(["compare", str(first), str(second), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["first"]["data"], document["second"]["data"]) == ("line", "other")
    (row,) = document["rows"]
    assert row["difference"]["mean"] == pytest.approx(0.45)
    assert (row["paired"], row["verdict"]) == (False, "")  # on other data neither is better
    third = write_run(tmp_path / "c", {0: 0.5, 1: 0.6, 2: 0.7, 3: 0.8})
    assert main(["compare", str(first), str(third), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["verdict"] == "better"


@pytest.mark.parametrize("columns", ["70", "160"])
def test_a_run_is_a_line_and_no_word_is_cut(
    columns: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "runs/a", {0: 0.5, 1: 0.7})
    write_run(tmp_path / "runs/b", {0: 0.5})
    folder = tmp_path / "runs/looked-at"
    folder.mkdir()
    verdict = {"answer": "Hyperbolic geometry may help: the data are tree-like."}
    document = {"schema": "beltrami.diagnosis/2", "settings": {"source": "x.npy"}}
    (folder / "diagnosis.json").write_text(json.dumps({**document, "verdict": verdict}))
    (folder / "other").mkdir()
    (folder / "other/diagnosis.json").write_text('{"schema": "of another program"}')
    assert main(["runs"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "runs/" in line]
    assert [line.split()[0] for line in lines] == ["runs/a", "runs/b", "runs/looked-at"]
    assert all(len(re.findall(r"20\d\d-\d\d-\d\d", line)) == 1 for line in lines)
    assert "Hyperbolic geometry may help" in lines[2]
    assert "…" not in "".join(lines)
    assert main(["compare", "runs/a", "runs/b"]) == 0
    assert "…" not in capsys.readouterr().out


def test_what_cannot_be_compared_is_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(write_run(tmp_path / "a", {0: 0.1}))
    unfinished = str(write_run(tmp_path / "b", {0: 0.1}, finished=False))
    for other, message in (
        (str(tmp_path / "nowhere"), "is not a folder"),
        (str(tmp_path), "holds no run"),
        (unfinished, "is not finished; continue it with: beltrami run tiny --out=x --resume"),
    ):
        assert main(["compare", run, other]) == 2
        printed = capsys.readouterr()
        assert message in printed.err
        assert printed.out == ""


@pytest.mark.parametrize(("what", "value"), [("digits", -1), ("mean", float("nan"))])
def test_a_damaged_run_does_not_hide_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str, value: float
) -> None:
    write_run(tmp_path / "good", {0: 0.5})
    file = write_run(tmp_path / "bad", {0: 0.5}) / "metrics.json"
    document = json.loads(file.read_text())
    interval = document["summary"][0]["metrics"]["map"]["value"]
    (document["metrics"][0] if what == "digits" else interval)[what] = value
    file.write_text(json.dumps(document))
    assert main(["runs", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "unfinished, 0 trials done" in printed
    assert "MAP: lorentz 0.500 (g)" in printed
    assert main(["runs", str(tmp_path), "--json"]) == 0
    assert [run["finished"] for run in json.loads(capsys.readouterr().out)["runs"]] == [False, True]
