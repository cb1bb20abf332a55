"""A small knowledge graph that is always there, made from WordNet's mammals."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import torch
from torch import Tensor

from beltrami.data import load_hierarchy
from beltrami.data.hierarchy import Hierarchy
from beltrami.data.triples import TripleSet

RELATIONS = ("is a", "is a kind of a", "is a sister of", "belongs to")
GROUP_DEPTH = 3  # of the nodes that others belong to: placental, marsupial, ...
HELD_OUT = 10  # one in so many triples is for validation, another for test

Triple = tuple[int, int, int]


def mammal_graph() -> TripleSet:
    """WordNet's mammals as triples of four relations, a tenth each held out.

    Each node and its parent ("is a"), its grandparent, the next of its siblings, and its ancestors
    of depth 3. Most of what is held out follows from the rest: a grandparent is a parent's parent.
    """
    return graph_of(load_hierarchy("wordnet-mammals"))


def graph_of(hierarchy: Hierarchy) -> TripleSet:
    """A hierarchy as triples; which are held out depends on their labels alone."""
    labels = hierarchy.labels
    splits: dict[str, list[Triple]] = {"train": [], "valid": [], "test": []}
    seen: set[int] = set()
    later: list[tuple[str, Triple]] = []
    for triple in _triples(hierarchy):
        head, relation, tail = triple
        split = _split(labels[head], RELATIONS[relation], labels[tail])
        if split == "train":
            splits["train"].append(triple)
            seen |= {head, tail}
        else:
            later.append((split, triple))
    for split, triple in later:  # nothing is asked about an entity that training never shows
        known = triple[0] in seen and triple[2] in seen
        splits[split if known else "train"].append(triple)
        seen |= {triple[0], triple[2]}
    tensors = {name: torch.tensor(rows, dtype=torch.int64) for name, rows in splits.items()}
    return TripleSet("WordNet mammals", labels, RELATIONS, **tensors)


def _triples(hierarchy: Hierarchy) -> Iterable[Triple]:
    parents: dict[int, list[int]] = {}
    children: dict[int, list[int]] = {}
    for child, parent in _pairs(hierarchy.edges):
        parents.setdefault(child, []).append(parent)
        children.setdefault(parent, []).append(child)
    triples: dict[Triple, None] = {}  # each once, in order
    for child, parent in _pairs(hierarchy.edges):
        triples[child, 0, parent] = None
        for above in parents.get(parent, ()):
            triples[child, 1, above] = None
    for siblings in children.values():
        for left, right in zip(siblings, [*siblings[1:], siblings[0]], strict=True):
            if left != right:
                triples[left, 2, right] = None
    depth = hierarchy.depth.tolist()
    for node, ancestor in _pairs(hierarchy.closure()):
        if depth[ancestor] == GROUP_DEPTH:
            triples[node, 3, ancestor] = None
    return triples


def _pairs(edges: Tensor) -> list[tuple[int, int]]:
    return [(a, b) for a, b in edges.tolist()]


def _split(*words: str) -> str:
    """By a hash of the words: the same on every machine and with every version of torch."""
    digest = hashlib.sha256("\t".join(words).encode("utf-8")).digest()
    place = int.from_bytes(digest[:8], "big") % HELD_OUT
    return {0: "valid", 1: "test"}.get(place, "train")
