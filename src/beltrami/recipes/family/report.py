"""The page of a family: every number in it is in the JSON."""

from __future__ import annotations

import math
from typing import Any

from beltrami.diagnosis.sentences import sentence
from beltrami.diagnosis.superposition_report import WHAT_OVERLAP_IS, measured_rows, number
from beltrami.report.charts import Series, line_chart
from beltrami.report.page import Figure, Page, Row, Section, Table

KINDS = {"raw": "mean_squared", "centred": "mean_squared_centred"}
RANDOM = "random directions, 1/m"
Points = dict[str, list[tuple[float, float]]]
"""Widths and values by the name of their line."""
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
    models, notes = document["models"], document["notes"]
    compared = tuple(f"{m['name']}: {_compared_rows(m['overlap'])}" for m in models)
    losses = [_loss_section(document)] if document["loss_fit"] is not None else []
    keep = [Section("To keep in mind", tuple(map(sentence, notes)))] if notes else []
    return Page(
        title="Overlaps and losses over width" if document["loss_fit"] else "Overlaps over width",
        lead=_fit_words(document["overlap_fits"]["raw"], "raw"),
        figures=_figures(document),
        table=models_table(document),
        sections=(
            Section("What overlaps are", (WHAT_OVERLAP_IS,)),
            *losses,
            Section("Which rows were compared", compared),
            *keep,
        ),
        facts=tuple((m["name"], f"{m['source']} (family {m['family']})") for m in models),
        command=document["command"],
        footer=f"beltrami {document['beltrami']}. All numbers are in family.json.",
    )


def tables(document: dict[str, Any]) -> list[Table]:
    """What the command line shows."""
    return [models_table(document), *_law_tables(document["loss_fit"])]


def texts(document: dict[str, Any]) -> list[str]:
    """What the command line says below the tables."""
    fit = document["loss_fit"]
    return [
        *(_fit_words(document["overlap_fits"][kind], kind) for kind in KINDS),
        *([_law_words(fit)] if fit is not None else []),
        *(f"Note: {note}." for note in document["notes"]),
    ]


def models_table(document: dict[str, Any]) -> Table:
    """A line a model."""
    datasets = list(document["models"][0]["losses"])
    rows = []
    for model in document["models"]:
        overlap = model["overlap"]
        measured = overlap.get("overlaps") or {}
        values = (
            f"{overlap['width']:,}",
            f"{overlap['rows']:,}",
            f"{overlap['rows'] - overlap['compared']:,}",
            *(number(measured.get(name)) for name in KINDS.values()),
            number(overlap.get("ratio")),
            number(overlap.get("ratio_centred")),
            *(f"{model['losses'][dataset]['loss']:.4f}" for dataset in datasets),
        )
        rows.append(Row(model["name"], model["family"], values))
    times = ("Overlap × width", "Centred × width")
    columns = ("Width", "Rows", "Left out", "Overlap", "Centred", *times)
    losses = [f"Loss, {dataset}" for dataset in datasets] if len(datasets) > 1 else ["Loss"]
    caption = "Overlap is the mean squared cosine of rows; random directions have 1/m"
    return Table(caption, (*columns, *losses[: len(datasets)]), tuple(rows), head="Model")


def _figures(document: dict[str, Any]) -> tuple[Figure, ...]:
    """The overlaps over the width of rows, as they are and centred."""
    figures = []
    for kind, name in KINDS.items():
        points: Points = {}
        for model in document["models"]:
            overlap = model["overlap"]
            if overlap.get("overlaps") and overlap["overlaps"][name]:
                place = overlap["width"], overlap["overlaps"][name]
                points.setdefault(model["family"], []).append(place)
        if not points:
            continue
        lines = _lines(points)
        widths = [width for places in points.values() for width, _ in places]
        ends = [min(widths), max(widths)]
        lines.append(Series(RANDOM, ends, [1 / width for width in ends]))
        fit = document["overlap_fits"][kind]
        if "missing" not in fit:
            at = [math.exp(fit["intercept"] + fit["slope"] * math.log(width)) for width in ends]
            lines.append(Series(f"fit, slope {number(fit['slope'])}", ends, at))
        chart = line_chart(
            lines,
            title=f"Overlap over width, {kind}",
            description="The mean squared overlap of each model's rows.",
            x_label="Width of the rows",
            y_label="Mean squared overlap",
            x_log=True,
            y_log=True,
        )
        heading = "As they are" if kind == "raw" else "Without the mean of the rows"
        figures.append(Figure(heading, chart, "Mean squared overlap over the width of the rows."))
    return tuple(figures)


