"""Models one after another, each kept when it is finished, and fits over all of them.

family.json, an object with
    schema        "beltrami.family/1"
    beltrami      the version that ran
    command       the command line that repeats it
    settings      the options, by name
    models        in the order given: name, family, `overlap` (what the part "superposition" of a
                  diagnosis holds) and `losses`, by the name of the texts
    overlap_fits  "raw" and "centred": the exponent of the mean squared overlap over the width of
                  the rows, as overlap ∝ width^slope, or what is missing for it
    loss_fit      A/width^alpha + B of each family and texts, over the width of the states, or
                  what is missing for it; null without --texts
    notes         what to keep in mind of these numbers

measured/KEY.json holds one measurement of one model, under a key of all that it depends on. Numbers
that are not finite are null.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

import beltrami
from beltrami.analysis.superposition import JointFit, fit_exponent, fit_losses
from beltrami.data.atomic import to_json, write_atomically
from beltrami.data.output_folder import OutputFolder, read_object
from beltrami.data.vectors import Unembedding, VectorsError, list_vectors, open_unembedding
from beltrami.diagnosis.diagnose import Silent, Watcher
from beltrami.diagnosis.numbers import finite, plain
from beltrami.diagnosis.superposition import superposition
from beltrami.models.pretrained.opening import SMOLLM2, load_causal, model_fingerprint
from beltrami.recipes.family.config import FamilyConfig
from beltrami.recipes.family.losses import Tick, text_loss
from beltrami.recipes.family.texts import read_texts
from beltrami.report.page import render

SCHEMA = "beltrami.family/1"
DOCUMENT, REPORT, MEASURED = "family.json", "report.html", "measured"
METHOD = 2  # of the measurements: another number where they change what they compute
NO_FAMILY = "vectors"  # of tables that are no models
ENOUGH = 5  # widths, below which a line says little
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Family:
    """What was found, and where it was written."""

    document: dict[str, Any]
    path: Path
    report: Path


def measure_family(config: FamilyConfig, watcher: Watcher | None = None) -> Family:
    """Measure, fit, and write family.json and report.html.

    Raises:
        ValueError: what is wrong with an option, a model or the folder.
    """
    config.check()
    texts = {path.stem: read_texts(path)[: config.count] for path in config.texts}
    for model in config.models:
        _check_model(model, bool(texts))
    folder = OutputFolder(config.folder)
    folder.check_writable()
    with folder.locked():
        folder.document(DOCUMENT, SCHEMA, "family")
        return _Work(config, texts, watcher or Silent()).run()


class _Work:
    def __init__(self, config: FamilyConfig, texts: dict[str, list[str]], watcher: Watcher) -> None:
        self.config, self.texts, self.watcher = config, texts, watcher
        self.path = config.folder / DOCUMENT

    def run(self) -> Family:
        from beltrami.recipes.family.report import family_page

        # Opened first: a name that is wrong is told before hours of work, not after.
        tables = [_opened(model) for model in self.config.models]
        given = self.config.families or [table.family or NO_FAMILY for table in tables]
        models = [
            self._model(source, table, family)
            for source, table, family in zip(self.config.models, tables, given, strict=True)
        ]
        document = {
            "schema": SCHEMA,
            "beltrami": beltrami.__version__,
            "command": self.config.command(),
            "settings": self.config.settings(),
            "models": models,
            "overlap_fits": {
                "raw": overlap_fit(models, "mean_squared"),
                "centred": overlap_fit(models, "mean_squared_centred"),
            },
            "loss_fit": loss_fit(models) if self.texts else None,
            "notes": notes(models),
        }
        report = self.config.folder / REPORT
        write_atomically(self.path, to_json(document))
        write_atomically(report, render(family_page(document)))
        return Family(document, self.path, report)

    def _model(self, source: str, table: Unembedding, family: str) -> dict[str, Any]:
        config, name = self.config, table.vectors.name
        of_rows = ["overlap", table.vectors.digest(), table.role, table.hidden]
        of_rows += [list(table.vectors.tokenless), config.pairs, config.seed]
        found: dict[str, Any] = {
            "name": name,
            "source": source,
            "family": family,
            "overlap": self._kept(
                f"{name}: overlap",
                of_rows,
                lambda tick: superposition(table, tick, pairs=config.pairs, seed=config.seed),
            ),
            "losses": dict(self._losses(source, name)),
        }
        return found

    def _losses(self, source: str, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Of each of the texts; the model is read once, and only where one is new."""
        config = self.config
        loaded = cache(lambda: self._loaded(source))
        for dataset, texts in self.texts.items():
            sha = hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass"))
            inputs = [model_fingerprint(source), sha.hexdigest(), config.longest, config.dtype]
            told = ["loss", *inputs]

            def measure(tick: Tick, texts: list[str] = texts) -> dict[str, Any]:
                longest, batch = config.longest, config.batch
                try:
                    found = text_loss(*loaded(), texts, longest=longest, batch=batch, tick=tick)
                except ValueError as error:
                    raise ValueError(f"{source}: {error}") from error
                return {k: v if k == "loss" else int(v or 0) for k, v in plain(found).items()}

            yield dataset, self._kept(f"{name}: loss on {dataset}", told, measure)

    def _loaded(self, source: str) -> tuple[Any, Any]:
        """A model where it computes, and its tokenizer."""
        device = self.config.device
        gpu = device != "cpu" and torch.cuda.is_available()
        if device == "cuda" and not gpu:
            raise ValueError("--device cuda: there is no GPU that torch can use; give --device cpu")
        model, tokenizer = load_causal(source, _DTYPES[self.config.dtype])
        return model.to("cuda" if gpu else "cpu"), tokenizer

    def _kept(
        self, what: str, told: Sequence[Any], measure: Callable[[Tick], dict[str, Any]]
    ) -> dict[str, Any]:
        """A measurement, or what it was when it was made of the same."""
        text = json.dumps([METHOD, *told], sort_keys=True)
        path = self.config.folder / MEASURED / f"{hashlib.sha256(text.encode()).hexdigest()}.json"
        if not self.config.fresh and (known := read_object(path)) is not None:
            self.watcher.finished(what, True)
            return known
        self.watcher.started(what)
        found = measure(self.watcher.moved)
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, to_json(found))
        self.watcher.finished(what, False)
        return found


