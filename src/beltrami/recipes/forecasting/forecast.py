"""From a table of widths and losses to a forecast, its numbers and its page.

forecast.json, an object with
    schema     "beltrami.forecast/1"
    beltrami   the version that ran
    command    the command line that repeats it
    settings   the options, by name
    source     file, digest, the columns that were read, and how many rows
    answer     what came out, in words
    forecast   what `beltrami.analysis.superposition.forecast` returns: the law, the regime, the
               width for the target with its interval, the warnings
    windows    `fits`: exponent, interval and floor by window, from all widths to the three widest,
               or four where a floor was fitted; their spread; which `floors` they have, "own",
               "given" or "none"; how the losses less the floor of all bend

Numbers that are not finite are null.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import beltrami
from beltrami.analysis.superposition import Forecast, exponent_windows, forecast
from beltrami.data.atomic import to_json, write_atomically
from beltrami.data.cache import file_digest
from beltrami.data.output_folder import OutputFolder
from beltrami.diagnosis.numbers import finite
from beltrami.recipes.forecasting.config import ForecastConfig
from beltrami.recipes.forecasting.table import LossTable, read_losses
from beltrami.report.page import render

SCHEMA = "beltrami.forecast/1"
DOCUMENT, REPORT = "forecast.json", "report.html"


@dataclass(frozen=True)
class Forecasted:
    """What was found, and where it was written."""

    document: dict[str, Any]
    path: Path
    report: Path


def forecast_file(config: ForecastConfig) -> Forecasted:
    """Read, fit, and write forecast.json and report.html.

    Raises:
        ValueError: what is wrong with an option, the table or the folder.
    """
    from beltrami.recipes.forecasting.report import forecast_page

    config.check()
    table = read_losses(config.file, width=config.width, loss=config.loss)
    found = forecast(
        table.widths,
        table.losses,
        target=config.target,
        floor="fit" if config.floor is None else config.floor,
        data_exponent=config.data_exponent,
    )
    told = found.as_dict()
    fits = told.pop("windows")
    document = {
        "schema": SCHEMA,
        "beltrami": beltrami.__version__,
        "command": config.command(),
        "settings": config.settings(),
        "source": _source(config.file, table),
        "answer": answer(found),
        "forecast": told,
        "windows": {"fits": fits, "spread": found.spread, **_floors_and_bend(found)},
    }
    folder = OutputFolder(config.folder)
    folder.check_writable()
    path, report = config.folder / DOCUMENT, config.folder / REPORT
    with folder.locked():
        folder.document(DOCUMENT, SCHEMA, "forecast")
        write_atomically(path, to_json(document))
        write_atomically(report, render(forecast_page(document, found.plot().svg)))
    return Forecasted(document, path, report)


def answer(found: Forecast) -> str:
    """What came out, in a sentence or two."""
    known = math.isfinite(found.low) and math.isfinite(found.high)
    ends = f"95 % interval {found.low:.3g} to {found.high:.3g}" if known else "which may be any"
    law = f"The loss goes as width^−({found.exponent:.3g}) ({ends})"
    if found.floor > 0:
        law += f" towards a floor of {found.floor:.3g}"
    if math.isnan(found.target):
        return f"{law}."
    if math.isinf(found.width):
        return f"{law}: by this law no width reaches {found.target:.4g}."
    if found.width_high < 1:
        return f"{law}, and by this law any width reaches {found.target:.4g}."
    high = width_told(found.width_high) if math.isfinite(found.width_high) else "any width"
    where = "a width" if found.width < 1 else "a width of"
    return (
        f"{law}, and reaches {found.target:.4g} at {where} {width_told(found.width)} (95 % "
        f"interval {width_told(found.width_low)} to {high})."
    )


def width_told(width: float) -> str:
    """A width as a whole number; a law may have a loss where there is none."""
    return "below 1" if width < 1 else f"{width:,.0f}"


def _source(path: Path, table: LossTable) -> dict[str, Any]:
    return {
        "file": str(path),
        "digest": file_digest(path),
        "width_column": table.width_column,
        "loss_column": table.loss_column,
        "rows": len(table.widths),
    }


def _floors_and_bend(found: Forecast) -> dict[str, Any]:
    """Bends are of losses less the floor where there is one, as the forecast judges them."""
    above = [loss - found.floor for loss in found.losses]
    bend = exponent_windows(found.widths, above if min(above) > 0 else found.losses)
    return {
        "floors": "own" if found.floor_needed else "given" if found.floor > 0 else "none",
        "curvature": finite(bend.curvature),
        "curvature_error": finite(bend.curvature_error),
        "curvature_t": finite(bend.curvature_t),
        "bends": "down" if bend.concave else "up" if bend.convex else "no",
    }
