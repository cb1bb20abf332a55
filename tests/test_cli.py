from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import beltrami
from beltrami.cli import main

TINY = "b,a\nc,a\nd,b\ne,b\nf,c\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    file = tmp_path / "tree.csv"
    file.write_text(TINY)
    return file


def start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    """The command in a process of its own that takes Ctrl-C even if ours ignores it."""

    def accept_interrupts() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    return subprocess.Popen(
        [sys.executable, "-m", "beltrami", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "100", **environment},
        preexec_fn=accept_interrupts,
    )


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"beltrami {beltrami.__version__}\n"


def test_help_explains_commands_and_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    for word in ("tour", "info", "--version", "Exit codes", "130", "bad input"):
        assert word in text


def test_help_explains_every_option_of_a_tour(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tour", "--help"]) == 0
    text = capsys.readouterr().out
    for name in ("edges", "seeds", "epochs", "out", "fresh", "json"):
        assert f"--{name}" in text
    for explanation in ("Your own tree", "Passes over all nodes", "beltrami run hierarchy"):
        assert explanation in text


def test_no_command_shows_the_help_as_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "Exit codes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "near"),
    [
        (["diagnos"], "diagnose"),
        (["diagnos", "--help"], "diagnose"),
        (["run", "hierachy"], "run hierarchy"),
        (["run", "knowlege_graph"], "run knowledge-graph"),
        (["data", "gt", "hpo"], "data get"),
        (["tour", "--sed", "1"], "--seeds INT"),
    ],
)
def test_what_is_mistyped_is_answered_with_what_is_like_it(
    arguments: list[str], near: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    printed = capsys.readouterr().err
    assert (near if "-" in near[:2] else f"Did you mean `beltrami {near}`?") in printed


def test_info_has_what_a_bug_report_needs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["beltrami"] == beltrami.__version__
    assert facts["devices"][0] == "cpu"
    assert main(["info"]) == 0
    assert facts["torch"] in capsys.readouterr().out


def test_tour_prints_a_table_and_where_the_files_are(
    tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a [bold] folder"  # no markup, whatever it looks like
    code = main(["tour", "--edges", str(tree), "--seeds", "2", "--epochs", "3", "--out", str(out)])
    printed = capsys.readouterr()
    assert code == 0
    for word in ("Lorentz", "− Euclidean", "±", f"Report: {out / 'report.html'}"):
        assert word in printed.out
    assert "seed1" in printed.err
    assert "In flat space" in (out / "report.html").read_text()


def test_json_is_all_there_is_on_stdout(
    tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["tour", "--edges", str(tree), "--seeds", "1", "--epochs", "3"]
    assert main([*arguments, "--out", str(tmp_path / "o"), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    files = result.pop("files")
    assert json.loads(Path(files["metrics"]).read_text()) == result
    assert Path(files["report"]).read_text().startswith("<!DOCTYPE html>")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tour", "--seeds", "0"], "--seeds must be at least 1, got 0"),
        (["tour", "--seeds", "many"], "many"),
        (["tour", "--epochs", "-1"], "--epochs must be at least 1, got -1"),
        (["tour", "--edges", "nowhere.tsv"], "'nowhere.tsv' is neither a file nor"),
        (["tour", "--out", __file__], "is a file; give a folder"),
        (["tour", "--out", "/dev/null/x"], "a part of this path is a file"),
        (["tour", "--out", ""], "--out is empty"),
        (["tour", "--out="], "--out is empty"),
        (["tour", "--edges", "", "--seeds", "1"], "--edges is empty"),
        (["tour", "--sedes", "3"], "--sedes"),
        (["tuor"], "tuor"),
    ],
)
def test_bad_input_is_named_without_a_traceback(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in " ".join(printed.err.split())
    assert "Traceback" not in printed.err
    assert list(tmp_path.iterdir()) == []


def test_the_former_name_of_epochs(
    tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["tour", "--edges", str(tree), "--seeds", "1", "--out", str(tmp_path / "o")]
    assert main([*arguments, "--steps", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["settings"]["epochs"] == 2


def test_a_tour_of_an_earlier_version_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "metrics.json").write_text('{"schema": "beltrami.tour/1"}')
    assert main(["tour", "--epochs", "2", "--out", str(tmp_path)]) == 2
    assert "a tour of an earlier version" in capsys.readouterr().err


def test_bad_edges_name_their_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bad.csv"
    file.write_text("b,a\nc,b\nb,c\n")
    assert main(["tour", "--edges", str(file), "--out", str(tmp_path / "o")]) == 2
    error = capsys.readouterr().err
    assert "bad.csv, line" in error
    assert "cycle" in error


@pytest.mark.parametrize(
    ("failure", "code", "shown"),
    [
        (RuntimeError("unforeseen"), 1, "Please report it"),
        (OSError(28, "No space left on device"), 1, "{out}: No space left on device"),
        (KeyboardInterrupt(), 130, "Start again with: beltrami tour"),
    ],
)
def test_exit_codes_of_failures(
    failure: BaseException,
    code: int,
    shown: str,
    tree: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(recipe: object, progress: object) -> None:
        raise failure

    monkeypatch.setattr("beltrami.recipes.runner.run", fail)
    assert main(["tour", "--edges", str(tree), "--out", str(tmp_path / "o"), "--json"]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert shown.format(out=tmp_path / "o") in printed.err
    assert ("Traceback" in printed.err) == isinstance(failure, RuntimeError)


def test_an_interrupt_before_the_work_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(arguments: object) -> None:  # as while tyro is being imported
        raise KeyboardInterrupt

    monkeypatch.setattr("beltrami.cli.app.parse", interrupt)
    assert main(["tour"]) == 130
    assert capsys.readouterr().err == "Interrupted; nothing was finished.\n"


def test_a_narrow_encoding_gets_question_marks(tmp_path: Path) -> None:
    tree = tmp_path / "bär.csv"
    tree.write_text("bär,tier\nfuchs,tier\nwolf,tier\n", encoding="utf-8")
    arguments = ["tour", "--edges", str(tree), "--seeds", "1", "--epochs", "2"]
    arguments += ["--out", str(tmp_path / "größe")]
    table = start(*arguments, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    printed, errors = table.communicate(timeout=60)
    assert table.returncode == 0, errors
    assert "gr??e/report.html" in printed.replace("\n", "")
    machine = start(*arguments, "--json", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    printed, errors = machine.communicate(timeout=60)
    assert machine.returncode == 0, errors
    assert json.loads(printed)["data"]["name"] == "bär"
    assert "größe" in json.loads(printed)["files"]["report"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [["info"], ["info", "--json"], ["--help"]])
def test_a_full_disk_behind_stdout_is_named(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "beltrami", *arguments]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert "cannot write to standard output: [Errno 28] No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="Ctrl-C is a POSIX signal here")
def test_interrupt_keeps_finished_runs_and_resumes(tmp_path: Path) -> None:
    out = tmp_path / "out"
    # The first trainings are short enough to finish soon, all of them can be interrupted.
    process = start("tour", "--epochs", "20", "--seeds", "500", "--out", str(out))
    deadline = time.monotonic() + 60
    while len(list(out.glob("trials/*/result.json"))) < 2:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    printed, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert printed == ""
    finished = len(list(out.glob("trials/*/result.json")))
    assert f"{finished} finished trials are kept in {out}" in errors
    assert f"Continue with: beltrami tour --seeds=500 --epochs=20 --out={out}" in errors
    assert "Traceback" not in errors
    assert not list(out.rglob("*.tmp"))

    again = start("tour", "--epochs", "20", "--seeds", "1", "--out", str(out), "--json")
    printed, errors = again.communicate(timeout=60)
    assert again.returncode == 0, errors
    assert errors.count("found finished") == min(finished, 4)
    assert json.loads(printed)["settings"]["epochs"] == 20


def test_importing_the_command_line_loads_no_recipe() -> None:
    code = (
        "import sys, beltrami.cli; "
        "print([m for m in ('tyro', 'rich', 'safetensors', 'beltrami.recipes.runner') "
        "if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
