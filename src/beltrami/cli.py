"""The `beltrami` command: subcommands from typed dataclasses, so that --help never lies.

Results go to stdout, as a table or, with --json, as one JSON document and nothing else; progress
and errors go to stderr. What the user got wrong ends in one line that names the value and the fix,
and in exit code 2; what the system refuses (a full disk) ends in one line and exit code 1; only a
defect of ours shows a traceback, also with exit code 1.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import json as json_format
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any

from beltrami import __version__
from beltrami.recipes.tour_config import TourConfig

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from beltrami.recipes.store import RunStore
    from beltrami.recipes.tour import Run, TourResult

OK, FAILURE, USAGE, INTERRUPTED = 0, 1, 2, 130

DESCRIPTION = """Hyperbolic foundation models for PyTorch.

Results go to stdout, progress and errors to stderr. `beltrami --version` prints the version.

Exit codes:
    0   done
    1   failure: of the system, such as a full disk, which one line names, or of beltrami, with
        a traceback; please report the latter with the output of `beltrami info`
    2   bad usage or bad input; the message names the value and the fix
  130   interrupted (Ctrl-C); finished work is on disk and the message says how to go on"""


class BadInputError(Exception):
    """Something the user can put right; the message says what and how."""


class OutputError(Exception):
    """The system did not let us write; the message says where and why."""


class InterruptedWork(KeyboardInterrupt):
    """Ctrl-C, with a message that says what is left on disk and how to go on."""


@dataclass(frozen=True)
class TourCommand(TourConfig):
    """The tour, on the command line."""

    json: bool = False
    """Print metrics.json and the written files' paths on stdout instead of a table."""

    def execute(self) -> None:
        """Run the tour and print what it found."""
        from beltrami.recipes.tour import Tour

        try:
            tour = Tour(self)
        except ValueError as error:
            raise BadInputError(f"{error}\nSee `beltrami tour --help`.") from error
        progress = TourProgress(_console(stderr=True))
        if others := tour.store.others():
            progress.note(
                f"{others} finished runs in {self.out} have other settings; "
                "they are kept and not used"
            )
        try:
            with progress:
                result = tour.run(progress)
        except KeyboardInterrupt as interrupt:
            raise InterruptedWork(_what_is_left(tour.store, self.command())) from interrupt
        except BrokenPipeError:  # stderr, not the output folder
            raise
        except OSError as error:
            reason = error.strerror or error
            raise OutputError(
                f"cannot write to {self.out}: {reason}\nThen continue with: {self.command()}"
            ) from error
        self._print(result)

    def _print(self, result: TourResult) -> None:
        if self.json:
            written = {"metrics": str(result.metrics_path), "report": str(result.report_path)}
            _print_json({**result.metrics, "files": written})
            return
        console = _console()
        console.print(_tour_table(result, self.seeds))
        _print_path(console, "Report", str(result.report_path))
        _print_path(console, "Numbers", str(result.metrics_path))


@dataclass(frozen=True)
class InfoCommand:
    """Show versions and devices, for bug reports."""

    json: bool = False
    """Print one JSON object on stdout instead of a table."""

    def execute(self) -> None:
        """Print what this installation consists of."""
        facts = environment()
        if self.json:
            _print_json(facts)
            return
        from rich.table import Table

        table = Table.grid(padding=(0, 2))
        for name, value in facts.items():
            table.add_row(name, ", ".join(value) if isinstance(value, list) else str(value))
        _console().print(table)


class TourProgress:
    """A tour's observer: a bar with the time left, and a line for every finished run."""

    def __init__(self, console: Console) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._console = console
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,  # a log file needs no bar
        )
        self._task = self._bar.add_task("embedding", total=None)
        self._steps = 0

    def __enter__(self) -> TourProgress:
        self._bar.start()
        return self

    def __exit__(self, *reason: object) -> None:
        self._bar.stop()

    def note(self, text: str) -> None:
        """Print a line above the bar."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def started(self, runs: int, steps: int) -> None:
        """Size the bar."""
        self._steps = steps
        self._bar.update(self._task, total=runs * steps)

    def stepped(self, steps: int) -> None:
        """Move the bar."""
        self._bar.advance(self._task, steps)

    def finished(self, run: Run, reused: bool) -> None:
        """Print the run's line."""
        if reused:
            self._bar.advance(self._task, self._steps)
        how = "found finished" if reused else f"{run.seconds:.1f} s"
        self.note(
            f"{run.geometry:<10}  seed {run.seed}  learning rate {run.learning_rate:<4g}  "
            f"average distortion {run.average_distortion:.3f}  ({how})"
        )


