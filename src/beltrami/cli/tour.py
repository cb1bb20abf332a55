"""`beltrami tour`: a preset of `beltrami run hierarchy`, small enough for a first look."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from beltrami.cli.run import RunCommand
from beltrami.options import option_words
from beltrami.recipes.hierarchy.config import HierarchyConfig


@dataclass(frozen=True)
class TourCommand:
    """Embed a small tree in the hyperbolic plane and in the Euclidean plane, and compare.

    It is `beltrami run hierarchy` in two dimensions. Prints how well each plane holds the tree and
    writes a page with both pictures. Takes less than a minute. Interrupt it at will: finished
    trainings are kept and the same command continues.

    Example: beltrami tour --edges my_taxonomy.csv
    """

    edges: str = "carnivores"
    """Your own tree, in any format that `beltrami run hierarchy --data` reads, such as a text file
    with two columns, child and parent. Without it: 131 carnivores from WordNet."""

    seeds: int = 3
    """How many times to repeat each geometry from another start; intervals need at least 2."""

    epochs: Annotated[int, arg(aliases=["--steps"])] = 300
    """Passes over all nodes, the same for both geometries; --steps is a former name."""

    out: Path = Path("runs/tour")
    """Folder for finished trainings, metrics.json and report.html; made when it is not there."""

    fresh: bool = False
    """Start over; what the folder holds is deleted first."""

    json: bool = False
    """Print metrics.json and the written files' paths on stdout instead of a table."""

    @property
    def config(self) -> HierarchyConfig:
        """The run that this is."""
        return HierarchyConfig(
            data=self.edges,
            models=("lorentz", "euclidean"),
            dims=(2,),
            seeds=self.seeds,
            epochs=self.epochs,
            out=self.out,
            resume=not self.fresh,
            fresh=self.fresh,
            json=self.json,
        )

    def execute(self) -> None:
        """Run it and print the comparison."""
        _Run(self.config, self).execute()


@dataclass(frozen=True)
class _Run(RunCommand):
    """A run whose messages name the command that was typed."""

    tour: TourCommand

    @property
    def name(self) -> str:
        """The command, as its help is asked for."""
        return "beltrami tour"

    def repeat(self, *, resume: bool) -> str:
        """The same command goes on by itself."""
        return shlex.join([*self.name.split(), *option_words(self.tour, besides=("fresh", "json"))])
