"""The graph that is always there says what its relations mean, and keeps its splits apart."""

from __future__ import annotations

import torch

from beltrami.data import load_hierarchy
from beltrami.recipes.knowledge_graph.sample import GROUP_DEPTH, RELATIONS, mammal_graph


def test_relations_are_those_of_the_hierarchy() -> None:
    graph, hierarchy = mammal_graph(), load_hierarchy("wordnet-mammals")
    assert graph.entities == hierarchy.labels
    above: dict[int, set[int]] = {}
    for child, parent in hierarchy.edges.tolist():
        above.setdefault(child, set()).add(parent)
    ancestors: dict[int, set[int]] = {}
    for node, ancestor in hierarchy.closure().tolist():
        ancestors.setdefault(node, set()).add(ancestor)
    everything = torch.cat([graph.train, graph.valid, graph.test]).tolist()
    found = {name: set() for name in RELATIONS}
    for head, relation, tail in everything:
        found[RELATIONS[relation]].add((head, tail))
    assert found["is a"] == {(a, b) for a, b in hierarchy.edges.tolist()}
    assert found["is a kind of a"] == {
        (a, c) for a, parents in above.items() for b in parents for c in above.get(b, ())
    }
    assert found["belongs to"] == {
        (a, b) for a, all_ in ancestors.items() for b in all_ if hierarchy.depth[b] == GROUP_DEPTH
    }
    for one, other in found["is a sister of"]:
        assert one != other
        assert above[one] & above[other]


def test_splits_are_apart_and_nothing_unseen_is_asked() -> None:
    summary = mammal_graph().summary()
    for split in ("valid", "test"):
        assert summary[split] > 300
        for what in ("unseen_entities", "unseen_relations", "in_train"):
            assert summary[f"{split}_{what}"] == 0


def test_it_is_the_same_every_time() -> None:
    assert mammal_graph().digest() == mammal_graph().digest()
