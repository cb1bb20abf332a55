"""What is looked at, as samples of points with their distances, whatever it is.

Nothing is left out silently: `facts` says how many rows or nodes could not be used, and why.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from beltrami.analysis.matrices import (
    FlatMetric,
    check_distances,
    classical_scaling,
    flat_distances,
    symmetric,
)
from beltrami.analysis.null_models import gaussian_at_radii, gaussian_like
from beltrami.data.delimited import Rows
from beltrami.data.edge_list import COLUMN_NAMES, GRAPH_SUFFIX, read_edge_list
from beltrami.data.graph_splits import first_of_each
from beltrami.data.graphs import Graph, load_network
from beltrami.data.hierarchy import HierarchyError, quoted_names
from beltrami.data.load import READERS, WORDNET_FILES, find_reader, list_hierarchies
from beltrami.data.text import is_number
from beltrami.data.vectors import Vectors, VectorsError, list_vectors, open_vectors
from beltrami.data.vectors.csv_file import DELIMITERS
from beltrami.data.vectors.source import PICKLES
from beltrami.data.vectors.source import READERS as VECTOR_READERS
from beltrami.data.vectors.words import mark_of, without_mark
from beltrami.diagnosis.config import DiagnoseConfig

FEWEST = 4  # points that have a δ
LOOKED_AT = 256  # rows and columns that tell distances from vectors
LONGEST = 64  # distances that are compared with ways by third points
_TRIPLES = 20_000  # that are asked for the triangle inequality
_NEARLY = 1e-6  # of the largest distance, which may be rounding
_MOSTLY = 0.95  # of the entries
_SLACK = 1e-5  # of the largest distance, which rounding may cost it
_RANDOM_GRAPH_TRIES = 3
_COLUMNS_NAMED = 20
_LINES_LOOKED_AT = 20  # of a table that may be one of edges
_TABLES = (*DELIMITERS, ".txt")  # that may be of edges or of something else
_GRAPH_ENDS = ({"source", "target"}, {"from", "to"})  # as headers of graphs call them
_ENDS = (*_GRAPH_ENDS, *map(set, COLUMN_NAMES))

Tick = Callable[[float], None]


@dataclass(frozen=True)
class Drawn:
    """A sample: numbers of usable rows, their distances, and their vectors where there are any."""

    rows: Tensor
    distances: Tensor
    points: Tensor | None = None


def sample_rows(count: int, sample: int, repeats: int, seed: int) -> Iterator[Tensor]:
    """Numbers of points, the base point first: so many samples, which share none if they can."""
    g = torch.Generator().manual_seed(seed)
    if count >= sample * repeats:
        yield from torch.randperm(count, generator=g)[: sample * repeats].split(sample)
        return
    for _ in range(repeats):
        yield torch.randperm(count, generator=g)[:sample]


class Source(ABC):
    """Points, however they are given."""

    what: str
    noise: str
    """What `null` makes, in words."""
    noise_at_radii = ""
    """What `null_at_radii` makes, where it makes something."""

    def __init__(self, name: str, digest: str) -> None:
        self.name = name
        self.digest = digest
        """Of the content."""
        self.count = 0
        """Usable points."""
        self.facts: dict[str, Any] = {}
        """Sizes, and what was left out and why, JSON-able."""
        self.labels: Sequence[str] | None = None
        """One a usable point, if it has them."""

    @abstractmethod
    def draw(self, rows: Tensor) -> Drawn:
        """Draw the points at `rows`."""

    @abstractmethod
    def null(self, drawn: Drawn, seed: int) -> Tensor:
        """Distances among as many points of noise that has what is plainest of the sample's."""

    def null_at_radii(self, drawn: Drawn, seed: int) -> Tensor | None:
        """Distances of noise whose points are as far from their mean as the sample's."""
        return None

    def notes(self) -> list[str]:
        """What was left out, and what is wrong with the rest: sentences without their stop."""
        return []

    def label(self, row: int) -> str:
        """What to call a point."""
        return self.labels[row] if self.labels is not None else f"row {row}"

    def _check_enough(self) -> None:
        if self.count < FEWEST:
            left = "; ".join(f"{v} {k.replace('_', ' ')}" for k, v in self.facts.items())
            raise ValueError(
                f"{self.name} has {self.count} usable points, and {FEWEST} are the least that can "
                f"be compared ({left})"
            )


