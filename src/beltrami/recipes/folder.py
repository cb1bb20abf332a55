"""A run on disk.

    config.json                    what was asked for, written first
    metrics.json, report.html      written last
    explorer.html                  the points of the best trial, to walk through
    trials/NAME/result.json        a finished trial; written after its model.safetensors
    trials/NAME/embedding.json, embeddings.npz, embeddings.csv   of the best trial of each arm, in
                                   recipes with points (`embeddings.files`)
    trials/NAME/checkpoint.safetensors   a trial that is not finished yet
    models/MODEL/                  the best trial of a language model, for transformers
    logs/NAME/                     TensorBoard
    .lock                          held by the process that works here; empty, may stay

Every file is written whole or not at all, so a run may be killed at any moment. A file that is
missing or damaged is made again; a folder that holds files of something else is refused.

config.json, an object with
    schema     "beltrami.run/1"
    recipe     the recipe's name
    beltrami   the version that ran
    command    the command line that repeats the run
    settings   the options that say what is computed, by name
    data       name, sizes and digest of the data

result.json, an object with
    trial        model, group, seed, settings and choice: all that the result depends on
    metrics      a number a metric, null where it is infinite; without those not measured
    parameters   how many numbers were trained
    seconds      of training, also of processes that were interrupted
    diverged     null, or why there are no metrics
    curves       lists of numbers that the page draws
    texts        lists of texts that the page shows; may be left out
    history      logged values of the training, each with its step

The `runner` says what metrics.json holds.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from safetensors import SafetensorError
from safetensors.torch import load, save

from beltrami.data.atomic import to_json, write_atomically
from beltrami.data.output_folder import OutputFolder, read_object
from beltrami.embeddings import files as embedding_files
from beltrami.embeddings.embedding import Embedding
from beltrami.recipes.recipe import Trial
from beltrami.recipes.results import TrialResult
from beltrami.train.session import LOG_FILES

OLD_TOUR = "beltrami.tour/1"
SCHEMA = "beltrami.run/1"
CONFIG, METRICS, REPORT = "config.json", "metrics.json", "report.html"
EXPLORER, MODELS = "explorer.html", "models"
RESULT, MODEL, CHECKPOINT = "result.json", "model.safetensors", "checkpoint.safetensors"


class RunFolder(OutputFolder):
    """The folder of one run."""

    @property
    def config(self) -> Path:
        """What was asked for."""
        return self.path / CONFIG

    @property
    def metrics(self) -> Path:
        """What was found."""
        return self.path / METRICS

    @property
    def report(self) -> Path:
        """The page for people."""
        return self.path / REPORT

    @property
    def explorer(self) -> Path:
        """The page to walk through the points; not there where a run has none."""
        return self.path / EXPLORER

    def run_config(self) -> dict[str, Any] | None:
        """config.json of the run that was started here; None where there is none of ours."""
        return read_document(self.config)

    def holds_a_run(self) -> bool:
        """Whether a run was started here; files of something else are a `ValueError`."""
        if self.run_config() is not None:
            return True
        if (read_object(self.metrics) or {}).get("schema") == OLD_TOUR:
            raise ValueError(
                f"{self.path} holds a tour of an earlier version, which cannot go on; give another "
                "--out, or delete the folder"
            )
        for path in (self.config, self.metrics, self.report):
            if path.exists() or path.is_symlink():
                raise ValueError(
                    f"{path} is not of a run, or damaged; give another --out, or move it away"
                )
        return False

    def clear(self) -> None:
        """Delete what a run left here, and nothing else; config.json last, as it says whose."""
        self.sweep()
        for trial in self.path.glob("trials/*/"):
            _delete(trial / name for name in (RESULT, MODEL, CHECKPOINT, *embedding_files.FILES))
        _delete(self.path.glob(f"logs/*/{LOG_FILES}"))
        _delete(file for name in (MODEL, "*.json") for file in self.path.glob(f"{MODELS}/*/{name}"))
        for kind in ("trials", "logs", MODELS):
            for folder in (*self.path.glob(f"{kind}/*/"), self.path / kind):
                with contextlib.suppress(OSError):  # holds a file that is not ours, or is not there
                    folder.rmdir()
        _delete((self.metrics, self.report, self.explorer, self.config))

    def sweep(self) -> None:
        """Delete what a killed process left: half-written files, checkpoints of finished trials."""
        for name in (CONFIG, METRICS, REPORT, EXPLORER):
            _delete(self.path.glob(f".{name}.*.tmp"))
        for name in (RESULT, MODEL, CHECKPOINT, *embedding_files.FILES):
            _delete(self.path.glob(f"trials/*/.{name}.*.tmp"))
        for result in self.path.glob(f"trials/*/{RESULT}"):
            with contextlib.suppress(OSError, ValueError):  # damaged: will be done again
                read_result(result)
                _delete([result.parent / CHECKPOINT])

    def checkpoint(self, trial: Trial[Any]) -> Path:
        """Where an unfinished trial keeps its state."""
        return self._trial(trial) / CHECKPOINT

    def logs(self, trial: Trial[Any]) -> Path:
        """Where a trial's TensorBoard logs go."""
        return self.path / "logs" / trial.name

    def save(self, result: TrialResult) -> None:
        """Write a finished trial; result.json last, as the mark that it is complete."""
        folder = self._trial(result.trial)
        folder.mkdir(parents=True, exist_ok=True)
        # Copies: two names may share memory (tied weights), which the format does not hold.
        state = {key: tensor.detach().cpu().clone() for key, tensor in result.state.items()}
        contiguous = {key: tensor.contiguous() for key, tensor in state.items()}
        write_atomically(folder / MODEL, save(contiguous, dict(result.metadata) or None))
        record = {
            "trial": result.trial.record(),
            "metrics": dict(result.metrics),
            "parameters": result.parameters,
            "seconds": result.seconds,
            "diverged": result.diverged,
            "curves": {key: list(values) for key, values in result.curves.items()},
            "texts": {key: list(values) for key, values in result.texts.items()},
            "history": [dict(entry) for entry in result.history],
        }
        write_atomically(folder / RESULT, to_json(record))
        self.checkpoint(result.trial).unlink(missing_ok=True)

    def save_embeddings(self, embeddings: Mapping[str, tuple[Embedding, dict[str, Any]]]) -> None:
        """Write the embeddings of trials, by name, with facts; delete those of other trials."""
        for file in self.path.glob(f"trials/*/{embedding_files.ABOUT}"):
            if file.parent.name not in embeddings:
                _delete(file.parent / name for name in embedding_files.FILES)
        for name, (embedding, facts) in embeddings.items():
            embedding_files.write_embedding(self.path / "trials" / name, embedding, facts)

    def embeddings(self) -> list[Path]:
        """The tables of points that the run has written."""
        return sorted(self.path.glob(f"trials/*/{embedding_files.TABLE}"))

    def load(self, trial: Trial[Any]) -> TrialResult | None:
        """A finished trial, or None; one made under other settings is a `ValueError`."""
        self.check_settings(trial)
        folder = self._trial(trial)
        try:
            record = read_result(folder / RESULT)
            state = load((folder / MODEL).read_bytes())
        except (OSError, ValueError, SafetensorError):
            return None  # missing or damaged: the trial is simply done again
        return TrialResult(
            trial,
            record["metrics"],
            record["curves"],
            record["history"],
            record["parameters"],
            record["seconds"],
            state,
            record["diverged"],
            record["texts"],
        )

    def check_settings(self, trial: Trial[Any]) -> None:
        """Raise a `ValueError` where this trial was made under other settings, naming one."""
        try:
            stored = read_result(self._trial(trial) / RESULT)["trial"]
        except (OSError, ValueError):
            return  # missing or damaged
        if difference := _first_difference(stored, trial.record()):
            raise ValueError(
                f"{self.path} holds a trial {trial.name} with other settings ({difference}); "
                "give another --out, or --fresh to start over"
            )

    def finished(self) -> int:
        """How many complete trials the folder holds."""
        results = self.path.glob(f"trials/*/{RESULT}")
        return sum(result.with_name(MODEL).is_file() for result in results)

    def has_checkpoint(self) -> bool:
        """Whether an unfinished trial has left its state."""
        return any(self.path.glob(f"trials/*/{CHECKPOINT}"))

    def _trial(self, trial: Trial[Any]) -> Path:
        return self.path / "trials" / trial.name


