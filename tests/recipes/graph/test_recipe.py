from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from beltrami.data.graph_trees import disease_like_tree
from beltrami.embeddings import load_run
from beltrami.recipes.graph.config import LAYER_NAMES, GraphRunConfig
from beltrami.recipes.registry import create
from tests.recipes.interruption import run_interrupted


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small graph with features and labels on disk."""
    graph = disease_like_tree(branching=3, depth=3, features=4)
    place = tmp_path / "small"
    place.mkdir()
    lines = (f"{a},{b}" for a, b in graph.edges.t().tolist())
    (place / "edges.csv").write_text("\n".join(["source,target", *lines]) + "\n")
    np.save(place / "features.npy", graph.features.numpy())
    assert graph.labels is not None
    np.save(place / "labels.npy", graph.labels.numpy())
    return place


def tiny(folder: Path, **changes: object) -> GraphRunConfig:
    options: dict[str, object] = {
        "data": str(folder),
        "layers": ("htc", "attention"),
        "widths": (8, 4),
        "epochs": 12,
        "learning_rates": (0.01, 0.03),
        "dropout": 0.1,
        "seeds": 2,
        "device": "cpu",
    }
    return GraphRunConfig(**{**options, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("task", "layer", "metric"),
    [("nodes", "htc", "accuracy"), ("links", "attention", "roc_auc")],
    ids=["nodes", "links"],
)
def test_an_interrupted_run_ends_as_it_would_have(
    folder: Path, tmp_path: Path, task: str, layer: str, metric: str
) -> None:
    config = tiny(folder, task=task, layers=(layer,))
    run_result = run_interrupted(config, tmp_path, training=2, step=8)
    assert run_result.document["metrics"][0]["key"] == metric
    curved, twin = run_result.arm_results
    assert (curved.arm.model, twin.arm.model) == ("lorentz", "euclidean")
    assert 0 < curved.comparison(metric).value.mean <= 1
    parameters = [s.results[0].parameters for s in run_result.arm_results]
    assert max(parameters) <= 1.05 * min(parameters)
    embedding = load_run(tmp_path / "broken", model="lorentz")
    assert embedding.points.shape == (len(create(config).graph), 4)
    assert not embedding.has_taxonomy
    assert LAYER_NAMES[layer] in (tmp_path / "broken" / "report.html").read_text()


def test_a_network_learns_the_generated_tree(tmp_path: Path) -> None:
    """Macro F1 well above 0.5, the most that one class for all nodes could have."""
    from beltrami.recipes.runner import run

    config = GraphRunConfig(
        layers=("hybonet",), seeds=1, epochs=60, learning_rates=(0.02,), out=tmp_path / "run"
    )
    for arm_result in run(create(config)).arm_results:
        assert arm_result.comparison("macro_f1").value.mean > 0.6


@pytest.mark.parametrize(
    ("widths", "alike"), [((4,), False), ((8, 4), None)], ids=["one width", "two widths"]
)
def test_the_page_compares_parameters_by_their_counts(
    folder: Path, tmp_path: Path, widths: tuple[int, ...], alike: bool | None
) -> None:
    from beltrami.recipes.runner import run

    config = tiny(folder, layers=("hybonet",), widths=widths, epochs=1, seeds=1, out=tmp_path / "r")
    run_result = run(create(config))
    own, twin = (s.results[0].parameters for s in run_result.arm_results)
    within = abs(own - twin) <= 0.01 * own
    assert alike is None or within == alike
    html = (tmp_path / "r" / "report.html").read_text()
    assert ("Their numbers of parameters differ by 1% at most." in html) == within
    assert (f"{own:,} and {twin:,} in the twin" in html) != within
    assert "as many parameters" not in html


def test_the_ball_has_a_twin_of_its_own(folder: Path) -> None:
    recipe = create(tiny(folder, geometry="ball", layers=("hgcn",)))
    assert [c.model for c in recipe.arms()] == ["ball", "euclidean"]


def test_edges_alone_have_links_but_no_classes(folder: Path, tmp_path: Path) -> None:
    edges = str(folder / "edges.csv")
    with pytest.raises(ValueError, match="no labels; give --labels FILE, or --task links"):
        create(tiny(folder, data=edges))
    recipe = create(tiny(folder, data=edges, task="links"))
    assert recipe.data_facts()["features"] == 2  # 1 and the number of neighbours
    with_files = tiny(
        folder, data=edges, features=folder / "features.npy", labels=folder / "labels.npy"
    )
    assert create(with_files).data_facts()["digest"] == create(tiny(folder)).data_facts()["digest"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": ()}, "--layers is empty"),
        ({"layers": ("htc", "htc")}, "--layers must not repeat a value"),
        ({"geometry": "ball", "layers": ("htc",)}, "--geometry ball works with --layers hgcn"),
        ({"widths": (0,)}, "--widths"),
        ({"epochs": 0}, "--epochs must be at least 1"),
        ({"validate_every": 0}, "--validate-every must be at least 1"),
        ({"dropout": 1.0}, "--dropout must be below 1"),
        ({"weight_decay": -1.0}, "--weight-decay must be"),
        ({"learning_rates": (float("inf"),)}, "--learning-rates must be"),
        ({"labels": Path("labels.csv")}, "--features and --labels go with a file of edges"),
        ({"data": "no/such/edges.csv"}, "no/such/edges.csv"),
    ],
)
def test_bad_options_are_named(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        create(GraphRunConfig(**changes))  # type: ignore[arg-type]


def test_one_class_is_refused(folder: Path) -> None:
    np.save(folder / "labels.npy", np.zeros(40, dtype=np.int64))
    with pytest.raises(ValueError, match="1 class; at least 2"):
        create(tiny(folder))


def test_too_few_labels_are_refused(folder: Path) -> None:
    labels = np.full(40, -1)
    labels[:2] = (0, 1)
    np.save(folder / "labels.npy", labels)
    with pytest.raises(ValueError, match="too small: its split leaves nothing for validation"):
        create(tiny(folder))
