"""A drawn picture, as results of measures give it by `plot()`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from beltrami.data.atomic import write_atomically


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
