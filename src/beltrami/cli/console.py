"""Printing: results to stdout, progress and errors to stderr."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress


WIDE = 120  # columns of a terminal that has room for everything


def make_console(*, stderr: bool = False) -> Console:
    """A console on stdout or stderr."""
    from rich.console import Console

    return Console(stderr=stderr)


def make_bar(console: Console, *, shown: bool = True) -> Progress:
    """A progress bar with the time left; none in a log file."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not (shown and console.is_terminal),
    )


@contextlib.contextmanager
def progress(work: str) -> Iterator[Callable[[float], None]]:
    """A function that takes the share of the work that is done: a bar, or lines in a log file."""
    console = make_console(stderr=True)
    bar = make_bar(console)
    task = bar.add_task(work, total=1.0)
    tenths = 0

    def tick(share: float) -> None:
        nonlocal tenths
        bar.update(task, completed=share)
        if not console.is_terminal and int(share * 10) > tenths:
            tenths = int(share * 10)
            print(f"{work}: {share:.0%}", file=sys.stderr, flush=True)

    with bar:
        yield tick


def print_json(value: dict[str, Any]) -> None:
    """One JSON document on stdout."""
    print(json.dumps(value, indent=2, allow_nan=False))  # ASCII: any stdout can take it


def print_path(console: Console, name: str, path: str) -> None:
    """A line that names a written file."""
    # No markup and no wrapping: a path must survive being copied.
    console.print(f"{name}: {path}", markup=False, highlight=False, soft_wrap=True)


def print_what_the_encoding_can() -> None:
    """A stdout that is not UTF-8 gets "?" for what it cannot hold, not a traceback."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="replace")


def drop_stdout() -> None:
    """The interpreter must not try, at its end, to flush what could not be written."""
    with contextlib.suppress(OSError):  # a stdout that is not a file has nothing to flush
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
