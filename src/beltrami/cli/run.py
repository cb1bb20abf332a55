"""`beltrami run`: a recipe's options, its progress and its tables."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Union

from tyro.conf import arg, subcommand

from beltrami.cli.console import make_console, print_json, print_path
from beltrami.cli.errors import BadInputError, InterruptedWork, OutputError
from beltrami.recipes.config import RunConfig
from beltrami.recipes.registry import RECIPES

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

    from beltrami.recipes.outcome import Outcome, TrialResult
    from beltrami.recipes.recipe import Recipe, Trial


# One subcommand a recipe, named and described by its config.
AnyRecipe: Any = Union[  # noqa: UP007
    tuple(
        Annotated[kind, subcommand(kind.recipe, description=inspect.getdoc(kind))]
        for kind in RECIPES
    )
]


@dataclass(frozen=True)
class RunCommand:
    """Run a recipe: train a system and its Euclidean twin, and report the difference.

    Interrupt it at will: the same command with --resume goes on where it stopped.
    """

    config: Annotated[AnyRecipe, arg(name="")]

    def execute(self) -> None:
        """Run the recipe and print what it found."""
        from beltrami.recipes.registry import create
        from beltrami.recipes.runner import run

        config: RunConfig = self.config
        try:
            recipe = create(config)
        except ValueError as error:
            raise BadInputError(f"{error}\nSee `beltrami run {config.recipe} --help`.") from error
        progress = RunProgress(make_console(stderr=True), recipe)
        try:
            with progress:
                outcome = run(recipe, progress)
        except KeyboardInterrupt as interrupt:
            raise InterruptedWork(_what_is_left(config)) from interrupt
        except ValueError as error:
            raise BadInputError(str(error)) from error
        except BrokenPipeError:  # stderr, not the output folder
            raise
        except OSError as error:
            raise OutputError(
                f"cannot write to {config.folder}: {error.strerror or error}\n"
                f"Then continue with: {config.command(resume=True)}"
            ) from error
        if progress.speaks:
            self._print(recipe, outcome)

    def _print(self, recipe: Recipe[Any], outcome: Outcome) -> None:
        from beltrami.recipes.folder import RunFolder
        from beltrami.recipes.tables import standing_tables

        folder = RunFolder(self.config.folder)
        if self.config.json:
            written = {"metrics": str(folder.metrics), "report": str(folder.report)}
            print_json({**outcome.document, "files": written})
            return
        console = make_console()
        for table in standing_tables(outcome, recipe.names):
            console.print(_rich_table(table))
        print_path(console, "Report", str(folder.report))
        print_path(console, "Numbers", str(folder.metrics))


class RunProgress:
    """A run's observer: a bar with the time left, and a line for every finished trial."""

    def __init__(self, console: Console, recipe: Recipe[Any]) -> None:
        import os

        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self.speaks = os.environ.get("RANK", "0") == "0"
        self._console = console
        self._recipe = recipe
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not (console.is_terminal and self.speaks),  # a log file needs no bar
        )
        self._all = self._bar.add_task("trials", total=None)
        self._one = self._bar.add_task("training", total=None, visible=False)

    def __enter__(self) -> RunProgress:
        self._bar.start()
        return self

    def __exit__(self, *reason: object) -> None:
        self._bar.stop()

    def note(self, text: str) -> None:
        """Print a line above the bar."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def started(self, trials: int) -> None:
        """Size the bar."""
        self._bar.update(self._all, total=trials)

    def training(self, trial: Trial, steps: int, done: int) -> None:
        """Show a new training; say where an interrupted one goes on."""
        self._bar.reset(
            self._one, total=steps, completed=done, visible=True, description=trial.name
        )
        if done:
            self.note(f"{trial.name}: going on at step {done:,} of {steps:,}")

    def stepped(self, done: int) -> None:
        """Move the bar."""
        self._bar.update(self._one, completed=done)

    def finished(self, result: TrialResult, reused: bool) -> None:
        """Print the trial's line."""
        self._bar.advance(self._all)
        how = "found finished" if reused else f"{result.seconds:.1f} s"
        shown = [m for m in self._recipe.metrics if m.key in result.metrics][:2]
        numbers = (
            "  ".join(f"{m.title} {result.value(m.key):.{m.digits}f}" for m in shown)
            or f"diverged: {result.diverged}"
        )
        self.note(f"{result.trial.name}  {numbers}  ({how})")


def _what_is_left(config: RunConfig) -> str:
    from beltrami.recipes.folder import RunFolder

    finished = RunFolder(config.folder).finished()
    command = config.command(resume=True)
    trials = "trial is" if finished == 1 else "trials are"
    return (
        f"Interrupted. {finished} finished {trials} kept in {config.folder}, and the last "
        f"checkpoint of the one under way.\nContinue with: {command}"
    )


def _rich_table(content: Any) -> RichTable:
    from rich.table import Table

    table = Table(title=content.caption, title_justify="left")
    table.add_column("")
    for column in content.columns:
        table.add_column(column, justify="right")
    for row in content.rows:
        table.add_row(f"{row.name}\n[dim]{row.hint}[/dim]", *map(str, row.values))
    return table