def overlap_fit(models: Sequence[dict[str, Any]], name: str) -> dict[str, Any]:
    """The mean squared overlap as a power of the rows' width; random directions have slope −1."""
    points = [
        (float(m["overlap"]["width"]), m["overlap"]["overlaps"][name])
        for m in models
        if "overlaps" in m["overlap"] and m["overlap"]["overlaps"][name]
    ]
    try:
        fit = fit_exponent([w for w, _ in points], [v for _, v in points])
    except ValueError as error:
        return {"missing": str(error)}
    return {
        "slope": -fit.exponent,
        "error": finite(fit.error),
        "low": finite(-fit.high),
        "high": finite(-fit.low),
        "intercept": fit.intercept,
        "r_squared": finite(fit.r_squared),
        "points": fit.points,
        "distinct": fit.distinct,
    }


def loss_fit(models: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """L = A/m^α + B of each family, on each of several texts, with m the width of the states."""
    points = [
        (float(m["overlap"]["hidden_width"]), loss["loss"], m["family"], dataset, str(i))
        for i, m in enumerate(models)  # not by name: two may have the same
        for dataset, loss in m["losses"].items()
    ]
    widths, losses, families, *names = (list(column) for column in zip(*points, strict=True))
    several = len(set(names[0])) > 1
    try:
        return _written(fit_losses(widths, losses, families, *(names if several else ())))
    except ValueError as error:
        return {"missing": str(error)}


def notes(models: Sequence[dict[str, Any]]) -> list[str]:
    """What a reader should keep in mind."""
    said = []
    widths = {m["overlap"]["width"] for m in models}
    if len(widths) < ENOUGH:
        said.append(
            f"there are {len(widths)} different widths: a line through fewer than {ENOUGH} says "
            "little"
        )
    for m in models:
        found = m["overlap"]
        if found["width"] != found["hidden_width"]:
            said.append(
                f"{m['name']} has rows of {found['width']:,} numbers and states of "
                f"{found['hidden_width']:,}: overlaps are over the former, losses over the latter"
            )
    if len({loss["longest"] for m in models for loss in m["losses"].values()}) > 1:
        said.append(
            "models read texts of different lengths at most, so that their losses are not of the "
            "same tokens; --longest can make them alike"
        )
    predicted: dict[str, dict[str, set[int]]] = {}
    for m in models:
        for dataset, loss in m["losses"].items():
            own = predicted.setdefault(m["family"], {})
            own.setdefault(dataset, set()).add(loss["predicted"])
    for family, by_dataset in predicted.items():
        if any(len(counts) > 1 for counts in by_dataset.values()):
            said.append(
                f"models of the family {family} cut texts into different tokens: their losses a "
                "token are not of the same thing"
            )
    return said


def _written(fit: JointFit) -> dict[str, Any]:
    return {
        "exponent": fit.exponent,
        "error": finite(fit.exponent_error),
        "low": finite(fit.low),
        "high": finite(fit.high),
        "scale": fit.scale,
        "scale_error": finite(fit.scale_error),
        "offsets": [
            {
                "family": offset.family,
                "texts": offset.dataset,
                "value": offset.value,
                "error": finite(offset.error),
                "models": offset.points,
                "widths": offset.distinct,
            }
            for offset in fit.offsets
        ],
        "residual": fit.residual,
        "r_squared": finite(fit.r_squared),
        "points": fit.points,
        "freedom": fit.freedom,
        "at_edge": fit.at_edge,
    }


def _check_model(source: str, texts: bool) -> None:
    """A source without a loss is refused before anything is measured."""
    if not texts or source == SMOLLM2:
        return
    if source in list_vectors() or Path(source).is_file():
        raise ValueError(
            f"--texts needs models of transformers, and {source} is "
            f"{'a table' if source in list_vectors() else 'a file'}; give its folder"
        )


def _opened(source: str) -> Unembedding:
    try:
        return open_unembedding(source)
    except VectorsError as error:
        raise ValueError(f"{error}") from error
