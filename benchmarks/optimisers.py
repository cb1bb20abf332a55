"""One step of the Riemannian optimisers beside torch's and geoopt's, in one run.

A complete run on a CPU writes benchmarks/results/optimisers.json and the table in
benchmarks/RESULTS.md. On a machine with a GPU and without a checkout:

    python -m benchmarks.optimisers --device cuda --out FOLDER --commit HASH

writes optimisers_cuda.json to FOLDER; put into benchmarks/results, it joins the page by --render.
"""

from __future__ import annotations

from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import (
    machine,
    markers,
    optimisers_cases,
    optimisers_report,
    optimisers_timing,
    timed_command,
)
from benchmarks import timings as timing_files
from benchmarks.command import execute
from benchmarks.optimisers_timing import Timing
from benchmarks.timed_command import Keep, Suite, TimingOptions

FOLDER = machine.ROOT / "benchmarks/results"
PAGE = machine.ROOT / "benchmarks/RESULTS.md"
FILES = {"cpu": "optimisers.json", "cuda": "optimisers_cuda.json"}
ROUNDS = {"cpu": 31, "cuda": 50}


class Options(TimingOptions):
    """Time one step of the optimisers beside torch's and geoopt's."""


def measure(options: Options, rounds: int, console: Console, keep: Keep[Timing]) -> list[Timing]:
    timings: list[Timing] = []
    with console.status("starting") as status:
        for case in optimisers_cases.cases(options.device, options.quick):
            if options.only in optimisers_cases.names(case):
                timings += optimisers_timing.time_case(
                    case, rounds, options.device, lambda text: status.update(text)
                )
                keep(timings)
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


def missed(timings: list[Timing], options: Options) -> int:
    """On every device."""
    return sum(line.met is False for line in optimisers_report.lines(timings, options.device))


def run(options: Options) -> int:
    suite = Suite(ROUNDS, "RESULTS.md", FOLDER, measure, show, describe, write, render, missed)
    return timed_command.run(options, suite)


if __name__ == "__main__":
    execute(run, Options)
