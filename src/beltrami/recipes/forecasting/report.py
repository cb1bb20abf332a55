"""The page of a forecast: every number in it is in the JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from beltrami.diagnosis.sentences import sentence
from beltrami.diagnosis.superposition_report import number
from beltrami.report.page import Figure, Page, Row, Section, Table

NO_TRUST = "Why this is not to be trusted as it stands"
WHAT_REGIMES_ARE = (
    "In strong superposition a model represents many more features than it has dimensions, and the "
    "loss, made of their overlaps, falls about as 1/width. In weak superposition it represents "
    "about as many as it has dimensions, and the loss is what the others would have told: its "
    "exponent is that of their frequencies."
)
WHAT_WINDOWS_ARE = (
    "The exponent of losses that do not follow such a law depends on which widths are fitted. Each "
    "line leaves out the narrowest widths; where they disagree, no single exponent holds."
)
WHAT_INTERVALS_ARE = (
    "Where a floor was looked for and none was kept, the interval of the exponent has those of all "
    "laws with a floor that fit hardly worse."
)
FLOORS = {
    "own": "Laws with a floor of their own where they need one",
    "given": "Laws with the floor that was given",
    "none": "Power laws without a floor",
}


WHAT_IS_SHOWN = (
    "Both axes are logarithmic. The band has the exponents of the 95 % interval; the line of a "
    "target goes from end to end of the width's."
)


def forecast_page(document: dict[str, Any], svg: str) -> Page:
    """The page of a document of forecast.json, with the picture of its losses and law."""
    source, regime = document["source"], document["forecast"]["regime"]
    warnings = document["forecast"]["warnings"]
    figure = Figure("Loss over width", svg, WHAT_IS_SHOWN, wide=True)
    return Page(
        title=f"{source['file']}: loss over width",
        lead=document["answer"],
        figures=(figure,),
        table=main_table(document),
        sections=(
            Section(
                NO_TRUST if warnings else "Warnings",
                tuple(sentence(text) for text in warnings) or ("None.",),
            ),
            Section(f"Regime: {regime['name']}", (sentence(regime["words"]), WHAT_REGIMES_ARE)),
            Section(
                "The exponent by window",
                (WHAT_WINDOWS_ARE, WHAT_INTERVALS_ARE),
                (),
                (windows_table(document),),
            ),
        ),
        facts=(
            ("File", source["file"]),
            ("Rows", f"{source['rows']:,}"),
            ("Widths", f"column {source['width_column']}"),
            ("Losses", f"column {source['loss_column']}"),
            ("Content", f"SHA-256 {source['digest']}"),
        ),
        command=document["command"],
        footer=f"beltrami {document['beltrami']}. All numbers are in forecast.json.",
    )


def tables(document: dict[str, Any]) -> list[Table]:
    """What the command line shows."""
    return [main_table(document), windows_table(document)]


def texts(document: dict[str, Any]) -> list[str]:
    """What the command line says below the tables."""
    warnings = [f"Warning: {text}." for text in document["forecast"]["warnings"]]
    return [document["answer"], *warnings]


def as_width(width: float) -> str:
    """A width as a whole number; a law may have a loss where there is none."""
    return "below 1" if width < 1 else f"{width:,.0f}"


def main_table(document: dict[str, Any]) -> Table:
    """The numbers that matter most, for the page and the command line."""
    rows = tuple(Row(name, hint, (value,)) for name, hint, value in _main_rows(document))
    return Table(f"{document['source']['file']}: intervals are of 95 %", ("Value",), rows)


def windows_table(document: dict[str, Any]) -> Table:
    """The exponent by window, the widest window first."""
    windows = document["windows"]
    rows = tuple(
        Row(
            f"width ≥ {fit['from_width']:g}",
            f"{fit['distinct']} widths",
            (
                number(fit["exponent"]),
                _ends(fit["low"], fit["high"]),
                number(fit["floor"]) if fit["floor"] else "none",
                number(fit["r_squared"]),
            ),
        )
        for fit in windows["fits"]
    )
    columns = ("Exponent", "Interval", "Floor", "R²")
    return Table(FLOORS[windows["floors"]], columns, rows, head="Window")


def _ends(low: float | None, high: float | None) -> str:
    """Of an interval; None is no end."""
    return f"{number(low)} to {number(high) if high is not None else 'no end'}"


def _main_rows(document: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    law, windows = document["forecast"], document["windows"]
    yield "Regime", "of superposition, by the exponent", law["regime"]["name"]
    yield "Exponent", "loss ∝ width^−exponent", number(law["exponent"])
    yield "from … to", "its interval", _ends(law["low"], law["high"])
    yield "Spread by window", "the largest less the smallest", number(windows["spread"])
    given = document["settings"]["floor"] is not None
    none = "none" if given else "none needed"
    floor = number(law["floor"]) if law["floor"] else none
    hint = "the loss of endless width" + (", as given" if given else "")
    yield "Floor", hint, floor
    yield "R²", "of the logarithm of the loss", number(law["r_squared"])
    yield "Widths", "different ones", str(law["distinct"])
    if law["target"] is not None:
        wide = law["width"]
        yield "Target", "loss", f"{law['target']:.4g}"
        yield "Width for it", "by the law", "none" if wide is None else as_width(wide)
        yield "from … to", "its interval", _widths(law["width_low"], law["width_high"])


def _widths(low: float | None, high: float | None) -> str:
    """The interval of a width; without a lower end there is none."""
    if low is None:
        return "–"
    if high is None:
        return f"{as_width(low)} to no end"
    return as_width(high) if high < 1 else f"{as_width(low)} to {as_width(high)}"
