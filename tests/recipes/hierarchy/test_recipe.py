"""Arms and their twins, Sarkar's tree, and the measures of the recipe."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import scipy.stats
import torch
from safetensors import safe_open

from beltrami import analysis as measures
from beltrami.data import load_hierarchy
from beltrami.data.edge_list import read_edge_list
from beltrami.data.text import DataWarning
from beltrami.embeddings import load_run
from beltrami.geometry import Euclidean, Lorentz, PoincareBall, Product, lorentz
from beltrami.models.hierarchy import sarkar
from beltrami.recipes.hierarchy.config import HierarchyConfig
from beltrami.recipes.hierarchy.recipe import (
    SARKAR_DISTORTION,
    HierarchyRecipe,
    PlacedTree,
    _rank_curve,
    manifold_of,
)
from beltrami.recipes.runner import run

from .small import binary_tree, session, small_config, trial

ALL = ("lorentz", "poincare", "product", "euclidean", "sarkar")


@pytest.fixture
def recipe(tmp_path: Path) -> HierarchyRecipe:
    return HierarchyRecipe(
        small_config(binary_tree(tmp_path / "tree.tsv"), models=ALL, dims=(2, 5))
    )


# --- arms ----------------------------------------------------------------------------------


def test_every_arm_has_its_twin(recipe: HierarchyRecipe) -> None:
    arms = recipe.arms()
    assert [(c.model, c.settings.dim) for c in arms] == [
        (model, dim)
        for dim in (2, 5)
        for model in ("lorentz", "poincare", "product", "sarkar", "euclidean")
    ]
    for arm in arms:
        assert arm.twin == (None if arm.model == "euclidean" else "euclidean")
        rates = [choice.get("learning_rate") for choice in arm.choices]
        assert rates == ([None] if arm.model == "sarkar" else [0.3])


def test_the_twin_takes_part_unasked(tmp_path: Path) -> None:
    config = small_config(binary_tree(tmp_path / "tree.tsv"), models=("lorentz",))
    assert [c.model for c in HierarchyRecipe(config).arms()] == ["lorentz", "euclidean"]


@pytest.mark.parametrize("model", ["lorentz", "poincare", "product"])
@pytest.mark.parametrize("dim", [2, 5])
def test_the_twin_has_the_parameters_and_the_start(
    recipe: HierarchyRecipe, model: str, dim: int
) -> None:
    for seed in (0, 1):
        curved, flat = (recipe.build(trial(name, dim, seed)) for name in (model, "euclidean"))
        counts = [sum(p.numel() for p in m.parameters()) for m in (curved, flat)]
        assert counts == [15 * dim, 15 * dim]
        torch.testing.assert_close(curved.manifold.log0(curved.weight), flat.weight.detach())
        assert flat.weight.square().sum(-1).mean().sqrt().item() == pytest.approx(1e-3, rel=0.5)
    again = recipe.build(trial(model, dim, 1))
    assert torch.equal(again.weight, curved.weight)  # a function of the trial alone
    assert not torch.equal(recipe.build(trial(model, dim, 0)).weight, curved.weight)


def test_spaces() -> None:
    assert manifold_of("lorentz", 5) == Lorentz(1.0)
    assert manifold_of("poincare", 5) == PoincareBall(1.0)
    assert manifold_of("product", 5) == Product([(Lorentz(1.0), 3), (Lorentz(1.0), 2)])
    assert manifold_of("euclidean", 5) == Euclidean()
    with pytest.raises(ValueError, match="'spherical'"):
        manifold_of("spherical", 5)


# --- Sarkar's tree --------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [2, 3])
def test_a_placed_tree_has_the_distances_of_sarkars_construction(
    recipe: HierarchyRecipe, dim: int
) -> None:
    placed = PlacedTree(recipe.hierarchy, dim)
    tree = recipe.hierarchy.spanning_tree()
    embedding = sarkar(tree, max_distortion=SARKAR_DISTORTION, dim=dim)
    n = len(recipe.hierarchy)
    rows = placed.rows(torch.arange(n))
    number = [tree.labels.index(label) for label in recipe.hierarchy.labels]
    torch.testing.assert_close(rows, embedding.distances()[number][:, number])
    for u, v in ((0, 3), (5, 14), (2, 2)):
        exact = embedding.exact_distance(number[u], number[v])
        assert rows[u, v].item() == pytest.approx(float(exact), rel=1e-12)
    root = recipe.hierarchy.roots.item()
    torch.testing.assert_close(placed.radius, rows[root])
    torch.testing.assert_close(placed.tangent.norm(dim=-1), rows[root])
    assert torch.equal(placed.rows(torch.tensor([4, 1])), rows[[4, 1]])


def test_a_placed_tree_keeps_the_allowed_distortion(recipe: HierarchyRecipe) -> None:
    placed = PlacedTree(recipe.hierarchy, 2)
    hops = recipe.hierarchy.hops(torch.arange(15)).double()
    off = ~torch.eye(15, dtype=torch.bool)
    ratio = (placed.rows(torch.arange(15)) / hops)[off]
    assert ratio.max() / ratio.min() <= 1 + SARKAR_DISTORTION


def test_several_roots_are_placed_under_one(tmp_path: Path) -> None:
    path = tmp_path / "forest.tsv"
    path.write_text("child\tparent\nb\ta\nc\ta\ny\tx\nz\tx\n")
    with pytest.warns(DataWarning, match=r"2 roots \('a', 'x'\) are joined"):
        assert HierarchyRecipe(small_config(path)).hierarchy.is_tree
    hierarchy = read_edge_list(path)
    placed = PlacedTree(hierarchy, 2)
    assert placed.tangent.shape == (6, 2)
    assert placed.rows(torch.arange(6)).shape == (6, 6)
    assert (placed.radius > 0).all()  # the origin is the root that was added


def test_a_deep_tree_is_placed_without_complaint() -> None:
    """Its points are too far out for float64; its distances are not made from them."""
    recipe = HierarchyRecipe(HierarchyConfig(models=("sarkar",)))
    placed = PlacedTree(recipe.hierarchy, 2)
    assert placed.radius.max() > 40
    assert placed.tangent.isfinite().all()


# --- measures -------------------------------------------------------------------------------------


def test_evaluation(recipe: HierarchyRecipe, tmp_path: Path) -> None:
    one = trial("lorentz", 2)
    table = recipe.build(one)
    with torch.no_grad():
        tangent = PlacedTree(recipe.hierarchy, 2).tangent
        table.weight.copy_(Lorentz(1.0).exp0(tangent / 4))
    found = recipe.evaluate(table, one, session(tmp_path, one))
    assert set(found.metrics) == {metric.key for metric in recipe.metrics} - {"loss"}
    distance = Lorentz(1.0).pairwise_dist(table.weight, table.weight).detach()
    related = torch.zeros(15, 15, dtype=torch.bool)
    pairs = recipe.hierarchy.closure()
    related[pairs[:, 0], pairs[:, 1]] = True
    expected = measures.mean_average_precision(distance, related)
    assert found.metrics["map"] == pytest.approx(expected)
    ranks = []
    for u, v in pairs.tolist():
        others = [n for n in range(15) if n != u and not related[u, n]]
        ranks.append(1 + sum(distance[u, n].item() <= distance[u, v].item() for n in others))
    assert found.metrics["mean_rank"] == pytest.approx(sum(ranks) / len(ranks))
    radius = lorentz.dist0(table.weight.detach())
    spearman = scipy.stats.spearmanr(recipe.hierarchy.depth, radius).statistic
    assert spearman > 0.9  # deeper is farther out, as Sarkar places them
    assert found.metrics["depth_correlation"] == pytest.approx(spearman)
    curve = dict(zip(found.curves["rank"], found.curves["share"], strict=True))
    for rank, share in curve.items():
        assert share == pytest.approx(sum(r <= rank for r in ranks) / len(ranks))
    assert list(curve.values())[-1] == 1.0


def test_what_is_infinite_is_none(recipe: HierarchyRecipe, tmp_path: Path) -> None:
    """All points in one place: the worst distortion is infinite, and JSON has no infinity."""
    one = trial("euclidean", 2)
    table = recipe.build(one)
    with torch.no_grad():
        table.weight.zero_()
        table.weight[0] = 1.0
    metrics = recipe.evaluate(table, one, session(tmp_path, one)).metrics
    assert metrics["worst_distortion"] is None
    assert all(value is None or math.isfinite(value) for value in metrics.values())


@pytest.mark.parametrize("ranks", [[1], [1, 1, 1], [1, 5, 900, 2]])
def test_a_rank_curve_rises_to_one(ranks: list[int]) -> None:
    curve = _rank_curve(torch.tensor(ranks))
    assert curve["rank"] == sorted(set(curve["rank"]))
    assert curve["rank"][0] == 1
    assert curve["rank"][-1] >= max(ranks)
    shares = [sum(r <= rank for r in ranks) / len(ranks) for rank in curve["rank"]]
    assert curve["share"] == pytest.approx(shares)


def test_a_run(tmp_path: Path) -> None:
    """From a file to metrics: the curved arm beats its twin on a tree in the plane."""
    data = binary_tree(tmp_path / "tree.tsv")
    config = small_config(data, models=("lorentz",), epochs=60, seeds=2, out=tmp_path / "run")
    run_result = run(HierarchyRecipe(config))
    curved, flat = run_result.arm_results
    assert [r.metrics["map"] for r in curved.results] == [1.0, 1.0]
    assert curved.comparison("map").value.mean > flat.comparison("map").value.mean
    assert {r.parameters for s in run_result.arm_results for r in s.results} == {30}
    assert (tmp_path / "run/report.html").exists()
    embedding = load_run(tmp_path / "run")
    assert embedding.facts["model"] == "lorentz"
    assert embedding.facts["data"]["digest"] == load_hierarchy(data).digest()
    # Of a leaf, all that are nearer than any other node are its ancestors: MAP is 1.
    assert {n.label for n in embedding.nearest("n14", 3)} == {"n0", "n2", "n6"}
    assert embedding.ancestors("n14") == ["n6", "n2", "n0"]


def test_the_models_file_says_what_its_rows_are(tmp_path: Path) -> None:
    data = binary_tree(tmp_path / "tree.tsv")
    config = small_config(data, models=("euclidean",), epochs=2, seeds=2, out=tmp_path / "run")
    run(HierarchyRecipe(config))
    for path in tmp_path.glob("run/trials/*/model.safetensors"):
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata()
        assert tuple(json.loads(metadata["labels"])) == load_hierarchy(data).labels
        assert json.loads(metadata["manifold"]) == {"kind": "euclidean"}


def test_only_the_best_trial_of_an_arm_has_an_embedding(tmp_path: Path) -> None:
    data = binary_tree(tmp_path / "tree.tsv")
    first = small_config(data, models=("euclidean",), epochs=2, seeds=1, out=tmp_path / "run")
    run(HierarchyRecipe(first))
    (tmp_path / "run/trials/x").mkdir()
    (tmp_path / "run/trials/x/embedding.json").write_text("{}")  # as of a trial that was best
    run(HierarchyRecipe(replace(first, seeds=3, resume=True)))
    assert len(list(tmp_path.glob("run/trials/*/embedding.json"))) == 1
    metrics = json.loads((tmp_path / "run/metrics.json").read_text())
    best = max(trial["metrics"]["map"] for trial in metrics["trials"])
    assert load_run(tmp_path / "run").facts["metric"]["value"] == best


@pytest.mark.slow
def test_mammals_as_published(tmp_path: Path) -> None:
    """Nickel and Kiela: MAP 0.927, mean rank 1.26 in 5 dimensions. Ours, in 10 CPU-seconds."""
    config = HierarchyConfig(device="cpu")
    recipe = HierarchyRecipe(config)
    assert len(recipe.hierarchy) == 1180
    assert len(recipe.relation.pairs) == 6540
    one = trial("lorentz", 5, rate=0.2)
    table = recipe.build(one)
    here = session(tmp_path, one)
    recipe.train(table, one, here)
    metrics = recipe.evaluate(table, one, here).metrics
    assert metrics["map"] >= 0.96
    assert metrics["mean_rank"] <= 1.2
