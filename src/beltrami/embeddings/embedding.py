"""Labelled points of a manifold: what a training leaves, ready for use."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from beltrami.checks import check_integer
from beltrami.data.atomic import write_atomically
from beltrami.data.hierarchy import Hierarchy
from beltrami.data.text import quoted
from beltrami.embeddings.placement import place_node
from beltrami.geometry import Manifold
from beltrami.geometry.description import describe, from_description

MOST_METADATA = 10_000_000  # characters of labels; the format's header holds 100 MB at most
PAIRS_AT_ONCE = 1 << 22  # distances that are held at once: 32 MiB


def nearest_rows(
    distances: Callable[[Tensor], Tensor],
    count: int,
    k: int,
    tick: Callable[[float], None] = lambda share: None,
) -> tuple[Tensor, Tensor]:
    """The k nearest of `count` rows for each of them and how far they are, both (count, k).

    Args:
        distances: of some rows, (b,), to all: (b, count).
        count: of the rows.
        k: how many, or as many as there are.
        tick: called with the share that is done.
    """
    parts = []
    for block in torch.arange(count).split(max(1, PAIRS_AT_ONCE // count)):
        distance = distances(block)
        distance[torch.arange(len(block)), block] = torch.inf  # a row is not its own neighbour
        parts.append(distance.topk(min(k, count - 1), largest=False))
        tick((int(block[-1]) + 1) / count)
    return torch.cat([p.indices for p in parts]), torch.cat([p.values for p in parts])


class Neighbour(NamedTuple):
    """A label and how far it is."""

    label: str
    distance: float


class Embedding:
    """Labels, their points, and the manifold that says how far they are apart.

    >>> embedding = beltrami.load_run("runs/hierarchy-wordnet-mammals")
    >>> embedding.nearest("feline", k=2)
    [Neighbour(label='cat', distance=0.71), Neighbour(label='big cat', distance=0.78)]

    Args:
        labels: one a point, all different; or a `Hierarchy`, whose labels and edges they are.
        points: (n, d), in the order of the labels.
        manifold: where the points live.
        edges: int64 (m, 2), rows (child, parent), where the labels are a taxonomy.
        name: of the data, for messages.
        facts: what else is known: data, command, metrics. JSON-able.
    """

    def __init__(
        self,
        labels: Sequence[str] | Hierarchy,
        points: Tensor,
        manifold: Manifold,
        *,
        edges: Tensor | None = None,
        name: str = "",
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        if points.ndim != 2 or len(points) != len(labels) or not points.is_floating_point():
            raise ValueError(
                f"points must be floating point of shape (n, d) with one row a label, got "
                f"{points.dtype} of shape {tuple(points.shape)} for {len(labels)} labels"
            )
        self.points = points.detach().cpu()
        self.manifold = manifold
        self.facts = dict(facts or {})
        self.has_taxonomy = edges is not None or isinstance(labels, Hierarchy)
        if isinstance(labels, Hierarchy):
            self._graph = labels
        else:
            no_edges = torch.empty(0, 2, dtype=torch.int64)
            edges = no_edges if edges is None else edges
            self._graph = Hierarchy(name or "embedding", tuple(labels), edges)
        self.name = name or self._graph.name

    def __len__(self) -> int:
        return len(self.points)

    def __iter__(self) -> Iterator[str]:
        return iter(self.labels)

    def __contains__(self, label: object) -> bool:
        return label in self._graph

    def __repr__(self) -> str:
        n, d = self.points.shape
        return f"Embedding({self.name}: {n:,} points of {d} coordinates, {self.manifold!r})"

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels, in the order of the points."""
        return self._graph.labels

    @property
    def edges(self) -> Tensor | None:
        """The edges (child, parent) of the taxonomy, int64 (m, 2); None where there is none."""
        return self._graph.edges if self.has_taxonomy else None

    @property
    def hierarchy(self) -> Hierarchy | None:
        """The taxonomy of the labels; None where there is none."""
        return self._graph if self.has_taxonomy else None

    def index(self, label: str) -> int:
        """The row of a label; an error lists labels that look like it."""
        return self._graph.index(label)

    def __getitem__(self, label: str) -> Tensor:
        """The point of a label, (d,)."""
        return self.points[self.index(label)]

    def distance(self, a: str, b: str) -> float:
        """Geodesic distance of two labels."""
        return float(self.manifold.dist(self[a], self[b]))

    def nearest(self, label: str | Tensor, k: int = 10) -> list[Neighbour]:
        """The k nearest labels, the nearest first.

        Args:
            label: one of the labels, which is not among its own neighbours, or a point (d,).
            k: how many.
        """
        check_integer("k", k)
        own = self.index(label) if isinstance(label, str) else None
        point = self.points[own] if own is not None else torch.as_tensor(label).to(self.points)
        if point.shape != self.points.shape[1:]:
            raise ValueError(
                f"a point has shape {tuple(self.points.shape[1:])}, got {tuple(point.shape)}"
            )
        if not bool(torch.isfinite(point).all()):
            raise ValueError("the point is not finite, so nothing is near it")
        distance = self.manifold.dist(point, self.points)
        order = distance.argsort(stable=True).tolist()
        rows = [row for row in order[: k + 1] if row != own][:k]
        return [Neighbour(self.labels[row], float(distance[row])) for row in rows]

    @cached_property
    def _parents(self) -> dict[int, list[int]]:
        parents: dict[int, list[int]] = {}
        for child, parent in self._graph.edges.tolist():
            parents.setdefault(child, []).append(parent)
        return parents

    def parents(self, label: str) -> list[str]:
        """The direct parents of a label in the taxonomy."""
        self._check_taxonomy()
        return [self.labels[row] for row in self._parents.get(self.index(label), [])]

    def ancestors(self, label: str) -> list[str]:
        """All ancestors of a label in the taxonomy, parents first, the root last."""
        self._check_taxonomy()
        return [self.labels[row] for row in self._above([self.index(label)])]

    def _above(self, rows: Sequence[int]) -> list[int]:
        """The ancestors of rows, without the rows themselves, by their number of edges."""
        order = list(rows)
        seen = set(rows)
        for row in order:  # grows while it is walked
            for parent in self._parents.get(row, []):
                if parent not in seen:
                    seen.add(parent)
                    order.append(parent)
        return order[len(rows) :]

    def _check_taxonomy(self) -> None:
        if not self.has_taxonomy:
            raise ValueError(f"{self.name} has no taxonomy; its points have neighbours alone")

    def add(self, label: str, parents: Sequence[str]) -> Tensor:
        """Place a new label by its parents, and return its point, (d,).

        The point minimises the ranking loss of a hierarchy's training for this node alone, near its
        parents and their ancestors and away from all others; the other points stay where they are.
        It joins `labels`, `points` and, in a taxonomy, `edges`. In an embedding of entailment cones
        it lies beyond its parents, inside their cones.

        Args:
            label: a new one.
            parents: labels that are there, at least one.
        """
        if isinstance(parents, str) or not parents:
            raise ValueError(f"parents must be a list of labels, at least one, got {parents!r}")
        if label in self:
            raise ValueError(f"{self.name} has a node labelled {quoted(label)} already")
        rows = list(dict.fromkeys(self.index(parent) for parent in parents))
        above = torch.tensor([*rows, *self._above(rows)])
        children = [
            child for child, around in self._parents.items() if any(row in rows for row in around)
        ]
        point = place_node(
            self.points,
            self.manifold,
            parents=torch.tensor(rows),
            ancestors=above,
            siblings=torch.tensor(children, dtype=torch.int64),
            cones=bool(self.facts.get("cones")),
        )
        edges = self._graph.edges
        if self.has_taxonomy:
            edges = torch.cat([edges, torch.tensor([[len(self), row] for row in rows])])
        point = self.manifold.project(point.to(self.points))
        self._graph = Hierarchy(self.name, (*self.labels, label), edges)
        self.points = torch.cat([self.points, point.unsqueeze(0)])
        self.__dict__.pop("_parents", None)
        return point

    # --- files ------------------------------------------------------------------------------------

    def metadata(self) -> dict[str, str]:
        """Labels and manifold as the metadata of a safetensors file, where all values are text."""
        labels = json.dumps(list(self.labels), ensure_ascii=False)
        if len(labels) > MOST_METADATA:
            labels = json.dumps("in embeddings.npz")
        return {
            "format": "pt",
            "labels": labels,
            "manifold": json.dumps(describe(self.manifold)),
        }

    def save(self, path: str | Path) -> Path:
        """Write everything into one safetensors file, which `Embedding.load` reads."""
        path = Path(path).expanduser()
        path.parent.mkdir(parents=True, exist_ok=True)
        labels = bytearray(json.dumps(list(self.labels)).encode())
        tensors = {
            "points": self.points.contiguous(),
            "labels": torch.frombuffer(labels, dtype=torch.uint8),  # JSON; metadata are limited
        }
        if self.edges is not None:
            tensors["edges"] = self.edges
        facts = json.dumps({"name": self.name, "facts": self.facts})
        manifold = json.dumps(describe(self.manifold))
        metadata = {"format": "pt", "manifold": manifold, "embedding": facts}
        write_atomically(path, save(tensors, metadata))
        return path

    @classmethod
    def load(cls, path: str | Path) -> Embedding:
        """Read what `save` wrote; a `ValueError` for other files."""
        path = Path(path).expanduser()
        try:
            with safe_open(path, framework="pt") as file:
                metadata = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            about = json.loads(metadata["embedding"])
            labels = json.loads(bytes(tensors["labels"].tolist()))
            manifold = from_description(json.loads(metadata["manifold"]))
            return cls(
                labels,
                tensors["points"],
                manifold,
                edges=tensors.get("edges"),
                name=about["name"],
                facts=about["facts"],
            )
        except (SafetensorError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is not a saved embedding ({error})") from error
