from __future__ import annotations

from benchmarks.new_nodes import Options, run


def test_new_leaves_are_placed_as_well_as_trained_ones() -> None:
    scores = run(Options("carnivores", epochs=60, leaves=3))
    assert scores["trained leaves"] > 0.8
    assert scores["new leaves"] > scores["trained leaves"] - 0.1
    assert scores["new leaves"] >= scores["on a parent"]
