"""Embedding the WordNet mammals beside gensim, geoopt and the published protocol, in one run.

A complete run writes benchmarks/results/hierarchies.json and the tables in benchmarks/RESULTS.md.
gensim and geoopt come with the `bench` extra; without one, its lines say so.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, ClassVar

import torch
import tyro
from rich.console import Console

from benchmarks import hierarchies_cases, hierarchies_report, hierarchies_timing, machine, markers
from benchmarks import timings as timing_files
from benchmarks.command import execute
from benchmarks.hierarchies_cases import DIMENSIONS, Problem
from benchmarks.hierarchies_timing import Finish, Speed

FOLDER = machine.ROOT / "benchmarks/results"
PAGE = machine.ROOT / "benchmarks/RESULTS.md"
FILE = "hierarchies.json"
ROUNDS, SEEDS, BUDGETS = 11, 5, (20.0, 60.0)
QUICK_ROUNDS, QUICK_SEEDS, QUICK_BUDGETS = 2, 2, (0.2,)


@dataclass(frozen=True)
class Options:
    """Time the hierarchy recipe beside gensim and geoopt, and race them for the best embedding."""

    device: ClassVar[str] = "cpu"

    quick: bool = False
    """A small hierarchy and tenths of seconds: shows that everything runs, not how well."""
    only: Annotated[str, tyro.conf.arg(metavar="PATTERN")] = ""
    """Only competitors whose name or settings contain this, for example "geoopt"."""
    rounds: int | None = None
    """How often each competitor has its turn; 11 is usual, and with another number no page."""
    seeds: int | None = None
    """How many seeds of the recipe take part in the race; 5 is usual. The others have one."""
    budgets: tuple[float, ...] | None = None
    """CPU-seconds of the races; 20 and 60 are usual."""
    out: Path | None = None
    """Write the JSON file to this folder, also of a partial run, and leave the page alone."""
    commit: str = ""
    """The commit to name in the file, where git cannot tell."""
    render: bool = False
    """Measure nothing, write the tables again from the file in benchmarks/results."""

    @property
    def complete(self) -> bool:
        """Whether a measurement is one to publish."""
        usual = self.seeds in (None, SEEDS) and self.budgets in (None, BUDGETS)
        return usual and timing_files.complete(self, {"cpu": ROUNDS})


@dataclass(frozen=True)
class Measurement:
    """What was found."""

    speeds: list[Speed]
    finishes: list[Finish]


def obstacle(options: Options) -> str | None:
    """What keeps the command from measuring."""
    if options.seeds is not None and options.seeds < 1:
        return f"--seeds must be at least 1, got {options.seeds}"
    bad = [b for b in options.budgets or () if not 0 < b < float("inf")]
    if bad or options.budgets == ():
        shown = f"{bad[0]:g}" if bad else "none"
        return f"--budgets must be positive numbers of seconds, got {shown}"
    return timing_files.obstacle(options)


def measure(options: Options, console: Console) -> Measurement:
    problem = Problem.load(options.quick)
    found = [
        c for c in hierarchies_cases.competitors() if options.only in hierarchies_cases.names(c)
    ]
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    seeds = options.seeds or (QUICK_SEEDS if options.quick else SEEDS)
    budgets = options.budgets or (QUICK_BUDGETS if options.quick else BUDGETS)
    with console.status("starting") as status:
        speeds = hierarchies_timing.time_laps(problem, found, rounds, status.update)
        finishes = hierarchies_timing.race_all(
            problem, found, speeds, budgets, seeds, status.update
        )
    return Measurement(speeds, finishes)


def show(found: Measurement, console: Console) -> None:
    header, body = hierarchies_report.speed_rows(found.speeds)
    timing_files.show("pairs a second on one thread", header, body, 2, console)
    header, body = hierarchies_report.race_rows(found.finishes)
    timing_files.show("after a budget of CPU-seconds", header, body, 3, console)


def describe(options: Options) -> dict[str, Any]:
    """What a file says of its making."""
    problem = Problem.load(options.quick)
    command = hierarchies_report.command(
        options.only,
        quick=options.quick,
        rounds=None if options.rounds == ROUNDS else options.rounds,
        seeds=None if options.seeds == SEEDS else options.seeds,
        budgets=None if options.budgets == BUDGETS else options.budgets,
    )
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    about = timing_files.describe(options, command, rounds)
    about |= {
        "data": problem.hierarchy.name,
        "nodes": len(problem.hierarchy),
        "pairs": problem.pairs,
        "digest": problem.hierarchy.digest(),
        "dimensions": DIMENSIONS,
    }
    for name in ("geoopt", "gensim"):
        try:
            about[name] = version(name)
        except PackageNotFoundError:  # its lines say so
            continue
    return about


def write(found: Measurement, about: dict[str, Any], folder: Path) -> Path:
    """A file with one line a competitor, or a competitor and seed."""
    folder.mkdir(parents=True, exist_ok=True)
    speeds = [{**asdict(s), "rates": [round(r, 1) for r in s.rates]} for s in found.speeds]
    finishes = [_without_nan(asdict(f)) for f in found.finishes]
    head = json.dumps(about, ensure_ascii=False)[:-1]
    parts = f'"speeds": [\n{_lines(speeds)}\n], "finishes": [\n{_lines(finishes)}\n]'
    path = folder / FILE
    path.write_text(f"{head}, {parts}}}\n", encoding="utf-8")
    return path


def _without_nan(values: dict[str, Any]) -> dict[str, Any]:
    """What was measured, to six digits; a number that is not there is left out."""
    return {
        key: round(value, 6) if isinstance(value, float) else value
        for key, value in values.items()
        if value == value
    }


def _lines(rows: Sequence[dict[str, Any]]) -> str:
    return ",\n".join(json.dumps(row, ensure_ascii=False, allow_nan=False) for row in rows)


def read(path: Path) -> tuple[dict[str, Any], Measurement]:
    """What `write` has written."""
    about = json.loads(path.read_text(encoding="utf-8"))
    speeds = [Speed(**{**s, "rates": tuple(s["rates"])}) for s in about.pop("speeds")]
    return about, Measurement(speeds, [Finish(**f) for f in about.pop("finishes")])


def render(folder: Path = FOLDER, page: Path = PAGE) -> bool:
    """Write the tables of the stored measurement; whether there is one."""
    if not (folder / FILE).exists():
        return False
    about, found = read(folder / FILE)
    text = hierarchies_report.markdown(found.speeds, found.finishes, about)
    markers.replace(page, "hierarchies cpu", text)
    return True


def run(options: Options) -> int:
    console = Console(width=200) if options.out else Console()
    if options.render:
        console.print("wrote the tables" if render() else f"there is no {FILE} to render")
        return 0
    if text := obstacle(options):
        console.print(text)
        return 2
    torch.set_num_threads(1)
    about = describe(options)  # before: the commit is that of the code that is measured
    found = measure(options, console)
    if not found.speeds:
        console.print(f"no competitor matches {options.only!r}")
        return 2
    show(found, console)
    if options.out is not None:
        console.print(f"wrote {write(found, about, options.out)}")
    elif options.complete:
        path = write(found, about, FOLDER)
        render()
        console.print(f"wrote {path.relative_to(machine.ROOT)} and RESULTS.md")
    else:
        console.print("not a complete run, so nothing was written; --out FOLDER would keep it")
    if not options.quick and (met := hierarchies_report.goal_met(found.finishes)) is not None:
        console.print("the goal is met" if met else "the goal is missed")
    return 0


if __name__ == "__main__":
    execute(run, Options)
