"""Diagnoses of real tables of vectors, side by side in the guide.

`beltrami diagnose NAME` for smollm2, minilm, wordllama and glove, then
`python -m benchmarks.diagnoses FOLDER...` keeps what they found in benchmarks/results/diagnoses and
writes all that are kept there into docs/tree-likeness.md.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from beltrami.analysis.intervals import Interval
from beltrami.data.atomic import to_json, write_atomically
from beltrami.diagnosis.config import DiagnoseConfig
from beltrami.diagnosis.diagnose import DOCUMENT, SCHEMA
from benchmarks import machine, markers
from benchmarks.command import execute

FOLDER = machine.ROOT / "benchmarks/results/diagnoses"
PAGE = machine.ROOT / "docs/tree-likeness.md"
PART = "diagnoses"
KEPT = ("tree-likeness", "curvature", "vectors", "words")


@dataclass(frozen=True)
class Options:
    """Keep diagnoses and write them into docs/tree-likeness.md."""

    folders: Annotated[tuple[Path, ...], tyro.conf.Positional] = ()
    """Folders of `beltrami diagnose`; none writes the page again."""
    commit: str = ""
    """The commit they were made at, where it is not the checkout's."""


class NotADiagnosisError(ValueError):
    """A folder that holds none."""


def keep(folder: Path, commit: str, kept: Path | None = None) -> Path:
    """Copy what the table needs, without anybody's paths."""
    document = read(folder / DOCUMENT)
    name = document["source"]["name"]
    missing = [part for part in KEPT if part not in document["parts"]]
    usual = DiagnoseConfig(document["settings"]["source"]).settings()
    if missing or document["settings"] != usual:
        raise NotADiagnosisError(
            f"{folder} was not made with the usual options"
            + (f", and has no {', '.join(missing)}" if missing else "")
        )
    small = {
        "schema": SCHEMA,
        "command": f"beltrami diagnose {name}",
        "commit": commit,
        "source": document["source"],
        "verdict": document["verdict"],
        "parts": {part: document["parts"][part] for part in KEPT},
    }
    small["parts"]["vectors"]["norms"].pop("quantiles", None)
    target = kept or FOLDER
    target.mkdir(parents=True, exist_ok=True)
    path = target / f"{name}.json"
    write_atomically(path, to_json(small))
    return path


def read(path: Path) -> dict[str, Any]:
    """A diagnosis.json."""
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if found["schema"] in (SCHEMA, "beltrami.diagnosis/1"):
            return found
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NotADiagnosisError(f"{path} is not a diagnosis") from error
    raise NotADiagnosisError(f"{path} is not a diagnosis")


def table(documents: list[dict[str, Any]]) -> str:
    """One column a source."""
    names = [document["source"]["name"] for document in documents]
    commits = sorted({document["commit"] for document in documents})
    lines = [
        f"Commands: `beltrami diagnose NAME`. Commit {', '.join(commits)}.",
        "",
        "| | " + " | ".join(names) + " |",
        "|---" * (len(names) + 1) + "|",
    ]
    rows = [dict(_cells(document)) for document in documents]
    for title in rows[0]:
        lines.append(f"| {title} | " + " | ".join(row.get(title, "–") for row in rows) + " |")
    return "\n".join(lines)


def _score(tree: dict[str, Any]) -> Any:
    """Under its name, or the one of schema beltrami.diagnosis/1."""
    return tree.get("tree_likeness_score", tree.get("way_from_noise_to_a_tree"))


def _cells(document: dict[str, Any]) -> list[tuple[str, str]]:
    facts, parts = document["source"]["facts"], document["parts"]
    tree, fits = parts["tree-likeness"], parts["curvature"]
    best = [f["dimensions"] for f in fits["fits"]].index(fits["best_dimensions"])
    data, noise = fits["fits"][best], fits["noise_fits"][best]
    found = [
        ("rows × columns", f"{facts['rows']:,} × {facts['dimensions']:,}"),
        ("relative δ", _interval(tree["relative_delta"]["data"])),
        ("of noise of the same spread", _interval(tree["relative_delta"]["noise"])),
        ("and of the same lengths", _interval(tree["relative_delta"]["noise of equal lengths"])),
        ("**excess over the lower**", f"**{_interval(tree['excess_over_noise'])}**"),
        ("way from noise (0) to a tree (1)", _interval(_score(tree))),
        ("dimensions of the best embedding", f"{data['dimensions']}"),
        ("its distortion, hyperbolic", f"{data['distortion']:.3f}"),
        ("flat", f"{data['flat_distortion']:.3f}"),
        ("of noise, hyperbolic", f"{noise['distortion']:.3f}"),
        ("intrinsic dimension", f"{parts['vectors']['intrinsic_dimension']['two_nearest']:.0f}"),
        ("mean cosine", f"{parts['vectors']['isotropy']['mean_cosine']:.3f}"),
    ]
    words = parts.get("words", {})
    if "words" in words:
        correlation = words["spearman_of_norm_and_frequency"]
        found.append(("rank correlation of norm and frequency", f"{correlation['value']:+.3f}"))
        found.append(("words with a frequency", f"{words['words']:,}"))
    return [*found, ("verdict", f"{document['verdict']['level']}")]


def _interval(found: dict[str, float | None]) -> str:
    mean = found["mean"]
    return "–" if mean is None else Interval(mean, found["half_width"]).format()


def run(options: Options) -> int:
    try:
        for folder in options.folders:
            print(f"kept {keep(folder, options.commit or machine.commit()).name}")
    except NotADiagnosisError as error:
        print(error, file=sys.stderr)
        return 2
    documents = [json.loads(p.read_text(encoding="utf-8")) for p in sorted(FOLDER.glob("*.json"))]
    markers.replace(PAGE, PART, table(documents) if documents else "No diagnosis is kept yet.")
    print(f"wrote {PAGE.relative_to(machine.ROOT)}")
    return 0


if __name__ == "__main__":
    execute(run, Options)