class PointSource(Source):
    """Points in a flat space, which noise can be like."""

    noise_at_radii = "noise with the same spread of directions and the same distances from the mean"

    def __init__(self, vectors: Vectors, metric: FlatMetric) -> None:
        super().__init__(vectors.name, vectors.digest())
        self.vectors, self.metric = vectors, metric

    @abstractmethod
    def flat_points(self, drawn: Drawn) -> Tensor:
        """Coordinates of a sample."""

    def null(self, drawn: Drawn, seed: int) -> Tensor:
        """Gaussian noise like the sample."""
        return flat_distances(gaussian_like(self.flat_points(drawn), seed=seed), self.metric)

    def null_at_radii(self, drawn: Drawn, seed: int) -> Tensor | None:
        """Gaussian noise of the sample's lengths."""
        return flat_distances(gaussian_at_radii(self.flat_points(drawn), seed=seed), self.metric)


class VectorSource(PointSource):
    """Rows of a table; those with numbers that are not finite are left out, and counted."""

    what, noise = "vectors", "Gaussian noise with the same mean and covariance"

    def __init__(self, vectors: Vectors, metric: FlatMetric, tick: Tick) -> None:
        super().__init__(vectors, metric)
        norms = torch.empty(vectors.rows, dtype=torch.float64)
        named = len(vectors.columns) == vectors.width
        whole = torch.full((vectors.width,), named)
        for first, block in vectors.blocks():
            wide = block.double()
            if named:
                whole &= (wide == wide.round()).all(0)
            norms[first : first + len(block)] = torch.linalg.vector_norm(wide, dim=1)
            tick((first + len(block)) / vectors.rows)
        finite, zero = torch.isfinite(norms), norms == 0
        usable = finite & ~zero if metric == "angle" else finite
        self.usable = usable.nonzero()[:, 0]
        self.norms = norms[self.usable]
        self.count = len(self.usable)
        self.labels = self._chosen(vectors.labels)
        self.words = self._chosen(vectors.words)
        self._mark = mark_of(self.labels or ())
        self.facts = {"rows": vectors.rows, "dimensions": vectors.width}
        self.facts["rows_that_are_not_finite"] = int((~finite).sum())
        self.facts["rows_of_zeros"] = int(zero.sum())
        if metric == "angle":
            self.facts["rows_without_a_direction_left_out"] = int(zero.sum())
        self._whole = [vectors.columns[place] for place in whole.nonzero()[:, 0].tolist()]
        if vectors.columns:
            self.facts["columns"] = quoted_names(vectors.columns, _COLUMNS_NAMED)
        if vectors.tensor:
            self.facts["tensor"] = vectors.tensor
        self._check_enough()

    def _chosen(self, values: Sequence[Any] | None) -> Sequence[Any] | None:
        if values is None or self.count == len(values):
            return values
        return [values[row] for row in self.usable.tolist()]

    def label(self, row: int) -> str:
        """What to call a point; a token without the mark of its vocabulary."""
        return without_mark(super().label(row), self._mark)

    def points(self, rows: Tensor) -> Tensor:
        """The vectors of usable rows, float64."""
        return self.vectors.take(self.usable[rows]).double()

    def draw(self, rows: Tensor) -> Drawn:
        """These rows and their distances."""
        points = self.points(rows)
        return Drawn(rows, flat_distances(points, self.metric), points)

    def flat_points(self, drawn: Drawn) -> Tensor:
        """The vectors themselves."""
        assert drawn.points is not None
        return drawn.points

    def notes(self) -> list[str]:
        """Rows that were left out, and columns that may not be dimensions."""
        notes = []
        if 0 < len(self._whole) < self.vectors.width:
            names = quoted_names(self._whole, _COLUMNS_NAMED)
            notes.append(
                f"dimensions with whole numbers alone, unlike others: {names}; if one is a class "
                f"or a number of the row, give --besides {self._whole[0]}"
            )
        if broken := self.facts["rows_that_are_not_finite"]:
            notes.append(f"{broken:,} of {self.facts['rows']:,} rows are not finite: left out")
        if lost := self.facts.get("rows_without_a_direction_left_out"):
            notes.append(f"{lost:,} rows are zeros, which have no direction: left out")
        return notes


