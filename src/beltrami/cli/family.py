"""`beltrami family`: its options and its tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

from beltrami.cli.console import make_console
from beltrami.cli.diagnose import DiagnoseProgress
from beltrami.cli.documents import print_written
from beltrami.cli.errors import BadInputError, InterruptedWork
from beltrami.recipes.family.config import FamilyConfig


@dataclass(frozen=True)
class FamilyCommand(FamilyConfig):
    """The measurements, on the command line."""

    models: Annotated[Positional[tuple[str, ...]], arg(metavar="MODEL [MODEL ...]")] = ()
    """What to measure, at least one."""

    def execute(self) -> None:
        """Measure, and print what was found."""
        from beltrami.recipes.family.measure import measure_family
        from beltrami.recipes.family.report import tables, texts

        progress = DiagnoseProgress(make_console(stderr=True))
        try:
            with progress:
                written = measure_family(self, progress)
        except (ValueError, TypeError) as error:
            raise BadInputError(f"{error}\nSee `beltrami family --help`.") from error
        except KeyboardInterrupt as interrupt:
            raise InterruptedWork(
                f"Interrupted. What was measured is kept in {self.folder}.\n"
                f"Continue with: {self.command()}"
            ) from interrupt
        print_written(written, "family", tables, texts, as_json=self.json)
