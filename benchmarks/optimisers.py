"""One step of the Riemannian optimisers beside torch's and geoopt's, in one run.

A complete run on a CPU writes benchmarks/results/optimisers.json and the table in
benchmarks/RESULTS.md. On a machine with a GPU and without a checkout:

    python -m benchmarks.optimisers --device cuda --out FOLDER --commit HASH

writes optimisers_cuda.json to FOLDER; put into benchmarks/results, it joins the page by --render.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import tyro
from rich.console import Console

from benchmarks import machine, markers, optimisers_cases, optimisers_report, optimisers_timing
from benchmarks import timings as timing_files
from benchmarks.command import execute
from benchmarks.optimisers_timing import Timing

FOLDER = machine.ROOT / "benchmarks/results"
PAGE = machine.ROOT / "benchmarks/RESULTS.md"
FILES = {"cpu": "optimisers.json", "cuda": "optimisers_cuda.json"}
ROUNDS = {"cpu": 31, "cuda": 50}


@dataclass(frozen=True)
class Options:
    """Time one step of the optimisers beside torch's and geoopt's."""

    device: Literal["cpu", "cuda"] = "cpu"
    """cpu: one thread. cuda: a larger table, in float32 and bfloat16, and its bandwidth too."""
    quick: bool = False
    """Small tables and two rounds: shows that everything runs, not how fast it is."""
    only: Annotated[str, tyro.conf.arg(metavar="PATTERN")] = ""
    """Only cases whose name or shape contains this, for example "small" or "bfloat16"."""
    rounds: int | None = None
    """How often each competitor has its turn; other than 31 (cpu) or 50 (cuda), no page."""
    out: Path | None = None
    """Write the JSON file to this folder, also of a partial run, and leave the page alone."""
    commit: str = ""
    """The commit to name in the file, where git cannot tell."""
    render: bool = False
    """Measure nothing, write the tables again from the files in benchmarks/results."""


def measure(options: Options, rounds: int, console: Console) -> list[Timing]:
    timings: list[Timing] = []
    with console.status("starting") as status:
        for case in optimisers_cases.cases(options.device, options.quick):
            if options.only in optimisers_cases.names(case):
                timings += optimisers_timing.time_case(
                    case, rounds, options.device, lambda text: status.update(text)
                )
    return timings


def show(timings: list[Timing], options: Options, console: Console) -> None:
    found = optimisers_report.lines(timings, options.device)
    header, body = optimisers_report.rows(found, judged=not options.quick)
    title = f"one step on {options.device}; ratios of minima / of medians"
    timing_files.show(title, header, body, 3, console)


def describe(options: Options, rounds: int) -> dict[str, Any]:
    command = optimisers_report.command(
        options.device,
        options.only,
        quick=options.quick,
        rounds=None if options.rounds == ROUNDS[options.device] else options.rounds,
    )
    about = timing_files.describe(options, command, rounds)
    for name in ["geoopt", "triton"] if options.device == "cuda" else ["geoopt"]:
        try:
            about[name] = version(name)
        except PackageNotFoundError:  # its lines say so
            continue
    return about


def write(timings: list[Timing], about: dict[str, Any], folder: Path) -> Path:
    rounded = [
        {
            **asdict(t),
            "times": [round(ms, 5) for ms in t.times],
            "host": None if t.host is None else round(t.host, 5),
        }
        for t in timings
    ]
    return timing_files.write(rounded, about, folder / FILES[about["device"]])


def read(path: Path) -> tuple[dict[str, Any], list[Timing]]:
    return timing_files.read(path, Timing)


def render(folder: Path = FOLDER, page: Path = PAGE) -> list[str]:
    """Write the tables of all stored measurements; returns the devices found."""
    found = {d: read(folder / name) for d, name in FILES.items() if (folder / name).exists()}
    for device, (about, timings) in found.items():
        text = optimisers_report.markdown(timings, about)
        markers.replace(page, f"optimisers {device}", text)
    return list(found)


def run(options: Options) -> int:
    console = Console(width=200) if options.out else Console()
    if options.render:
        console.print(f"wrote the tables of: {', '.join(render()) or 'no measurement'}")
        return 0
    if obstacle := timing_files.obstacle(options):
        console.print(obstacle)
        return 2
    torch.set_num_threads(1)
    rounds = options.rounds or (2 if options.quick else ROUNDS[options.device])
    timings = measure(options, rounds, console)
    if not timings:
        console.print(f"no case matches {options.only!r}")
        return 2
    show(timings, options, console)
    about = describe(options, rounds)
    if options.out is not None:
        console.print(f"wrote {write(timings, about, options.out)}")
    elif timing_files.complete(options, ROUNDS):
        path = write(timings, about, FOLDER)
        render()
        console.print(f"wrote {path.relative_to(machine.ROOT)} and RESULTS.md")
    else:
        console.print("not a complete run, so nothing was written; --out FOLDER would keep it")
    if not options.quick:
        missed = [x for x in optimisers_report.lines(timings, options.device) if x.met is False]
        console.print(f"{len(missed)} goals missed" if missed else "all goals met")
    return 0


if __name__ == "__main__":
    execute(run, Options)
