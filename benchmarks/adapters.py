"""HypLoRA beside LoRA and DoRA of PEFT: layers and a whole model, in one run.

A complete run on a CPU writes benchmarks/results/adapters.json, the table in benchmarks/RESULTS.md
and the summary in docs/peft.md. On a machine with a GPU and without a checkout:

    python -m benchmarks.adapters --device cuda --out FOLDER --commit HASH

writes adapters_cuda.json to FOLDER; put into benchmarks/results, it joins the pages by --render.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import tyro
from rich.console import Console

from benchmarks import adapters_cases, adapters_report, adapters_timing, machine, markers
from benchmarks import timings as timing_files
from benchmarks.command import execute
from benchmarks.layers_timing import Timing

FOLDER = machine.ROOT / "benchmarks/results"
PAGE = machine.ROOT / "benchmarks/RESULTS.md"
GUIDE = machine.ROOT / "docs/peft.md"
FILES = {"cpu": "adapters.json", "cuda": "adapters_cuda.json"}
ROUNDS = {"cpu": 11, "cuda": 20}


@dataclass(frozen=True)
class Options:
    """Time HypLoRA beside PEFT's LoRA and DoRA."""

    device: Literal["cpu", "cuda"] = "cpu"
    """cpu: one thread, float32. cuda: bfloat16, torch.compile and peak memory too."""
    quick: bool = False
    """Small layers and two rounds: shows that everything runs, not how fast it is."""
    only: Annotated[str, tyro.conf.arg(metavar="PATTERN")] = ""
    """Only cases whose title contains this, for example "model" or "step 1024x4096 r32"."""
    rounds: int | None = None
    """How often each competitor has its turn; other than 11 (cpu) or 20 (cuda), no page."""
    out: Path | None = None
    """Write the JSON file to this folder, also of a partial run, and leave the pages alone."""
    commit: str = ""
    """The commit to name in the file, where git cannot tell."""
    render: bool = False
    """Measure nothing, write the tables again from the files in benchmarks/results."""


def measure(
    options: Options,
    rounds: int,
    console: Console,
    keep: Callable[[list[Timing]], object] = lambda _: None,
) -> list[Timing]:
    """All cases; `keep` is given what there is after each."""
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


def run(options: Options) -> int:
    console = Console(width=240) if options.out else Console()
    if options.render:
        console.print(f"wrote the tables of: {', '.join(render()) or 'no measurement'}")
        return 0
    if obstacle := timing_files.obstacle(options):
        console.print(obstacle)
        return 2
    torch.set_num_threads(1)
    rounds = options.rounds or (2 if options.quick else ROUNDS[options.device])
    about = describe(options, rounds)
    out = options.out

    def keep(timings: list[Timing]) -> None:
        """So that a run that is cut short leaves something behind."""
        if out is not None:
            write(timings, about, out)

    timings = measure(options, rounds, console, keep)
    if not timings:
        console.print(f"no case matches {options.only!r}")
        return 2
    show(timings, options, console)
    if out is not None:
        console.print(f"wrote {out / FILES[options.device]}")
    elif timing_files.complete(options, ROUNDS):
        path = write(timings, about, FOLDER)
        render()
        console.print(f"wrote {path.relative_to(machine.ROOT)}, RESULTS.md and docs/peft.md")
    if not options.quick:
        missed = [x for x in adapters_report.lines(timings) if x.met() is False]
        console.print(f"{len(missed)} lines miss a goal" if missed else "all goals met")
    return 0


if __name__ == "__main__":
    execute(run, Options)
