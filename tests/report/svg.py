"""What the tests of pictures share: reading an SVG text, and where its texts stand."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from itertools import combinations

from beltrami.report.chart_frame import FONT
from beltrami.report.text import text_width

SVG = "{http://www.w3.org/2000/svg}"
NASTY = (
    '<script>alert("1")</script>',
    "'single' & \"double\"",
    "]]>",
    "שלום עולם",
    "\u202eoverridden",
    "long label " * 20,
    "W" * 200,
    "漢字" * 60,
    "control\x00\x0b\x1f\ud800characters",
    "two\nlines\tand tab",
    "",
)


def read(svg: str) -> ElementTree.Element:
    """The element, which must be well-formed, encodable, and named for screen readers."""
    svg.encode()
    element = ElementTree.fromstring(svg)
    assert element.tag == f"{SVG}svg"
    assert element.get("role") == "img"
    ids = [e.get("id") for e in element.iter() if e.get("id")]
    assert len(ids) == len(set(ids))
    for attribute in ("aria-labelledby", "aria-describedby"):
        assert set(element.get(attribute, "").split()) <= set(ids)
    assert element.find(f"{SVG}title") is not None
    assert element.find(f"{SVG}desc") is not None
    return element


def texts(element: ElementTree.Element, kind: str | None = None) -> list[str]:
    """The texts one sees, in order, without their hover titles."""
    found = element.iter(f"{SVG}text")
    return [e.text or "" for e in found if kind is None or e.get("class") == kind]


def hovers(element: ElementTree.Element) -> list[str]:
    return [e.findtext(f"{SVG}title") or "" for e in element.iter(f"{SVG}path") if len(e)]


def assert_texts_fit(element: ElementTree.Element) -> None:
    """All texts are inside the picture, and no two overlap."""
    _, _, width, height = map(float, element.get("viewBox", "").split())
    boxes = []
    for e in element.iter(f"{SVG}text"):
        room = text_width(e.text or "", FONT)
        shift = {"start": 0.0, "middle": room / 2, "end": room}[e.get("text-anchor", "start")]
        left, y = float(e.get("x", 0)) - shift, float(e.get("y", 0))
        box = left, y - 0.75 * FONT, left + room, y + 0.2 * FONT
        assert box[0] >= -0.1, e.text
        assert box[1] >= 0, e.text
        assert box[2] <= width + 0.1, e.text
        assert box[3] <= height, e.text
        boxes.append((box, e.text))
    for (a, one), (b, other) in combinations(boxes, 2):
        apart = a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
        assert apart, (one, other)


def assert_drawn_inside(element: ElementTree.Element) -> None:
    """All corners of lines, and all markers, are inside the picture."""
    _, _, width, height = map(float, element.get("viewBox", "").split())
    for e in element.iter(f"{SVG}path"):
        pairs = re.findall(r"[ML]([-\d.]+) ([-\d.]+)", e.get("d", ""))
        if place := re.match(r"translate\(([-\d.]+) ([-\d.]+)\)", e.get("transform", "")):
            pairs = [place.groups()]
        for x, y in pairs:
            assert 0 <= float(x) <= width
            assert 0 <= float(y) <= height
