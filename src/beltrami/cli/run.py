"""`beltrami run`: a recipe's options, its progress and its tables."""

from __future__ import annotations

import inspect
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, make_dataclass
from typing import TYPE_CHECKING, Annotated, Any, Union

from tyro.conf import Suppress, arg, subcommand

from beltrami.cli.console import make_bar, make_console, print_json, print_path
from beltrami.cli.errors import INTERRUPTED, BadInputError, InterruptedWork, OutputError
from beltrami.cli.tables import print_tables
from beltrami.options import TAXONOMY_FORMS
from beltrami.recipes.config import RunConfig, TaxonomyConfig
from beltrami.recipes.registry import RECIPES
from beltrami.train.progress import ProgressListener

if TYPE_CHECKING:
    from rich.console import Console

    from beltrami.recipes.recipe import Recipe
    from beltrami.recipes.results import RunResult, TrialResult


@dataclass(frozen=True)
class RunCommand:
    """Run a recipe: train a system and its Euclidean twin, and report the difference.

    Interrupt it at will: the same command with --resume goes on where it stopped.
    """

    config: RunConfig

    @property
    def name(self) -> str:
        """The command, as its help is asked for."""
        return f"beltrami run {self.config.recipe}"

    def repeat(self, *, resume: bool) -> str:
        """The command line that repeats this run, or continues it."""
        return self.config.command(resume=resume)

    def execute(self) -> None:
        """Run the recipe and print what it found."""
        try:
            recipe, run_result = self._run()
        except KeyboardInterrupt as interrupt:
            if not is_main_process():
                raise SystemExit(INTERRUPTED) from None
            raise InterruptedWork(self._what_is_left()) from interrupt
        if is_main_process():
            self._print(recipe, run_result)

    def _run(self) -> tuple[Recipe[Any, Any], RunResult]:
        from beltrami.recipes.registry import create
        from beltrami.recipes.runner import run
        from beltrami.train.processes import ProcessLostError

        config = self.config
        try:
            recipe = create(config)
        except ValueError as error:
            raise BadInputError(f"{error}\nSee `{self.name} --help`.") from error
        go_on = f"Continue with: {self.repeat(resume=True)}"
        try:
            with RunProgress(make_console(stderr=True), recipe) as progress:
                return recipe, run(recipe, progress)
        except ValueError as error:
            raise BadInputError(str(error)) from error
        except BrokenPipeError:  # stderr, not the output folder
            raise
        except OSError as error:
            where = error.filename or config.folder
            reason = error.strerror or error
            raise OutputError(f"cannot read or write {where}: {reason}\n{go_on}") from error
        except ProcessLostError as error:
            raise OutputError(f"{error}\n{go_on}" if is_main_process() else str(error)) from error
        except (MemoryError, RuntimeError) as error:
            where = _full_memory(error)
            if where is None:
                raise
            message = (str(error).splitlines() or [type(error).__name__])[0]
            raise OutputError(
                f"{where} is full: {message}\n"
                "Finished trials are kept. Fewer dimensions or smaller batches need less; "
                "--micro-batch and --test-batch, where a recipe has them, change no numbers."
            ) from error

    def _print(self, recipe: Recipe[Any, Any], run_result: RunResult) -> None:
        from beltrami.recipes.folder import RunFolder

        folder = RunFolder(self.config.folder)
        if self.config.json:
            written: dict[str, Any] = {
                "metrics": str(folder.metrics),
                "report": str(folder.report),
                "embeddings": [str(path) for path in folder.embeddings()],
            }
            print_json({**run_result.document, "files": written})
            return
        console = make_console()
        print_tables(console, recipe.tables(run_result))
        print_path(console, "Report", str(folder.report))
        if folder.explorer.exists():
            print_path(console, "Explorer", str(folder.explorer))
        print_path(console, "Numbers", str(folder.metrics))
        if folder.embeddings():
            from beltrami.embeddings import load_run

            path = str(folder.path)
            best = folder.path / "trials" / str(load_run(path).facts["trial"])
            print_path(console, "Vectors of the best", str(best / "embeddings.csv"))
            print_path(console, "Neighbours", f"beltrami nearest {shlex.quote(path)} LABEL")

    def _what_is_left(self) -> str:
        from beltrami.recipes.folder import RunFolder

        folder = RunFolder(self.config.folder)
        if folder.run_config() is None:
            return (
                f"Interrupted before the work began.\nStart again with: {self.repeat(resume=False)}"
            )
        finished = folder.finished()
        trials = "trial is" if finished == 1 else "trials are"
        begun = ", and the last checkpoint of the one under way" if folder.has_checkpoint() else ""
        return (
            f"Interrupted. {finished} finished {trials} kept in {folder.path}{begun}.\n"
            f"Continue with: {self.repeat(resume=True)}"
        )