def environment() -> dict[str, Any]:
    """Versions and devices of this installation; JSON-able."""
    import platform
    from importlib.metadata import version

    import torch

    devices = ["cpu"]
    if torch.cuda.is_available():
        devices += [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        devices.append("mps")
    return {
        "beltrami": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "devices": devices,
        "threads": torch.get_num_threads(),
        **{name: version(name) for name in ("safetensors", "tyro", "rich")},
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; the codes are in `beltrami --help`."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    _print_what_the_encoding_can()
    try:
        code = run(arguments)
        sys.stdout.flush()  # now, where a full disk can still be named
        return code
    except BadInputError as error:
        return _fail(f"error: {error}", USAGE)
    except KeyboardInterrupt as interrupt:
        return _fail(str(interrupt) or "Interrupted; nothing was finished.", INTERRUPTED)
    except OutputError as error:
        return _fail(f"error: {error}", FAILURE)
    except BrokenPipeError:  # who read our output went away
        _drop_stdout()
        return FAILURE
    except OSError as error:
        _drop_stdout()
        where = "" if error.filename else "cannot write to standard output: "
        return _fail(f"error: {where}{error}", FAILURE)
    except Exception:
        import traceback

        traceback.print_exc()
        return _fail(
            "This is a defect of beltrami. Please report it with the lines above and the output "
            "of `beltrami info`.",
            FAILURE,
        )


def run(arguments: Sequence[str]) -> int:
    """Parse and execute; failures are the caller's."""
    if arguments == ["--version"]:
        print(f"beltrami {__version__}")
        return OK
    _refuse_empty_values(arguments)
    try:
        command = parse(arguments or ["--help"])
    except SystemExit as stop:  # tyro has printed help (0) or what is wrong (2)
        return USAGE if stop.code or not arguments else OK
    command.execute()
    return OK


def parse(arguments: Sequence[str]) -> TourCommand | InfoCommand:
    """The subcommand that the arguments ask for; exits as tyro does on --help and on bad usage."""
    import tyro
    from tyro.conf import DisallowNone, FlagCreatePairsOff, subcommand

    tour = subcommand("tour", description=inspect.getdoc(TourConfig))
    commands = Annotated[TourCommand, tour] | Annotated[InfoCommand, subcommand("info")]
    parsed: TourCommand | InfoCommand = tyro.cli(
        commands,
        prog="beltrami",
        description=DESCRIPTION,
        args=arguments,
        config=(DisallowNone, FlagCreatePairsOff),
    )
    return parsed


def _refuse_empty_values(arguments: Sequence[str]) -> None:
    """An empty path would silently mean the current folder."""
    for before, argument in pairwise(["", *arguments]):
        name, equals, value = argument.partition("=")
        if not argument or (name.startswith("--") and equals and not value):
            raise BadInputError(f"{name or before or 'an argument'} is empty; give a value")


def _what_is_left(store: RunStore, command: str) -> str:
    finished = store.finished()
    if not finished:
        return f"Interrupted; no run was finished.\nStart again with: {command}"
    runs = "finished run is" if finished == 1 else "finished runs are"
    return f"Interrupted. {finished} {runs} kept in {store.folder}.\nContinue with: {command}"


def _tour_table(result: TourResult, seeds: int) -> Table:
    from rich.table import Table

    from beltrami.recipes.tour_report import summary_table

    content = summary_table(result.summary, seeds)
    tree = result.metrics["tree"]
    table = Table(
        title=f"{tree['nodes']} nodes in two dimensions",
        caption=content.caption,
        caption_justify="left",
    )
    table.add_column("")
    for column in content.columns:
        table.add_column(column, justify="right", no_wrap=True)
    for row in content.rows:
        table.add_row(f"{row.name}\n[dim]{row.hint}[/dim]", *row.values)
    return table


def _console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    return Console(stderr=stderr)


def _print_json(value: dict[str, Any]) -> None:
    print(json_format.dumps(value, indent=2, allow_nan=False))  # ASCII: any stdout can take it


def _print_path(console: Console, name: str, path: str) -> None:
    # No markup and no wrapping: a path must survive being copied.
    console.print(f"{name}: {path}", markup=False, highlight=False, soft_wrap=True)


def _print_what_the_encoding_can() -> None:
    """A stdout that is not UTF-8 gets "?" for what it cannot hold, not a traceback."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="replace")


def _drop_stdout() -> None:
    """The interpreter must not try, at its end, to flush what could not be written."""
    with contextlib.suppress(OSError):  # a stdout that is no file has nothing to flush
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str, code: int) -> int:
    print(message, file=sys.stderr)
    return code