def _lines(points: Points) -> list[Series]:
    lines = []
    for family, places in points.items():
        # A family may be called like another line of the chart.
        name = f"family {family}" if family == RANDOM else family
        lines.append(Series(name, *zip(*sorted(places), strict=True)))
    return lines


def _loss_section(document: dict[str, Any]) -> Section:
    fit, rows = document["loss_fit"], []
    points: Points = {}
    several = len(document["models"][0]["losses"]) > 1
    for model in document["models"]:
        for dataset, loss in model["losses"].items():
            line = f"{model['family']}, {dataset}" if several else model["family"]
            place = model["overlap"]["hidden_width"], loss["loss"]
            points.setdefault(line, []).append(place)
            counts = [f"{loss[n]:,}" for n in ("predicted", "texts", "skipped", "cut", "longest")]
            hint = f"{model['family']}, {dataset}"
            rows.append(Row(model["name"], hint, (f"{loss['loss']:.4f}", *counts)))
    chart = line_chart(
        _lines(points),
        title="Loss over width",
        description="The loss of each model on the texts.",
        x_label="Width of the states",
        y_label="Loss, nats a token",
        x_log=True,
    )
    columns = ("Loss", "Predicted", "Texts", "Skipped", "Cut off", "Tokens at most")
    return Section(
        "Losses",
        (_law_words(fit), WHAT_LOSSES_ARE, WHAT_THE_FIT_IS),
        (Figure("Loss over width", chart, "A line a family and texts.", wide=True),),
        (Table("Losses", columns, tuple(rows), head="Model"), *_law_tables(fit)),
    )


def _law_tables(fit: dict[str, Any] | None) -> list[Table]:
    """The parameters of the law, where losses were fitted."""
    if fit is None or "missing" in fit:
        return []
    rows = [
        Row("α", "the exponent", (number(fit["exponent"]), number(fit["error"]))),
        Row("A", "the scale", (number(fit["scale"]), number(fit["scale_error"]))),
    ]
    for offset in fit["offsets"]:
        hint = f"{offset['models']} models, {offset['widths']} widths"
        values = (number(offset["value"]), number(offset["error"]))
        on = "" if offset["texts"] is None else f" on {offset['texts']}"
        rows.append(Row(f"B of {offset['family']}{on}", hint, values))
    return [Table("L = A/m^α + B", ("Value", "Standard error"), tuple(rows))]


def _law_words(fit: dict[str, Any]) -> str:
    if "missing" in fit:
        return f"The losses were not fitted: {fit['missing']}."
    text = (
        f"Losses fall as width^−{number(fit['exponent'])} towards the offset of each family (95 % "
        f"interval {number(fit['low'])} to {number(fit['high'])}, R² {number(fit['r_squared'])}, "
        f"{fit['points']} losses, {fit['freedom']} degrees of freedom)."
    )
    if fit["at_edge"]:
        text += " The exponent is at the end of its range: these losses do not follow such a law."
    return text


def _fit_words(fit: dict[str, Any], kind: str) -> str:
    which = "The overlap" if kind == "raw" else "The centred overlap"
    if "missing" in fit:
        return f"{which} was not fitted against the width: {fit['missing']}."
    return (
        f"{which} goes as width^({number(fit['slope'])}) (95 % interval {number(fit['low'])} to "
        f"{number(fit['high'])}, R² {number(fit['r_squared'])}, {fit['points']} models); that of "
        "random directions as width^(−1)."
    )


def _compared_rows(overlap: dict[str, Any]) -> str:
    if "missing" in overlap:
        return f"not measured, {overlap['missing']}."
    return f"{measured_rows(overlap)} {overlap['reading']}"
