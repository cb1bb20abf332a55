"""A few lines of SVG: enough for the pictures of the documentation, without a plotting library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

INK, GREY, RULE = "#1f2430", "#697077", "#dfe3ea"
BLUE, ORANGE, TEAL, PURPLE = "#3949ab", "#e07b00", "#00897b", "#8e24aa"
FONT = "font-family='system-ui, sans-serif'"

Point = tuple[float, float]


@dataclass
class Picture:
    """A white card of the given size that collects elements."""

    width: float
    height: float
    title: str
    parts: list[str] = field(default_factory=list)

    def line(
        self, points: Sequence[Point], colour: str, width: float = 1.5, dash: str = ""
    ) -> None:
        """A line through points."""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dashes = f" stroke-dasharray='{dash}'" if dash else ""
        self.parts.append(
            f"<polyline points='{path}' fill='none' stroke='{colour}' stroke-width='{width}'"
            f" stroke-linejoin='round'{dashes}/>"
        )

    def dot(self, at: Point, radius: float, colour: str) -> None:
        """A filled circle."""
        x, y = at
        self.parts.append(f"<circle cx='{x:.1f}' cy='{y:.1f}' r='{radius:.2f}' fill='{colour}'/>")

    def ring(self, at: Point, radius: float, colour: str) -> None:
        """A circle."""
        x, y = at
        self.parts.append(
            f"<circle cx='{x:.1f}' cy='{y:.1f}' r='{radius:.1f}' fill='none' stroke='{colour}'/>"
        )

    def text(
        self, at: Point, words: str, colour: str = INK, size: float = 13, anchor: str = "start"
    ) -> None:
        """Words, starting at, ending at or centred on a point."""
        x, y = at
        self.parts.append(
            f"<text x='{x:.1f}' y='{y:.1f}' {FONT} font-size='{size}' fill='{colour}'"
            f" text-anchor='{anchor}'>{words}</text>"
        )

    def svg(self) -> str:
        """The picture as a document."""
        body = "\n".join(self.parts)
        return (
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {self.width:g} {self.height:g}'"
            f" width='{self.width:g}' height='{self.height:g}' role='img'>\n"
            f"<title>{self.title}</title>\n"
            f"<rect width='100%' height='100%' rx='8' fill='#ffffff'/>\n{body}\n</svg>\n"
        )


@dataclass(frozen=True)
class Axes:
    """A plot's frame inside a picture; y may be logarithmic."""

    picture: Picture
    left: float
    top: float
    right: float
    bottom: float
    x_range: Point
    y_range: Point
    log_y: bool = False

    def at(self, x: float, y: float) -> Point:
        """Where a value stands in the picture."""
        (x0, x1), (y0, y1) = self.x_range, self.y_range
        if self.log_y:
            y, y0, y1 = math.log(y), math.log(y0), math.log(y1)
        u, v = (x - x0) / (x1 - x0), (y - y0) / (y1 - y0)
        return self.left + u * (self.right - self.left), self.bottom - v * (self.bottom - self.top)

    def frame(self, x_ticks: Sequence[float], y_ticks: Sequence[float], x_name: str) -> None:
        """Rules, tick labels and the name of the x axis."""
        for y in y_ticks:
            (_, py) = self.at(self.x_range[0], y)
            self.picture.line([(self.left, py), (self.right, py)], RULE, 1)
            self.picture.text((self.left - 8, py + 4), f"{y:,g}", GREY, 12, "end")
        for x in x_ticks:
            (px, _) = self.at(x, self.y_range[0])
            self.picture.text((px, self.bottom + 18), f"{x:g}", GREY, 12, "middle")
        middle = (self.left + self.right) / 2
        self.picture.text((middle, self.bottom + 38), x_name, GREY, 13, "middle")

    def curve(self, xs: Sequence[float], ys: Sequence[float], colour: str, dash: str = "") -> None:
        """A line through values; those below the y axis are left out."""
        inside = [(x, y) for x, y in zip(xs, ys, strict=True) if y >= self.y_range[0]]
        self.picture.line([self.at(x, y) for x, y in inside], colour, 2.2, dash)
