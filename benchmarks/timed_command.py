"""The command that times competitors in turns: its options, and the way from them to a page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

import torch
import tyro
from rich.console import Console

from benchmarks import machine, timings

Timing = TypeVar("Timing")
QUICK_ROUNDS = 2
WIDE = 240  # characters, where no terminal says how many there are

About = dict[str, Any]
Keep = Callable[[list[Timing]], None]


@dataclass(frozen=True)
class TimingOptions:
    """What all of them can be told."""

    device: Literal["cpu", "cuda"] = "cpu"
    """cpu: one thread. cuda: larger cases, and what only a GPU can show."""
    quick: bool = False
    """Small cases and two rounds: shows that everything runs, not how fast it is."""
    only: Annotated[str, tyro.conf.arg(metavar="PATTERN")] = ""
    """Only cases whose title contains this, a part of the first columns of the table."""
    rounds: int | None = None
    """How often each competitor has its turn; other than the usual number, no page."""
    out: Path | None = None
    """Write the JSON file to this folder, also of a partial run, and leave the pages alone."""
    commit: str = ""
    """The commit to name in the file, where git cannot tell."""
    render: bool = False
    """Measure nothing, write the tables again from the files in benchmarks/results."""


@dataclass(frozen=True)
class Suite(Generic[Timing]):
    """What is timed, and where it goes.

    Args:
        rounds: the usual number of each device.
        pages: which a complete run writes, in words.
        folder: of the JSON files.
        measure: all cases that the options choose; gives what there is to `keep` now and then.
        show: prints the table.
        describe: what the JSON file says of its making.
        write: the JSON file, to a folder.
        render: writes the pages from all JSON files; returns their devices.
        missed: how many goals were missed; None where there are none.
    """

    rounds: dict[str, int]
    pages: str
    folder: Path
    measure: Callable[[Any, int, Console, Keep[Timing]], list[Timing]]
    show: Callable[[list[Timing], Any, Console], None]
    describe: Callable[[Any, int], About]
    write: Callable[[list[Timing], About, Path], Path]
    render: Callable[[], list[str]]
    missed: Callable[[list[Timing], Any], int | None]


def run(options: TimingOptions, suite: Suite[Timing]) -> int:
    """Measure, show, write; returns the exit status."""
    out = options.out
    console = Console(width=WIDE) if out else Console()
    if options.render:
        console.print(f"wrote the tables of: {', '.join(suite.render()) or 'no measurement'}")
        return 0
    if obstacle := timings.obstacle(options):
        console.print(obstacle)
        return 2
    torch.set_num_threads(1)
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else suite.rounds[options.device])
    about = suite.describe(options, rounds)

    def keep(found: list[Timing]) -> None:
        """So that a run that is cut short leaves something behind."""
        if out is not None:
            suite.write(found, about, out)

    found = suite.measure(options, rounds, console, keep)
    if not found:
        console.print(f"no case matches {options.only!r}")
        return 2
    suite.show(found, options, console)
    if out is not None:
        console.print(f"wrote {suite.write(found, about, out)}")
    elif timings.complete(options, suite.rounds):
        path = suite.write(found, about, suite.folder)
        suite.render()
        console.print(f"wrote {path.relative_to(machine.ROOT)} and {suite.pages}")
    else:
        console.print("not a complete run, so nothing was written; --out FOLDER would keep it")
    missed = None if options.quick else suite.missed(found, options)
    if missed is not None:
        console.print(f"{missed} goals missed" if missed else "all goals met")
    return 0
