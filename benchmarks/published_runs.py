"""Runs of recipes that take a GPU or an hour, kept beside what papers report.

`python -m benchmarks.published_runs FOLDER...` takes the metrics.json of finished runs, keeps it in
benchmarks/results/runs, and writes all that are kept there into benchmarks/RESULTS.md.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from beltrami.analysis.intervals import Interval
from beltrami.data.atomic import to_json, write_atomically
from beltrami.recipes.folder import read_document
from benchmarks import machine, markers
from benchmarks.command import execute
from benchmarks.superposition_losses import loss_lines

FOLDER = machine.ROOT / "benchmarks/results/runs"
PAGE = machine.ROOT / "benchmarks/RESULTS.md"
PART = "published runs"
MOST_NAMED = 4  # models in the name of a run
MOST_COMPARED = 2  # metrics whose differences to the twin are shown


@dataclass(frozen=True)
class Published:
    """What a paper reports: of a recipe's data, in so many dimensions."""

    recipe: str
    data: str
    who: str
    values: dict[str, float]


PUBLISHED = (
    Published(
        "hierarchy",
        "wordnet-nouns",
        "Poincaré ball, Nickel and Kiela (2017), 10 dimensions",
        {"map": 0.851, "mean_rank": 4.02},
    ),
    Published(
        "hierarchy",
        "wordnet-nouns",
        "Lorentz, Nickel and Kiela (2018), 10 dimensions, a closure of 769,130 pairs",
        {"map": 0.928, "mean_rank": 2.95},
    ),
    Published("knowledge-graph", "WN18RR", "RotH, Chami et al. (2020), 32", {"mrr": 0.472}),
    Published("knowledge-graph", "WN18RR", "AttH, Chami et al. (2020), 32", {"mrr": 0.466}),
    Published("knowledge-graph", "WN18RR", "RotE, Chami et al. (2020), 32", {"mrr": 0.463}),
)


@dataclass(frozen=True)
class Options:
    """Keep finished runs and write them into benchmarks/RESULTS.md."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional] = ()
    """Folders of finished runs, or their metrics.json; none writes the page again."""
    commit: str = ""
    """The commit they were made at, where it is not the checkout's."""
    note: str = ""
    """A sentence to stand above the tables of these runs."""
    label: str = ""
    """What tells these runs from others of the same recipe, data and models: part of their name."""


class NotARunError(ValueError):
    """A folder or file that holds no finished run."""


def keep(
    run: Path, commit: str, folder: Path | None = None, note: str = "", label: str = ""
) -> Path:
    """Copy what a run found to a folder, with the commit and without anybody's paths."""
    document = read(run / "metrics.json" if run.is_dir() else run)
    document["commit"] = commit
    if note:
        document["note"] = note
    if label:
        document["label"] = label
    document["command"] = without_paths(document["command"], document["data"]["name"])
    document["settings"]["data"] = document["data"]["name"]
    for key in ("model", "tests"):
        if key in document["settings"]:
            named = document["data"][key]
            document["settings"][key] = named if isinstance(named, str) else list(named)
    base = [document["data"]["model"]] if "model" in document["data"] else []
    words = [document["recipe"], *base, document["data"]["name"], *_shown_models(document), label]
    name = "-".join(filter(None, words))
    folder = folder or FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{re.sub(r'[^A-Za-z0-9._-]+', '_', name)}.json"
    write_atomically(path, to_json(document))
    return path


def read(path: Path) -> dict[str, Any]:
    """What a metrics.json says."""
    document = read_document(path)
    if document is None:
        raise NotARunError(f"{path} is not the metrics.json of a finished run")
    return document


def without_paths(command: str, data: str) -> str:
    """A command to be typed anywhere: without --out, with the data's name or files' own names."""
    words = []
    for word in shlex.split(command):
        if word.startswith("--out="):
            continue
        option, sign, value = word.partition("=") if word.startswith("-") else ("", "", word)
        is_file = value.endswith((".json", ".jsonl"))
        if is_file or value.startswith(("/", ".", "~")):  # not the name of a model: org/model
            value = Path(value).name
        own = option == "--data" and not is_file
        words.append(f"--data={data}" if own else f"{option}{sign}{value}")
    return shlex.join(words)


