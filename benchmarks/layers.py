"""Layers beside their Euclidean counterparts, forward and backward, in one run.

A complete run on a CPU writes benchmarks/results/layers.json, the table in benchmarks/RESULTS.md
and the summary in docs/layers.md. On a machine with a GPU and without a checkout:

    python -m benchmarks.layers --device cuda --out FOLDER --commit HASH

writes layers_cuda.json to FOLDER; put into benchmarks/results, it joins the pages by --render.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import tyro
from rich.console import Console

from benchmarks import layers_cases, layers_report, layers_timing, machine, markers
from benchmarks import timings as timing_files
from benchmarks.command import execute
from benchmarks.layers_timing import Timing

FOLDER = machine.ROOT / "benchmarks/results"
PAGE = machine.ROOT / "benchmarks/RESULTS.md"
GUIDE = machine.ROOT / "docs/layers.md"
FILES = {"cpu": "layers.json", "cuda": "layers_cuda.json"}
ROUNDS = {"cpu": 9, "cuda": 30}
# Single layers take little time and show more noise: they have this many times the rounds.
SHORT_ROUNDS = 5


@dataclass(frozen=True)
class Options:
    """Time the layers beside the best Euclidean code for the same work."""

    device: Literal["cpu", "cuda"] = "cpu"
    """cpu: one thread, float32. cuda: bfloat16 autocast, and peak memory too."""
    quick: bool = False
    """Small layers and two rounds: shows that everything runs, not how fast it is."""
    only: Annotated[str, tyro.conf.arg(metavar="PATTERN")] = ""
    """Only cases whose "name width" contains this, for example "block" or "block 1024"."""
    rounds: int | None = None
    """How often each competitor has its turn; other than 9 (cpu) or 30 (cuda), no page."""
    out: Path | None = None
    """Write the JSON file to this folder, also of a partial run, and leave the pages alone."""
    commit: str = ""
    """The commit to name in the file, where git cannot tell."""
    render: bool = False
    """Measure nothing, write the tables again from the files in benchmarks/results."""


def measure(options: Options, rounds: int, console: Console) -> list[Timing]:
    chosen = [
        (name, sizes)
        for name, sizes in layers_cases.names(options.device, options.quick)
        if options.only in f"{name} {sizes.width}"
    ]
    timings: list[Timing] = []
    with console.status("starting") as status:
        for i, (name, sizes) in enumerate(chosen):

            def tick(text: str, place: str = f"[{i + 1}/{len(chosen)}]") -> None:
                status.update(f"{place} {text}")

            case = layers_cases.build(name, sizes, options.device)
            more = SHORT_ROUNDS if name in layers_cases.SHORT else 1
            timings += layers_timing.time_case(case, more * rounds, tick)
    return timings


def show(timings: list[Timing], options: Options, console: Console) -> None:
    found = layers_report.lines(timings)
    header, body = layers_report.rows(found, options.device, judged=not options.quick)
    title = f"layers on {options.device}; ratios of minima / of medians"
    timing_files.show(title, header, body, 2, console)


def describe(options: Options, rounds: int) -> dict[str, Any]:
    command = layers_report.command(options.device, options.only)
    return timing_files.describe(options, command, rounds)


def write(timings: list[Timing], about: dict[str, Any], folder: Path) -> Path:
    rounded = [{**asdict(t), "times": [round(ms, 4) for ms in t.times]} for t in timings]
    return timing_files.write(rounded, about, folder / FILES[about["device"]])


def read(path: Path) -> tuple[dict[str, Any], list[Timing]]:
    return timing_files.read(path, Timing)


def render(folder: Path = FOLDER, page: Path = PAGE, guide: Path = GUIDE) -> list[str]:
    """Write the tables of all stored measurements; returns the devices found."""
    found = {d: read(folder / name) for d, name in FILES.items() if (folder / name).exists()}
    for device, (about, timings) in found.items():
        markers.replace(page, f"layers {device}", layers_report.markdown(timings, about))
    if found:
        documents, measured = zip(*found.values(), strict=True)
        text = layers_report.summary(list(documents), list(measured))
        markers.replace(guide, "layers cost", text)
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
        console.print(f"wrote {path.relative_to(machine.ROOT)}, RESULTS.md and docs/layers.md")
    if options.device == "cpu" and not options.quick:
        missed = [x for x in layers_report.lines(timings) if x.met() is False]
        console.print(f"{len(missed)} goals missed" if missed else "all goals met")
    return 0


if __name__ == "__main__":
    execute(run, Options)
