from __future__ import annotations

import json
from pathlib import Path

import pytest

from beltrami.cli import main
from tests.embeddings.small import tree


@pytest.fixture
def saved(tmp_path: Path) -> str:
    return str(tree().save(tmp_path / "tree.safetensors"))


def test_neighbours_are_printed(saved: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nearest", saved, "c d", "-k", "2"]) == 0
    out = capsys.readouterr().out
    rows = [line for line in out.splitlines() if line.startswith("│")]
    assert [row.split()[1] for row in rows] == ["right", "e"]
    assert "ancestor" in rows[0]
    assert "ancestor" not in rows[1]


def test_neighbours_as_json(saved: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nearest", saved, "c d", "--k=2", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["ancestors"] == ["right", "root"]
    expected = [{"label": n.label, "distance": n.distance} for n in tree().nearest("c d", 2)]
    assert document["neighbours"] == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nearest", "SAVED", "c e"], "did you mean"),
        (["nearest", "SAVED", "a", "--k=0"], "k must be at least 1"),
        (["nearest", "nosuch", "a"], "nosuch is not there"),
        (["export", "SAVED", "--format=word2vec", "--out=."], "is a folder; name a file"),
        (["export", "nosuch"], "nosuch is not there"),
    ],
)
def test_bad_input_is_named(
    arguments: list[str], message: str, saved: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([saved if word == "SAVED" else word for word in arguments]) == 2
    assert message in capsys.readouterr().err


def test_points_are_exported(
    saved: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["export", saved]) == 0
    assert capsys.readouterr().out == "Written: tree-points.csv\n"
    assert (tmp_path / "tree-points.csv").read_text().startswith("label,x1,x2\n")
    assert main(["export", saved, "--format=projector", "--coordinates=poincare"]) == 0
    assert (tmp_path / "tree-points" / "metadata.tsv").exists()
    capsys.readouterr()
    (tmp_path / "tree-points.csv").write_text("mine")  # nothing is replaced without --out
    assert main(["export", saved]) == 2
    assert "is there already" in capsys.readouterr().err
    assert (tmp_path / "tree-points.csv").read_text() == "mine"
    assert main(["export", saved, "--out=tree-points.csv"]) == 0
    assert (tmp_path / "tree-points.csv").read_text() != "mine"
