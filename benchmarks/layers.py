"""Layers beside their Euclidean counterparts, forward and backward, in one run.

A complete run on a CPU writes benchmarks/results/layers.json, the table in benchmarks/RESULTS.md
and the summary in docs/layers.md. On a machine with a GPU and without a checkout:

    python -m benchmarks.layers --device cuda --out FOLDER --commit HASH

writes layers_cuda.json to FOLDER; put into benchmarks/results, it joins the pages by --render.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import (
    layers_cases,
    layers_report,
    layers_timing,
    machine,
    markers,
    timed_command,
)
from benchmarks import timings as timing_files
from benchmarks.command import execute
from benchmarks.layers_timing import Timing
from benchmarks.timed_command import Keep, Suite, TimingOptions

FOLDER = machine.ROOT / "benchmarks/results"
PAGE = machine.ROOT / "benchmarks/RESULTS.md"
GUIDE = machine.ROOT / "docs/layers.md"
FILES = {"cpu": "layers.json", "cuda": "layers_cuda.json"}
ROUNDS = {"cpu": 9, "cuda": 30}
# Single layers take little time and show more noise: they have this many times the rounds.
SHORT_ROUNDS = 5


class Options(TimingOptions):
    """Time the layers beside the best Euclidean code for the same work."""


def measure(options: Options, rounds: int, console: Console, keep: Keep[Timing]) -> list[Timing]:
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
            keep(timings)
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


def missed(timings: list[Timing], options: Options) -> int | None:
    """Goals are for the CPU."""
    if options.device != "cpu":
        return None
    return sum(line.met() is False for line in layers_report.lines(timings))


def run(options: Options) -> int:
    pages = "RESULTS.md and docs/layers.md"
    suite = Suite(ROUNDS, pages, FOLDER, measure, show, describe, write, render, missed)
    return timed_command.run(options, suite)


if __name__ == "__main__":
    execute(run, Options)
