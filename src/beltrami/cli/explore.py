"""`beltrami explore`: its options and its progress."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

from beltrami.cli.console import make_bar, make_console, print_path
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

        bar = make_bar(make_console(stderr=True))
        task = bar.add_task("reading", total=1.0)
        try:
            with bar:
                path = explore(self, lambda share: bar.update(task, completed=share))
        except (ValueError, TypeError) as error:
            raise BadInputError(f"{error}\nSee `beltrami explore --help`.") from error
        print_path(make_console(), "Page", str(path))
