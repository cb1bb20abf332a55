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
from collections.abc import Mapping
from typing import Any

from beltrami.analysis.superposition import Forecast, forecast
from beltrami.data.cache import file_digest
from beltrami.data.output_folder import OutputFolder
from beltrami.diagnosis.numbers import finite
from beltrami.recipes.documents import Written, head, write
from beltrami.recipes.forecasting.config import ForecastConfig
from beltrami.recipes.forecasting.report import as_width, forecast_page
from beltrami.recipes.forecasting.table import read_losses

SCHEMA = "beltrami.forecast/1"
DOCUMENT = "forecast.json"


def forecast_file(config: ForecastConfig) -> Written:
    """Read, fit, and write forecast.json and report.html.

    Raises:
        ValueError: what is wrong with an option, the table or the folder.
    """
    config.check()
    table = read_losses(config.file, width=config.width, loss=config.loss)
    result = forecast(
        table.widths,
        table.losses,
        target=config.target,
        floor="fit" if config.floor is None else config.floor,
        data_exponent=config.data_exponent,
    )
    numbers, bend = result.as_dict(), result.bend
    fits = numbers.pop("windows")
    document = {
        **head(config, SCHEMA),
        "source": {
            "file": str(config.file),
            "digest": file_digest(config.file),
            "width_column": table.width_column,
            "loss_column": table.loss_column,
            "rows": len(table.widths),
        },
        "answer": answer(result),
        "forecast": numbers,
        "windows": {
            "fits": fits,
            "spread": result.spread,
            "floors": "own" if result.floor_needed else "given" if result.floor > 0 else "none",
            "curvature": finite(bend.curvature),
            "curvature_error": finite(bend.curvature_error),
            "curvature_t": finite(bend.curvature_t),
            "bends": "down" if bend.concave else "up" if bend.convex else "no",
        },
    }
    folder = OutputFolder(config.folder)
    folder.check_writable()
    with folder.locked():
        before = folder.document(DOCUMENT, SCHEMA, "forecast")
        if before is not None and not config.fresh and _inputs(before) != _inputs(document):
            raise ValueError(
                f"{config.folder / DOCUMENT} is of other data or options; give --fresh to replace "
                "it, or another --out"
            )
        page = forecast_page(document, result.plot().svg)
        return write(config.folder, DOCUMENT, document, page)


def _inputs(document: Mapping[str, Any]) -> tuple[Any, Any]:
    """What a forecast was made of, wherever the file lies."""
    return document.get("source", {}).get("digest"), {**document.get("settings", {}), "file": ""}


def answer(result: Forecast) -> str:
    """What came out, in a sentence or two."""
    known = math.isfinite(result.low) and math.isfinite(result.high)
    ends = f"95 % interval {result.low:.3g} to {result.high:.3g}" if known else "which may be any"
    law = f"The loss goes as width^−({result.exponent:.3g}) ({ends})"
    if result.floor > 0:
        law += f" towards a floor of {result.floor:.3g}"
    if math.isnan(result.target):
        return f"{law}."
    if math.isinf(result.width):
        return f"{law}: by this law no width reaches {result.target:.4g}."
    if result.width_high < 1:
        return f"{law}, and by this law any width reaches {result.target:.4g}."
    high = as_width(result.width_high) if math.isfinite(result.width_high) else "any width"
    where = "a width" if result.width < 1 else "a width of"
    return (
        f"{law}, and reaches {result.target:.4g} at {where} {as_width(result.width)} (95 % "
        f"interval {as_width(result.width_low)} to {high})."
    )
