"""Training learns, keeps the best epoch, and can be interrupted anywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from beltrami.models.knowledge_graph import KnowledgeGraphModel, evaluate
from beltrami.recipes.knowledge_graph.recipe import KnowledgeGraphRecipe
from beltrami.recipes.knowledge_graph.training import rate_share, train_model
from beltrami.train.processes import Processes
from tests.recipes.knowledge_graph.small import first_trial, ring, session, small_config
from tests.recipes.tiny import Interrupter

MODELS = ("RotH", "RotE", "RefH", "RefE", "AttH", "AttE")


def trained(
    recipe: KnowledgeGraphRecipe, folder: Path, model: str = "RotH", **options: Any
) -> tuple[KnowledgeGraphModel, list[float]]:
    trial = first_trial(recipe, model)
    torch.manual_seed(99)  # of no consequence
    built = recipe.build(trial)
    assert isinstance(built, KnowledgeGraphModel)
    with_session = session(folder, trial, **options)
    built.to(with_session.device)
    known = recipe.graph.known_tails.to(with_session.device)
    seen = train_model(built, recipe.graph, known, trial, with_session)
    return built, seen.scores


@pytest.mark.parametrize(
    ("model", "objective"),
    [
        *((model, "pairs") for model in MODELS),
        *((model, other) for model in ("RotH", "RotE") for other in ("tails", "softmax")),
    ],
)
def test_it_learns_the_training_triples(tmp_path: Path, model: str, objective: str) -> None:
    config = small_config(
        ring(tmp_path / "g"),
        models=("RotH", "RefH", "AttH"),
        objective=objective,
        pre_translation=True,
        epochs=20,
        validate_every=20,  # so that the last epoch is kept
    )
    recipe = KnowledgeGraphRecipe(config)
    untrained = recipe.build(first_trial(recipe, model))
    assert isinstance(untrained, KnowledgeGraphModel)
    found, _ = trained(recipe, tmp_path, model)
    known = recipe.graph.known_tails
    before = evaluate(untrained, recipe.graph.train, known)["mrr"]
    after = evaluate(found, recipe.graph.train, known)["mrr"]
    assert after > 0.6 > before


def test_the_best_epoch_is_kept(tmp_path: Path) -> None:
    recipe = KnowledgeGraphRecipe(small_config(ring(tmp_path / "g"), epochs=23))
    model, scores = trained(recipe, tmp_path)
    assert len(scores) == 5  # at 5, 10, 15, 20 and 23
    assert len(set(scores)) > 1
    found = evaluate(model, recipe.graph.valid, recipe.graph.known_tails)["mrr"]
    assert found == max(scores)


@pytest.mark.parametrize("at", [1, 3, 8, 13])
def test_an_interrupted_training_ends_where_it_would_have(tmp_path: Path, at: int) -> None:
    recipe = KnowledgeGraphRecipe(small_config(ring(tmp_path / "g"), epochs=6, validate_every=1))
    whole, scores = trained(recipe, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        trained(recipe, tmp_path / "cut", listener=Interrupter(at), checkpoint_seconds=0.0)
    resumed, again = trained(recipe, tmp_path / "cut")
    assert again == scores
    for key, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[key]), key


def test_curvatures_can_be_kept(tmp_path: Path) -> None:
    config = small_config(ring(tmp_path / "g"), curvature=0.7, curvature_rate=0.0, epochs=3)
    model, _ = trained(KnowledgeGraphRecipe(config), tmp_path)
    assert model.curvature is not None
    assert torch.equal(model.curvature.value, torch.full((4, 1), 0.7))


def test_curvatures_are_learned(tmp_path: Path) -> None:
    config = small_config(ring(tmp_path / "g"), curvature=0.7, epochs=3)
    model, _ = trained(KnowledgeGraphRecipe(config), tmp_path)
    assert model.curvature is not None
    assert not torch.isclose(model.curvature.value, torch.tensor(0.7)).any()


def test_batches_larger_than_the_graph(tmp_path: Path) -> None:
    config = small_config(ring(tmp_path / "g"), batch=10_000, epochs=2)
    _, scores = trained(KnowledgeGraphRecipe(config), tmp_path)
    assert len(scores) == 1


def test_fewer_triples_than_processes(tmp_path: Path) -> None:
    recipe = KnowledgeGraphRecipe(small_config(ring(tmp_path / "g"), batch=2))
    trial = first_trial(recipe)
    model = recipe.build(trial)
    assert isinstance(model, KnowledgeGraphModel)
    crowd = session(tmp_path, trial)
    crowd.processes = Processes(torch.device("cpu"), rank=0, world_size=3)
    with pytest.raises(ValueError, match="--batch must be at least the number of processes, 3"):
        train_model(model, recipe.graph, recipe.graph.known_tails, trial, crowd)


def test_the_learning_rate_falls_at_last() -> None:
    shares = [rate_share(i / 20) for i in range(21)]
    assert shares[0] == 1
    assert shares == sorted(shares, reverse=True)
    assert 0 < shares[-1] < 0.05


@pytest.mark.gpu
@pytest.mark.parametrize("model", ["RotH", "RotE", "AttH"])
def test_recorded_steps_do_what_steps_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    recipe = KnowledgeGraphRecipe(
        small_config(ring(tmp_path / "g"), models=("RotH", "AttH"), epochs=4)
    )
    recorded, _ = trained(recipe, tmp_path / "a", model, device="cuda")
    monkeypatch.setattr("beltrami.train.graph_capture.WARMUP_STEPS", 10**9)
    eager, _ = trained(recipe, tmp_path / "b", model, device="cuda")
    for key, value in eager.state_dict().items():  # sums come in any order on a GPU
        torch.testing.assert_close(recorded.state_dict()[key], value, rtol=1e-2, atol=1e-3)
