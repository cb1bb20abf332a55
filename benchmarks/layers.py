"""Layers beside their Euclidean counterparts, forward and backward, in one run.

A complete run on a CPU writes benchmarks/results/layers.json, the table in benchmarks/RESULTS.md
and the summary in docs/layers.md. On a machine with a GPU and without a checkout:

    python -m benchmarks.layers --device cuda --out FOLDER --commit HASH

writes layers_cuda.json to FOLDER; put into benchmarks/results, it joins the pages by --render.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import tyro
from rich.console import Console
from rich.table import Table

from benchmarks import layers_cases, layers_report, layers_timing, machine, markers
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
    """How often each competitor has its turn: 9 on a cpu and 30 on cuda by default."""
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
    table = Table(title=f"layers on {options.device}; ratios of minima / of medians")
    for i, name in enumerate(header):
        table.add_column(name, justify="left" if i < 2 else "right")
    for row in body:
        table.add_row(*(cell.replace("**missed**", "[red]missed[/red]") for cell in row))
    console.print(table)


def describe(options: Options, rounds: int) -> dict[str, Any]:
    about: dict[str, Any] = {
        "command": layers_report.command(options.device, options.only),
        "device": options.device,
        "rounds": rounds,
        **machine.describe(),
    }
    if options.commit:
        about["commit"] = options.commit
    if options.device == "cuda":
        about["gpu"] = torch.cuda.get_device_name()
    return about


def write(timings: list[Timing], about: dict[str, Any], folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILES[about["device"]]
    rounded = [{**asdict(t), "times": [round(ms, 4) for ms in t.times]} for t in timings]
    rows = ",\n".join(json.dumps(t, ensure_ascii=False) for t in rounded)
    head = json.dumps(about, ensure_ascii=False)[:-1]
    path.write_text(f'{head}, "timings": [\n{rows}\n]}}\n', encoding="utf-8")
    return path


def read(path: Path) -> tuple[dict[str, Any], list[Timing]]:
    about = json.loads(path.read_text(encoding="utf-8"))
    timings = [Timing(**{**t, "times": tuple(t["times"])}) for t in about.pop("timings")]
    return about, timings


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
    if options.device == "cuda" and not torch.cuda.is_available():
        console.print("--device cuda needs a GPU, and torch sees none")
        return 2
    if options.rounds is not None and options.rounds < 1:
        console.print(f"--rounds must be at least 1, got {options.rounds}")
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
    elif not (options.quick or options.only):
        path = write(timings, about, FOLDER)
        render()
        console.print(f"wrote {path.relative_to(machine.ROOT)}, RESULTS.md and docs/layers.md")
    if options.device == "cpu" and not options.quick:
        missed = [x for x in layers_report.lines(timings) if x.met() is False]
        console.print(f"{len(missed)} goals missed" if missed else "all goals met")
    return 0


if __name__ == "__main__":
    execute(run, Options)
