"""`beltrami forecast`: its options and its tables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from beltrami.cli.console import make_console, print_json, print_path
from beltrami.cli.errors import BadInputError
from beltrami.cli.tables import print_tables
from beltrami.recipes.forecasting.config import ForecastConfig

if TYPE_CHECKING:
    from beltrami.recipes.forecasting.forecast import Forecasted


@dataclass(frozen=True)
class ForecastCommand(ForecastConfig):
    """The forecast, on the command line."""

    file: Annotated[Positional[Path], arg(metavar="FILE")]
    """The table."""

    def execute(self) -> None:
        """Forecast, and print what was found."""
        from beltrami.recipes.forecasting.forecast import forecast_file

        try:
            forecasted = forecast_file(self)
        except (ValueError, TypeError) as error:
            raise BadInputError(f"{error}\nSee `beltrami forecast --help`.") from error
        self._print(forecasted)

    def _print(self, forecasted: Forecasted) -> None:
        if self.json:
            files = {"forecast": str(forecasted.path), "report": str(forecasted.report)}
            print_json({**forecasted.document, "files": files})
            return
        from beltrami.recipes.forecasting.report import main_table, windows_table

        console = make_console()
        print_tables(console, [main_table(forecasted.document), windows_table(forecasted.document)])
        lines = [forecasted.document["answer"]]
        lines += [f"Warning: {text}." for text in forecasted.document["forecast"]["warnings"]]
        for text in lines:
            console.print(text, markup=False, highlight=False, soft_wrap=True)
        print_path(console, "Report", str(forecasted.report))
        print_path(console, "Numbers", str(forecasted.path))