def page(documents: list[dict[str, Any]]) -> str:
    """All runs, one after another."""
    return "\n".join(line for document in documents for line in _section(document))


def _section(document: dict[str, Any]) -> Iterator[str]:
    data, where = document["data"], document["environment"]
    hardware = where.get("hardware", where["device"])
    seeds = document["settings"]["seeds"]
    models = ", ".join(_shown_models(document))
    title = ": ".join(filter(None, [data["name"], models, document.get("label")]))
    yield f"### {title}"
    yield ""
    times = f"{seeds} seeds; ± is a 95% interval" if seeds > 1 else "One seed"
    yield f"Command: `{document['command']}`. Commit {document['commit']}. {hardware}, torch "
    yield f"{where['torch']}. {times}."
    if where.get("jobs", 1) > 1:
        yield f"Up to {where['jobs']} trials were trained at once, so that seconds say little."
    if "note" in document:
        yield document["note"]
    yield ""
    lines = document["summary"]
    metrics = [m for m in document["metrics"] if any(m["key"] in line["metrics"] for line in lines)]
    judged = [m for m in metrics if m["better"]][:MOST_COMPARED] or metrics[:1]
    if all(line["twin"] is None for line in lines):
        judged = []  # nobody to differ from
    titles: list[str] = []
    for m in metrics:
        titles += [m["title"], *([f"{m['title']} − twin's"] if m in judged else [])]
    yield "| " + " | ".join(["who", *titles, "seconds of training"]) + " |"
    yield "|---" * (len(titles) + 2) + "|"
    for line in lines:
        cells = []
        for m in metrics:
            found = line["metrics"].get(m["key"])
            cells.append(_value(found, m["digits"]))
            cells += [_difference(found, m["digits"])] if m in judged else []
        yield "| " + " | ".join([_who(line), *cells, _seconds(document, line)]) + " |"
    for known in PUBLISHED:
        if (known.recipe, known.data) == (document["recipe"], data["name"]):
            cells = []
            for m in metrics:
                value = known.values.get(m["key"])
                cells += ["" if value is None else f"{value:g}", *([""] if m in judged else [])]
            yield "| " + " | ".join([f"published: {known.who}", *cells, ""]) + " |"
    if document["recipe"] == "superposition":
        yield from loss_lines(document)
    yield ""


def _models(document: dict[str, Any]) -> list[str]:
    return [line["model"] for line in document["summary"] if line["twin"] is not None]


def _shown_models(document: dict[str, Any]) -> list[str]:
    """Enough of them to name a run by."""
    every = list(dict.fromkeys(_models(document)))  # in several groups, once
    return every if len(every) <= MOST_NAMED else [*every[:MOST_NAMED], f"{len(every)} in all"]


def _who(line: dict[str, Any]) -> str:
    return ", ".join(filter(None, [line["model"], line["group"]]))


def _value(found: dict[str, Any] | None, digits: int) -> str:
    value = None if found is None else found["value"]
    if value is None or value["mean"] is None:
        return ""
    return Interval(**value).format(digits)


def _difference(found: dict[str, Any] | None, digits: int) -> str:
    gap = None if found is None else found["difference"]
    if gap is None or gap["mean"] is None:
        return ""
    said = Interval(**gap).format(digits)
    return f"{said} ({found['verdict']})" if found and found["verdict"] else said


def _seconds(document: dict[str, Any], line: dict[str, Any]) -> str:
    """Of one training, in the mean over the seeds of what was chosen."""
    same = [
        trial["seconds"]
        for trial in document["trials"]
        if all(trial[key] == line[key] for key in ("model", "group", "choice"))
    ]
    return f"{sum(same) / len(same):.0f}" if same else ""


def run(options: Options) -> int:
    try:
        for folder in options.runs:
            path = keep(
                folder, options.commit or machine.commit(), note=options.note, label=options.label
            )
            print(f"kept {path.name}")
    except NotARunError as error:
        print(error, file=sys.stderr)
        return 2
    documents = [read(path) for path in sorted(FOLDER.glob("*.json"))]
    markers.replace(PAGE, PART, page(documents) or "No run is kept yet.")
    print(f"wrote {PAGE.relative_to(machine.ROOT)}")
    return 0


if __name__ == "__main__":
    execute(run, Options)
