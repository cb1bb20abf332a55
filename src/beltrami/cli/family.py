"""`beltrami family`: its options and its tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from beltrami.cli.console import make_console, print_json, print_path
from beltrami.cli.diagnose import DiagnoseProgress
from beltrami.cli.errors import BadInputError, InterruptedWork
from beltrami.cli.tables import print_tables
from beltrami.recipes.family.config import FamilyConfig

if TYPE_CHECKING:
    from beltrami.recipes.family.measure import Family


@dataclass(frozen=True)
class FamilyCommand(FamilyConfig):
    """The measurements, on the command line."""

    models: Annotated[Positional[tuple[str, ...]], arg(metavar="MODEL [MODEL ...]")] = ()
    """What to measure, at least one."""

    def execute(self) -> None:
        """Measure, and print what was found."""
        from beltrami.recipes.family.measure import measure_family

        progress = DiagnoseProgress(make_console(stderr=True))
        try:
            with progress:
                measured = measure_family(self, progress)
        except (ValueError, TypeError) as error:
            raise BadInputError(f"{error}\nSee `beltrami family --help`.") from error
        except KeyboardInterrupt as interrupt:
            raise InterruptedWork(
                f"Interrupted. What was measured is kept in {self.folder}.\n"
                f"Continue with: {self.command()}"
            ) from interrupt
        self._print(measured)

    def _print(self, measured: Family) -> None:
        if self.json:
            files = {"family": str(measured.path), "report": str(measured.report)}
            print_json({**measured.document, "files": files})
            return
        from beltrami.recipes.family.report import tables, told

        console = make_console()
        print_tables(console, tables(measured.document))
        for text in told(measured.document):
            console.print(text, markup=False, highlight=False, soft_wrap=True)
        print_path(console, "Report", str(measured.report))
        print_path(console, "Numbers", str(measured.path))
