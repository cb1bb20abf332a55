"""Tables in terminals of any width: nothing is cut, and what belongs together stays together."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from beltrami.cli.tables import rich_tables
from beltrami.report.page import Cell, Row, Table

MODELS = ("Lorentz", "Poincaré ball", "Product")
CONTENT = Table(
    "5 dimensions: mean ± 95% t-interval over 3 seeds, differences paired by seed.",
    (*(c for m in MODELS for c in (m, f"{m} − Euclidean")), "Euclidean"),
    tuple(
        Row(name, hint, (*(v for _ in MODELS for v in values), "0.254 ± 0.006"))
        for name, hint, values in (
            ("MAP", "ancestors among the nearest points; 1 is perfect",
             ("0.981 ± 0.002", Cell("+0.727 ± 0.006", "better"))),
            ("Worst distortion", "of hops; 1 is perfect",
             ("15.0 ± 0.5", Cell("−356.4 ± 671.2", "no difference"))),
        )
    ),
)  # fmt: skip


def printed(width: int) -> list[str]:
    """What a terminal of a width shows, a text a table."""
    console = Console(file=io.StringIO(), width=width, color_system=None)
    texts = []
    for table in rich_tables(CONTENT, console):
        with console.capture() as capture:
            console.print(table)
        texts.append(capture.get())
    return texts


def test_a_wide_terminal_has_one_table() -> None:
    (text,) = printed(300)
    for name in (*MODELS, "Euclidean", "MAP", "Worst distortion", "better", "no difference"):
        assert name in text
    assert text.count("− Euclidean") == 3


@pytest.mark.parametrize(("width", "tables"), [(60, 2), (80, 2), (100, 1), (120, 1)])
def test_a_narrow_terminal_has_fewer_columns_a_table(width: int, tables: int) -> None:
    texts = printed(width)
    assert len(texts) == tables
    whole = "\n".join(texts)
    assert "…" not in whole
    assert max(len(line) for line in whole.splitlines()) <= width
    assert whole.count("− Euclidean") == len(MODELS)
    assert whole.count("0.981 ± 0.002") == 3
    assert whole.count("+0.727 ± 0.006") == whole.count(" better") == 3
    assert whole.count("0.254 ± 0.006") == 2  # the twin once, in two rows
    assert "".join(whole.split()).count("95%t-interval") == 1


def test_a_difference_is_below_its_value() -> None:
    (text,) = printed(120)
    lines = text.splitlines()
    (value,) = (i for i, line in enumerate(lines) if "0.981 ± 0.002" in line)
    assert lines[value + 1].count("+0.727 ± 0.006") == 3
    assert lines[value + 2].count("better") == 3


def test_a_tiny_terminal_still_has_every_column() -> None:
    assert len(printed(20)) == 4
