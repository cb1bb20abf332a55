from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import tyro

from beltrami.cli import main
from beltrami.cli.run import run_command
from beltrami.recipes.config import RunConfig
from beltrami.recipes.registry import RECIPES
from tests.recipes.tiny import TinyConfig, TinyRecipe, numbers

TREE = "b\ta\nc\ta\nd\tb\ne\tb\nf\tc\ng\tc\nh\td\n"


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RECIPES, TinyConfig, "tests.recipes.tiny:TinyRecipe")
    monkeypatch.setenv("COLUMNS", "150")


def words(text: str) -> str:
    return " ".join(text.replace("│", " ").split())


def test_the_recipes_are_listed_with_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--help"]) == 0
    text = words(capsys.readouterr().out)
    for kind in RECIPES:
        assert kind.recipe in text
    assert "Fit a line, for tests." in text
    assert "A second paragraph." not in text
    assert main(["run", "tiny", "--help"]) == 0
    assert "A second paragraph." in capsys.readouterr().out


@pytest.mark.parametrize("name", [kind.recipe for kind in RECIPES])
def test_every_option_of_a_recipe_is_explained(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    import dataclasses

    kind = next(kind for kind in RECIPES if kind.recipe == name)
    assert main(["run", name, "--help"]) == 0
    lines = [words(line) for line in capsys.readouterr().out.splitlines()]
    for field in dataclasses.fields(kind):
        option = "--" + field.name.replace("_", "-")
        shown = (option, f"--no-{option[2:]}")
        (at,) = [i for i, line in enumerate(lines) if line.split(" ")[0] in shown]
        end = next((i for i in range(at + 1, len(lines)) if lines[i].startswith("--")), len(lines))
        text = " ".join(lines[at:end]).split("(default")[0]
        explanation = [w for w in text.split()[1:] if w.strip(".,;:").isalpha() and w.upper() != w]
        assert explanation, f"{option}: {text}"


def test_one_recipe_is_a_subcommand_too() -> None:
    alone: type = run_command(kinds=[TinyConfig])
    found = tyro.cli(alone, args=["tiny", "--seeds", "7"])
    assert found.config == TinyConfig(seeds=7)
    with pytest.raises(SystemExit):
        tyro.cli(alone, args=["--seeds", "7"], console_outputs=False)


def test_tables_and_paths_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "a [bold] folder"
    assert main(["run", "tiny", "--seeds", "2", "--out", str(out)]) == 0
    printed = capsys.readouterr()
    for word in (
        "Curved [bold]", "− Flat", "±", "2 dimensions: mean", f"Report: {out / 'report.html'}",
    ):  # fmt: skip
        assert word in printed.out
    assert printed.err.count("seed0") == 4
    assert printed.err.count("seed1") == 2
    assert "[logs]" not in printed.err  # with TensorBoard or without, markup is not eaten
    assert main(["run", "tiny", "--seeds", "2", "--out", str(out), "--resume"]) == 0
    assert capsys.readouterr().err.count("found finished") == 6


def test_json_is_all_there_is_on_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "tiny", "--seeds", "1", "--out", str(tmp_path / "o"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    files = document.pop("files")
    assert json.loads(Path(files["metrics"]).read_text()) == document
    assert Path(files["report"]).exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run"], "Expected one of"),
        (["run", "tyni"], "tyni"),
        (["run", "tiny", "--seeds", "0"], "--seeds must be at least 1, got 0"),
        (["run", "tiny", "--resume", "--fresh"], "give one"),
        (["run", "tiny", "--out", __file__], "is a file; give a folder"),
        (["run", "tiny", "--out", "/dev/null/x"], "a part of this path is a file"),
        (["run", "tiny", "--out="], "--out is empty"),
        (["run", "hierarchy", "--data", "nowhere.tsv"], "nowhere.tsv"),
        (["run", "hierarchy", "--epochs", "0"], "--epochs must be at least 1, got 0"),
        (["run", "tiny", "--rates", "0.1", "--diverges-from", "0"], "a smaller learning rate"),
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
    assert message in words(printed.err)
    assert "Traceback" not in printed.err
    if "--diverges-from" not in arguments:
        assert list(tmp_path.iterdir()) == []


def test_a_folder_with_a_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["run", "tiny", "--seeds", "1", "--out", str(tmp_path / "o")]
    assert main(arguments) == 0
    assert main(arguments) == 2
    assert "give --resume to go on with it, --fresh to" in capsys.readouterr().err
    assert main([*arguments, "--resume", "--steps", "9"]) == 2
    assert "steps was 4, now 9" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("failure", "code", "shown"),
    [
        (RuntimeError("unforeseen"), 1, "Please report it"),
        (OSError(errno.ENOSPC, "No space left on device"), 1, "{out}: No space left on device"),
        (KeyboardInterrupt(), 130, "Interrupted. 0 finished trials are kept in {out}"),
    ],
)
def test_exit_codes_of_failures(
    failure: BaseException,
    code: int,
    shown: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(self: TinyRecipe, *args: object) -> None:
        raise failure

    monkeypatch.setattr(TinyRecipe, "train", fail)
    out = tmp_path / "o"
    assert main(["run", "tiny", "--out", str(out), "--json"]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert shown.format(out=out) in printed.err
    continues = f"Continue with: beltrami run tiny --out={out} --resume" in printed.err
    assert continues == (not isinstance(failure, RuntimeError))
    assert ("Traceback" in printed.err) == isinstance(failure, RuntimeError)


def test_an_interrupt_while_data_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(self: TinyRecipe, config: TinyConfig) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(TinyRecipe, "__init__", interrupt)
    out = tmp_path / "o"
    assert main(["run", "tiny", "--out", str(out)]) == 130
    assert capsys.readouterr().err == (
        f"Interrupted before the work began.\nStart again with: beltrami run tiny --out={out}\n"
    )
    assert not out.exists()


def test_a_full_memory_of_the_computer_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch

    def fail(self: TinyRecipe, *args: object) -> None:
        torch.empty(1 << 62, dtype=torch.uint8)  # more than any has

    monkeypatch.setattr(TinyRecipe, "train", fail)
    assert main(["run", "tiny", "--out", str(tmp_path / "o")]) == 1
    printed = capsys.readouterr().err
    assert "the computer's memory is full: " in printed
    assert "Traceback" not in printed


def test_a_full_memory_of_the_gpu_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch

    def fail(self: TinyRecipe, *args: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB.\nMore words.")

    monkeypatch.setattr(TinyRecipe, "train", fail)
    assert main(["run", "tiny", "--out", str(tmp_path / "o")]) == 1
    printed = capsys.readouterr().err
    assert "memory is full: CUDA out of memory. Tried to allocate 9 GiB." in printed
    assert "Traceback" not in printed


def test_handlers_of_signals_are_put_back(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    assert main(["run", "tiny", "--seeds", "1", "--out", str(tmp_path / "o")]) == 0
    assert signal.getsignal(signal.SIGTERM) is before


def start(*arguments: str) -> subprocess.Popen[str]:
    """The command in a process of its own that takes Ctrl-C even if ours ignores it."""

    def accept_interrupts() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    return subprocess.Popen(
        [sys.executable, "-m", "beltrami", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        preexec_fn=accept_interrupts,
    )


def wait(process: subprocess.Popen[str], until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not until():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals are POSIX")
def test_a_killed_hierarchy_resumes_to_the_same_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ended in all three ways, one after the other, then compared with a run in one go."""
    tree = tmp_path / "tree.tsv"
    tree.write_text(TREE)
    out = tmp_path / "out"
    arguments = ["run", "hierarchy", "--data", str(tree), "--models", "poincare", "--dims", "2"]
    arguments += ["--epochs", "150", "--batch", "3", "--pool", "4", "--learning-rates", "0.3"]
    arguments += ["--seeds", "2", "--device", "cpu"]
    resumed = [*arguments, "--out", str(out), "--resume"]

    def stamp() -> list[tuple[str, int]]:
        return [(p.parent.name, p.stat().st_mtime_ns) for p in out.glob("trials/*/check*.s*")]

    for number, code in ((signal.SIGKILL, -9), (signal.SIGINT, 130), (signal.SIGTERM, 130)):
        before = stamp()
        process = start(*resumed, "--checkpoint-seconds", "0")
        wait(process, lambda before=before: stamp() not in ([], before))  # type: ignore[misc]
        if number == signal.SIGINT:  # while one works there, another is refused
            assert main(resumed) == 2
            assert "another process is working in" in capsys.readouterr().err
        process.send_signal(number)
        printed, errors = process.communicate(timeout=180)
        assert process.returncode == code, errors
        assert printed == ""
        if code == 130:
            assert f"kept in {out}" in errors
            assert f"--out={out} " in errors.split("Continue with: beltrami run hierarchy")[1]
            assert "Traceback" not in errors
            assert not list(out.rglob("*.tmp"))
    assert main([*resumed, "--json"]) == 0
    printed = capsys.readouterr()
    assert "going on at step" in printed.err
    found = json.loads(printed.out)
    assert main([*arguments, "--out", str(tmp_path / "whole"), "--json"]) == 0
    whole = json.loads(capsys.readouterr().out)
    assert numbers(found) == numbers(whole)
    assert not list(out.rglob("*.tmp"))


def test_a_config_of_no_recipe_is_a_defect() -> None:
    from beltrami.recipes.registry import create

    with pytest.raises(TypeError, match="no recipe has the config RunConfig"):
        create(RunConfig())


def test_the_commands_around_runs_are_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    for command in ("run", "runs", "compare", "data", "tour", "info"):
        assert f"• {command} " in shown
