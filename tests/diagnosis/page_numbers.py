"""Which numbers of a diagnosis' page its document does not have.

A number of the page is known if a number of the document, written in one of the page's ways, has
the very same digits. Each section is held against the part that it is about, and long lists that
are drawn and not written, among which most numbers would be found, are left out.
"""

from __future__ import annotations

import re
from html import unescape
from typing import Any

from beltrami.diagnosis.report import DISK, NO_TAIL, OVERLAP, WHAT_DELTA_IS
from beltrami.diagnosis.superposition_report import WHAT_OVERLAP_IS

ALL = "all parts"
SECTIONS = {  # by the headings of their sections; all parts are in the other ones
    "δ, and why it is compared": "tree-likeness",
    "Curvature": "curvature",
    "Products of spaces": "products",
    "The Poincaré disk, three ways": "pictures",
    "The table of vectors": "vectors",
    "Superposition": "superposition",
    "Frequencies": "words",
    "Prompts": "prompts",
}
DRAWN = {"points", "quantiles", "values", "noise_values", "ladder", "tokens", "labels"}
DRAWN |= {"edges", "counts", "counts_centred"}  # of the overlaps
EXPLAINED = (*WHAT_DELTA_IS, DISK, OVERLAP, NO_TAIL, WHAT_OVERLAP_IS)  # texts without any data
SAMPLES = "Relative δ of each sample"  # the table of tree-likeness' values
# Beside cells only: 0 and 1 of hints, 2δ/diameter, four tokens and a mean degree of four, the 64
# longest distances, powers of 10, 95 %, and the rule of thumb.
CONSTANTS = {"0", "1", "2", "4", "10", "64", "95%", "0.144"}

_NUMBER = re.compile(r"−?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+−]\d+)?(?: ?%)?")
_TINY = re.compile(r"± <0\.0*1\b")  # less than the last digit


def unknown_numbers(page: str, document: dict[str, Any]) -> list[str]:
    """Numbers of the page that are not in the document, each with where it stands."""
    known = known_numbers(document)
    return [
        f"{number!r} in {text!r} of {heading!r}"
        for heading, tag, text in _texts(page, document)
        for number in _shown(text)
        if not is_known(number, known[SECTIONS.get(heading, ALL)], cell=tag == "td")
    ]


def cell_numbers(page: str, document: dict[str, Any]) -> list[tuple[str, str]]:
    """The part, and a number of one of its cells, for all of them."""
    return [
        (SECTIONS.get(heading, ALL), number)
        for heading, tag, text in _texts(page, document)
        if tag == "td"
        for number in _shown(text)
    ]


def known_numbers(document: dict[str, Any]) -> dict[str, set[str]]:
    """By part, every way to write its numbers."""
    found = {name: _written(part) for name, part in document["parts"].items()}
    return {**found, ALL: _written({k: v for k, v in document.items() if k != "keys"})}


def is_known(number: str, known: set[str], *, cell: bool = True) -> bool:
    """Whether it is among those; texts may write a minus sign, and constants, on their own."""
    if number in known:
        return True
    size = number.lstrip("−")
    return not cell and (size in CONSTANTS or size in known or f"−{size}" in known)


def _texts(page: str, document: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Heading, element and text of all that is written: no pictures, no names, no command."""
    body = page[page.index("<main>") : page.index("</main>")]
    body = re.sub(r"<svg.*?</svg>|<pre.*?</pre>|<footer.*?</footer>", "", body, flags=re.DOTALL)
    body = re.sub(rf"<table[^>]*><caption><span>{SAMPLES}.*?</table>", "", body, flags=re.DOTALL)
    verdict = document["verdict"] or {}
    told = {*EXPLAINED, verdict.get("rule"), f"SHA-256 {document['source']['digest']}"}
    found, heading = [], ""
    for tag, escaped in re.findall(r"<(\w+)[^>]*>([^<]+)", body):
        text = unescape(escaped).strip()
        heading = text if tag == "h2" else heading
        if text and text not in told:
            found.append((heading, tag, text.replace(document["source"]["name"], "")))
    return found


def _shown(text: str) -> list[str]:
    found = _NUMBER.findall(_TINY.sub("", text))
    return [number.replace(",", "").replace(" %", "%") for number in found]


def _written(value: Any) -> set[str]:
    if isinstance(value, dict):
        some = (v for k, v in value.items() if not (k in DRAWN and isinstance(v, (list, dict))))
        return set().union(*map(_written, some))
    if isinstance(value, list):
        return set().union(*map(_written, value))
    if value is None or isinstance(value, (bool, str)):
        return set()
    exact = float(value)
    whole = [f"{exact:.0f}"] if exact.is_integer() else []
    fixed = [f"{round(exact, digits) + 0.0:.{digits}f}" for digits in (1, 2, 3, 4)]
    ways = [*whole, *fixed, *(f"{exact:.{digits}g}" for digits in (2, 3))]
    ways += [f"{exact:.{digits}%}" for digits in (0, 1, 2)]
    return {way.replace("-", "−") for way in ways}
