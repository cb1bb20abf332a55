"""CPU timings: ours, geoopt, HypLL and Euclidean, side by side in one run.

A complete run writes benchmarks/results/speed.json and the table in benchmarks/RESULTS.md.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import asdict, dataclass
from typing import Annotated

import torch
import tyro
from rich.console import Console

from benchmarks import machine, markers, speed_cases, speed_report, speed_timing
from benchmarks.command import execute

RESULTS = machine.ROOT / "benchmarks/results/speed.json"
PAGE = machine.ROOT / "benchmarks/RESULTS.md"
NUMERICS = machine.ROOT / "benchmarks/results/numerics.json"


@dataclass(frozen=True)
class Options:
    """Time geometry operations on one CPU thread beside geoopt, HypLL and Euclidean ones."""

    quick: bool = False
    """Small tensors and few rounds: shows that everything runs, not how fast it is."""
    only: Annotated[str, tyro.conf.arg(metavar="PATTERN")] = ""
    """Only operations whose "model name" contains this, for example "poincare log"."""
    rounds: int = 9
    """How often each competitor has its turn (slow ones fewer); the best time counts."""


def measure(options: Options, console: Console) -> list[speed_timing.Timing]:
    sizes = speed_cases.Sizes.quick() if options.quick else speed_cases.Sizes()
    rounds = min(options.rounds, 2) if options.quick else options.rounds
    chosen = [
        (model, name)
        for model, names in speed_cases.NAMES.items()
        for name in names
        if options.only in f"{model} {name}"
    ]
    timings = []
    with console.status("starting") as status:
        for i, (model, name) in enumerate(chosen):

            def tick(text: str, place: str = f"[{i + 1}/{len(chosen)}]") -> None:
                status.update(f"{place} {text}")

            op = speed_cases.operation(model, name, sizes)
            timings += speed_timing.time_operation(op, rounds, tick)
    return timings


def write(timings: list[speed_timing.Timing], rounds: int) -> None:
    about = machine.describe("geoopt", "hypll")
    document = {"command": "make bench", "rounds": rounds, **about}
    rows = ",\n".join(json.dumps(asdict(t), ensure_ascii=False) for t in timings)
    head = json.dumps(document, ensure_ascii=False)[:-1]
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(f'{head}, "timings": [\n{rows}\n]}}\n', encoding="utf-8")
    text = speed_report.markdown(timings, about, rounds, NUMERICS)
    markers.replace(PAGE, "speed", text)


def run(options: Options) -> int:
    console = Console()
    torch.set_num_threads(1)
    # Compiling geoopt traces its torch.jit functions, which torch then calls deprecated.
    warnings.filterwarnings("ignore", message=".*torch.jit.*")
    timings = measure(options, console)
    if not timings:
        console.print(f"no operation matches {options.only!r}")
        return 2
    verdicts = speed_report.judge(timings)
    for table in speed_report.rich_tables(timings, verdicts):
        console.print(table)
    missed = [v for v in verdicts if v.met is False]
    console.print(f"{len(missed)} goals missed" if missed else "all goals met")
    if not (options.quick or options.only):
        write(timings, options.rounds)
        console.print(f"wrote {RESULTS.relative_to(machine.ROOT)} and RESULTS.md")
    return 0


if __name__ == "__main__":
    execute(run, Options)
