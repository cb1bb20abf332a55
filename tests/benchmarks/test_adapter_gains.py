"""Gains before training: of all kinds of layers, above 1, and larger where space is more curved."""

from __future__ import annotations

from pathlib import Path

from benchmarks.adapter_gains import Options, gains_by_kind
from tests.recipes.family import tiny


def test_gains_grow_with_the_curvature(tmp_path: Path) -> None:
    model = str(tiny.llama(tmp_path / "model"))
    flat, curved = (gains_by_kind(Options(model=model, curvature=c, texts=3)) for c in (1e-4, 1.0))
    assert {"q_proj", "down_proj"} <= flat.keys()
    for kind, medians in curved.items():
        assert bool((medians > flat[kind]).all()), kind
        assert bool(((flat[kind] - 1).abs() < 1e-3).all()), kind
