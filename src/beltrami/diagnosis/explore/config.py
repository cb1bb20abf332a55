"""Options of `beltrami explore`."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from beltrami.checks import check_integer
from beltrami.diagnosis.config import EMBEDDED, Kind
from beltrami.options import RUNS, file_name, option_words

Method = Literal["auto", "sectors", "hmds", "horopca", "tangent-pca", "as-is"]
FEWEST = 4  # points that have a geometry
NEIGHBOURS = 10  # that the page lists of each point
MOST_BY_DISTANCES = 2000  # points whose distances are all embedded


@dataclass(frozen=True)
class ExploreConfig:
    """Write one page with an interactive Poincaré disk of data, which opens without a network.

    SOURCE is what `beltrami diagnose` takes: a hierarchy or edge list, a table of vectors, a model
    or a matrix of distances. Or it is the folder of a run (hierarchy, cones, knowledge-graph,
    levels, graph), whose points are shown. Without it: the mammals of WordNet. The page can be
    dragged, zoomed and searched; a click shows a point's ancestors and descendants, and its
    neighbours in the space that the points are from, not in the picture.

    Example: beltrami explore my_taxonomy.csv
    """

    source: str = EMBEDDED
    """What to show."""

    kind: Kind = "auto"
    """What SOURCE is; as for `beltrami diagnose`."""

    method: Method = "auto"
    """How points get their places: "sectors" (a tree or graph: the radius by depth, subtrees in
    sectors), "hmds" (distances, up to 2000 points), "tangent-pca" (vectors and points of a run,
    any number, at once), "horopca" (points of a run; truer, and minutes for a thousand points),
    "as-is" (vectors of two dimensions that are in the unit disk already; points of a run of two).
    "auto" takes "as-is" for points of a run of two dimensions and else the first that fits."""

    metric: Literal["euclidean", "angle"] = "euclidean"
    """How far vectors are apart, for "hmds"."""

    points: int = 50_000
    """Most points shown; of more, so many are drawn at random; for "hmds" 2000 at most."""

    seed: int = 0
    """Seed of the draw."""

    tensor: str = ""
    """Which tensor or array of a file that has several."""

    label: str = ""
    """Which column of a table has the labels."""

    besides: tuple[str, ...] = ()
    """Columns of numbers in a CSV or parquet file that are not dimensions of its vectors; the page
    can be coloured by them."""

    strict: bool = False
    """Refuse a taxonomy with repeated edges or several roots, which are otherwise removed and
    joined, with a note."""

    trial: str = ""
    """Which trial of a run, by the name of its folder: the best of each model has points. Without
    it the best in one hyperbolic space."""

    out: Path | None = None
    """The page to write; without it runs/explore-SOURCE.html. A page that is there is replaced."""

    def check(self) -> None:
        """Raise a `ValueError` that names the option, the value and what would be accepted."""
        check_integer("--points", self.points, FEWEST)
        if self.out is not None and self.out.is_dir():
            raise ValueError(f"--out {self.out} is a folder; name a file, such as page.html")

    @property
    def page(self) -> Path:
        """Where the page goes."""
        if self.out is not None:
            return self.out
        name = file_name(Path(self.source).name).strip("._") or "source"
        return RUNS / f"explore-{name}.html"

    def command(self) -> str:
        """The command line that repeats this."""
        source = [self.source] if self.source != EMBEDDED else []
        options = option_words(self, besides=("source", "fresh", "json"))
        return shlex.join(["beltrami", "explore", *source, *options])
