"""`beltrami family` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from beltrami.cli import main
from tests.recipes.family import tiny


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COLUMNS", "150")
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for width in (4, 8, 16):
        np.save(f"w{width}.npy", rng.normal(size=(300, width)))


MODELS = ("w4.npy", "w8.npy", "w16.npy")


def test_a_table_fits_and_two_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["family", *MODELS, "--pairs=1000"]) == 0
    out, err = capsys.readouterr()
    assert "w16.npy" in out
    assert "The overlap goes as width^(−" in out
    assert "Note: there are 3 different widths" in out
    assert Path("runs/family/report.html").is_file()
    assert "w4.npy: overlap: done" in err
    assert main(["family", *MODELS, "--pairs=1000"]) == 0
    assert "w4.npy: overlap: found finished" in capsys.readouterr().err


def test_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["family", *MODELS, "--json", "--families", "a", "a", "b", "--out=x"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [m["family"] for m in document["models"]] == ["a", "a", "b"]
    assert Path(document["files"]["family"]) == Path("x/family.json")


def test_losses_of_models(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason='needs pip install "beltrami[llm]"')
    folders = [str(tiny.llama(tmp_path / f"m{w}", w, seed=w)) for w in (8, 16)]
    Path("t.txt").write_text("\n".join(tiny.sentences(5)), encoding="utf-8")
    capsys.readouterr()
    assert main(["family", *folders, "--texts=t.txt"]) == 0
    out, err = capsys.readouterr()
    assert "Loss" in out
    assert "The losses were not fitted: α, A and 1 offset(s) need at least 4 losses" in out
    assert "m8: loss on t: done" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name at least one model"),
        (["nowhere.npy"], "nowhere.npy"),
        (["w4.npy", "w4.npy"], "must not repeat a value"),
        (["w4.npy", "--families", "a", "b"], "--families names 2 families for 1 models"),
        (["w4.npy", "--texts=w8.npy"], "is not UTF-8"),
        (["w4.npy", "--out=w8.npy"], "is a file"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["family", *arguments]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert "Traceback" not in err
    assert "beltrami family --help" in err


def test_an_interruption_says_how_to_go_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("beltrami.recipes.family.measure.superposition", stop)
    assert main(["family", "w4.npy"]) == 130
    assert "Continue with: beltrami family w4.npy" in capsys.readouterr().err
