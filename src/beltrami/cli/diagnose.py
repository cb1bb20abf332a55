"""`beltrami diagnose`: its options, its progress and its table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from beltrami.cli.console import make_bar, make_console, print_json, print_path
from beltrami.cli.errors import BadInputError, InterruptedWork
from beltrami.diagnosis.config import EMBEDDED, DiagnoseConfig

if TYPE_CHECKING:
    from rich.console import Console

    from beltrami.diagnosis.diagnose import Diagnosis


@dataclass(frozen=True)
class DiagnoseCommand(DiagnoseConfig):
    """The diagnosis, on the command line."""

    source: Annotated[
        Positional[str], arg(metavar="[SOURCE]", help_behavior_hint=f"(default: {EMBEDDED})")
    ] = EMBEDDED
    """What to look at."""

    def execute(self) -> None:
        """Diagnose, and print what was found."""
        from beltrami.diagnosis.diagnose import diagnose

        progress = DiagnoseProgress(make_console(stderr=True))
        try:
            with progress:
                diagnosis = diagnose(self, progress)
        except (ValueError, TypeError) as error:
            raise BadInputError(f"{error}\nSee `beltrami diagnose --help`.") from error
        except KeyboardInterrupt as interrupt:
            raise InterruptedWork(
                f"Interrupted. Finished parts are kept in {self.folder}.\n"
                f"Continue with: {self.command()}"
            ) from interrupt
        self._print(diagnosis)

    def _print(self, diagnosis: Diagnosis) -> None:
        if self.json:
            files = {"diagnosis": str(diagnosis.path), "report": str(diagnosis.report)}
            print_json({**diagnosis.document, "files": files})
            return
        console = make_console()
        _print_table(diagnosis, console)
        print_path(console, "Report", str(diagnosis.report))
        print_path(console, "Numbers", str(diagnosis.path))


class DiagnoseProgress:
    """A bar for the part that is being worked on, and a line for every finished one."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = make_bar(console)
        self._task = self._bar.add_task("", total=1.0, visible=False)

    def __enter__(self) -> DiagnoseProgress:
        self._bar.start()
        return self

    def __exit__(self, *reason: object) -> None:
        self._bar.stop()

    def started(self, what: str) -> None:
        """Begin a new bar."""
        self._bar.reset(self._task, total=1.0, description=what, visible=True)

    def moved(self, share: float) -> None:
        """Move the bar."""
        self._bar.update(self._task, completed=share)

    def finished(self, what: str, reused: bool) -> None:
        """Print the part's line."""
        how = "found finished" if reused else "done"
        self._console.print(f"{what}: {how}", markup=False, highlight=False, soft_wrap=True)


def _print_table(diagnosis: Diagnosis, console: Console) -> None:
    from rich.markup import escape
    from rich.table import Table

    from beltrami.diagnosis.report import main_table

    content = main_table(diagnosis.document)
    table = Table(title=escape(content.caption))
    table.add_column("")
    table.add_column(content.columns[0], justify="right")
    for row in content.rows:
        title = f"{escape(row.name)}\n[dim]{escape(row.hint)}[/dim]"
        table.add_row(title, *(escape(str(value)) for value in row.values))
    console.print(table)
    if verdict := diagnosis.document["verdict"]:
        for text in (verdict["answer"], verdict["reason"]):
            console.print(text, markup=False, highlight=False, soft_wrap=True)
    if columns := diagnosis.document["source"]["facts"].get("columns"):
        console.print(f"Columns: {columns}", markup=False, highlight=False, soft_wrap=True)
    for note in diagnosis.document["notes"]:
        console.print(f"Note: {note}.", markup=False, highlight=False, soft_wrap=True)
