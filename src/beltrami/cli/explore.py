"""`beltrami explore`: its options and its progress."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

from beltrami.cli.console import make_console, print_path, progress
from beltrami.cli.errors import BadInputError
from beltrami.diagnosis.config import EMBEDDED
from beltrami.diagnosis.explore.config import ExploreConfig


@dataclass(frozen=True)
class ExploreCommand(ExploreConfig):
    """The explorer, on the command line."""

    source: Annotated[
        Positional[str], arg(metavar="[SOURCE]", help_behavior_hint=f"(default: {EMBEDDED})")
    ] = EMBEDDED
    """What to show."""

    def execute(self) -> None:
        """Write the page, and print where."""
        from beltrami.diagnosis.explore.explore import explore

        work = "HoroPCA of the points" if self.method == "horopca" else "reading and placing points"
        try:
            with progress(work) as tick:
                path = explore(self, tick)
        except (ValueError, TypeError) as error:
            raise BadInputError(f"{error}\nSee `beltrami explore --help`.") from error
        print_path(make_console(), "Page", str(path))
