"""`beltrami runs` and `beltrami compare`: what was run, and two runs side by side."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from beltrami.cli.console import make_console, print_json
from beltrami.cli.errors import BadInputError
from beltrami.options import RUNS

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from beltrami.recipes.history import PastRun, SideBySide


@dataclass(frozen=True)
class RunsCommand:
    """List runs with their key metrics, also unfinished ones."""

    folder: Annotated[Positional[Path], arg(metavar="[FOLDER]")] = RUNS
    """Where to look, with everything below it."""

    json: bool = False
    """Print one JSON object on stdout instead of a table."""

    def execute(self) -> None:
        """Print the table."""
        from beltrami.recipes.history import RunError, find_runs

        try:
            # The default folder is not there before the first run.
            nothing_yet = self.folder == RUNS and not RUNS.exists()
            runs = [] if nothing_yet else find_runs(self.folder)
        except RunError as error:
            raise BadInputError(str(error)) from error
        if self.json:
            print_json({"runs": [_run_json(run) for run in runs]})
        elif runs:
            make_console().print(_runs_table(runs))
        else:
            make_console().print(
                visible(f"No runs in {self.folder}. Start one with: beltrami run hierarchy"),
                soft_wrap=True,
            )


@dataclass(frozen=True)
class CompareCommand:
    """Put two finished runs side by side, with the difference of each metric over seeds."""

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
        make_console().print(_compare_table(rows, *runs))


def visible(text: str) -> Text:
    """Text as it is: no markup, and no control characters that would steer the terminal."""
    from rich.text import Text

    return Text("".join(c if c == "\n" or c.isprintable() else ascii(c)[1:-1] for c in text))


def _runs_table(runs: list[PastRun]) -> Table:
    from rich.table import Table

    table = Table()
    for column in ("Run", "Recipe", "Data", "State", "Key metrics"):
        table.add_column(column)
    for run in runs:
        trials = f"{run.finished_trials} trial{'' if run.finished_trials == 1 else 's'}"
        state = "finished" if run.is_finished else f"unfinished, {trials} done"
        lines = "\n".join(_key_lines(run))
        cells = (str(run.path), run.recipe, run.data, state, lines)
        table.add_row(*map(visible, cells))
    return table


def _key_lines(run: PastRun) -> list[str]:
    metric = run.key_metric()
    if metric is None or run.metrics is None:
        return []
    lines = []
    for arm_result in run.metrics["summary"]:
        interval = arm_result["metrics"].get(metric["key"])
        if interval:
            shown = _interval_text(interval["value"], metric["digits"])
            who = ", ".join(filter(None, [arm_result["model"], arm_result["group"]]))
            lines.append(f"{who}: {metric['title']} {shown}")
    return lines


def _interval_text(value: dict[str, Any], digits: int) -> str:
    from beltrami.analysis.intervals import Interval

    if value["mean"] is None:
        return "∞"
    return Interval(value["mean"], value["half_width"]).format(digits)


def _compare_table(rows: list[SideBySide], first: PastRun, second: PastRun) -> Table:
    from rich.table import Table

    from beltrami.recipes.tables import show

    paired = all(row.paired for row in rows)
    how = "paired by seed" if paired else "Welch's interval where the seeds differ"
    caption = f"Mean ± 95% interval over seeds; differences are {how}."
    if first.config["data"] != second.config["data"]:
        caption += f" The data differ: {first.data} and {second.data}."
    table = Table(
        title=visible(f"A: {first.path}\nB: {second.path}"),
        caption=visible(caption),
        title_justify="left",
        caption_justify="left",
    )
    for column in ("", "Model", "Metric"):
        table.add_column(column)
    for column in ("A", "B", "B − A"):
        table.add_column(column, justify="right")
    table.add_column("B is")
    for row in rows:
        gap = row.difference
        table.add_row(
            visible(row.group),
            visible(row.model),
            visible(row.title),
            show(row.first, row.digits),
            show(row.second, row.digits),
            "–" if gap is None else show(gap, row.digits),
            _verdict(row),
        )
    return table


def _verdict(row: SideBySide) -> str:
    gap = row.difference
    if gap is None or gap.half_width is None or row.better is None:
        return ""
    if abs(gap.mean) <= gap.half_width:
        return "no different"
    return "better" if (gap.mean > 0) == (row.better == "higher") else "worse"


def _run_json(run: PastRun) -> dict[str, Any]:
    return {
        "path": str(run.path),
        "recipe": run.recipe,
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
        "verdict": _verdict(row),
    }
