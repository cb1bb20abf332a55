"""The short programs in examples/ run, at tiny settings, and print what their tutorials quote."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
MOST_LINES = 110


def run(name: str, monkeypatch: pytest.MonkeyPatch, *options: str) -> None:
    monkeypatch.setattr(sys, "argv", [f"examples/{name}.py", *options])
    importlib.import_module(f"examples.{name}").main()


def test_neighbours_of_a_taxonomy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run("taxonomy_neighbours", monkeypatch, f"--out={tmp_path}", "--epochs=5", "--dim=2")
    out = capsys.readouterr().out
    assert "69 nodes in 2 dimensions" in out
    assert "nearest to vim among the leaves: " in out
    assert (tmp_path / "flat.txt").read_text(encoding="utf-8").startswith("70 2\n")  # with helix


@pytest.mark.parametrize("head", ["mlr", "busemann", "distance"])
def test_heads_have_as_many_parameters(
    head: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run("classifier_head", monkeypatch, f"--head={head}", "--steps=2", "--seeds=2")
    hyperbolic, flat, difference = capsys.readouterr().out.splitlines()
    assert hyperbolic.split(",")[1] == flat.split(",")[1]
    assert difference.startswith("difference ")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")  # of Trainer, PEFT, and merging, which warns
def test_an_adapter_is_trained_saved_and_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run("hyplora_trainer", monkeypatch, "--steps=2", "--rank=2", f"--out={tmp_path}")
    lines = [line.rpartition("loss ")[2] for line in capsys.readouterr().out.splitlines()]
    assert lines[-2] == lines[-3], "the loaded adapter is the saved one"
    assert (tmp_path / "adapter_config.json").exists()


def test_a_table_of_vectors_is_diagnosed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "mine.npy", np.random.default_rng(0).normal(size=(80, 8)))
    options = ("--samples=3", "--size=60")
    run("should_i", monkeypatch, f"--vectors={tmp_path / 'mine.npy'}", *options)
    assert capsys.readouterr().out.endswith(": not more tree-like than noise\n")
    run("should_i", monkeypatch, *options)
    assert "vectors of a tree" in capsys.readouterr().out


def test_programs_are_short_and_listed() -> None:
    listed = (ROOT / "examples/README.md").read_text(encoding="utf-8")
    for program in (ROOT / "examples").glob("*.py"):
        assert f"`{program.name}`" in listed
        if program.stem not in ("train_decoder", "pretrain_helm"):
            assert len(program.read_text(encoding="utf-8").splitlines()) <= MOST_LINES
