"""A whole run: arms, measures, the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from beltrami.data.triples import load_triples
from beltrami.embeddings import load_run
from beltrami.geometry import Euclidean, Lorentz
from beltrami.models.knowledge_graph import relation_metrics
from beltrami.recipes.knowledge_graph.recipe import KnowledgeGraphRecipe
from beltrami.recipes.runner import run
from tests.recipes.knowledge_graph.small import first_trial, ring, session, small_config
from tests.recipes.tiny import numbers


def test_every_model_has_its_twin_and_almost_its_parameters(tmp_path: Path) -> None:
    config = small_config(ring(tmp_path / "g"), models=("RotH", "RefH", "AttH"), dims=(2, 4))
    recipe = KnowledgeGraphRecipe(config)
    found = {(c.model, c.group): c for c in recipe.arms()}
    assert len(found) == 12
    for arm in found.values():
        if arm.model.endswith("E"):
            assert arm.twin is None
            continue
        twin = found[arm.model[:-1] + "E", arm.group]
        assert (arm.twin, arm.settings) == (twin.model, twin.settings)
        sizes = [
            sum(p.numel() for p in recipe.build(first_trial(recipe, c.model)).parameters())
            for c in (arm, twin)
        ]
        assert sizes[0] - sizes[1] == 4  # a curvature for each relation and direction


def test_a_model_depends_on_its_seed_alone(tmp_path: Path) -> None:
    recipe = KnowledgeGraphRecipe(small_config(ring(tmp_path / "g")))
    one, same, other = (
        recipe.build(first_trial(recipe, seed=seed)).state_dict()["entity"] for seed in (0, 0, 1)
    )
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_measures_by_relation(tmp_path: Path) -> None:
    recipe = KnowledgeGraphRecipe(small_config(ring(tmp_path / "g")))
    trial = first_trial(recipe)
    model = recipe.build(trial)
    found = recipe.evaluate(model, trial, session(tmp_path, trial))
    graph = recipe.graph
    expected = relation_metrics(model, graph.test, graph.known_tails)
    assert found.curves["relation"] == list(expected)
    assert found.curves["relation_mrr"] == pytest.approx([m["mrr"] for m in expected.values()])
    assert found.curves["curvature"] == pytest.approx([1.3] * 4)


def test_a_run_and_its_page(tmp_path: Path) -> None:
    data, out = ring(tmp_path / "g"), tmp_path / "run"
    options: dict[str, Any] = {"models": ("RotH", "AttH"), "epochs": 2, "seeds": 2}
    run_result = run(KnowledgeGraphRecipe(small_config(data, out=out, **options)))
    assert [s.arm.model for s in run_result.arm_results] == ["RotH", "RotE", "AttH", "AttE"]
    document = json.loads((out / "metrics.json").read_text(encoding="utf-8"))
    for trial in document["trials"]:
        assert 0 < trial["metrics"]["mrr"] <= 1 <= trial["metrics"]["mean_rank"]
    page = (out / "report.html").read_text(encoding="utf-8")
    for text in ("MRR by relation", "opposite", "Curvature by relation", "Validation MRR"):
        assert text in page
    embedding, flat = (load_run(out, model=model) for model in ("RotH", "RotE"))
    assert embedding.labels == load_triples(data).entities
    assert isinstance(embedding.manifold, Lorentz)
    assert isinstance(flat.manifold, Euclidean)
    again = run(KnowledgeGraphRecipe(small_config(data, out=tmp_path / "again", **options)))
    assert numbers(dict(again.document)) == numbers(document)


def test_one_seed_claims_nothing(tmp_path: Path) -> None:
    out = tmp_path / "run"
    config = small_config(ring(tmp_path / "g"), epochs=2, curvature_rate=0.0, out=out)
    run(KnowledgeGraphRecipe(config))
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "One seed gives no interval" in page
    assert "All were kept at 1.3" in page
