"""The published grid of toy models, made again: cell by cell, and which statements hold.

    beltrami run superposition --preset paper --no-check-steps --jobs 1 --laws power:0 ... power:2
    python -m benchmarks.superposition_grid FOLDER...

keeps the losses of finished runs in benchmarks/results/superposition_grid.json, beside those that
are kept already, and writes benchmarks/RESULTS.md. Takes only runs with the paper's settings.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from beltrami.analysis.intervals import mean_interval
from beltrami.analysis.superposition import fit_exponent
from beltrami.data.atomic import write_atomically
from beltrami.recipes.superposition.config import TWIN
from beltrami.recipes.superposition.laws import law_number
from beltrami.recipes.superposition.measures import HALF, LOSS, ONE, StackSettings, key
from beltrami.recipes.superposition.published import NEAR as SAME
from beltrami.recipes.superposition.published import (
    has_published_settings,
    published,
    published_exponent,
    published_loss_of_one_width,
    published_losses,
    published_share,
)
from benchmarks import machine, markers
from benchmarks.command import execute
from benchmarks.published_runs import without_paths

FILE = machine.ROOT / "benchmarks/results/superposition_grid.json"
PAGE = machine.ROOT / "benchmarks/RESULTS.md"
PART = "superposition grid"
DIGITS = 5
NEAR = 0.1  # of a predicted exponent, on average: a statement holds
WITHIN = 0.1  # of the published losses, as a share
STRONG = (-0.778, -0.556, -0.333)  # gammas of the paper's figure 6e, which makes the statements
WEAK = (0.111, 0.333, 0.556)


@dataclass(frozen=True)
class Options:
    """Keep runs of the published grid and write them into benchmarks/RESULTS.md."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional] = ()
    """Folders of finished runs; none writes the page again."""
    commit: str = ""
    """The commit they were made at, where it is not the checkout's."""
    out: Path | None = None
    """Write the JSON file here instead, and leave the page alone."""


@dataclass(frozen=True)
class Cell:
    """One training of all widths at one law, density, gamma and seed.

    Args:
        exponent: of the law. density: features a sample. shares: φ½ by width. ones: φ₁.
    """

    exponent: float
    density: float
    gamma: float
    seed: int
    losses: tuple[float, ...]
    shares: tuple[float, ...]
    ones: tuple[float, ...]

    @property
    def place(self) -> tuple[float, float, float, int]:
        """What tells it from all others."""
        return self.exponent, self.density, self.gamma, self.seed


class NotTheGridError(ValueError):
    """A folder that holds no finished run of the grid."""


def read_run(folder: Path) -> tuple[dict[str, Any], list[Cell]]:
    """What a run was, and its cells."""
    try:
        document = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
        found = [
            json.loads(path.read_text(encoding="utf-8"))
            for path in sorted(folder.glob("trials/*/result.json"))
        ]
    except (OSError, ValueError) as error:
        raise NotTheGridError(f"{folder} holds no finished run ({error})") from error
    if document.get("recipe") != "superposition":
        raise NotTheGridError(f"{folder} is a run of {document.get('recipe')}")
    cells = []
    for result in found:
        trial = result["trial"]
        settings = StackSettings.from_record(trial["settings"])
        if trial["model"] != TWIN or not settings.law.startswith("power:"):
            continue
        if not has_published_settings(settings):
            raise NotTheGridError(f"{folder} has other settings than the paper's grid")
        exponent, density = law_number(settings.law), settings.density
        for regime in settings.regimes:
            if regime.gamma is not None:
                curves = (result["curves"][key(name, regime)] for name in (LOSS, HALF, ONE))
                lists = (tuple(round(float(v), DIGITS) for v in values) for values in curves)
                cells.append(Cell(exponent, density, regime.gamma, trial["seed"], *lists))
    if not cells:
        raise NotTheGridError(f"{folder} has no power laws")
    about = {
        "command": without_paths(document["command"], ""),
        "hardware": document["environment"].get("hardware", ""),
        "torch": document["environment"]["torch"],
    }
    return about, cells


