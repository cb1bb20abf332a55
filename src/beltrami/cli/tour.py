"""`beltrami tour`: its options, its progress and its table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from beltrami.cli.console import make_bar, make_console, print_json, print_path
from beltrami.cli.errors import BadInputError, InterruptedWork, OutputError
from beltrami.recipes.tour_config import TourConfig

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from beltrami.recipes.store import RunStore
    from beltrami.recipes.tour import Run, TourResult


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
        progress = TourProgress(make_console(stderr=True))
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
            print_json({**result.metrics, "files": written})
            return
        console = make_console()
        console.print(_tour_table(result, self.seeds))
        print_path(console, "Report", str(result.report_path))
        print_path(console, "Numbers", str(result.metrics_path))


class TourProgress:
    """A tour's observer: a bar with the time left, and a line for every finished run."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = make_bar(console)
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
        table.add_row(f"{row.name}\n[dim]{row.hint}[/dim]", *map(str, row.values))
    return table
