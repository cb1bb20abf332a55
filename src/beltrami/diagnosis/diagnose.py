"""A diagnosis: part after part, each written when it is finished, and the page at the end.

diagnosis.json, an object with
    schema     "beltrami.diagnosis/2"
    method     of the parts, a number: those by another are computed again
    beltrami   the version that ran
    command    the command line that repeats it
    settings   the options, by name
    source     name, kind ("vectors", "distances" or "graph"), digest, and `facts`: sizes, and what
               was left out
    parts      by name, what the functions of this package return; those that the source does not
               allow are missing
    keys       by part, of what it was computed from: a part is computed again when that changes
    notes      what was left out, and what is wrong with the rest, in words
    verdict    answer, reason, level, worth_trying and rule; null without the part "tree-likeness"

Numbers that are not finite are null.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import torch

import beltrami
from beltrami.data.atomic import to_json, write_atomically
from beltrami.data.output_folder import OutputFolder
from beltrami.data.vectors import Unembedding, VectorsError
from beltrami.data.vectors.unembedding import as_rows, output_table
from beltrami.diagnosis.config import FEWEST, FILES, PARTS, DiagnoseConfig, Part
from beltrami.diagnosis.curvature import curvature
from beltrami.diagnosis.pictures import pictures
from beltrami.diagnosis.products import products
from beltrami.diagnosis.prompts import check_model, prompts
from beltrami.diagnosis.source import (
    Drawn,
    GraphSource,
    Source,
    Tick,
    VectorSource,
    open_source,
    sample_rows,
)
from beltrami.diagnosis.superposition import superposition
from beltrami.diagnosis.table import table
from beltrami.diagnosis.tree_likeness import tree_likeness
from beltrami.diagnosis.verdict import judge
from beltrami.diagnosis.words import wordfreq_version, words
from beltrami.models.pretrained.opening import model_fingerprint
from beltrami.options import refuse_given
from beltrami.report.page import render

SCHEMA = "beltrami.diagnosis/2"
DOCUMENT, REPORT = "diagnosis.json", "report.html"
METHOD = 3  # of the parts: another number where they change what they compute
_USES: dict[str, tuple[str, ...]] = {  # options, besides the source, that a part depends on
    "tree-likeness": ("sample", "repeats", "seed", "metric"),
    "curvature": ("sample", "repeats", "seed", "metric"),
    "pictures": ("sample", "seed", "metric"),
    "products": ("sample", "seed", "metric"),
    "vectors": ("sample", "repeats", "seed", "metric"),
    "superposition": ("seed",),
    "words": ("frequencies", "metric"),
    "prompts": ("texts", "task", "prompts", "layer", "metric", "seed"),
}


class Watcher(Protocol):
    """Follows the work: a progress bar, a test."""

    def started(self, what: str) -> None:
        """A piece of work begins."""

    def moved(self, share: float) -> None:
        """A share of it is done."""

    def finished(self, what: str, reused: bool) -> None:
        """It ended, or an earlier result was reused."""


class Silent:
    """The watcher that ignores all events."""

    def started(self, what: str) -> None:
        """Ignore the start."""

    def moved(self, share: float) -> None:
        """Ignore the progress."""

    def finished(self, what: str, reused: bool) -> None:
        """Ignore the end."""


@dataclass(frozen=True)
class Diagnosis:
    """What was found, and where it was written."""

    document: dict[str, Any]
    path: Path
    report: Path


def diagnose(config: DiagnoseConfig, watcher: Watcher | None = None) -> Diagnosis:
    """Measure, and write diagnosis.json and report.html.

    Raises:
        ValueError: what is wrong with an option, the source or the folder.
    """
    config.check()
    check_model(config)
    watcher = watcher or Silent()
    watcher.started("reading")
    source = open_source(config, watcher.moved)
    _check_applies(config, source)
    watcher.finished("reading", False)
    folder = OutputFolder(config.folder)
    folder.check_writable()
    with folder.locked():
        return _Work(config, source, watcher).run()


def _check_applies(config: DiagnoseConfig, source: Source) -> None:
    """Refuse options that this source, or the parts that are asked for, would ignore."""
    if not isinstance(source, VectorSource):
        what = f"{source.name} is not a table of vectors"
        refuse_given(config, ("metric", "frequencies"), what)
    if isinstance(source, GraphSource):
        refuse_given(config, ("tensor", "label", "besides"), f"{source.name} is a graph")
    has_prompts = config.texts or config.task
    if not has_prompts:
        refuse_given(config, ("layer", "prompts"), "there are no prompts; give --texts or --task")
    if config.frequencies is not None and "words" not in config.only:
        raise ValueError("--frequencies is for the part words, which --only leaves out")
    if has_prompts and config.of == "embeddings" and "prompts" not in config.only:
        raise ValueError("--texts and --task are for the part prompts, which --only leaves out")


class _Work:
    def __init__(self, config: DiagnoseConfig, source: Source, watcher: Watcher) -> None:
        self.config, self.source, self.watcher = config, source, watcher
        self.path = config.folder / DOCUMENT

    def run(self) -> Diagnosis:
        before = self._before()
        makers = self._makers()
        if not any(name in self.config.only for name in makers):
            raise ValueError(
                f"--only {' '.join(self.config.only)}: none of these can be computed of "
                f"{self.source.name}; it has {', '.join(makers)}"
            )
        # Only these: the key of another part may need files that no option names.
        of_use = {*self.config.only, *before.get("parts", {})}
        keys: dict[str, str] = {name: self._key(name) for name in makers if name in of_use}
        parts = self._still_right(before, keys)
        for name, make in makers.items():
            if name not in self.config.only:
                continue
            known = name in parts
            if not known:
                self.watcher.started(name)
                parts[name] = make(self.watcher.moved)
                self._write(self._document(parts, keys))
            self.watcher.finished(name, known)
        document = self._document(parts, keys)
        self._write(document)
        from beltrami.diagnosis.report import diagnosis_page

        report = self.config.folder / REPORT
        write_atomically(report, render(diagnosis_page(document)))
        return Diagnosis(document, self.path, report)

    def _still_right(self, before: dict[str, Any], keys: dict[str, str]) -> dict[str, Any]:
        """Parts of an earlier diagnosis that these options would compute again.

        Prompts are kept if this time there are none. A part that lacked something is tried again.
        """
        stored_keys = dict(before.get("keys", {}))
        other = before and before["source"]["kind"] != self.source.what
        if other or before.get("method") != METHOD:
            stored_keys = {}
        parts = {
            name: before["parts"][name]
            for name, key in stored_keys.items()
            if name in before["parts"]
            and (keys.get(name) == key or (name == "prompts" and name not in keys))
            and "missing" not in before["parts"][name]
        }
        keys.update({name: before["keys"][name] for name in parts})
        return parts

    def _makers(self) -> dict[Part, Callable[[Tick], dict[str, Any]]]:
        """What can be computed of this source."""
        config, source = self.config, self.source
        makers: dict[Part, Callable[[Tick], dict[str, Any]]] = {
            "tree-likeness": lambda tick: tree_likeness(source, self._drawn, config.seed, tick),
            "curvature": lambda tick: curvature(
                source, self._drawn[0], config.repeats, config.seed, tick
            ),
            "products": lambda tick: products(self._drawn[0], config.seed, tick),
            "pictures": lambda tick: pictures(source, self._drawn[0], config.seed, tick),
        }
        if isinstance(source, VectorSource):
            makers["vectors"] = lambda tick: table(source, torch.cat(self._rows).unique(), tick)
            if config.of == "embeddings":
                makers["superposition"] = self._superposition
            makers["words"] = lambda tick: words(source, config.frequencies, tick)
        if config.texts or config.task:
            makers["prompts"] = lambda tick: prompts(config, tick)
        return makers

    @cached_property
    def _rows(self) -> list[torch.Tensor]:
        """The points of each sample."""
        config = self.config
        return list(sample_rows(self.source.count, config.sample, config.repeats, config.seed))

    @cached_property
    def _drawn(self) -> list[Drawn]:
        """The samples, drawn when the first part needs them."""
        drawn = [self.source.draw(rows) for rows in self._rows]
        if all(float(sample.distances.max()) > 0 for sample in drawn):
            return drawn
        points, name = len(drawn[0].rows), self.source.name
        if self.source.count <= self.config.sample:
            raise ValueError(
                f"all {points} points of {name} coincide: there is no geometry to find"
            )
        raise ValueError(
            f"all {points} points of a sample of {name} coincide: if not all points do, "
            "give a larger --sample"
        )

    @cached_property
    def _output(self) -> Unembedding | str:
        """The table whose overlaps are measured, or why it cannot be read.

        Without a model it is the source's own rows. An error is raised only if this part was asked
        for, not if it is looked at because an earlier diagnosis measured it.
        """
        config = self.config
        assert isinstance(self.source, VectorSource)
        try:
            named = config.tensor or config.label or config.besides
            unembedding = None if named else output_table(config.source)
        except VectorsError as error:
            if "superposition" in config.only:
                raise
            return str(error)
        return unembedding or as_rows(self.source.vectors)

    def _superposition(self, tick: Tick) -> dict[str, Any]:
        assert isinstance(self._output, Unembedding)  # else it raised
        return superposition(self._output, tick, seed=self.config.seed)

    def _key(self, name: str) -> str:
        """The hash of all that a part's numbers depend on."""
        settings = self.config.settings()
        used = {option: settings[option] for option in _USES[name]}
        for option in FILES:
            if used.get(option):
                used[option] = hashlib.sha256(Path(used[option]).read_bytes()).hexdigest()
        if name == "words":
            used["wordfreq"] = wordfreq_version()
        if name == "prompts":
            used["model"] = model_fingerprint(self.config.source)
        if name == "superposition":
            used["table"] = self._output_key()
        key = [METHOD, self.source.digest, self.source.what, used]
        return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()

    def _output_key(self) -> list[Any]:
        """What identifies the output table, beyond the source's own digest."""
        output, source = self._output, self.source
        assert isinstance(source, VectorSource)
        if isinstance(output, str):
            return [output]
        vectors = output.vectors
        # A tensor of the file that the source's digest is of needs no second look at all of it.
        other = "" if vectors.path == source.vectors.path else vectors.digest()
        return [output.role, output.hidden, vectors.tensor, list(vectors.tokenless), other]

    def _before(self) -> dict[str, Any]:
        """What the folder holds already, if it is of the same source."""
        before = OutputFolder(self.config.folder).document(DOCUMENT, SCHEMA, "diagnosis")
        if before is None or self.config.fresh:
            return {}
        if before.get("source", {}).get("digest") != self.source.digest:
            raise ValueError(
                f"{self.path} is of other data; give --fresh to replace it, or another --out"
            )
        return before

    def _document(self, parts: dict[str, Any], keys: dict[str, str]) -> dict[str, Any]:
        tree = parts.get("tree-likeness")
        source = self.source
        broken = source.facts.get("triangle_violation_rate", 0.0)
        verdict = judge(tree, parts.get("curvature"), broken).as_dict() if tree else None
        return {
            "schema": SCHEMA,
            "method": METHOD,
            "beltrami": beltrami.__version__,
            "command": self.config.command(),
            "settings": self.config.settings(),
            "source": {
                "name": source.name,
                "kind": source.what,
                "digest": source.digest,
                "points": source.count,
                "facts": source.facts,
            },
            "notes": [*source.notes(), *self._few_points()],
            "verdict": verdict,
            "parts": {name: parts[name] for name in PARTS if name in parts},
            "keys": {name: keys[name] for name in PARTS if name in parts},
        }

    def _few_points(self) -> list[str]:
        count = self.source.count
        few = f"{count} points are few: with less than {FEWEST} no difference to noise can be told"
        return [few] if count < FEWEST else []

    def _write(self, document: dict[str, Any]) -> None:
        write_atomically(self.path, to_json(document))
