"""One self-contained HTML page: no network, light and dark, for phones, screen readers and print.

Every string in a `Page` is plain text and is escaped here; only `Figure.svg` is markup, and comes
from `disk` or `charts`, which escape their own labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from beltrami.checks import check_choice
from beltrami.report.text import asset, markup

# The page may use its own style and script, and may load nothing at all.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"

Verdict = Literal["better", "worse", "no difference"]
# A sign and a word: the colour only repeats what they say.
_SIGNS: dict[Verdict, str] = {"better": "▲", "worse": "▼", "no difference": "="}


@dataclass(frozen=True)
class Figure:
    """A picture with a heading above and a caption below; a wide one has a row to itself."""

    heading: str
    svg: str
    caption: str
    wide: bool = False


@dataclass(frozen=True)
class Cell:
    """A value of the table with a verdict beside it, as in a column of differences to the twin."""

    text: str
    verdict: Verdict | None = None

    def __post_init__(self) -> None:
        check_choice("verdict", self.verdict, (None, *_SIGNS))

    def __str__(self) -> str:
        return f"{self.text} ({self.verdict})" if self.verdict else self.text


@dataclass(frozen=True)
class Row:
    """A line of the table: what is measured, how to read it, and the values."""

    name: str
    hint: str
    values: tuple[str | Cell, ...]


@dataclass(frozen=True)
class Table:
    """Numbers, or texts; `columns` name the values of every row, `head` names the rows."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    head: str = "Measure"
    prose: bool = False  # texts, which may be broken into lines

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row.values) != len(self.columns):
                raise ValueError(
                    f"row {row.name!r} has {len(row.values)} values for {len(self.columns)} columns"
                )


@dataclass(frozen=True)
class Section:
    """A heading with paragraphs, pictures and tables, in this order; each may be absent."""

    heading: str
    paragraphs: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()


@dataclass(frozen=True)
class Page:
    """Everything the page says, from top to bottom.

    Args:
        title: of the window and the page.
        lead: the opening paragraph: what came out.
        figures: the first pictures, side by side where there is room.
        table: the main numbers, or None.
        sections: explanations, further pictures and tables.
        facts: (name, value) pairs: what was run.
        command: how to run it again; one or more command lines.
        footer: the last line.
        links: (text, name of a file beside the page) pairs, below the opening paragraph.
    """

    title: str
    lead: str
    figures: tuple[Figure, ...]
    table: Table | None
    sections: tuple[Section, ...]
    facts: tuple[tuple[str, str], ...]
    command: str
    footer: str
    links: tuple[tuple[str, str], ...] = ()


def render(page: Page) -> str:
    """The page as one HTML document."""
    body = "\n".join(
        [
            f"<header><h1>{markup(page.title)}</h1><p>{markup(page.lead)}</p>"
            f"{_links(page.links)}</header>",
            _figures(page.figures, "Pictures", level=2),
            f"<section><h2>The numbers</h2>\n{_table(page.table)}</section>" if page.table else "",
            *(_section(section) for section in page.sections),
            provenance(page.facts, page.command),
            f"<footer>{markup(page.footer)}</footer>",
        ]
    )
    script = f"<script>\n{asset('disk.js')}</script>"
    return html_document(
        page.title, asset("page.css"), f"<body>\n<main>\n{body}\n</main>\n{script}"
    )


def _links(links: Sequence[tuple[str, str]]) -> str:
    anchors = [f'<a href="{markup(name)}">{markup(text)}</a>' for text, name in links]
    return f"<p>{' · '.join(anchors)}</p>" if anchors else ""


def html_document(title: str, style: str, body: str) -> str:
    """The frame of every page: a document that loads nothing; `body` begins with its open tag."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{markup(title)}</title>\n<style>\n{style}</style>\n</head>\n"
        f"{body}\n</body>\n</html>\n"
    )


def _figures(figures: tuple[Figure, ...], label: str, *, level: int) -> str:
    if not figures:
        return ""
    drawn = "\n".join(_figure(figure, level) for figure in figures)
    return f'<div class="figures" role="group" aria-label="{markup(label)}">\n{drawn}\n</div>'


def _figure(figure: Figure, level: int) -> str:
    wide = ' class="wide"' if figure.wide else ""
    return (
        f"<figure{wide}><h{level}>{markup(figure.heading)}</h{level}>\n{figure.svg}\n"
        f"<figcaption>{markup(figure.caption)}</figcaption></figure>"
    )


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{markup(column)}</th>' for column in table.columns)
    rows = "\n".join(
        f'<tr><th scope="row">{markup(row.name)}'
        + (f"<small>{markup(row.hint)}</small>" if row.hint else "")
        + "</th>"
        + "".join(_cell(value) for value in row.values)
        + "</tr>"
        for row in table.rows
    )
    kind = ' class="prose"' if table.prose else ""
    # Scrollable regions need a name and a tab stop to be usable from the keyboard.
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{markup(table.caption)}">'
        f"<table{kind}><caption><span>{markup(table.caption)}</span></caption>\n"
        f'<thead><tr><th scope="col">{markup(table.head)}</th>{head}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody></table></div>"
    )


def _cell(value: str | Cell) -> str:
    if isinstance(value, str) or value.verdict is None:
        return f"<td>{markup(value if isinstance(value, str) else value.text)}</td>"
    kind = value.verdict.replace(" ", "-")
    return (
        f'<td>{markup(value.text)} <span class="verdict {kind}">'
        f'<span aria-hidden="true">{_SIGNS[value.verdict]}</span> {value.verdict}</span></td>'
    )


def _section(section: Section) -> str:
    parts = [f"<h2>{markup(section.heading)}</h2>"]
    parts += [f"<p>{markup(text)}</p>" for text in section.paragraphs]
    parts += [_figures(section.figures, section.heading, level=3)] if section.figures else []
    parts += [_table(table) for table in section.tables]
    return "<section>" + "\n".join(parts) + "</section>"


def provenance(facts: Sequence[tuple[str, str]], command: str) -> str:
    """What was run, and how to run it again; either may be empty."""
    listed = "\n".join(f"<dt>{markup(name)}</dt><dd>{markup(value)}</dd>" for name, value in facts)
    parts = [f"<section><h2>What was run</h2>\n<dl>\n{listed}\n</dl></section>"] if facts else []
    if command:
        parts.append(
            '<section><h2>How to rerun it</h2>\n<pre tabindex="0"><code>'
            f"{markup(command)}</code></pre></section>"
        )
    return "\n".join(parts)
