"""A drawn picture: the SVG element that all of them are, and what results give by `plot()`."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from beltrami.data.atomic import write_atomically
from beltrami.report.text import asset, markup


@dataclass(frozen=True)
class Picture:
    """An SVG picture; a notebook shows it by itself.

    Args:
        svg: a whole SVG element, which stands alone as a file, too.
    """

    svg: str

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | Path) -> Path:
        """Write it to a file, whole or not at all; returns the path."""
        path = Path(path)
        write_atomically(path, self.svg)
        return path


def svg_element(
    classes: str,
    body: str,
    *,
    view_box: Sequence[float],
    title: str,
    description: str,
    style: str,
    data: str = "",
) -> str:
    """A complete SVG element, named for screen readers, that needs nothing else.

    Args:
        classes: of the element; the last begins its ids.
        body: its contents, as markup.
        view_box: left, top, width and height.
        title, description: any text.
        style: the name of its style sheet in this package.
        data: further attributes, as markup that begins with a space.
    """
    title, description = markup(title), markup(description)
    # A page may hold several pictures, and ids must differ; equal pictures may share theirs.
    kind = classes.split()[-1]
    name = f"{kind}-{zlib.crc32((body + title + description).encode()):08x}"
    return (
        f'<svg class="{classes}"{data} role="img" aria-labelledby="{name}-title" '
        f'aria-describedby="{name}-text" viewBox="{" ".join(f"{side:g}" for side in view_box)}" '
        'xmlns="http://www.w3.org/2000/svg">'
        f'<title id="{name}-title">{title}</title><desc id="{name}-text">{description}</desc>'
        f"<style>{asset(style)}</style>\n{body}\n</svg>"
    )
