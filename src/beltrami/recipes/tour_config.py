"""Options of a tour; apart from `tour`, so that the command line loads quickly."""

from __future__ import annotations

import dataclasses
import shlex
from dataclasses import dataclass
from pathlib import Path

MIN_CURVATURE, MAX_CURVATURE = 0.01, 100.0


@dataclass(frozen=True)
class TourConfig:
    """Embed a small tree in the hyperbolic plane and in the Euclidean plane, and compare.

    Prints how far each plane distorts the tree's distances and writes a page with both pictures.
    Takes about a minute. Interrupt it at will: finished runs are kept and the same command
    continues.
    """

    edges: Path | None = None
    """Your own tree: a text file with two columns, child and parent, separated by tabs or commas
    (3 to 2000 nodes, one root). A line that starts with "#" is a comment, unless it has two
    columns. Without it: 131 carnivores from WordNet."""

    seeds: int = 3
    """How many times to repeat each geometry from another start; intervals need at least 2."""

    steps: int = 1000
    """Optimisation steps of each run, the same for both geometries."""

    curvature: float = 1.0
    """Minus the sectional curvature of the hyperbolic plane, from 0.01 to 100. Distances are
    compared up to one global scale, so the best fit does not depend on it, but the way there does:
    a small value starts nearly flat and needs more steps."""

    out: Path = Path("runs/tour")
    """Folder for finished runs, metrics.json and report.html; made when it is not there."""

    fresh: bool = False
    """Do every run again, even those that are finished."""

    def check(self) -> None:
        """Raise a `ValueError` that names the option, the value and what would be accepted."""
        if self.seeds < 1:
            raise ValueError(f"--seeds must be at least 1, got {self.seeds}")
        if self.steps < 1:
            raise ValueError(f"--steps must be at least 1, got {self.steps}")
        if not MIN_CURVATURE <= self.curvature <= MAX_CURVATURE:  # false for nan, too
            raise ValueError(
                f"--curvature must lie between {MIN_CURVATURE:g} and {MAX_CURVATURE:g}, "
                f"got {self.curvature:g}"
            )

    def command(self) -> str:
        """The command line that repeats this tour."""
        words = ["beltrami", "tour"]
        for field in dataclasses.fields(TourConfig):
            value = getattr(self, field.name)
            if value != field.default and field.name != "fresh":
                words.append(f"--{field.name}={value}")  # with "=": a path may start with "-"
        return shlex.join(words)
