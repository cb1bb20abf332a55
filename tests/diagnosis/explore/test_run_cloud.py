"""Pages of runs: the points that were learned, and runs that have none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from beltrami.diagnosis.explore.config import ExploreConfig
from beltrami.diagnosis.explore.explore import explore
from beltrami.diagnosis.explore.run_cloud import run_cloud
from beltrami.embeddings import Embedding, load_run
from beltrami.embeddings.files import write_embedding
from beltrami.geometry import Euclidean, lorentz, poincare
from beltrami.recipes.cones.config import ConesConfig
from beltrami.recipes.hierarchy.config import HierarchyConfig
from beltrami.recipes.registry import create
from beltrami.recipes.runner import run
from beltrami.report.explorer import Cloud
from tests.embeddings.small import tree

EDGES = "child,parent\nb,a\nc,a\nd,b\ne,b\nf,c\n<i>,c\n"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run over two and three dimensions."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "t.csv").write_text(EDGES, encoding="utf-8")
    config = HierarchyConfig(
        data=str(folder / "t.csv"), models=("lorentz", "poincare"), dims=(2, 3), epochs=30,
        learning_rates=(0.5,), seeds=1, device="cpu", out=folder / "run",
    )  # fmt: skip
    run(create(config))
    return folder / "run"


def shown(config: ExploreConfig) -> tuple[Cloud, str]:
    cloud, told, _ = run_cloud(config, lambda share: None)
    return cloud, told


@pytest.mark.parametrize("model", ["lorentz", "poincare"])
def test_two_dimensions_are_shown_as_they_were_learned(trained: Path, model: str) -> None:
    name = f"{model}-2_dimensions-learning_rate=0.5-seed0"
    found, told = shown(ExploreConfig(str(trained), trial=name))
    learned = load_file(trained / "trials" / name / "model.safetensors")["weight"].double()
    expected = poincare.from_lorentz(learned) if model == "lorentz" else learned
    torch.testing.assert_close(found.points, expected)
    assert told == "as they were learned"
    assert sorted(found.labels) == ["<i>", "a", "b", "c", "d", "e", "f"]
    named = {(found.labels[a], found.labels[b]) for a, b in found.edges}
    assert named == {("b", "a"), ("c", "a"), ("d", "b"), ("e", "b"), ("f", "c"), ("<i>", "c")}
    place = list(found.labels).index("d")
    assert (found.columns["depth"][place], found.columns["family"][place]) == (2.0, "b")
    radius = 2 * torch.atanh(expected[place].norm())
    assert found.columns["distance from the origin in 2 dimensions"][place] == pytest.approx(
        float(radius)
    )


@pytest.mark.parametrize(("method", "words"), [("horopca", "HoroPCA"), ("auto", "tangent PCA")])
def test_more_dimensions_are_projected(trained: Path, method, words: str) -> None:  # type: ignore[no-untyped-def]
    name = "lorentz-3_dimensions-learning_rate=0.5-seed0"
    found, told = shown(ExploreConfig(str(trained), trial=name, method=method))
    assert told.startswith(f"by {words} of 3 dimensions")
    learned = load_file(trained / "trials" / name / "model.safetensors")["weight"].double()
    before = lorentz.pairwise_dist(learned, learned)
    after = poincare.pairwise_dist(found.points, found.points)
    upper = torch.triu_indices(7, 7, 1)
    pairs = torch.stack([d[upper[0], upper[1]] for d in (before, after)])
    assert float(torch.corrcoef(pairs)[0, 1]) > 0.5


def test_the_best_trial_is_taken_and_the_page_is_escaped(trained: Path, tmp_path: Path) -> None:
    results = {
        path.parent.name: json.loads(path.read_text(encoding="utf-8"))["metrics"]["map"]
        for path in trained.glob("trials/*/result.json")
        if not path.parent.name.startswith("euclidean")
    }
    page = explore(ExploreConfig(str(trained), out=tmp_path / "p.html")).read_text("utf-8")
    best = max(results.values())
    assert any(f"{name} of run" in page for name, value in results.items() if value == best)
    assert "<i>" not in page
    assert "7 learned points" in page


@pytest.mark.slow
def test_cones_too(tmp_path: Path) -> None:
    config = ConesConfig(
        data="carnivores", epochs=1, learning_rates=(0.01,), shares=(0.5,), seeds=1,
        device="cpu", out=tmp_path / "run",
    )  # fmt: skip
    run(create(config))
    found, _ = shown(ExploreConfig(str(tmp_path / "run")))
    assert len(found.labels) == 131


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"trial": "nothing"}, "no embedding of trial 'nothing', only of .*lorentz-2_dimensions"),
        ({"method": "hmds"}, "--method hmds is not for runs"),
        ({"method": "as-is", "trial": "lorentz-3_dimensions-learning_rate=0.5-seed0"}, "has 3"),
        ({"points": 5}, "give --points 7"),
        ({"besides": ("x",)}, "--besides does not apply: .* is the folder of a run"),
        ({"metric": "angle"}, "--metric does not apply"),
    ],
)
def test_what_cannot_be_shown(trained: Path, options: dict[str, object], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        explore(replace(ExploreConfig(str(trained)), **options))  # type: ignore[arg-type]


def test_runs_without_points_are_named(trained: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.json").write_bytes((trained / "config.json").read_bytes())
    with pytest.raises(ValueError, match=r"holds no embedding.*--resume"):
        explore(ExploreConfig(str(folder)))


def test_neighbours_are_those_of_the_space(trained: Path) -> None:
    name = "lorentz-3_dimensions-learning_rate=0.5-seed0"
    cloud, _ = shown(ExploreConfig(str(trained), trial=name))
    embedding = load_run(trained, trial=name)
    assert cloud.space == "3 dimensions"
    assert cloud.near is not None
    rows, distances = cloud.near
    for i, label in enumerate(embedding.labels):
        neighbours = embedding.nearest(label)
        assert [cloud.labels[row] for row in rows[i].tolist()] == [n.label for n in neighbours]
        assert distances[i].tolist() == pytest.approx([n.distance for n in neighbours])
    radius = cloud.columns["distance from the origin in 3 dimensions"]
    assert radius == embedding.manifold.dist0(embedding.points).tolist()


def test_flat_points_are_shown_too(trained: Path) -> None:
    name = "euclidean-3_dimensions-learning_rate=0.5-seed0"
    cloud, how = shown(ExploreConfig(str(trained), trial=name))
    assert "principal components" in how
    assert len(cloud.labels) == 7
    with pytest.raises(ValueError, match="take tangent-pca"):
        shown(ExploreConfig(str(trained), trial=name, method="horopca"))


@pytest.mark.parametrize("option", [{"label": "x"}, {"tensor": "x"}, {"metric": "angle"}])
def test_options_of_tables_are_not_for_graphs(option: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="does not apply: wordnet-mammals is a graph"):
        explore(ExploreConfig(**option))  # type: ignore[arg-type]


def test_options_of_runs_are_for_runs() -> None:
    with pytest.raises(ValueError, match="--trial is for runs"):
        explore(ExploreConfig(trial="x"))
    with pytest.raises(ValueError, match="horopca is for points of a run"):
        explore(ExploreConfig(method="horopca"))


def test_a_hyperbolic_trial_is_shown_before_a_better_flat_one(tmp_path: Path) -> None:
    """Also of recipes whose models have names of their own, as those of knowledge graphs."""
    start = tree()
    flat = Embedding(start.labels, start.manifold.log0(start.points), Euclidean())
    (tmp_path / "config.json").write_text('{"schema": "beltrami.run/1"}', encoding="utf-8")
    for name, embedding, value in (("RotH", start, 0.8), ("RotE", flat, 0.9)):
        folder = tmp_path / "trials" / name
        folder.mkdir(parents=True)
        metric = {"key": "mrr", "better": "higher", "value": value}
        write_embedding(folder, embedding, {"model": name, "trial": name, "metric": metric})
    assert load_run(tmp_path).facts["model"] == "RotE"
    cloud, _, facts = run_cloud(ExploreConfig(str(tmp_path)), lambda share: None)
    assert facts[0][1].startswith("RotH of")
    assert list(cloud.labels) == list(start.labels)