class DistanceSource(PointSource):
    """A matrix of distances, of which only samples are read; noise is like their flat scaling."""

    what, noise = "distances", "Gaussian noise with the covariance of the distances' flat scaling"

    def __init__(self, vectors: Vectors) -> None:
        super().__init__(vectors, "euclidean")
        if vectors.rows != vectors.width:
            raise ValueError(
                f"{vectors.name} is {vectors.rows} × {vectors.width}; distances are square: "
                "give --kind vectors"
            )
        self.count, self.labels = vectors.rows, vectors.labels
        self.facts = {"points": vectors.rows}
        self._check_enough()
        g = torch.Generator().manual_seed(0)
        rows = torch.randperm(self.count, generator=g)[:LOOKED_AT]
        looked_at = self.draw(rows).distances
        self.facts["triangle_violation_rate"] = broken_triangles(looked_at)
        self.facts["longest_distances_with_a_shorter_way"] = shortcuts(looked_at)

    def draw(self, rows: Tensor) -> Drawn:
        """The distances among these points."""
        d = _without_rounding(self.vectors.take(rows)[:, rows].double())
        check_distances(d)
        return Drawn(rows, symmetric(d))

    def flat_points(self, drawn: Drawn) -> Tensor:
        """The points of the flat scaling."""
        return classical_scaling(drawn.distances)

    def notes(self) -> list[str]:
        """Violations of the triangle inequality."""
        notes = []
        if share := self.facts["triangle_violation_rate"]:
            notes.append(
                f"{share:.2%} of the triangles violate the triangle inequality: one distance is "
                "more than the two others together, so that these are distances of no space"
            )
        if count := self.facts["longest_distances_with_a_shorter_way"]:
            notes.append(
                f"{count} of the longest distances that were looked at are more than the way by a "
                "third point; δ is measured by the longest"
            )
        return notes


class GraphSource(Source):
    """A graph's largest component; distances are edges on shortest paths."""

    what, noise = "graph", "a random graph with about as many nodes and edges"

    def __init__(self, network: Graph, tick: Tick = lambda share: None) -> None:
        super().__init__(network.name, network.digest())
        self.tick = tick
        component = network.components()
        self.network = network.part(component == 0)
        self.count, self.labels = len(self.network), self.network.names
        self.facts = {
            "nodes": len(network),
            "edges": network.edges.shape[1],
            "components": int(component.max()) + 1,
            "nodes_outside_the_largest_component_left_out": len(network) - self.count,
        }
        self._check_enough()

    def notes(self) -> list[str]:
        """Nodes that were left out."""
        lost = self.facts["nodes_outside_the_largest_component_left_out"]
        if not lost:
            return []
        return [
            f"{lost:,} of {self.facts['nodes']:,} nodes are outside of the largest component: left "
            "out"
        ]

    def draw(self, rows: Tensor) -> Drawn:
        """Hops among these nodes."""
        return Drawn(rows, self.network.hops(rows, rows, self.tick).double())

    def null(self, drawn: Drawn, seed: int) -> Tensor:
        """Hops among as many nodes of a random graph."""
        edges = max(self.network.edges.shape[1], self.count)  # fewer leave no large component
        graph = random_network(self.count, edges, seed)
        g = torch.Generator().manual_seed(seed)
        rows = torch.randperm(len(graph), generator=g)[: len(drawn.rows)]
        return graph.hops(rows, rows).double()