def _full_memory(error: BaseException) -> str | None:
    """Which memory an error says is full; None for other errors."""
    from torch import OutOfMemoryError

    if isinstance(error, OutOfMemoryError):
        return "the GPU's memory"
    # Torch's allocator for CPUs has no exception of its own.
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return "the computer's memory"
    return None


def run_command(
    recipe: str = "", kinds: Sequence[type[RunConfig]] | None = None
) -> type[RunCommand]:
    """`RunCommand` as tyro needs it: one subcommand a recipe, named and described by its config.

    Descriptions are one line in the list of recipes; that of `recipe` is whole, for its help.
    """
    recipes: list[Any] = []
    for kind in RECIPES if kinds is None else kinds:
        text = inspect.getdoc(kind) or ""
        about = text if kind.recipe == recipe else summary_and_example(text)
        if kind.recipe == recipe and issubclass(kind, TaxonomyConfig):
            about += TAXONOMY_FORMS
        recipes.append(Annotated[kind, subcommand(kind.recipe, description=about)])
    if len(recipes) == 1:  # a union of one type is that type, which gives no subcommand
        recipes.append(Annotated[None, Suppress])  # not shown
    any_recipe: Any = Union[tuple(recipes)]  # noqa: UP007
    command: type[RunCommand] = make_dataclass(
        "RunCommand",
        [("config", Annotated[any_recipe, arg(name="")])],
        bases=(RunCommand,),
        frozen=True,
    )
    command.__doc__ = RunCommand.__doc__
    return command


def summary_and_example(about: str) -> str:
    """The first paragraph and the example of a description, for a list of commands."""
    summary, *rest = about.split("\n\n")
    return "\n".join([summary, *(text for text in rest if text.startswith("Example:"))])


def is_main_process() -> bool:
    """Whether this process is the one that prints; `torchrun` numbers them."""
    return os.environ.get("WORLD_SIZE", "1") == "1" or os.environ.get("RANK", "0") == "0"


class RunProgress(ProgressListener):
    """A run's listener: a bar with the time left, and a line for every finished trial."""

    def __init__(self, console: Console, recipe: Recipe[Any, Any]) -> None:
        self._console = console
        self._recipe = recipe
        self._bar = make_bar(console, shown=is_main_process())
        self._all = self._bar.add_task("trials", total=None)
        self._training = self._bar.add_task("training", total=None, visible=False)
        self._finished, self._done = 0, 0.0

    def __enter__(self) -> RunProgress:
        self._bar.start()
        return self

    def __exit__(self, *reason: object) -> None:
        self._bar.stop()

    def note(self, text: str) -> None:
        """Print a line above the bar."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def on_run_begin(self, trials: int) -> None:
        """Size the bar."""
        self._bar.update(self._all, total=trials)

    def on_train_begin(self, name: str, steps: int, done: int) -> None:
        """Show a new training; say where an interrupted one goes on."""
        self._bar.reset(self._training, total=steps, completed=done, visible=True, description=name)
        if done:
            self.note(f"{name}: going on at step {done:,} of {steps:,}")

    def on_step_end(self, done: int) -> None:
        """Move the bar."""
        self._bar.update(self._training, completed=done)

    def on_parallel_progress(self, parts: float) -> None:
        """Move the bar of all trials by parts of them."""
        self._show(self._finished + parts)

    def _show(self, done: float) -> None:
        """Move the bar, never back: the progress of other processes arrives late."""
        self._done = max(self._done, done)
        self._bar.update(self._all, completed=self._done)

    def on_trial_end(self, result: TrialResult, reused: bool) -> None:
        """Print the trial's line."""
        self._finished += 1
        self._show(self._finished)
        how = "found finished" if reused else f"{result.seconds:.1f} s"
        shown = [m for m in self._recipe.metrics if m.key in result.metrics][:2]
        numbers = (
            "  ".join(f"{m.title} {result.value(m.key):.{m.digits}f}" for m in shown)
            or f"diverged: {result.diverged}"
        )
        self.note(f"{result.trial.name}  {numbers}  ({how})")
