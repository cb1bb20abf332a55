"""`beltrami nearest` and `beltrami export`: the points that a run has learned."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, arg

from beltrami.cli.console import make_console, print_json, print_path
from beltrami.cli.errors import BadInputError, OutputError

if TYPE_CHECKING:
    from beltrami.embeddings import Embedding


@dataclass(frozen=True)
class _OfRun:
    run: Annotated[Positional[Path], arg(metavar="RUN")]
    """Folder of a run of hierarchy, cones, knowledge-graph, levels or graph, or of one of its
    trials, or a file that `HierarchyEmbedding.save` wrote."""

    model: str = field(default="", kw_only=True)
    """Which model of the run, such as lorentz; without it the best of all."""

    trial: str = field(default="", kw_only=True)
    """Which trial, by the name of its folder; the best of each model has points."""

    def load(self) -> Embedding:
        """The points; what is wrong with the options is a `BadInputError`."""
        from beltrami.embeddings import load_run

        try:
            return load_run(self.run, model=self.model, trial=self.trial)
        except (ValueError, FileNotFoundError) as error:
            raise BadInputError(str(error)) from error


@dataclass(frozen=True)
class NearestCommand(_OfRun):
    """Print the nearest neighbours of a label in the space that a run has learned.

    Example: beltrami nearest runs/hierarchy-wordnet-mammals cat.n.01
    """

    label: Annotated[Positional[str], arg(metavar="LABEL")]
    """A label of the data; a wrong one is answered with labels that look like it."""

    k: Annotated[int, arg(aliases=["-k"])] = 10
    """How many."""

    json: bool = False
    """Print one JSON object on stdout instead of a table."""

    def execute(self) -> None:
        """Print the neighbours."""
        from rich.table import Table

        from beltrami.cli.runs import visible

        embedding = self.load()
        try:
            neighbours = embedding.nearest(self.label, self.k)
            above = embedding.ancestors(self.label) if embedding.has_taxonomy else []
        except ValueError as error:
            raise BadInputError(str(error)) from error
        facts = embedding.facts
        where = f"{facts.get('model', embedding.manifold)}, {embedding.points.shape[1]} dimensions"
        if self.json:
            rows = [{"label": n.label, "distance": n.distance} for n in neighbours]
            print_json(
                {"label": self.label, "model": facts.get("model"), "ancestors": above,
                 "neighbours": rows}
            )  # fmt: skip
            return
        console = make_console()
        console.print(visible(f"Nearest to {self.label} ({where})"), soft_wrap=True)
        table = Table()
        table.add_column("Label")
        table.add_column("Distance", justify="right")
        if above:
            table.add_column("")
        for neighbour in neighbours:
            relation = ["ancestor" if neighbour.label in above else ""] if above else []
            table.add_row(visible(neighbour.label), f"{neighbour.distance:.3f}", *relation)
        console.print(table)


@dataclass(frozen=True)
class ExportCommand(_OfRun):
    """Write the points of a run for another tool.

    Example: beltrami export runs/hierarchy-wordnet-mammals --format=word2vec --out=mammals.txt

    A run has CSV and NPZ files of its points already, beside its models.
    """

    format: Literal["csv", "npz", "parquet", "projector", "word2vec"] = "csv"
    """csv: a label and its coordinates a row. npz: arrays for numpy. parquet: columns. projector:
    vectors.tsv and metadata.tsv for TensorBoard's embedding projector, in a folder. word2vec: the
    text format that gensim reads; a space in a label becomes "_"."""

    coordinates: Literal["own", "tangent", "poincare"] | None = None
    """own: as they were learned. tangent: tangent vectors at the origin, for tools that take all
    vectors as flat; they keep distances from the origin. poincare: points of the unit ball. By
    default tangent for projector and word2vec, and own for the others."""

    out: Path | None = None
    """The file to write, or the folder for projector; a file that is there is replaced. Without it
    a new one in the current folder, named after the run."""

    def execute(self) -> None:
        """Write the files, and print where."""
        from beltrami.embeddings import export_embedding

        embedding = self.load()
        ending = {"projector": "", "word2vec": ".txt"}.get(self.format, f".{self.format}")
        name = self.run.resolve().name.removesuffix(".safetensors")
        path = self.out or Path(f"{name}-points{ending}")
        if self.out is None and path.exists():
            raise BadInputError(
                f"{path} is there already; name another file with --out, or this one"
            )
        if path.is_dir() and self.format != "projector":
            raise BadInputError(f"--out {path} is a folder; name a file, such as points{ending}")
        try:
            files = export_embedding(embedding, path, self.format, self.coordinates)
        except ValueError as error:
            raise BadInputError(str(error)) from error
        except OSError as error:
            reason = error.strerror or error
            raise OutputError(f"cannot write {error.filename or path}: {reason}") from error
        for file in files:
            print_path(make_console(), "Written", str(file))