def open_source(config: DiagnoseConfig, tick: Tick = lambda share: None) -> Source:
    """What the options name; a `ValueError` where it cannot be used."""
    try:
        if config.kind == "edges" or (config.kind == "auto" and _is_graph(config.source)):
            return _open_graph(config, tick)
        if config.of == "states":
            from beltrami.diagnosis.states import open_states

            states = open_states(config, tick)
            source = VectorSource(states, config.metric, tick)
            source.facts["texts_that_were_cut_off"] = states.cut
            return source
        vectors = open_vectors(
            config.source,
            tensor=config.tensor or None,
            label=config.label or None,
            besides=config.besides,
        )
        if config.kind == "distances" or (config.kind == "auto" and looks_like_distances(vectors)):
            return DistanceSource(vectors)
        return VectorSource(vectors, config.metric, tick)
    except HierarchyError as error:
        raise ValueError(f"{error}") from error
    except VectorsError as error:
        raise ValueError(_with_names(config.source, str(error))) from error


def looks_like_distances(vectors: Vectors) -> bool:
    """Whether a table is square and mostly symmetric, not negative and 0 on its diagonal.

    If it only mostly is, it is neither one nor the other, and a `ValueError` asks.
    """
    if vectors.rows != vectors.width or vectors.rows < FEWEST:
        return False
    rows = torch.arange(min(vectors.rows, LOOKED_AT))
    d = vectors.take(rows)[:, rows].double()
    near = _rounding(d)
    holds = [(d == d.mT) | ((d - d.mT).abs() <= near), d.diagonal().abs() <= near, ~(d < -near)]
    if near == 0 or any(float(share.double().mean()) < _MOSTLY for share in holds):
        return False
    try:
        check_distances(_without_rounding(d))
    except ValueError as error:
        raise ValueError(
            f"{vectors.name} looks like distances, but {error}; mend it, or give --kind vectors"
        ) from error
    return True


def _rounding(d: Tensor) -> float:
    """What may be rounding, among distances of this size."""
    finite = d[torch.isfinite(d)]
    return _NEARLY * float(finite.abs().max()) if len(finite) else 0.0


def _without_rounding(d: Tensor) -> Tensor:
    """What is 0 but for rounding, such as one minus a correlation with itself, is 0."""
    return torch.where(d.abs() <= _rounding(d), 0.0, d)


def broken_triangles(d: Tensor) -> float:
    """The share of random triples of which one distance is more than the sum of the others."""
    g = torch.Generator().manual_seed(0)
    i, j, k = (torch.randint(len(d), (_TRIPLES,), generator=g) for _ in range(3))
    differ = (i != j) & (j != k) & (i != k)
    sides = torch.stack([d[i, j], d[i, k], d[j, k]], 1)[differ]
    over = 2 * sides.amax(1) - sides.sum(1)
    return float((over > _SLACK * float(d.max())).double().mean())


def shortcuts(d: Tensor) -> int:
    """How many of the longest distances are more than the way by some third point."""
    i, j = torch.triu_indices(len(d), len(d), 1)
    longest = d[i, j].argsort(descending=True)[:LONGEST]
    a, b = i[longest], j[longest]
    way = (d[a] + d[b]).amin(1)  # by the two themselves it is the distance
    return int((d[a, b] - way > _SLACK * float(d.max())).sum())


