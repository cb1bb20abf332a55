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
from functools import cache
from pathlib import Path
from typing import Any

import torch

from beltrami.analysis.superposition import fit_exponent, fit_losses
from beltrami.data.atomic import to_json, write_atomically
from beltrami.data.output_folder import OutputFolder, read_object
from beltrami.data.vectors import Unembedding, VectorsError, list_vectors, open_unembedding
from beltrami.diagnosis.diagnose import Silent, Watcher
from beltrami.diagnosis.numbers import finite, plain
from beltrami.diagnosis.superposition import superposition
from beltrami.models.pretrained.opening import SMOLLM2, load_causal, model_fingerprint
from beltrami.recipes.documents import Written, head, write
from beltrami.recipes.family.config import FamilyConfig
from beltrami.recipes.family.losses import Tick, read_texts, text_loss
from beltrami.recipes.family.report import family_page

SCHEMA = "beltrami.family/1"
DOCUMENT, MEASURED = "family.json", "measured"
METHOD = 2  # of the measurements: another number where they change what they compute
NO_FAMILY = "vectors"  # of tables that are not models
ENOUGH = 5  # widths, below which a line says little
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def measure_family(config: FamilyConfig, watcher: Watcher | None = None) -> Written:
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
        # Opened first: a name that is wrong is an error before hours of work, not after.
        tables = [_opened(model) for model in config.models]
        families = config.families or [table.family or NO_FAMILY for table in tables]
        measuring = _Measuring(config, watcher or Silent())
        models = [
            {
                "name": table.vectors.name,
                "source": source,
                "family": family,
                "overlap": measuring.overlap(table),
                "losses": dict(measuring.losses(source, table.vectors.name, texts)),
            }
            for source, table, family in zip(config.models, tables, families, strict=True)
        ]
        document = {
            **head(config, SCHEMA),
            "models": models,
            "overlap_fits": {
                "raw": overlap_fit(models, "mean_squared"),
                "centred": overlap_fit(models, "mean_squared_centred"),
            },
            "loss_fit": loss_fit(models) if texts else None,
            "notes": notes(models),
        }
        return write(config.folder, DOCUMENT, document, family_page(document))


class _Measuring:
    """Measurements of models; those that are there already are not made again."""

    def __init__(self, config: FamilyConfig, watcher: Watcher) -> None:
        self.config, self.watcher = config, watcher

    def overlap(self, table: Unembedding) -> dict[str, Any]:
        pairs, seed = self.config.pairs, self.config.seed
        inputs = ["overlap", table.vectors.digest(), table.role, table.hidden]
        inputs += [list(table.vectors.tokenless), pairs, seed]
        return self._stored(
            f"{table.vectors.name}: overlap",
            inputs,
            lambda tick: superposition(table, tick, pairs=pairs, seed=seed),
        )

    def losses(
        self, source: str, name: str, texts: dict[str, list[str]]
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Of each of the texts; the model is read once, and only where one is new."""
        config = self.config
        loaded = cache(lambda: self._loaded(source))
        for dataset, lines in texts.items():
            sha = hashlib.sha256("\0".join(lines).encode("utf-8", "surrogatepass")).hexdigest()

            def measure(tick: Tick, lines: list[str] = lines) -> dict[str, Any]:
                longest, batch = config.longest, config.batch
                try:
                    result = text_loss(*loaded(), lines, longest=longest, batch=batch, tick=tick)
                except ValueError as error:
                    raise ValueError(f"{source}: {error}") from error
                return {k: v if k == "loss" else int(v or 0) for k, v in plain(result).items()}

            inputs = ["loss", model_fingerprint(source), sha, config.longest, config.dtype]
            yield dataset, self._stored(f"{name}: loss on {dataset}", inputs, measure)

    def _loaded(self, source: str) -> tuple[Any, Any]:
        """A model where it computes, and its tokenizer."""
        device = self.config.device
        gpu = device != "cpu" and torch.cuda.is_available()
        if device == "cuda" and not gpu:
            raise ValueError("--device cuda: there is no GPU that torch can use; give --device cpu")
        model, tokenizer = load_causal(source, _DTYPES[self.config.dtype])
        return model.to("cuda" if gpu else "cpu"), tokenizer

    def _stored(
        self, what: str, inputs: Sequence[Any], measure: Callable[[Tick], dict[str, Any]]
    ) -> dict[str, Any]:
        """A measurement, or what it was when it was made of the same inputs."""
        text = json.dumps([METHOD, *inputs], sort_keys=True)
        path = self.config.folder / MEASURED / f"{hashlib.sha256(text.encode()).hexdigest()}.json"
        if not self.config.fresh and (known := read_object(path)) is not None:
            self.watcher.finished(what, True)
            return known
        self.watcher.started(what)
        measured = measure(self.watcher.moved)
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, to_json(measured))
        self.watcher.finished(what, False)
        return measured


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
        fit = fit_losses(widths, losses, families, *(names if several else ()))
    except ValueError as error:
        return {"missing": str(error)}
    numbers = fit.as_json()
    offsets = [
        {
            "family": offset["family"],
            "texts": offset["dataset"],
            "value": offset["value"],
            "error": offset["error"],
            "models": offset["points"],
            "widths": offset["distinct"],
        }
        for offset in numbers["offsets"]
    ]
    same = ("low", "high", "scale", "scale_error", "residual", "r_squared", "points", "freedom")
    return {
        "exponent": fit.exponent,
        "error": numbers["exponent_error"],
        **{name: numbers[name] for name in same},
        "at_edge": fit.at_edge,
        "offsets": offsets,
    }


def notes(models: Sequence[dict[str, Any]]) -> list[str]:
    """What a reader should keep in mind."""
    lines = []
    widths = {m["overlap"]["width"] for m in models}
    if len(widths) < ENOUGH:
        lines.append(
            f"there are {len(widths)} different widths: a line through fewer than {ENOUGH} says "
            "little"
        )
    for m in models:
        rows, states = m["overlap"]["width"], m["overlap"]["hidden_width"]
        if rows != states:
            lines.append(
                f"{m['name']} has rows of {rows:,} numbers and states of {states:,}: overlaps are "
                "over the former, losses over the latter"
            )
    if len({loss["longest"] for m in models for loss in m["losses"].values()}) > 1:
        lines.append(
            "models read texts of different lengths at most, so that their losses are not of the "
            "same tokens; --longest can make them alike"
        )
    predicted: dict[str, dict[str, int]] = {}
    unlike: list[str] = []  # families
    for m in models:
        first = predicted.setdefault(m["family"], {})
        counts = {dataset: loss["predicted"] for dataset, loss in m["losses"].items()}
        if any(first.setdefault(dataset, n) != n for dataset, n in counts.items()):
            unlike.append(m["family"])
    return lines + [
        f"models of the family {family} cut texts into different tokens: their losses a token are "
        "not of the same thing"
        for family in dict.fromkeys(unlike)
    ]


def _check_model(source: str, texts: bool) -> None:
    """A source without a loss is refused before anything is measured."""
    kind = "a table" if source in list_vectors() else "a file" if Path(source).is_file() else ""
    if texts and kind and source != SMOLLM2:
        raise ValueError(
            f"--texts needs models of transformers, and {source} is {kind}; give its folder"
        )


def _opened(source: str) -> Unembedding:
    try:
        return open_unembedding(source)
    except VectorsError as error:
        raise ValueError(f"{error}") from error
