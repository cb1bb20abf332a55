"""HypLoRA beside LoRA and DoRA of PEFT: layers and a whole model, in one run.

A complete run on a CPU writes benchmarks/results/adapters.json, the table in benchmarks/RESULTS.md
and the summary in docs/peft.md. On a machine with a GPU and without a checkout:

    python -m benchmarks.adapters --device cuda --out FOLDER --commit HASH

writes adapters_cuda.json to FOLDER; put into benchmarks/results, it joins the pages by --render.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import (
    adapters_cases,
    adapters_report,
    adapters_timing,
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
GUIDE = machine.ROOT / "docs/peft.md"
FILES = {"cpu": "adapters.json", "cuda": "adapters_cuda.json"}
ROUNDS = {"cpu": 11, "cuda": 20}


class Options(TimingOptions):
    """Time HypLoRA beside PEFT's LoRA and DoRA."""


def measure(options: Options, rounds: int, console: Console, keep: Keep[Timing]) -> list[Timing]:
    problems = adapters_cases.problems(options.device, options.quick)
    chosen = [p for p in problems if options.only in p.title]
    timings: list[Timing] = []
    with console.status("starting") as status:
        for i, problem in enumerate(chosen):

            def tick(text: str, place: str = f"[{i + 1}/{len(chosen)}]") -> None:
                status.update(f"{place} {text}")

            case = adapters_cases.build(problem, options.device)
            timings += adapters_timing.time_case(case, rounds, tick)
            keep(timings)
    return timings


def show(timings: list[Timing], options: Options, console: Console) -> None:
    found = adapters_report.lines(timings)
    header, body = adapters_report.rows(found, judged=not options.quick)
    title = f"adapters on {options.device}; times over LoRA's, of minima / of medians"
    timing_files.show(title, header, body, 3, console)


def describe(options: Options, rounds: int) -> dict[str, Any]:
    import peft  # takes seconds to load, which --help need not
    import transformers

    command = adapters_report.command(options.device, options.only)
    about = timing_files.describe(options, command, rounds)
    # Not from their metadata: they may have been copied to a GPU machine without it.
    return {**about, "peft": peft.__version__, "transformers": transformers.__version__}


def write(timings: list[Timing], about: dict[str, Any], folder: Path) -> Path:
    rounded = [{**asdict(t), "times": [round(ms, 5) for ms in t.times]} for t in timings]
    return timing_files.write(rounded, about, folder / FILES[about["device"]])


def read(path: Path) -> tuple[dict[str, Any], list[Timing]]:
    return timing_files.read(path, Timing)


def render(folder: Path = FOLDER, page: Path = PAGE, guide: Path = GUIDE) -> list[str]:
    """Write the tables of all stored measurements; returns the devices found."""
    found = {d: read(folder / name) for d, name in FILES.items() if (folder / name).exists()}
    for device, (about, timings) in found.items():
        markers.replace(page, f"adapters {device}", adapters_report.markdown(timings, about))
    if found:
        documents, measured = zip(*found.values(), strict=True)
        text = adapters_report.summary(list(documents), list(measured))
        markers.replace(guide, "adapters cost", text)
    return list(found)


def missed(timings: list[Timing], options: Options) -> int:
    """On every device."""
    return sum(line.met() is False for line in adapters_report.lines(timings))


def run(options: Options) -> int:
    pages = "RESULTS.md and docs/peft.md"
    suite = Suite(ROUNDS, pages, FOLDER, measure, show, describe, write, render, missed)
    return timed_command.run(options, suite)


if __name__ == "__main__":
    execute(run, Options)
