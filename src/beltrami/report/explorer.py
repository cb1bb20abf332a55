"""One self-contained HTML page with an interactive Poincaré disk: pan, zoom, search, look closer.

`explorer.js` draws and moves the points, `explorer.css` lays the page out; this module checks the
points, embeds them as JSON that no label can break out of, and writes the parts that need no
script. The page loads nothing from anywhere.
"""

from __future__ import annotations

import json
import math
import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

from torch import Tensor

from beltrami.report.disk import in_disk
from beltrami.report.page import html_document, provenance
from beltrami.report.text import asset, markup

FROM_CENTRE = "Distance from the origin in the picture"
LISTED = 300  # points in the table below the picture; explorer.js lists as many matches
# What ends a script element early, or is not a letter to an old parser of JavaScript.
_UNSAFE = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


@dataclass(frozen=True, eq=False)
class Cloud:
    """Points of the Poincaré disk with what is known of them.

    Args:
        points: (n, 2) in the open unit disk. Points of a ball of curvature −c are to be multiplied
            by √c first.
        labels: one a point; any text.
        columns: by name, a value a point: all texts, or all numbers. Those that are not finite
            are shown as missing.
        edges: pairs of points; (child, parent) if directed.
        directed: whether edges point from a child to its parent.
        space: what the points are in, such as "5 dimensions", if the picture shows less than that.
        near: the nearest points of each in that space, (n, k), and their distances, (n, k), which
            the page lists; without them those in the picture.
    """

    points: Tensor
    labels: Sequence[str]
    columns: Mapping[str, Sequence[str] | Sequence[float]] = field(default_factory=dict)
    edges: Sequence[tuple[int, int]] = ()
    directed: bool = True
    space: str = ""
    near: tuple[Tensor, Tensor] | None = None

    def __post_init__(self) -> None:
        if not self.points.is_floating_point():
            raise ValueError(f"points must be floating-point numbers, got {self.points.dtype}")
        count = len(in_disk(self.points, rim=False))
        for index, label in enumerate(self.labels):
            if not isinstance(label, str):
                raise ValueError(f"labels must be texts, got {label!r} at {index}")
        _check_values("labels", self.labels, count)
        for name, values in self.columns.items():
            if not isinstance(name, str) or not name.strip():
                raise ValueError(f"columns must be named by a text, got {name!r}")
            _check_values(f"column {name!r}", values, count)
        for pair in self.edges:
            _check_edge(pair, count)
        for part in self.near or ():
            if part.ndim != 2 or len(part) != count:
                raise ValueError(f"near must have {count} rows, got shape {tuple(part.shape)}")


def explorer_page(
    cloud: Cloud,
    *,
    title: str,
    lead: str,
    facts: Sequence[tuple[str, str]] = (),
    command: str = "",
) -> str:
    """The page as one HTML document.

    Args:
        title, lead: of the page, and its opening paragraph: what there is to see.
        facts: (name, value) pairs: where the points come from.
        command: how to make the page again; one or more command lines.
    """
    body = "\n".join(
        [
            f"<header><h1>{markup(title)}</h1><p>{markup(lead)}</p></header>",
            _NO_SCRIPT,
            _tools(cloud),
            _VIEW,
            _HELP,
            _listing(cloud),
            provenance(facts, command),
        ]
    )
    style = "".join(asset(name) for name in ("page.css", "disk.css", "explorer.css"))
    scripts = (
        f'<script type="application/json" id="cloud">{_payload(cloud)}</script>\n'
        f"<script>\n{asset('explorer.js')}</script>"
    )
    body = f'<body class="explorer tree">\n<main>\n{body}\n</main>\n{scripts}'
    return html_document(title, style, body)


def _check_values(name: str, values: Sequence[str] | Sequence[float], count: int) -> None:
    """Raise unless these are as many as points, and all texts or all numbers."""
    if isinstance(values, str):
        raise ValueError(f"{name} must be a sequence, got the text {values!r}")
    if len(values) != count:
        raise ValueError(f"{name} must have {count} values, got {len(values)}")
    if all(isinstance(value, str) for value in values):
        return
    for index, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, Real):
            raise ValueError(f"{name} must be all texts or all numbers, got {value!r} at {index}")


def _finite(value: Any) -> float | None:
    """The number, or None for what a picture cannot show."""
    try:
        number = float(value)
    except OverflowError:  # an integer too large
        return None
    return number if math.isfinite(number) else None


def _check_edge(pair: tuple[int, int], count: int) -> None:
    wanted = f"edges must be pairs of two different points from 0 to {count - 1}"
    try:
        child, parent = (operator.index(node) for node in pair)
    except (TypeError, ValueError):
        raise ValueError(f"{wanted}, got {pair!r}") from None
    if not (0 <= child < count and 0 <= parent < count) or child == parent:
        raise ValueError(f"{wanted}, got {(child, parent)}")


