"""The page of a family: every number in it is in the JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from beltrami.diagnosis.sentences import sentence
from beltrami.diagnosis.superposition_report import (
    WHAT_OVERLAP_IS,
    measured_rows,
    number,
)
from beltrami.report.charts import Series, line_chart
from beltrami.report.page import Figure, Page, Row, Section, Table

KINDS = {"raw": "mean_squared", "centred": "mean_squared_centred"}
RANDOM = "random directions, 1/m"
WHAT_LOSSES_ARE = (
    "The loss is in nats a predicted token, of each model's own tokens: a text of T tokens has "
    "T − 1 predictions, and each counts once. Losses of models with different tokenizers are not "
    "of the same thing; the offset of each family stands for that, too."
)
WHAT_THE_FIT_IS = (
    "Fitted is L = A/m^α + B, with one A and α for all and an offset B for each family, and for "
    "each of several texts; m is the width of the states. Errors are those of all parameters "
    "together."
)


def family_page(document: dict[str, Any]) -> Page:
    """What the command writes to report.html."""
    models = document["models"]
    sections = [
        Section("What overlaps are", (WHAT_OVERLAP_IS,)),
        *([_loss_section(document)] if document["loss_fit"] is not None else []),
        Section(
            "Which rows were compared",
            tuple(f"{m['name']}: {_rows_told(m['overlap'])}" for m in models),
        ),
        *(
            [Section("To keep in mind", tuple(map(sentence, document["notes"])))]
            if document["notes"]
            else []
        ),
    ]
    return Page(
        title="Overlaps and losses over width" if document["loss_fit"] else "Overlaps over width",
        lead=_fit_told(document["overlap_fits"]["raw"], "raw"),
        figures=_figures(document),
        table=models_table(document),
        sections=tuple(sections),
        facts=tuple((m["name"], f"{m['source']} (family {m['family']})") for m in models),
        command=document["command"],
        footer=f"beltrami {document['beltrami']}. All numbers are in family.json.",
    )


def tables(document: dict[str, Any]) -> list[Table]:
    """What the command line shows."""
    found = [models_table(document)]
    fit = document["loss_fit"]
    if fit is not None and "missing" not in fit:
        found.append(_law_table(fit))
    return found


def told(document: dict[str, Any]) -> list[str]:
    """What the command line says below them."""
    said = [_fit_told(document["overlap_fits"][kind], kind) for kind in KINDS]
    fit = document["loss_fit"]
    if fit is not None:
        said.append(_law_told(fit))
    return [*said, *(f"Note: {note}." for note in document["notes"])]


def models_table(document: dict[str, Any]) -> Table:
    """A line a model."""
    datasets = _datasets(document)
    columns = ["Width", "Rows", "Left out", "Overlap", "Centred", "× m", "Centred × m"]
    rows = []
    for model in document["models"]:
        found = model["overlap"]
        measured = found.get("overlaps")
        values = [
            f"{found['width']:,}",
            f"{found['rows']:,}",
            f"{found['rows'] - found['compared']:,}",
            *(number(measured[name]) if measured else "–" for name in KINDS.values()),
            number(found["ratio"]) if measured else "–",
            number(found["ratio_centred"]) if measured else "–",
        ]
        values += [f"{model['losses'][dataset]['loss']:.4f}" for dataset in datasets]
        rows.append(Row(model["name"], model["family"], tuple(values)))
    columns += [f"Loss, {dataset}" if len(datasets) > 1 else "Loss" for dataset in datasets]
    return Table(
        "Overlap is the mean squared cosine of rows; random directions have 1/m",
        tuple(columns),
        tuple(rows),
        head="Model",
    )


def _figures(document: dict[str, Any]) -> tuple[Figure, ...]:
    return tuple(
        Figure(
            "As they are" if kind == "raw" else "Without the mean of the rows",
            chart,
            "Mean squared overlap over the width of the rows.",
        )
        for kind in KINDS
        if (chart := _overlap_chart(document, kind))
    )


def _overlap_chart(document: dict[str, Any], kind: str) -> str:
    name = KINDS[kind]
    points: dict[str, list[tuple[float, float]]] = {}
    for model in document["models"]:
        measured = model["overlap"].get("overlaps")
        if measured and measured[name]:
            own = points.setdefault(model["family"], [])
            own.append((model["overlap"]["width"], measured[name]))
    if not points:
        return ""
    widths = sorted(width for some in points.values() for width, _ in some)
    lines = _lines(points)
    ends = [widths[0], widths[-1]]
    lines.append(Series(RANDOM, ends, [1 / width for width in ends]))
    fit = document["overlap_fits"][kind]
    if "missing" not in fit:
        at = [math.exp(fit["intercept"] + fit["slope"] * math.log(width)) for width in ends]
        lines.append(Series(f"fit, slope {number(fit['slope'])}", ends, at))
    return line_chart(
        lines,
        title=f"Overlap over width, {kind}",
        description="The mean squared overlap of each model's rows.",
        x_label="Width of the rows",
        y_label="Mean squared overlap",
        x_log=True,
        y_log=True,
    )


def _lines(points: dict[str, list[tuple[float, float]]]) -> list[Series]:
    found = []
    for family, some in points.items():
        ordered = sorted(some)
        # A family may be called like another line of the chart.
        name = f"family {family}" if family == RANDOM else family
        found.append(Series(name, [x for x, _ in ordered], [y for _, y in ordered]))
    return found


def _loss_section(document: dict[str, Any]) -> Section:
    fit = document["loss_fit"]
    points: dict[str, list[tuple[float, float]]] = {}
    several = len(_datasets(document)) > 1
    for model in document["models"]:
        for dataset, loss in model["losses"].items():
            line = f"{model['family']}, {dataset}" if several else model["family"]
            own = points.setdefault(line, [])
            own.append((model["overlap"]["hidden_width"], loss["loss"]))
    chart = line_chart(
        _lines(points),
        title="Loss over width",
        description="The loss of each model on the texts.",
        x_label="Width of the states",
        y_label="Loss, nats a token",
        x_log=True,
    )
    rows = tuple(
        Row(
            model["name"],
            f"{model['family']}, {dataset}",
            (
                f"{loss['loss']:.4f}",
                f"{loss['predicted']:,}",
                f"{loss['texts']:,}",
                f"{loss['skipped']:,}",
                f"{loss['cut']:,}",
                f"{loss['longest']:,}",
            ),
        )
        for model in document["models"]
        for dataset, loss in model["losses"].items()
    )
    columns = ("Loss", "Predicted", "Texts", "Skipped", "Cut off", "Tokens at most")
    found = [Table("Losses", columns, rows, head="Model")]
    if "missing" not in fit:
        found.append(_law_table(fit))
    return Section(
        "Losses",
        (_law_told(fit), WHAT_LOSSES_ARE, WHAT_THE_FIT_IS),
        (Figure("Loss over width", chart, "A line a family and texts.", wide=True),),
        tuple(found),
    )


def _datasets(document: dict[str, Any]) -> list[str]:
    """Names of the texts."""
    return list(document["models"][0]["losses"])


def _law_table(fit: dict[str, Any]) -> Table:
    return Table("L = A/m^α + B", ("Value", "Standard error"), tuple(_law_rows(fit)))


def _law_rows(fit: dict[str, Any]) -> Iterator[Row]:
    yield Row("α", "the exponent", (number(fit["exponent"]), number(fit["error"])))
    yield Row("A", "the scale", (number(fit["scale"]), number(fit["scale_error"])))
    for offset in fit["offsets"]:
        hint = f"{offset['models']} models, {offset['widths']} widths"
        values = (number(offset["value"]), number(offset["error"]))
        on = "" if offset["texts"] is None else f" on {offset['texts']}"
        yield Row(f"B of {offset['family']}{on}", hint, values)


def _law_told(fit: dict[str, Any]) -> str:
    if "missing" in fit:
        return f"The losses were not fitted: {fit['missing']}."
    text = (
        f"Losses fall as width^−{number(fit['exponent'])} towards the offset of each family (95 % "
        f"interval {number(fit['low'])} to {number(fit['high'])}, R² {number(fit['r_squared'])}, "
        f"{fit['points']} losses, {fit['freedom']} degrees of freedom)."
    )
    if fit["at_edge"]:
        text += " The exponent is at the end of its range: these losses are no such law."
    return text


def _fit_told(fit: dict[str, Any], kind: str) -> str:
    which = "The overlap" if kind == "raw" else "The centred overlap"
    if "missing" in fit:
        return f"{which} was not fitted against the width: {fit['missing']}."
    return (
        f"{which} goes as width^({number(fit['slope'])}) (95 % interval {number(fit['low'])} to "
        f"{number(fit['high'])}, R² {number(fit['r_squared'])}, {fit['points']} models); that of "
        "random directions as width^(−1)."
    )


def _rows_told(found: dict[str, Any]) -> str:
    if "missing" in found:
        return f"not measured, {found['missing']}."
    return f"{measured_rows(found)} {found['reading']}"