def random_network(nodes: int, edges: int, seed: int) -> Graph:
    """The largest component of a graph of edges drawn at random."""
    g = torch.Generator().manual_seed(seed)
    low, high = (
        torch.randint(nodes, (_RANDOM_GRAPH_TRIES * edges, 2), generator=g).sort(1).values.t()
    )
    codes = first_of_each((low * nodes + high)[low < high])[:edges]
    chosen = torch.stack([codes // nodes, codes % nodes])
    graph = Graph("random graph", chosen, torch.empty(nodes, 0))
    return graph.part(graph.components() == 0)


def _open_graph(config: DiagnoseConfig, tick: Tick) -> GraphSource:
    """A graph; where nothing but whole numbers said so, an error says what else it may be."""
    try:
        return GraphSource(load_network(config.source, strict=config.strict), tick)
    except ValueError as error:
        if config.kind == "auto" and _may_be_vectors(Path(config.source).expanduser()):
            raise ValueError(
                f"{error}. It was read as a list of edges; if its rows are vectors, give --kind "
                "vectors"
            ) from error
        raise


def _is_graph(source: str) -> bool:
    path = Path(source).expanduser()
    if source in list_vectors():
        return False
    if source in list_hierarchies() or path.name in WORDNET_FILES:
        return True
    suffix = path.suffix.lower()
    if suffix not in (*_TABLES, GRAPH_SUFFIX) or not path.is_file():
        other = suffix not in (*VECTOR_READERS, *PICKLES) and path.is_file()
        return suffix in READERS or (other and _has_form(path))
    headers, rows = _first_rows(path)
    _refuse_weights(path, headers)
    if suffix == GRAPH_SUFFIX:
        return True
    # A table may be of vectors or of edges: it has edges if that is what it can be read as, which
    # is two columns, none with fractions; or columns of ranks, beside at most one of numbers.
    columns = [list(filter(None, column)) for column in itertools.zip_longest(*(rows[1:] or rows))]
    fields = list(itertools.chain.from_iterable(columns))
    if not rows or any(is_number(f) and not _is_whole(f) for f in fields):
        return False
    if all(len(row) == 2 for row in rows):
        return True
    return sum(all(map(is_number, column)) for column in columns) < 2 and _has_form(path)


def _has_form(path: Path) -> bool:
    """Whether a text file has a form that only taxonomies have."""
    try:
        return find_reader(path) is not read_edge_list
    except HierarchyError:
        return False


def _refuse_weights(path: Path, headers: list[list[str]]) -> None:
    """Edges with weights are neither edges that we read nor vectors, which numbers look like."""
    for header in headers:
        names = [field.strip('"').lstrip("#% ").lower() for field in header]
        names = names if names[0] else names[1:]  # the mark of a comment stood alone
        if _name_weights(names, path.suffix.lower() in _TABLES):
            raise ValueError(
                f"{path} has the columns {', '.join(names)}, as edges with weights have, and "
                "weights are not read: give --kind edges for a file of two columns, child and "
                "parent or source and target, or --kind vectors if its rows are vectors"
            )


def _name_weights(names: list[str], may_be_vectors: bool) -> bool:
    """Whether columns are both ends of an edge and a weight; a third may have another name."""
    if len(names) == 3 and may_be_vectors:
        return any(ends <= set(names) for ends in _ENDS)
    known = _ENDS if len(names) == 3 else _GRAPH_ENDS  # tables have weights of other things
    return "weight" in names and any(ends <= set(names) for ends in known)


def _may_be_vectors(path: Path) -> bool:
    """Whether a table that reads as edges has numbers alone, but for a header."""
    if path.suffix.lower() not in DELIMITERS or not path.is_file():
        return False
    _, rows = _first_rows(path)
    return all(is_number(field) for row in rows[1:] or rows for field in row)


def _first_rows(path: Path) -> tuple[list[list[str]], list[list[str]]]:
    """Fields of what may be a header, which are the comments and the first row, and of rows."""
    table = Rows(path, error=ValueError, words=True, comments=True, quotes=False)
    comments: list[list[str]] = []
    rows: list[list[str]] = []
    for row in table:
        (comments if table.is_comment(row.text) else rows).append(row.fields)
        if len(rows) == _LINES_LOOKED_AT:
            break
    return [*comments, *rows[:1]], rows


def _is_whole(text: str) -> bool:
    return text.lstrip("+-").isdigit()


def _with_names(source: str, message: str) -> str:
    """An unknown name is answered with those that are known."""
    if Path(source).expanduser().exists() or "/" in source or "." in source:
        return message
    names = ", ".join([*list_vectors(), *list_hierarchies()])
    return f"{message}\nNames that are known: {names}"
