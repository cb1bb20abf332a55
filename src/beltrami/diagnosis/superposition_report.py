"""The section of the page on overlaps."""

from __future__ import annotations

from typing import Any

from beltrami.diagnosis.numbers import number as number  # also for the pages of recipes
from beltrami.diagnosis.superposition import as_overlaps, left_out
from beltrami.report.charts import histogram
from beltrami.report.page import Figure, Row, Section, Table

HEADING = "Superposition"
WHAT_OVERLAP_IS = (
    "A model with more tokens than dimensions lets their directions overlap. The overlap is the "
    "mean squared cosine of pairs of rows. Random directions in m dimensions have 1/m of it, and "
    "the Welch bound is the least that so many rows can have. Centred is measured after "
    "the mean of the rows is taken off: where a value far above 1/m falls to about 1/m by that, "
    "all rows share one direction, and that is not superposition of features."
)
ROLES = {
    "output": "the output table",
    "embedding": "the token embedding, as the output table is tied to it, or there is none",
    "rows": "the rows of the table",
}
NORMS = {"mean": "mean", "deviation": "standard deviation", "least": "least", "most": "most"}


def superposition_section(result: dict[str, Any]) -> Section:
    """What was measured, in words, pictures and numbers."""
    if "missing" in result:
        return Section(HEADING, (f"Not measured: {result['missing']}.",))
    measured, norms = result["overlaps"], result["norms"]
    picture = Figure(
        "Overlaps of pairs",
        as_overlaps(measured).plot().svg,
        "|cos| of random pairs of rows, as they are and without their mean.",
        wide=True,
    )
    chart = histogram(
        {"rows": norms["quantiles"]},
        title="Norms of the rows that are compared",
        description="How long rows are.",
        x_label="Norm",
        y_label="Share of rows",
        share=True,
    )
    lengths = Figure("Norms", chart, "By quantiles of the rows that are compared.", wide=True)
    return Section(
        HEADING,
        (result["reading"], WHAT_OVERLAP_IS, measured_rows(result)),
        (picture, lengths),
        (_table(result),),
    )


def measured_rows(result: dict[str, Any]) -> str:
    """Which rows were compared, and which were not."""
    tensor = f" ({result['tensor']})" if result["tensor"] else ""
    text = (
        f"Compared are {result['compared']:,} of {result['rows']:,} rows of "
        f"{ROLES[result['table']]}{tensor}."
    )
    if left := left_out(result):
        text += f" Left out: {left}."
    if result["width"] != result["hidden_width"]:
        text += (
            f" Rows have {result['width']:,} numbers, and the model's states "
            f"{result['hidden_width']:,}, which are projected first; m is {result['width']:,} here."
        )
    return text


def _table(result: dict[str, Any]) -> Table:
    measured, norms = result["overlaps"], result["norms"]
    rows = (
        Row("Overlap", "mean squared cosine", _pair(measured, "mean_squared")),
        Row("Overlap × width", "1 is random directions", _pair(result, "ratio")),
        Row("Mean |cos|", "", _pair(measured, "mean_absolute")),
        Row("Distance from equal overlaps", "0: all pairs alike", _pair(measured, "etf_distance")),
        Row("of random directions", "1/m", (number(measured["random"]),) * 2),
        Row("at least", "Welch's bound", (number(measured["welch"]),) * 2),
        *(Row("Norm", hint, (number(norms[name]), "–")) for name, hint in NORMS.items()),
    )
    return Table(f"Overlaps in {measured['dimensions']:,} dimensions", ("Raw", "Centred"), rows)


def _pair(measured: dict[str, Any], name: str) -> tuple[str, str]:
    return number(measured[name]), number(measured[f"{name}_centred"])
