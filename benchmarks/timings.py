"""What the commands that time competitors in turns share: their options, tables and files."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from rich.console import Console
from rich.table import Table

from benchmarks import machine

Timing = TypeVar("Timing")


class Options(Protocol):
    """The options that all of them have."""

    @property
    def device(self) -> str: ...
    @property
    def quick(self) -> bool: ...
    @property
    def only(self) -> str: ...
    @property
    def rounds(self) -> int | None: ...
    @property
    def commit(self) -> str: ...


def obstacle(options: Options) -> str | None:
    """What keeps a command from measuring."""
    if options.device == "cuda" and not torch.cuda.is_available():
        return "--device cuda needs a GPU, and torch sees none"
    if options.rounds is not None and options.rounds < 1:
        return f"--rounds must be at least 1, got {options.rounds}"
    return None


def complete(options: Options, rounds: dict[str, int]) -> bool:
    """Whether a measurement is one to publish; `rounds` are the usual ones of each device."""
    usual = options.rounds in (None, rounds[options.device])
    return usual and not options.quick and not options.only


def show(
    title: str, header: Sequence[str], body: Sequence[Sequence[str]], left: int, console: Console
) -> None:
    """Print a table whose first `left` columns are words."""
    table = Table(title=title)
    for i, name in enumerate(header):
        table.add_column(name, justify="left" if i < left else "right")
    for row in body:
        table.add_row(*(cell.replace("**missed**", "[red]missed[/red]") for cell in row))
    console.print(table)


def table(header: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table in Markdown."""
    return [
        "| " + " | ".join(header) + " |",
        "|" + "---|" * len(header),
        *("| " + " | ".join(row) + " |" for row in body),
    ]


def missed(body: Sequence[Sequence[str]]) -> int:
    """How many rows end with a goal that was missed."""
    return sum(row[-1] == "**missed**" for row in body)


def describe(options: Options, command: str, rounds: int) -> dict[str, Any]:
    """What a file of timings says of its making."""
    about = {"command": command, "device": options.device, "rounds": rounds, **machine.describe()}
    if options.commit:
        about["commit"] = options.commit
    if options.device == "cuda":
        about["gpu"] = torch.cuda.get_device_name()
    return about


def write(timings: Sequence[dict[str, Any]], about: dict[str, Any], path: Path) -> Path:
    """A file with one line a timing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = ",\n".join(json.dumps(t, ensure_ascii=False) for t in timings)
    head = json.dumps(about, ensure_ascii=False)[:-1]
    path.write_text(f'{head}, "timings": [\n{rows}\n]}}\n', encoding="utf-8")
    return path


def read(path: Path, kind: Callable[..., Timing]) -> tuple[dict[str, Any], list[Timing]]:
    """What `write` has written."""
    about = json.loads(path.read_text(encoding="utf-8"))
    return about, [kind(**{**t, "times": tuple(t["times"])}) for t in about.pop("timings")]
