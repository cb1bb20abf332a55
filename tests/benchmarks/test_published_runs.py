"""Finished runs kept for the page: what is kept, what is shown, and what is not a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import markers, published_runs
from benchmarks.published_runs import NotARunError, Options, keep, page, read, run, without_paths


def value(mean: float, half: float | None) -> dict[str, Any]:
    return {"value": {"mean": mean, "half_width": half}, "difference": None, "verdict": ""}


def document(seeds: int = 2) -> dict[str, Any]:
    def trial(model: str, seed: int, seconds: float, rate: float = 0.2) -> dict[str, Any]:
        return {
            "model": model,
            "group": "10 dimensions",
            "seed": seed,
            "choice": {"learning_rate": rate},
            "seconds": seconds,
        }

    def line(model: str, twin: str | None, found: float, half: float | None) -> dict[str, Any]:
        metrics = {"map": value(found, half), "mean_rank": value(10 * found, half)}
        if twin:
            gap = {"mean": found - 0.1, "half_width": half}
            metrics["map"] |= {"difference": gap, "verdict": "better" if half else ""}
        return {
            "model": model,
            "group": "10 dimensions",
            "twin": twin,
            "choice": {"learning_rate": 0.2},
            "metrics": metrics,
        }

    half = 0.01 if seeds > 1 else None
    return {
        "schema": "beltrami.run/1",
        "recipe": "hierarchy",
        "command": "beltrami run hierarchy --seeds=2 --out=/home/me/x --data=/home/me/data.noun",
        "settings": {"seeds": seeds, "data": "/home/me/data.noun"},
        "data": {"name": "wordnet-nouns"},
        "environment": {"torch": "2.11.0", "device": "cuda", "hardware": "NVIDIA H200"},
        "metrics": [
            {"key": "map", "title": "MAP", "better": "higher", "digits": 3},
            {"key": "mean_rank", "title": "Mean rank", "better": "lower", "digits": 2},
            {"key": "unseen", "title": "Not measured", "better": None, "digits": 2},
        ],
        "summary": [
            line("lorentz", "euclidean", 0.9, half),
            line("euclidean", None, 0.1, half),
        ],
        "trials": [
            trial("lorentz", 0, 200.0),
            trial("lorentz", 0, 900.0, rate=1.0),
            trial("lorentz", 1, 220.0),
            trial("euclidean", 0, 100.0),
        ],
    }


def test_trials_side_by_side_are_told() -> None:
    together = document() | {"commit": "abc1234"}
    together["environment"]["jobs"] = 6
    assert "Up to 6 trials were trained at once" in page([together])
    assert "at once" not in page([document() | {"commit": "abc1234"}])


def test_a_note_stands_above_the_table(tmp_path: Path) -> None:
    found = tmp_path / "metrics.json"
    found.write_text(json.dumps(document()), encoding="utf-8")
    kept = read(keep(found, "abc1234", tmp_path / "kept", note="Two at a time."))
    told = page([kept])
    assert told.index("Two at a time.") < told.index("| who |")
    assert "Two at a time." not in page([document() | {"commit": "abc1234"}])


def test_a_label_tells_runs_of_the_same_models_apart(tmp_path: Path) -> None:
    found = tmp_path / "metrics.json"
    found.write_text(json.dumps(document()), encoding="utf-8")
    plain = keep(found, "abc1234", tmp_path / "kept")
    labelled = keep(found, "abc1234", tmp_path / "kept", label="on tensor cores")
    assert plain.name == "hierarchy-wordnet-nouns-lorentz.json"
    assert labelled.name == "hierarchy-wordnet-nouns-lorentz-on_tensor_cores.json"
    titles = [page([read(path)]).splitlines()[0] for path in (plain, labelled)]
    assert titles[1] == f"{titles[0]}: on tensor cores"


def test_a_run_is_kept_without_paths(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "metrics.json").write_text(json.dumps(document()), encoding="utf-8")
    path = keep(folder, "abc1234", tmp_path / "kept")
    assert path.name == "hierarchy-wordnet-nouns-lorentz.json"
    assert "/home" not in path.read_text(encoding="utf-8")
    kept = read(path)
    assert kept["commit"] == "abc1234"
    assert kept["command"] == "beltrami run hierarchy --seeds=2 --data=wordnet-nouns"
    assert keep(folder / "metrics.json", "abc1234", tmp_path / "kept") == path


def test_the_page_has_the_twin_and_what_was_published() -> None:
    text = page([document() | {"commit": "abc1234"}])
    rows = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    titles = ["MAP", "MAP − twin's", "Mean rank", "Mean rank − twin's"]
    assert cells[0] == ["who", *titles, "seconds of training"]
    assert all(len(row) == len(cells[0]) for row in cells)
    gap = "0.800 ± 0.010 (better)"
    who, *found = cells[2]
    assert (who, found[:3], found[-1]) == (
        "lorentz, 10 dimensions",
        ["0.900 ± 0.010", gap, "9.00 ± 0.01"],
        "210",
    )
    assert found[3] == ""  # of which the document has no difference
    twin = ["euclidean, 10 dimensions", "0.100 ± 0.010", "", "1.00 ± 0.01", "", "100"]
    assert cells[3] == twin
    published = [["0.851", "", "4.02", "", ""], ["0.928", "", "2.95", "", ""]]
    assert [row[1:] for row in cells[4:]] == published
    assert "NVIDIA H200" in text
    assert "abc1234" in text


def test_one_seed_has_no_interval() -> None:
    text = page([document(seeds=1) | {"commit": "c"}])
    assert "One seed." in text
    assert "±" not in text


def test_a_command_without_paths() -> None:
    command = "beltrami run x '--out=a b' '--data=c d' --models lorentz"
    assert without_paths(command, "e") == "beltrami run x --data=e --models lorentz"
    command = "beltrami run x --model=/home/me/llama --tests ../a.json b/c.json --rate=0.1"
    expected = "beltrami run x --model=llama --tests a.json c.json --rate=0.1"
    assert without_paths(command, "e") == expected
    command = "beltrami run x --model=org/llama --data=b/c.jsonl"
    assert without_paths(command, "c") == "beltrami run x --model=org/llama --data=c.jsonl"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": "beltrami.run/2"}'])
def test_what_is_no_run_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "metrics.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(NotARunError, match=r"metrics\.json"):
        keep(path, "c", tmp_path / "kept")
    assert not (tmp_path / "kept").exists()


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "RESULTS.md"
    target.write_text("<!-- generated: published runs -->\n<!-- end: published runs -->\n")
    monkeypatch.setattr(published_runs.machine, "ROOT", tmp_path)
    monkeypatch.setattr(published_runs, "PAGE", target)
    monkeypatch.setattr(published_runs, "FOLDER", tmp_path / "kept")
    assert run(Options()) == 0
    assert markers.read(target, "published runs") == "No run is kept yet."
    (tmp_path / "metrics.json").write_text(json.dumps(document()), encoding="utf-8")
    assert run(Options((tmp_path,), commit="abc1234")) == 0
    assert "| lorentz, 10 dimensions |" in markers.read(target, "published runs")
    assert run(Options((tmp_path / "nothing",))) == 2
    assert "nothing" in capsys.readouterr().err


def test_the_page_in_the_checkout_is_that_of_the_kept_runs() -> None:
    documents = [read(path) for path in sorted(published_runs.FOLDER.glob("*.json"))]
    expected = page(documents).strip() or "No run is kept yet."
    assert markers.read(published_runs.PAGE, published_runs.PART) == expected
