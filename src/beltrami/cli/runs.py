"""`beltrami runs` and `beltrami compare`: what was run, and two runs side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from beltrami.cli.console import WIDE, make_console, print_json
from beltrami.cli.errors import BadInputError
from beltrami.options import RUNS

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from beltrami.recipes.history import PastDocument, PastRun, SideBySide


@dataclass(frozen=True)
class RunsCommand:
    """List runs, diagnoses and forecasts with their results, also unfinished ones.

    Example: beltrami runs
    """

    folder: Annotated[Positional[Path], arg(metavar="[FOLDER]")] = RUNS
    """Where to look, with everything below it."""

    json: bool = False
    """Print one JSON object on stdout instead of a table."""

    def execute(self) -> None:
        """Print the table."""
        from beltrami.recipes.history import RunError, find_documents, find_runs

        try:
            # The default folder is not there before the first run.
            nothing_yet = self.folder == RUNS and not RUNS.exists()
            runs = [] if nothing_yet else find_runs(self.folder)
            documents = find_documents(self.folder)
        except RunError as error:
            raise BadInputError(str(error)) from error
        if self.json:
            others = [{**vars(d), "path": str(d.path)} for d in documents]
            print_json({"runs": [_run_json(run) for run in runs], "documents": others})
        elif runs or documents:
            console = make_console()
            console.print(_runs_table(runs, documents, console))
        else:
            make_console().print(
                visible(f"No runs in {self.folder}. Start one with: beltrami run hierarchy"),
                soft_wrap=True,
            )


@dataclass(frozen=True)
class CompareCommand:
    """Put two finished runs side by side, with the difference of each metric over seeds.

    Example: beltrami compare runs/hierarchy-wordnet-mammals runs/other
    """

    first: Annotated[Positional[Path], arg(metavar="RUN")]
    """Folder of a run."""

    second: Annotated[Positional[Path], arg(metavar="RUN")]
    """Folder of the other run; differences are its numbers minus the first one's."""

    json: bool = False
    """Print one JSON object on stdout instead of a table."""

    def execute(self) -> None:
        """Print the comparison."""
        from beltrami.recipes.history import RunError, read_run, side_by_side

        try:
            runs = read_run(self.first), read_run(self.second)
            rows = side_by_side(*runs)
        except RunError as error:
            raise BadInputError(str(error)) from error
        if self.json:
            first, second = (_run_json(run) for run in runs)
            print_json({"first": first, "second": second, "rows": [_row_json(row) for row in rows]})
            return
        console = make_console()
        for text in _compared(*runs):
            console.print(visible(text), soft_wrap=True)
        arms = {(row.group, row.model): None for row in rows}
        for arm in arms:
            console.print(_compare_table([row for row in rows if (row.group, row.model) == arm]))


def visible(text: str) -> Text:
    """Text as it is: no markup, and no control characters that would steer the terminal."""
    from rich.text import Text

    return Text("".join(c if c == "\n" or c.isprintable() else ascii(c)[1:-1] for c in text))


def _runs_table(runs: list[PastRun], documents: list[PastDocument], console: Console) -> Table:
    """A line a run; command and data, which most names of folders say, where there is room."""
    from rich import box

    wide = console.width >= WIDE
    more = ("Command", "Data") if wide else ()
    table = _table("Folder", *more, "Date", "Result", box=box.SIMPLE)
    for run in runs:
        result = run.outcome(short=not wide)
        if not run.is_finished:
            plural = "" if run.finished_trials == 1 else "s"
            result = f"unfinished, {run.finished_trials} trial{plural} done"
        about = (f"run {run.recipe}", run.data) if wide else ()
        table.add_row(*map(visible, (str(run.path), *about, run.date, result)))
    for document in documents:
        about = (document.kind, document.data) if wide else ()
        cells = (str(document.path), *about, document.date, document.outcome)
        table.add_row(*map(visible, cells))
    return table


def _table(*columns: str | Text, **options: Any) -> Table:
    """A table that breaks lines where it is narrow, and cuts no word."""
    from rich.table import Table

    table = Table(**options)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _compared(first: PastRun, second: PastRun) -> Iterator[str]:
    """What stands above the tables."""
    yield f"A: {first.path} ({first.date})"
    yield f"B: {second.path} ({second.date})"
    yield (
        "Mean ± 95% interval over seeds; differences are paired by seed, or by Welch's interval "
        "where the seeds differ; = is no difference."
    )
    if first.config["data"] != second.config["data"]:
        yield f"The data differ, {first.data} and {second.data}, so neither run is called better."


def _compare_table(rows: list[SideBySide]) -> Table:
    """The metrics of one model."""
    from rich import box

    from beltrami.recipes.tables import show

    arm = ", ".join(filter(None, [rows[0].model, rows[0].group]))
    table = _table(visible(arm), box=box.SIMPLE)
    for column in ("A", "B", "B − A"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("B is", no_wrap=True)
    for row in rows:
        gap = row.difference
        table.add_row(
            visible(row.title),
            show(row.first, row.digits),
            show(row.second, row.digits),
            "–" if gap is None else show(gap, row.digits),
            row.verdict.replace("no difference", "="),
        )
    return table


def _run_json(run: PastRun) -> dict[str, Any]:
    return {
        "path": str(run.path),
        "recipe": run.recipe,
        "date": run.date,
        "data": run.data,
        "finished": run.is_finished,
        "finished_trials": run.finished_trials,
        "summary": run.metrics["summary"] if run.metrics else None,
    }


def _row_json(row: SideBySide) -> dict[str, Any]:
    from beltrami.recipes.results import interval_json

    return {
        "group": row.group,
        "model": row.model,
        "metric": row.title,
        "first": interval_json(row.first),
        "second": interval_json(row.second),
        "difference": interval_json(row.difference),
        "paired": row.paired,
        "verdict": row.verdict,
    }