def merge(
    before: dict[str, Any], runs: Sequence[tuple[dict[str, Any], list[Cell]]], commit: str
) -> dict[str, Any]:
    """Cells by place; a later run's take the place of an earlier one's."""
    cells = {Cell(**_tuples(c)).place: Cell(**_tuples(c)) for c in before.get("cells", [])}
    made = list(before.get("made", []))
    for about, new in runs:
        cells |= {cell.place: cell for cell in new}
        made.append({**about, "commit": commit})
    return {"made": made, "cells": [asdict(cells[place]) for place in sorted(cells)]}


def _tuples(cell: dict[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in cell.items()}


# --- the page -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Statement:
    """What the paper says of some cells' exponents.

    Args:
        regime: strong or weak. gammas: which are called so. data: which data exponents, in words.
        applies: to a data exponent. formula: in words, of the data exponent a. predicts: it.
    """

    regime: str
    gammas: tuple[float, ...]
    data: str
    applies: Callable[[float], bool]
    formula: str
    predicts: Callable[[float], float]

    @property
    def words(self) -> str:
        """With the gammas, since the verdict depends on them."""
        gammas = ", ".join(f"{gamma:g}" for gamma in self.gammas).replace("-", "−")
        return (
            f"{self.regime} superposition (γ = {gammas}), data exponent {self.data}: the exponent "
            f"is {self.formula}"
        )

    def of(self, a: float, gamma: float) -> bool:
        """Whether it is on a cell."""
        return self.applies(a) and any(abs(gamma - known) <= SAME for known in self.gammas)


STATEMENTS = (
    Statement("strong", STRONG, "up to 1", lambda a: a <= 1, "1", lambda a: 1.0),
    Statement("strong", STRONG, "above 1.5", lambda a: a > 1.5, "2(a − 1)", lambda a: 2 * (a - 1)),
    Statement("weak", WEAK, "from 1.5", lambda a: a >= 1.5, "a − 1", lambda a: a - 1),
    Statement("weak", WEAK, "1 to 1.5", lambda a: 1 <= a < 1.5, "a − 1", lambda a: a - 1),
)


def exponents(cells: Sequence[Cell], first: int = 0) -> dict[tuple[float, float], list[float]]:
    """Of the samples with one feature on average, by data exponent and gamma, one a seed."""
    widths = published()["settings"]["widths"]
    found: dict[tuple[float, float], list[float]] = {}
    for cell in cells:
        if abs(cell.density - 1) < 1e-3:
            fit = fit_exponent(widths, cell.losses, first=first)
            found.setdefault((cell.exponent, cell.gamma), []).append(fit.exponent)
    return found


def judged(cells: Sequence[Cell]) -> list[list[str]]:
    """A row a statement: mean distance from what it predicts, by window, and a verdict.

    First that of the published exponents of the same cells, which are over all widths.
    """
    rows = []
    widths = published()["settings"]["widths"]
    for statement in STATEMENTS:
        off = []
        for first in range(3):
            apart = [
                statistics.fmean(values) - statement.predicts(a)
                for (a, gamma), values in exponents(cells, first).items()
                if statement.of(a, gamma)
            ]
            off.append(apart)
        if not off[0]:
            continue
        theirs = [
            exponent - statement.predicts(a)
            for a, gamma in exponents(cells)
            if statement.of(a, gamma) and (exponent := published_exponent(a, gamma)) is not None
        ]
        holds = [statistics.fmean(map(abs, apart)) <= NEAR for apart in off]
        verdict = "holds" if all(holds) else "does not hold"
        if any(holds) and not all(holds):
            named = [f"m ≥ {widths[i]}" for i, one in enumerate(holds) if one]
            verdict = f"holds for {', '.join(named)} only"
        shown = [_spread(apart) for apart in (theirs, *off)]
        rows.append([statement.words, str(len(off[0])), *shown, verdict])
    return rows


def _spread(apart: Sequence[float]) -> str:
    if not apart:
        return "–"
    size = statistics.fmean(map(abs, apart))
    return f"{size:.2f} ({min(apart):+.2f} to {max(apart):+.2f})"


def page(document: dict[str, Any]) -> str:
    """The tables."""
    cells = [Cell(**_tuples(c)) for c in document["cells"]]
    widths = published()["settings"]["widths"]
    lines = []
    for made in document["made"]:
        lines.append(
            f"Command: `{made['command']}`. Commit {made['commit']}. {made['hardware']}, torch "
            f"{made['torch']}."
        )
        lines.append("")
    lines += _grid_table(cells)
    lines += _share_lines(cells)
    lines += _loss_table(cells)
    lines += _one_width_table(cells)
    if rows := judged(cells):
        lines += [
            "",
            "What the paper says of exponents, and how far ours are from it: the mean distance, "
            "whatever its sign, over the cells (and the lowest and highest difference), for three "
            "windows of widths; before them that of the published exponents, of "
            f"m ≥ {widths[0]}. A statement holds where the mean distance of ours is {NEAR:g} or "
            "less.",
            "",
            "| statement | cells | published | "
            + " | ".join(f"m ≥ {m}" for m in widths[:3])
            + " | |",
            "|---|---|---|---|---|---|---|",
            *("| " + " | ".join(row) + " |" for row in rows),
        ]
    return "\n".join(lines)


def _grid_table(cells: Sequence[Cell]) -> list[str]:
    found = exponents(cells)
    if not found:
        return []
    gammas = sorted({gamma for _, gamma in found})
    seeds = sorted({len(values) for values in found.values()})
    counted = f"{seeds[0]} to {seeds[-1]} seeds" if len(seeds) > 1 else _counted(seeds[0])
    apart = [
        statistics.fmean(values) - theirs
        for (a, gamma), values in found.items()
        if (theirs := published_exponent(a, gamma)) is not None
    ]
    lines = [
        f"Exponents of the loss over all six widths, ours ({counted}) and, in brackets, the "
        "published ones.",
        "",
        "| data exponent | " + " | ".join(f"γ = {g:g}" for g in gammas) + " |",
        "|---|" + "---|" * len(gammas),
    ]
    for a in sorted({a for a, _ in found}):
        row = []
        for gamma in gammas:
            values, theirs = found.get((a, gamma)), published_exponent(a, gamma)
            ours = "–" if values is None else f"{statistics.fmean(values):.2f}"
            row.append(ours + ("" if theirs is None else f" ({theirs:.2f})"))
        lines.append(f"| {a:g} | " + " | ".join(row) + " |")
    if apart:
        size = statistics.fmean(map(abs, apart))
        lines += [
            "",
            f"Over {len(apart)} cells the two differ by {size:.3f} on average, by "
            f"{max(map(abs, apart)):.2f} at most, with a mean of {statistics.fmean(apart):+.3f}.",
        ]
    return lines


def _counted(seeds: int) -> str:
    return f"{seeds} seed{'s' * (seeds > 1)}"


def _loss_table(cells: Sequence[Cell]) -> list[str]:
    widths = published()["settings"]["widths"]
    lines: list[str] = []
    by_place: dict[tuple[float, float, float], list[Cell]] = {}
    for cell in cells:
        by_place.setdefault((cell.exponent, cell.density, cell.gamma), []).append(cell)
    for (a, density, gamma), some in sorted(by_place.items()):
        theirs = published_losses(a, gamma, density)
        if theirs is None:
            continue
        ours = [mean_interval(column) for column in zip(*(c.losses for c in some), strict=True)]
        off = [mine.mean / their - 1 for mine, their in zip(ours, theirs, strict=True)]
        shown = (
            f"{mine.format(4)} ({their:.4f}, {o:+.0%})"
            for mine, their, o in zip(ours, theirs, off, strict=True)
        )
        near = sum(abs(o) <= WITHIN for o in off)
        met = f"{near} of {len(off)} within {WITHIN:.0%}"
        if all(mine.half_width is not None for mine in ours):
            pairs = zip(ours, theirs, strict=True)
            inside = sum(abs(mine.mean - t) <= (mine.half_width or 0) for mine, t in pairs)
            met += f", {inside} inside the interval"
        lines.append(f"| {density:g} | " + " | ".join(shown) + f" | {met} |")
    if not lines:
        return []
    return [
        "",
        "Losses at data exponent 1 and γ = −0.556, ours and, in brackets, the published ones, by "
        "the mean number of features a sample; ± is a 95 % interval over seeds.",
        "",
        "| features | " + " | ".join(f"m = {m}" for m in widths) + " | |",
        "|---|" + "---|" * len(widths) + "---|",
        *lines,
    ]


def _share_lines(cells: Sequence[Cell]) -> list[str]:
    """How far shares of represented features are from the published ones."""
    width = published()["represented_width"]
    place = published()["settings"]["widths"].index(width)
    found: dict[tuple[float, float], list[float]] = {}
    for cell in cells:
        if cell.density == 1:
            found.setdefault((cell.exponent, cell.gamma), []).append(cell.shares[place])
    apart = [
        statistics.fmean(shares) - theirs
        for at, shares in found.items()
        if (theirs := published_share(*at)) is not None
    ]
    if not apart:
        return []
    size = statistics.fmean(map(abs, apart))
    return [
        "",
        f"Shares of represented features, φ½ of m = {width}: over {len(apart)} cells ours differ "
        f"from the published ones by {size:.3f} on average, by {max(map(abs, apart)):.2f} at most.",
    ]


def _one_width_table(cells: Sequence[Cell]) -> list[str]:
    """Losses of one width at all gammas and densities."""
    width = published()["losses_by_gamma"]["width"]
    if width not in published()["settings"]["widths"]:
        return []
    place = published()["settings"]["widths"].index(width)
    found: dict[tuple[float, float], list[float]] = {}
    for cell in cells:
        if cell.exponent == 1:
            found.setdefault((cell.gamma, cell.density), []).append(cell.losses[place])
    shown = {
        at: (statistics.fmean(losses), theirs)
        for at, losses in found.items()
        if (theirs := published_loss_of_one_width(*at)) is not None
    }
    if not shown:
        return []
    densities = sorted({density for _, density in shown})
    lines = [
        "",
        f"Losses of m = {width} at data exponent 1, ours and, in brackets, the published ones, by "
        "gamma and the mean number of features a sample.",
        "",
        "| γ | " + " | ".join(f"{density:g}" for density in densities) + " |",
        "|---|" + "---|" * len(densities),
    ]
    for gamma in sorted({gamma for gamma, _ in shown}):
        row = []
        for density in densities:
            pair = shown.get((gamma, density))
            row.append("–" if pair is None else f"{pair[0]:.3f} ({pair[1]:.3f})")
        lines.append(f"| {gamma:g} | " + " | ".join(row) + " |")
    off = [ours / theirs - 1 for ours, theirs in shown.values()]
    size = statistics.fmean(map(abs, off))
    lines += ["", f"Of {len(off)} losses ours differ by {size:.0%} on average."]
    return lines


def run(options: Options) -> int:
    commit = options.commit or machine.describe()["commit"]
    target = options.out or FILE
    try:
        runs = [read_run(folder) for folder in options.runs]
    except NotTheGridError as error:
        print(error, file=sys.stderr)
        return 2
    document = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    if runs:
        document = merge(document, runs, commit)
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, as_text(document))
        print(f"wrote {len(document['cells'])} cells to {target}")
    if options.out is None and document:
        markers.replace(PAGE, PART, page(document))
        print(f"wrote {PAGE.name}")
    return 0


def as_text(document: dict[str, Any]) -> str:
    """JSON with a cell a line."""
    cells = ",\n".join(json.dumps(cell, ensure_ascii=False) for cell in document["cells"])
    made = json.dumps(document["made"], ensure_ascii=False)
    return f'{{"made": {made}, "cells": [\n{cells}\n]}}\n'


if __name__ == "__main__":
    execute(run, Options)
