"""`beltrami forecast`: its options and its tables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from beltrami.cli.documents import print_written
from beltrami.cli.errors import BadInputError
from beltrami.recipes.forecasting.config import ForecastConfig


@dataclass(frozen=True)
class ForecastCommand(ForecastConfig):
    """The forecast, on the command line."""

    file: Annotated[Positional[Path], arg(metavar="FILE")]
    """The table."""

    def execute(self) -> None:
        """Forecast, and print what was found."""
        from beltrami.recipes.forecasting.forecast import forecast_file
        from beltrami.recipes.forecasting.report import tables, texts

        try:
            written = forecast_file(self)
        except (ValueError, TypeError) as error:
            raise BadInputError(f"{error}\nSee `beltrami forecast --help`.") from error
        print_written(written, "forecast", tables, texts, as_json=self.json)
