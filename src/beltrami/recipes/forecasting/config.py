"""What `beltrami forecast` can be told."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beltrami.options import RUNS, file_name, option_words, plain_settings


@dataclass(frozen=True)
class ForecastConfig:
    """Say how losses fall with the width of a model, and which width a loss would need.

    FILE is a table of models: CSV, TSV, JSON or JSON lines with the columns width and loss, which
    may be called d_model, hidden_size, test_loss and the like; other columns are left out. Several
    rows of one width, such as seeds, are welcome.

    Writes forecast.json and report.html.

    Example: beltrami forecast losses.csv --target 2.5
    """

    file: Path
    """The table."""

    target: float | None = None
    """A loss whose width to find."""

    floor: float | None = None
    """The loss of endless width, where it is known: 0 fits a power law alone. Without it, a floor
    is fitted and kept if it is better than none by more than chance."""

    data_exponent: float | None = None
    """a, where the frequencies of what is learned fall as i^-a: with it the regime is told with
    more certainty. Words of a language have about 1."""

    width: str = ""
    """Which column has the widths, where its name does not tell."""

    loss: str = ""
    """Which column has the losses, where its name does not tell."""

    out: Path | None = None
    """Folder for forecast.json and report.html; without it runs/forecast-FILE."""

    fresh: bool = False
    """Replace a forecast of other data or options in the folder."""

    json: bool = False
    """Print forecast.json and the files' paths on stdout instead of a table."""

    def check(self) -> None:
        """Raise a `ValueError` that names the option, the value and what would be accepted."""
        if self.target is not None and not 0 < self.target < float("inf"):
            raise ValueError(f"--target must be a positive number, got {self.target:g}")
        if self.floor is not None and not 0 <= self.floor < float("inf"):
            raise ValueError(f"--floor must be a number of 0 or more, got {self.floor:g}")
        if self.data_exponent is not None and not math.isfinite(self.data_exponent):
            raise ValueError(f"--data-exponent must be a finite number, got {self.data_exponent}")

    @property
    def folder(self) -> Path:
        """Where the forecast goes."""
        name = file_name(self.file.name).strip("._") or "table"
        return RUNS / f"forecast-{name}" if self.out is None else self.out

    def settings(self) -> dict[str, Any]:
        """The options that say what is computed, JSON-able."""
        return plain_settings(self, besides=("out", "fresh", "json"))

    def command(self) -> str:
        """The command line that repeats this."""
        options = option_words(self, besides=("file", "fresh", "json"))
        return shlex.join(["beltrami", "forecast", str(self.file), *options])
