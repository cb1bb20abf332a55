"""One self-contained HTML page: no network, light and dark, fit for a phone and a screen reader.

Every string in a `Page` is plain text and is escaped here; only `Figure.svg` is markup, and comes
from `disk`, which escapes its own labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from importlib.resources import files

# The page may use its own style and script, and may load nothing at all.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


@dataclass(frozen=True)
class Figure:
    """A picture with a heading above and a caption below."""

    heading: str
    svg: str
    caption: str


@dataclass(frozen=True)
class Row:
    """A line of the table: what is measured, how to read it, and the values."""

    name: str
    hint: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """Numbers; `columns` name the values of every row."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row.values) != len(self.columns):
                raise ValueError(
                    f"row {row.name!r} has {len(row.values)} values for {len(self.columns)} columns"
                )


@dataclass(frozen=True)
class Section:
    """A heading with paragraphs."""

    heading: str
    paragraphs: tuple[str, ...]


@dataclass(frozen=True)
class Page:
    """Everything the page says.

    Args:
        title: of the window and the page.
        lead: the opening paragraph: what came out.
        figures: pictures, side by side where there is room.
        table: the numbers.
        sections: explanations.
        facts: (name, value) pairs: what was run.
        command: the command line that does it again.
        footer: the last line.
    """

    title: str
    lead: str
    figures: tuple[Figure, ...]
    table: Table
    sections: tuple[Section, ...]
    facts: tuple[tuple[str, str], ...]
    command: str
    footer: str


def render(page: Page) -> str:
    """The page as one HTML document."""
    body = "\n".join(
        [
            f"<header><h1>{escape(page.title)}</h1><p>{escape(page.lead)}</p></header>",
            _figures(page.figures),
            _table(page.table),
            *(_section(section) for section in page.sections),
            _provenance(page.facts, page.command),
            f"<footer>{escape(page.footer)}</footer>",
        ]
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(page.title)}</title>\n<style>\n{_asset('page.css')}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n<script>\n{_asset('disk.js')}</script>\n</body>\n"
        "</html>\n"
    )


def _asset(name: str) -> str:
    return files("beltrami.report").joinpath(name).read_text(encoding="utf-8")


def _figures(figures: tuple[Figure, ...]) -> str:
    drawn = "\n".join(
        f"<figure><h2>{escape(figure.heading)}</h2>\n{figure.svg}\n"
        f"<figcaption>{escape(figure.caption)}</figcaption></figure>"
        for figure in figures
    )
    return f'<section class="figures" aria-label="Pictures">\n{drawn}\n</section>'


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in table.columns)
    rows = "\n".join(
        f'<tr><th scope="row">{escape(row.name)}<small>{escape(row.hint)}</small></th>'
        + "".join(f"<td>{escape(value)}</td>" for value in row.values)
        + "</tr>"
        for row in table.rows
    )
    # Scrollable regions need a name and a tab stop to be usable from the keyboard.
    return (
        '<section class="scroll" tabindex="0" role="region" aria-label="The numbers">'
        f"<h2>The numbers</h2>\n<table><caption>{escape(table.caption)}</caption>\n"
        f'<thead><tr><th scope="col">Measure</th>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>'
        "</table></section>"
    )


def _section(section: Section) -> str:
    paragraphs = "\n".join(f"<p>{escape(text)}</p>" for text in section.paragraphs)
    return f"<section><h2>{escape(section.heading)}</h2>\n{paragraphs}</section>"


def _provenance(facts: tuple[tuple[str, str], ...], command: str) -> str:
    listed = "\n".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts)
    return (
        f"<section><h2>What was run</h2>\n<dl>\n{listed}\n</dl>\n<p>To run it again:</p>\n"
        f'<pre tabindex="0"><code>{escape(command)}</code></pre></section>'
    )
