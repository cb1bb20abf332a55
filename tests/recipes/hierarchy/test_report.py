"""The page: pictures, sentences, and labels that are not part of the markup."""

from __future__ import annotations

from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch

from beltrami.data import load_hierarchy
from beltrami.data.text import DataWarning
from beltrami.geometry import PoincareBall, lorentz, poincare
from beltrami.recipes.hierarchy import report
from beltrami.recipes.hierarchy.config import HierarchyConfig
from beltrami.recipes.hierarchy.recipe import HierarchyRecipe
from beltrami.recipes.hierarchy.report import _drawn, hierarchy_page, unit_disk
from beltrami.recipes.recipe import Arm, Trial
from beltrami.recipes.results import ArmResult, RunResult, TrialResult, compare
from beltrami.recipes.runner import run
from beltrami.report.page import Page, render

from .small import binary_tree, small_config


@dataclass(frozen=True)
class Dim:
    dim: int


BAD_LABEL = "<script>alert('{}')</script>&\"{}"


class Tags(HTMLParser):
    """Counts scripts, and gathers the text between tags."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.scripts = 0
        self.words: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def finished(folder: Path, data: Path, **options: object) -> tuple[HierarchyRecipe, RunResult]:
    config = small_config(data, out=folder, **{"epochs": 3, "seeds": 2, **options})
    recipe = HierarchyRecipe(config)
    return recipe, run(recipe)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[HierarchyRecipe, RunResult]:
    """All kinds of arms in two dimensions and in three, labels full of markup."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("run")
    data = binary_tree(folder / "tree.tsv", label=BAD_LABEL.replace("{}", "{0}"))
    models = ("lorentz", "poincare", "product", "sarkar")
    return finished(folder / "out", data, models=models, dims=(2, 3))


def test_the_page_shows_everything(made: tuple[HierarchyRecipe, RunResult]) -> None:
    page = hierarchy_page(*made)
    figures = [f.heading for f in page.figures]
    by_dimension = ["Precision (MAP) by dimension", "Mean rank of an ancestor by dimension"]
    assert figures == [*by_dimension, "In hyperbolic space", "In flat space"]
    titles = [section.heading for section in page.sections]
    assert titles == ["The comparison", "Ranks and training", "How it is measured"]
    text = render(page)
    for name in ("Lorentz", "Poincaré ball", "Product", "Euclidean", "Sarkar&#x27;s tree"):
        assert name in text
    for fact in ("15 nodes, 14 edges, 34 pairs", "2 dimensions", "3 dimensions", "--dims 2 3"):
        assert fact in text
    assert "nan" not in " ".join(Tags(text).words).lower().split()


def test_labels_are_no_markup(made: tuple[HierarchyRecipe, RunResult]) -> None:
    recipe, run_result = made
    text = render(hierarchy_page(recipe, run_result))
    bare = Page("", "", (), None, (), (), "", "")
    assert "<script>alert" not in text
    assert Tags(text).scripts == Tags(render(bare)).scripts
    assert recipe.hierarchy.labels[3] in "".join(Tags(text).words)  # shown as it is written


def test_one_seed_claims_nothing(tmp_path: Path) -> None:
    data = binary_tree(tmp_path / "tree.tsv")
    recipe, run_result = finished(tmp_path / "out", data, models=("lorentz",), seeds=1)
    page = hierarchy_page(recipe, run_result)
    assert "chance cannot be ruled out" in page.sections[0].paragraphs[0]
    assert [f.heading for f in page.figures] == ["In hyperbolic space", "In flat space"]


def test_the_twin_alone_has_a_page(tmp_path: Path) -> None:
    data = binary_tree(tmp_path / "tree.tsv")
    recipe, run_result = finished(tmp_path / "out", data, models=("euclidean",), seeds=1)
    page = hierarchy_page(recipe, run_result)
    assert page.lead == "15 nodes in 2 dimensions. Only the Euclidean twin was trained."
    assert page.figures == ()
    assert "There is no trained hyperbolic arm" in render(page)


def test_sarkars_tree_beside_the_twin_has_a_page(tmp_path: Path) -> None:
    data = binary_tree(tmp_path / "tree.tsv")
    recipe, run_result = finished(tmp_path / "out", data, models=("sarkar",), seeds=1)
    page = hierarchy_page(recipe, run_result)
    assert "in Sarkar's tree and of" in page.lead
    assert [f.heading for f in page.figures] == ["In hyperbolic space", "In flat space"]


def test_the_sentences_are_about_what_was_trained(tmp_path: Path) -> None:
    data = binary_tree(tmp_path / "tree.tsv")
    recipe, run_result = finished(tmp_path / "out", data, models=("lorentz", "product"))
    best = max(
        (s for s in run_result.arm_results if s.arm.model in ("lorentz", "poincare", "product")),
        key=lambda s: s.comparison("map").value.mean,
    )
    lead = hierarchy_page(recipe, run_result).lead
    assert f"{best.comparison('map').value.mean:.1%} in hyperbolic space" in lead
    assert best.arm.group in lead
    assert "Sarkar" not in lead