def read_document(path: Path) -> dict[str, Any] | None:
    """config.json or metrics.json of a run; None where the file is missing, damaged or foreign."""
    document = read_object(path)
    return document if document is not None and document.get("schema") == SCHEMA else None


def read_result(path: Path) -> dict[str, Any]:
    """Read result.json; a `ValueError` where the file is damaged."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise ValueError(f"{path} is not a result") from error
    if isinstance(record, dict):
        record.setdefault("texts", {})  # older results lack it
    kinds: dict[str, Any] = {
        "trial": dict,
        "metrics": dict,
        "curves": dict,
        "texts": dict,
        "history": list,
        "parameters": int,
        "seconds": int | float,
        "diverged": str | None,
    }
    whole = isinstance(record, dict) and all(
        name in record and isinstance(record[name], kind) for name, kind in kinds.items()
    )
    if not whole or not all(
        value is None or isinstance(value, int | float) for value in record["metrics"].values()
    ):
        raise ValueError(f"{path} is not a result")
    return cast("dict[str, Any]", record)


def _delete(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def _first_difference(then: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """Where two records differ, in words."""
    for key in [*now, *(key for key in then if key not in now)]:
        old, new = then.get(key), now.get(key)
        if old != new and isinstance(old, dict) and isinstance(new, dict):
            return _first_difference(old, new)  # not None: they differ
        if old != new:
            return f"{key} was {old!r}, now {new!r}"
    return None