def _payload(cloud: Cloud) -> str:
    """The cloud as JSON that may stand inside a script element; numbers are written exactly."""
    places = in_disk(cloud.points, rim=False)
    # An edge given twice is one edge.
    edges = dict.fromkeys((int(child), int(parent)) for child, parent in cloud.edges)
    payload = {
        "x": [z.real for z in places],
        "y": [z.imag for z in places],
        "labels": list(cloud.labels),
        "columns": [_column(name, values) for name, values in cloud.columns.items()],
        "edges": [node for edge in edges for node in edge],
        "directed": bool(cloud.directed),
        "space": cloud.space,
    }
    if cloud.near is not None:
        rows, distances = cloud.near
        payload["near"] = rows.flatten().tolist()
        payload["far"] = [float(f"{d:.4g}") for d in distances.flatten().tolist()]
    text = json.dumps(payload, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.translate(_UNSAFE)


def _column(name: str, values: Sequence[Any]) -> dict[str, Any]:
    """Texts as numbers of words, the most frequent word first; numbers as they are."""
    if isinstance(values[0], str):
        words = [word for word, _ in Counter(values).most_common()]
        number = {word: i for i, word in enumerate(words)}
        return {"name": name, "words": words, "codes": [number[value] for value in values]}
    return {"name": name, "numbers": [_finite(value) for value in values]}


def _tools(cloud: Cloud) -> str:
    options = "".join(
        f'<option value="{i}">{markup(name)}</option>' for i, name in enumerate(cloud.columns)
    )
    edges = (
        '<label class="check"><input type="checkbox" id="edges" checked> Edges</label>'
        if len(cloud.edges)
        else ""
    )
    return (
        '<div class="tools" role="group" aria-label="Tools">\n'
        '<div class="finder"><label for="find">Search</label>'
        '<input id="find" type="search" autocomplete="off" spellcheck="false" role="combobox" '
        'aria-expanded="false" aria-controls="matches" aria-autocomplete="list" '
        'placeholder="part of a label">'
        '<ul id="matches" role="listbox" aria-label="Matches" hidden></ul></div>\n'
        f'<label for="colour">Colour by <select id="colour">{options}'
        f'<option value="origin">{FROM_CENTRE.lower()}</option>'
        '<option value="none">nothing</option></select></label>\n'
        f"{edges}\n"
        '<span class="buttons"><button type="button" id="zoom-out" aria-label="Zoom out">−</button>'
        '<output id="zoom" aria-label="Zoom">1×</output>'
        '<button type="button" id="zoom-in" aria-label="Zoom in">+</button>'
        '<button type="button" id="home">Home</button></span>\n</div>'
    )


_NO_SCRIPT = (
    "<noscript><p>The picture needs JavaScript; the list of points does not.</p></noscript>"
)

_VIEW = """<div class="view">
<div class="stage"><canvas id="stage" tabindex="0" role="application" aria-label="Poincaré disc"
 aria-describedby="keys"></canvas>
<div class="notes"><p id="said" role="status" aria-live="polite"></p><p id="drawn"></p></div></div>
<aside aria-label="Legend and selected point">
<section id="legend" aria-label="Legend"></section>
<section id="panel" aria-label="Selected point"></section>
</aside>
</div>"""

_HELP = """<details class="help"><summary>How to use it</summary>
<ul>
<li>Drag to move: the point under the cursor follows it. The picture moves by isometries of the
hyperbolic plane, so that distances stay true; what comes to the centre is seen larger.</li>
<li>Click a point to read about it, double-click to bring it to the centre.</li>
<li>Zoom with the wheel, two fingers or the buttons. Zooming magnifies the picture around the
pointer, or around the selected point, as a lens does; it moves nothing in the hyperbolic
plane.</li>
<li id="keys">Keys, with the picture in focus: arrows move, plus and minus zoom, Home goes back to
the start, Enter selects the point nearest to the centre, Escape closes what is selected.</li>
<li>Edges are geodesics: arcs that meet the rim at right angles. Where there are very many, only the
longest in the picture are drawn.</li>
</ul></details>"""


def _listing(cloud: Cloud) -> str:
    """The first points as a table: all there is without the script, and for screen readers."""
    count = len(cloud.labels)
    shown = min(LISTED, count)
    caption = (
        f"All {count:,} points" if shown == count else f"The first {shown} of {count:,} points"
    )
    columns = [*cloud.columns, FROM_CENTRE]
    head = "".join(f'<th scope="col">{markup(name)}</th>' for name in ("Label", *columns))
    rows = []
    for i, z in enumerate(in_disk(cloud.points[:shown], rim=False)):
        values = [_cell_text(values[i]) for values in cloud.columns.values()]
        values.append(_cell_text(2 * math.atanh(abs(z))))
        cells = "".join(f"<td>{markup(value)}</td>" for value in values)
        rows.append(
            f'<tr data-point="{i}"><th scope="row">{markup(cloud.labels[i])}</th>{cells}</tr>'
        )
    # Open for readers without the script, which closes it.
    return (
        '<details id="list" open><summary>List of points</summary>\n'
        '<div class="scroll" tabindex="0" role="region" aria-label="List of points">'
        f"<table><caption><span>{caption}</span></caption>\n"
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n" + "\n".join(rows) + "\n</tbody></table></div>"
        "</details>"
    )


def _cell_text(value: str | float) -> str:
    if isinstance(value, str):
        return value
    number = _finite(value)
    return "–" if number is None else f"{number:.6g}"
