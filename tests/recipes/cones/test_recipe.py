from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from beltrami.data import Hierarchy, load_hierarchy
from beltrami.embeddings import load_run
from beltrami.models.hierarchy.closure_split import split_closure
from beltrami.models.hierarchy.cones import ConeEmbedding
from beltrami.recipes.cones.config import ConesConfig
from beltrami.recipes.cones.layout import EDGE, tree_layout
from beltrami.recipes.cones.recipe import MANIFOLDS, ConesRecipe
from beltrami.recipes.recipe import Trial
from beltrami.recipes.registry import create
from tests.recipes.interruption import run_interrupted

TINY = ConesConfig(
    data="carnivores",
    models=("lorentz", "poincare"),
    shares=(0.0, 0.5),
    dim=3,
    epochs=3,
    batch=128,
    learning_rates=(0.0017, 0.006),
    seeds=2,
    device="cpu",
)


def trial_of(recipe: ConesRecipe, model: str, seed: int = 0) -> Trial:
    arm = next(c for c in recipe.arms() if c.model == model)
    return arm.trial(seed, arm.choices[0])


def test_an_interrupted_run_ends_as_it_would_have(tmp_path: Path) -> None:
    run_result = run_interrupted(TINY, tmp_path, training=2, step=3)
    assert list(run_result.groups()) == [
        "0% of the implied pairs shown",
        "50% of the implied pairs shown",
    ]
    for arm_results in run_result.groups().values():
        assert [s.arm.model for s in arm_results] == ["lorentz", "poincare", "euclidean"]
        assert len({result.parameters for s in arm_results for result in s.results}) == 1
        for arm_result in arm_results:
            assert 0 < arm_result.comparison("f1").value.mean <= 1
            assert arm_result.comparison("validation_f1").value.mean > 0.5
    embedding = load_run(tmp_path / "broken", model="poincare")
    assert embedding.labels == load_hierarchy("carnivores").labels
    assert embedding.facts["cones"]
    assert torch.equal(load_run(tmp_path / "whole", model="poincare").points, embedding.points)
    html = (tmp_path / "broken" / "report.html").read_text()
    assert "F1 by share shown" in html
    assert "entailment cones in curved and flat space" in html


def test_all_geometries_start_from_the_same_tangent_vectors() -> None:
    recipe = ConesRecipe(TINY)
    directions, extra = [], []
    layout = tree_layout(recipe.hierarchy, 3, 0)
    for model in ("lorentz", "poincare", "euclidean"):
        table = recipe.build(trial_of(recipe, model))
        assert isinstance(table, ConeEmbedding)
        tangent = MANIFOLDS[model].log0(table.weight.detach())
        moved = layout.norm(dim=-1) > 0  # the root has no ray, it goes along the first axis
        directions.append(torch.nn.functional.normalize(tangent[moved], dim=-1))
        extra.append((tangent.norm(dim=-1) - layout.norm(dim=-1))[moved])
    for direction, out in zip(directions, extra, strict=True):
        torch.testing.assert_close(direction, directions[0])
        torch.testing.assert_close(out, torch.full_like(out, float(out[0])), rtol=1e-5, atol=1e-5)


def test_the_layout_has_depth_as_radius_and_keeps_subtrees_together() -> None:
    hierarchy = load_hierarchy("carnivores")
    layout = tree_layout(hierarchy, 4, 1)
    torch.testing.assert_close(layout.norm(dim=-1), EDGE * hierarchy.depth.double())
    child, parent = hierarchy.edges.unbind(1)
    deep = hierarchy.depth[parent] > 0
    near = torch.cosine_similarity(layout[child[deep]], layout[parent[deep]], dim=-1).mean()
    order = torch.randperm(int(deep.sum()), generator=torch.Generator().manual_seed(0))
    far = torch.cosine_similarity(layout[child[deep]], layout[parent[deep][order]], dim=-1).mean()
    assert near > 0.9
    assert near > far + 0.05
    assert not torch.equal(layout, tree_layout(hierarchy, 4, 2))


def test_held_out_pairs_say_nothing_about_the_start() -> None:
    """A file may list the closure; the start is the same without the pairs that are asked for."""
    given = load_hierarchy("carnivores")
    order = torch.randperm(len(given.closure()), generator=torch.Generator().manual_seed(0))
    pairs = given.closure()[order]
    whole = Hierarchy(given.name, given.labels, pairs)
    split = split_closure(whole, share=0.5, seed=0)
    asked = {tuple(pair) for pair in torch.cat([split.valid, split.test]).tolist()}
    kept = torch.tensor([tuple(pair) not in asked for pair in pairs.tolist()])
    assert 0 < len(asked) == int((~kept).sum())
    layout = tree_layout(whole, 3, 0)
    assert torch.equal(layout, tree_layout(Hierarchy(given.name, given.labels, pairs[kept]), 3, 0))
    torch.testing.assert_close(layout.norm(dim=-1), EDGE * given.depth.double())


def test_each_share_has_a_group_of_its_own() -> None:
    shares = (0.07, 0.1, 0.10000001, 0.1 + 2**-56, 1e-300)
    groups = [c.group for c in ConesRecipe(replace(TINY, shares=shares)).arms()]
    names = [group.removesuffix("% of the implied pairs shown") for group in groups[::3]]
    assert names == ["7", "10", "10.000001", "10.000000000000002", "1E-298"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shares": (0.95,)}, "--shares must be at most 0.9, got 0.95"),
        ({"shares": ()}, "--shares"),
        ({"shares": (0.1, 0.1)}, "--shares must not repeat a value"),
        ({"dim": 1}, "--dim must be at least 2, got 1"),
        ({"epochs": 0}, "--epochs must be at least 1, got 0"),
        ({"margin": float("nan")}, "--margin must be"),
        ({"min_radius": -1.0}, "--min-radius must be"),
        ({"learning_rates": (0.0,)}, "--learning-rates must be"),
        ({"data": ""}, "--data is empty"),
        ({"data": "no-such-hierarchy"}, "no-such-hierarchy"),
    ],
)
def test_bad_options_are_named(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        create(ConesConfig(**changes))  # type: ignore[arg-type]


def test_a_flat_hierarchy_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "star.tsv"
    path.write_text("".join(f"leaf{i}\troot\n" for i in range(10)))
    with pytest.raises(ValueError, match="too few to hold out"):
        create(ConesConfig(data=str(path)))
