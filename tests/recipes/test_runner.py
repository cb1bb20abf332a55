from __future__ import annotations

import errno
import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from beltrami.recipes.folder import RunFolder
from beltrami.recipes.recipe import Arm, Evaluation, Trial
from beltrami.recipes.runner import run
from beltrami.train.processes import Processes
from beltrami.train.session import Session, TrainingDivergedError
from tests.recipes.tiny import (
    Interrupter,
    TinyConfig,
    TinyRecipe,
    TinySettings,
    Witness,
    numbers,
)


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda handle: None)


@pytest.fixture
def config(tmp_path: Path) -> TinyConfig:
    return TinyConfig(seeds=2, out=tmp_path / "run")


def ran(config: TinyConfig, witness: Witness | None = None) -> dict[str, Any]:
    run_result = run(TinyRecipe(config), witness)
    written = json.loads((config.folder / "metrics.json").read_text())
    assert written == run_result.document
    return dict(written)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_run_writes_all_that_it_promises(config: TinyConfig) -> None:
    witness = Witness()
    document = ran(config, witness)
    assert witness.planned == len(witness.results) == 6
    assert witness.reused == 0
    asked = json.loads((config.folder / "config.json").read_text())
    assert asked["schema"] == document["schema"] == "beltrami.run/1"
    assert asked["settings"] == document["settings"]
    assert asked["settings"]["seeds"] == 2
    assert set(asked["settings"]) == {"seeds", "steps", "rates", "diverges_from", "word"}
    assert set(document) == {
        *asked, "environment", "started", "finished", "metrics", "summary", "trials",
    }  # fmt: skip
    assert {(t["model"], t["seed"]) for t in document["trials"]} == {
        (model, seed) for model in ("curved", "flat") for seed in range(2)
    }
    html = (config.folder / "report.html").read_text()
    assert "A &lt;lead&gt;." in html
    assert not list(config.folder.rglob("*.tmp"))
    assert not list(config.folder.rglob("checkpoint*"))


def test_the_choice_is_the_best_of_the_first_seed(config: TinyConfig) -> None:
    witness = Witness()
    document = ran(config, witness)
    for model in ("curved", "flat"):
        swept = {
            r.trial.choice["rate"]: r.value("error")
            for r, _ in witness.results
            if r.trial.model == model and r.trial.seed == 0
        }
        assert len(swept) == 2
        best = min(swept, key=swept.__getitem__)
        chosen = {t["choice"]["rate"] for t in document["trials"] if t["model"] == model}
        assert chosen == {best}


def test_differences_are_paired_with_the_twin(config: TinyConfig) -> None:
    document = ran(config)
    error = {(t["model"], t["seed"]): t["metrics"]["error"] for t in document["trials"]}
    gaps = [error["curved", s] - error["flat", s] for s in range(2)]
    curved, flat = document["summary"]
    found = curved["metrics"]["error"]["difference"]
    assert found["mean"] == pytest.approx(sum(gaps) / 2)
    assert found["half_width"] == pytest.approx(12.7062 * abs(gaps[0] - gaps[1]) / 2)
    assert flat["twin"] is flat["metrics"]["error"]["difference"] is None