MAPS = {"lorentz": {3: 0.9, 5: 0.95, 20: 0.97}, "euclidean": {3: 0.2, 5: 0.3, 20: 0.8}}


@pytest.mark.parametrize(
    ("changes", "end"),
    [
        ({}, "With 20, flat space reaches 80%, for which hyperbolic space needs no more than 3."),
        ({20: 0.97}, "With 20, the seeds do not tell the two apart."),
        ({5: 0.96, 20: 0.99}, "With 5, flat space is more precise."),
        ({3: 0.99}, "With 3, flat space is more precise."),
    ],
)
def test_the_lead_says_how_many_dimensions_are_needed(changes: dict[int, float], end: str) -> None:
    maps = {**MAPS, "euclidean": {**MAPS["euclidean"], **changes}}
    metric = HierarchyRecipe.metrics[0]
    results = {
        (model, dim): [
            TrialResult(Trial(model, f"{dim} d", seed, Dim(dim)), {"map": v}, {}, [], 0, 0.0)
            for seed in range(3)
        ]
        for model, values in maps.items()
        for dim, v in values.items()
    }
    arms = []
    for (model, dim), trials in results.items():
        twins = None if model == "euclidean" else results["euclidean", dim]
        twin = "euclidean" if twins else None
        arm = Arm(model, f"{dim} d", Dim(dim), twin)
        arms.append(ArmResult(arm, {}, trials, compare(trials, twins, [metric])))
    lead = report._lead_of_dimensions(RunResult(arms, {}, ""))
    assert lead.startswith("To find a node's ancestors among its nearest points, 3 dimensions give")
    assert lead.endswith(end)


# --- the disk -------------------------------------------------------------------------------------


def test_in_two_dimensions_the_disk_shows_the_points() -> None:
    x = lorentz.exp0(3 * torch.randn(30, 2, dtype=torch.float64))
    torch.testing.assert_close(unit_disk(lorentz.log0(x)), poincare.from_lorentz(x))
    ball = PoincareBall(1.0).random(30, 2, dtype=torch.float64)
    torch.testing.assert_close(unit_disk(PoincareBall(1.0).log0(ball)), ball)


def test_in_more_dimensions_radii_are_true_and_angles_those_of_the_main_plane() -> None:
    frame = torch.linalg.qr(torch.randn(5, 5, dtype=torch.float64)).Q
    flat = torch.randn(40, 2, dtype=torch.float64) * torch.tensor([3.0, 1.0], dtype=torch.float64)
    v = flat @ frame[:2] + 1e-9 * torch.randn(40, 5, dtype=torch.float64)
    found = unit_disk(v)
    radius = torch.tanh(v.norm(dim=-1) / 2)
    torch.testing.assert_close(found.norm(dim=-1), radius)
    angles = torch.nn.functional.normalize(flat, dim=-1)
    expected = angles @ angles.T  # up to a turn or a reflection
    got = torch.nn.functional.normalize(found, dim=-1)
    torch.testing.assert_close(got @ got.T, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dim", [2, 5])
def test_the_origin_and_the_border(dim: int) -> None:
    v = torch.zeros(3, dim, dtype=torch.float64)
    v[1, 0], v[2, -1] = 700.0, 1e-12
    found = unit_disk(v)
    assert found.isfinite().all()
    assert not found[0].any()
    assert found[1].norm().item() <= 1
    assert found[2].norm().item() in (0.0, pytest.approx(5e-13))


def test_of_large_trees_the_largest_branches_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = load_hierarchy("wordnet-mammals").spanning_tree()
    assert _drawn(tree) == list(range(len(tree)))
    monkeypatch.setattr(report, "MOST_DRAWN", 100)
    drawn = _drawn(tree)
    assert len(drawn) == 100
    kept = set(drawn)
    assert all(tree.parent[n] in kept for n in drawn if tree.parent[n] >= 0)
    smallest = min(tree.descendants[n] for n in drawn)
    assert all(tree.descendants[n] <= smallest for n in range(len(tree)) if n not in kept)


def test_a_part_of_a_tree_is_drawn_with_its_edges(
    made: tuple[HierarchyRecipe, RunResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "MOST_DRAWN", 7)
    figure = hierarchy_page(*made).figures[2]
    assert "the 7 nodes with the most below them" in figure.caption
    assert "7 nodes of tree" in figure.svg


def test_several_roots_meet_in_the_middle(tmp_path: Path) -> None:
    path = tmp_path / "forest.tsv"
    path.write_text("child\tparent\nb\ta\nc\ta\ny\tx\nz\tx\n")
    with pytest.warns(DataWarning, match="2 roots"):
        recipe, run_result = finished(tmp_path / "out", path, models=("lorentz",), seeds=1)
    figure = hierarchy_page(recipe, run_result).figures[0]
    assert "(root)" in figure.svg


def test_the_command_repeats_the_run(made: tuple[HierarchyRecipe, RunResult]) -> None:
    recipe, run_result = made
    assert isinstance(recipe.config, HierarchyConfig)
    assert hierarchy_page(recipe, run_result).command == recipe.config.command()