@pytest.mark.parametrize("at", [1, 3, 4, 5, 10, 17])
def test_an_interrupted_run_resumes_to_the_same_numbers(config: TinyConfig, at: int) -> None:
    whole = ran(replace(config, out=config.folder / "whole"))
    with pytest.raises(KeyboardInterrupt):
        run(TinyRecipe(config), Interrupter(at))
    witness = Witness()
    resumed = ran(replace(config, resume=True), witness)
    assert numbers(resumed) == numbers(whole)
    assert witness.reused == (at - 1) // 4
    # The step that was interrupted had no checkpoint yet.
    assert witness.began[0][1] == (at - 1) % 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_run_killed_at_any_write_resumes_to_the_same_numbers(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.recipes.killed", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found["resumed"]) == 45  # 15 files, of which 4 checkpoints, at 3 moments each
    for number, resumed in enumerate(found["resumed"], 1):
        assert resumed == found["whole"], f"killed at event {number}"


def test_nothing_depends_on_what_ran_before(config: TinyConfig, tmp_path: Path) -> None:
    """Dropout draws from torch's own generator, which the runner seeds and leaves as it was."""
    torch.manual_seed(1)
    before = torch.get_rng_state()
    one = ran(config)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert numbers(ran(replace(config, out=tmp_path / "other"))) == numbers(one)


def test_more_seeds_and_rates_add_to_a_run(config: TinyConfig) -> None:
    ran(config)
    witness = Witness()
    more = replace(config, seeds=3, resume=True)
    document = ran(more, witness)
    assert (witness.reused, len(witness.results)) == (6, 8)
    assert numbers(document) == numbers(ran(replace(more, out=config.folder / "at once")))
    witness = Witness()
    ran(replace(more, rates=(0.1, 0.2, 0.3)), witness)
    assert witness.reused >= 6


def test_a_folder_with_a_run_is_refused_and_left_alone(config: TinyConfig) -> None:
    ran(config)
    before = contents(config.folder)
    with pytest.raises(ValueError, match=r"holds a run already; give --resume .* --fresh"):
        run(TinyRecipe(config))
    assert contents(config.folder) == before


def test_other_settings_are_refused_before_anything_changes(config: TinyConfig) -> None:
    ran(config)
    before = contents(config.folder)
    witness = Witness()
    with pytest.raises(ValueError, match="steps was 4, now 5"):
        run(TinyRecipe(replace(config, steps=5, seeds=4, resume=True)), witness)
    assert contents(config.folder) == before
    assert witness.began == []


def test_another_recipe_is_refused(config: TinyConfig) -> None:
    class OtherRecipe(TinyRecipe):
        name = "other"

    ran(config)
    before = contents(config.folder)
    with pytest.raises(ValueError, match="holds a run of the recipe tiny, not other"):
        run(OtherRecipe(replace(config, resume=True)))
    assert contents(config.folder) == before


def test_fresh_starts_over(config: TinyConfig) -> None:
    ran(config)
    mine = config.folder / "mine.txt"
    mine.touch()
    witness = Witness()
    document = ran(replace(config, fresh=True, steps=5), witness)
    assert witness.reused == 0
    assert document["settings"]["steps"] == 5
    assert mine.exists()


def test_two_trials_of_one_name_are_a_defect(config: TinyConfig) -> None:
    class Doubled(TinyRecipe):
        def arms(self) -> list[Any]:
            first, twin = super().arms()
            return [first, replace(first, settings=TinySettings(9, 0.1)), twin]

    with pytest.raises(RuntimeError, match="has two trials curved"):
        run(Doubled(config))


@pytest.mark.parametrize("name", ["result.json", "model.safetensors"])
def test_a_damaged_trial_is_done_again(config: TinyConfig, name: str) -> None:
    whole = ran(config)
    path = sorted(config.folder.glob(f"trials/*/{name}"))[0]
    path.write_bytes(path.read_bytes()[:-7])
    witness = Witness()
    assert numbers(ran(replace(config, resume=True), witness)) == numbers(whole)
    assert witness.reused == 5


def test_a_damaged_checkpoint_is_done_again(config: TinyConfig) -> None:
    whole = ran(replace(config, out=config.folder / "whole"))
    with pytest.raises(KeyboardInterrupt):
        run(TinyRecipe(config), Interrupter(3))
    (path,) = config.folder.glob("trials/*/checkpoint.safetensors")
    path.write_bytes(path.read_bytes()[:-7])
    witness = Witness()
    assert numbers(ran(replace(config, resume=True), witness)) == numbers(whole)
    assert witness.began[0][1] == 0


@pytest.mark.parametrize("when", range(1, 22, 4))
def test_a_full_disk_leaves_whole_files(
    config: TinyConfig, when: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = ran(replace(config, out=config.folder / "whole"))
    left = when

    def fill(handle: int) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", fill)
        with pytest.raises(OSError, match="No space left"):
            run(TinyRecipe(config))
    assert not list(config.folder.rglob("*.tmp"))
    assert numbers(ran(replace(config, resume=True))) == numbers(whole)


def test_a_choice_that_diverges_is_out(config: TinyConfig) -> None:
    document = ran(replace(config, diverges_from=0.15))
    assert {t["choice"]["rate"] for t in document["trials"]} == {0.1}
    witness = Witness()
    again = ran(replace(config, diverges_from=0.15, resume=True), witness)
    assert numbers(again) == numbers(document)
    assert witness.reused == 6
    assert sum(r.diverged is not None for r, _ in witness.results) == 2


@pytest.mark.parametrize("rates", [(0.1, 0.2), (0.1,)])
def test_when_everything_diverges_the_remedy_is_named(
    config: TinyConfig, rates: tuple[float, ...]
) -> None:
    with pytest.raises(TrainingDivergedError, match="a smaller learning rate"):
        run(TinyRecipe(replace(config, rates=rates, diverges_from=0.0)))
    assert not (config.folder / "metrics.json").exists()


class Measures(TinyRecipe):
    """Measures whatever a test wants, by learning rate."""

    wanted: Mapping[float, float | None] = {}
    chosen_by = "error"

    def evaluate(self, model: Any, trial: Trial, session: Session) -> Evaluation:
        return Evaluation({"error": self.wanted[trial.settings.rate]})


@pytest.mark.parametrize(
    ("values", "chosen"),
    [
        ({0.1: float("nan"), 0.2: 3.0}, 0.2),
        ({0.1: float("inf"), 0.2: 3.0}, 0.2),
        ({0.1: None, 0.2: 3.0}, 0.2),
        ({0.1: 3.0, 0.2: 3.0}, 0.1),
    ],
)
@pytest.mark.parametrize("better", ["higher", "lower"])
def test_what_is_no_number_is_never_chosen(
    config: TinyConfig, values: dict[float, float | None], chosen: float, better: Any
) -> None:
    class Wanted(Measures):
        wanted = values
        metrics = tuple(replace(m, better=better) for m in TinyRecipe.metrics)

    run_result = run(Wanted(config))
    assert {s.choice["rate"] for s in run_result.arm_results} == {chosen}


def test_infinite_and_missing_numbers_are_shown(config: TinyConfig) -> None:
    class Infinite(Measures):
        wanted = {0.1: float("inf")}  # noqa: RUF012

    class Missing(Measures):
        wanted = {0.1: float("nan")}  # noqa: RUF012

    config = replace(config, rates=(0.1,))
    run_result = run(Infinite(config))
    assert run_result.document["summary"][0]["metrics"]["error"] == {
        "value": {"mean": None, "half_width": None}, "difference": None, "verdict": "",
    }  # fmt: skip
    assert "∞" in (config.folder / "report.html").read_text()
    missing = run(Missing(replace(config, fresh=True)))
    assert missing.document["summary"][0]["metrics"] == {}


def test_absent_tensorboard_is_noted_once(
    config: TinyConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    witness = Witness()
    ran(config, witness)
    assert witness.notes == [
        'no TensorBoard logs will be written: pip install "beltrami[logs]" brings them'
    ]
    assert not (config.folder / "logs").exists()


def test_a_process_that_does_not_see_the_files_is_named(config: TinyConfig) -> None:
    """Under torchrun on machines that share no disk; here told to one process."""
    from beltrami.recipes.folder import RunFolder
    from beltrami.recipes.runner import TrialRunner
    from beltrami.train.progress import ProgressListener

    class Second(Processes):
        def broadcast(self, number: int) -> int:
            return 1  # the first process has found the trial finished

    second = Second(torch.device("cpu"), rank=1, world_size=1)
    with pytest.raises(OSError, match="process 1 cannot read"):
        TrialRunner(TinyRecipe(config), RunFolder(config.folder), ProgressListener(), second).run()


def test_a_moved_run_goes_on(config: TinyConfig, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(TinyRecipe(config), Interrupter(7))
    moved = shutil.move(config.folder, tmp_path / "moved")
    witness = Witness()
    ran(replace(config, out=Path(moved), resume=True), witness)
    assert witness.reused == 1
    assert witness.began[0][1] == 2


def test_other_data_in_the_same_folder_is_refused(config: TinyConfig) -> None:
    run(TinyRecipe(config))
    before = RunFolder(config.folder).config.read_bytes()

    class OtherLine(TinyRecipe):
        def data_facts(self) -> dict[str, Any]:
            return {"name": "line", "digest": "4567"}

        def arms(self) -> list[Arm[Any]]:  # no trial has a name of the first run's
            return [Arm("flat", "9 dimensions", TinySettings(4, 0.1), None, ({"rate": 0.1},))]

    with pytest.raises(ValueError, match="holds a run on other data; give another --out"):
        run(OtherLine(replace(config, resume=True)))
    assert RunFolder(config.folder).config.read_bytes() == before


@pytest.mark.parametrize("where", ["train", "evaluate"])
def test_a_model_that_is_not_finite_has_diverged(config: TinyConfig, where: str) -> None:
    """Also where a measure is the first to stumble over it."""

    class Exploding(TinyRecipe):
        def _explode(self, model: torch.nn.Module, trial: Trial, here: str) -> None:
            if trial.settings.rate == 0.2 and where == here:
                with torch.no_grad():
                    model[3].weight.fill_(torch.nan)  # type: ignore[operator,union-attr]
                raise ValueError("scores are not finite")

        def train(self, model: torch.nn.Module, trial: Trial, session: Session) -> None:
            super().train(model, trial, session)
            self._explode(model, trial, "train")

        def evaluate(self, model: torch.nn.Module, trial: Trial, session: Session) -> Evaluation:
            self._explode(model, trial, "evaluate")
            return super().evaluate(model, trial, session)

    run_result = run(Exploding(config))
    assert all(arm_result.choice == {"rate": 0.1} for arm_result in run_result.arm_results)


def test_what_is_measured_must_be_finite(config: TinyConfig) -> None:
    """Else a run would end in an error of JSON, and again at each --resume."""

    class Unmeasurable(TinyRecipe):
        def evaluate(self, model: torch.nn.Module, trial: Trial, session: Session) -> Evaluation:
            found = super().evaluate(model, trial, session)
            bad = math.nan if trial.settings.rate == 0.2 else 1.0
            return replace(found, curves={**found.curves, "odd": [1.0, bad]})

    run_result = run(Unmeasurable(config))
    assert all(arm_result.choice == {"rate": 0.1} for arm_result in run_result.arm_results)
