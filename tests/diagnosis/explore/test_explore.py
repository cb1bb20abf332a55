"""Pages of graphs, vectors and distances: where points lie, and what cannot be shown."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from beltrami.analysis.null_models import tree_distances
from beltrami.data.graphs import Graph, load_network
from beltrami.diagnosis.config import DiagnoseConfig
from beltrami.diagnosis.explore.config import ExploreConfig
from beltrami.diagnosis.explore.explore import explore
from beltrami.diagnosis.explore.graph_cloud import EDGE, breadth_first_tree, graph_cloud
from beltrami.diagnosis.explore.vector_cloud import vector_cloud
from beltrami.diagnosis.source import open_source
from beltrami.report.explorer import Cloud


def cloud(config: ExploreConfig) -> tuple[Cloud, str]:
    source = open_source(DiagnoseConfig(config.source, kind=config.kind))
    return vector_cloud(source, config, lambda share: None)


def saved(tmp_path: Path, x: np.ndarray) -> str:
    np.save(tmp_path / "x.npy", x)
    return str(tmp_path / "x.npy")


def test_nodes_lie_at_their_depth_and_subtrees_in_sectors() -> None:
    mammals = load_network("wordnet-mammals")
    found = graph_cloud(mammals)
    assert found.labels[0] == "mammal.n.01"
    depth = torch.tensor(found.columns["depth"], dtype=torch.float64)
    radius = 2 * torch.atanh(found.points.norm(dim=1))
    torch.testing.assert_close(radius, EDGE * depth, atol=1e-6, rtol=1e-6)
    assert len(found.edges) == mammals.edges.shape[1]
    named = {(found.labels[a], found.labels[b]) for a, b in found.edges}
    assert ("dog.n.01", "canine.n.02") in named
    assert found.directed
    # Families, the children of the root, do not mix: the angles of each are one interval.
    angle = torch.atan2(found.points[:, 1], found.points[:, 0]).remainder(2 * math.pi)
    order = [found.columns["family"][i] for i in angle.argsort().tolist() if depth[i] > 0]
    changes = sum(a != b for a, b in itertools.pairwise(order))
    assert changes <= len(set(order))


@pytest.mark.parametrize("header", ["child,parent\n", ""])
def test_a_taxonomy_of_a_table_is_walked_from_its_root(header: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rows = "mammal,animal\nbird,animal\ndog,mammal\npug,dog\nhusky,dog\nbeagle,dog\neagle,bird\n"
    path.write_text(header + rows, encoding="utf-8")
    found = graph_cloud(load_network(path))
    assert found.labels[0] == "animal"
    assert max(found.columns["neighbours"]) > found.columns["neighbours"][0]
    assert found.directed
    assert ("pug", "dog") in {(found.labels[a], found.labels[b]) for a, b in found.edges}
    page = explore(ExploreConfig(str(path), out=tmp_path / "p.html")).read_text(encoding="utf-8")
    assert '"directed":true' in page


def test_a_table_of_edges_with_a_cycle_has_no_root(tmp_path: Path) -> None:
    path = tmp_path / "g.csv"
    path.write_text("a,b\nb,c\nc,a\nd,c\ne,c\n", encoding="utf-8")
    found = graph_cloud(load_network(path))
    assert found.labels[0] == "c"
    assert not found.directed


def test_a_ring_is_walked_from_a_node_with_most_neighbours() -> None:
    edges = torch.tensor([[0, 1], [1, 2], [2, 3], [3, 0], [0, 4]])
    tree, order = breadth_first_tree(Graph.of_names("ring", tuple("abcde"), edges.t()))
    assert order[0] == 0
    assert sorted(order) == list(range(5))
    assert tree.depth == (0, 1, 1, 1, 2) or sorted(tree.depth) == [0, 1, 1, 1, 2]


def test_few_vectors_are_placed_by_their_distances(tmp_path: Path) -> None:
    d = tree_distances(60).numpy()
    found, told = cloud(ExploreConfig(saved(tmp_path, d)))
    assert "hMDS" in told
    assert found.points.shape == (60, 2)
    near = torch.tensor(d)
    gap = torch.cdist(found.points, found.points)
    same = torch.corrcoef(torch.stack([near.flatten(), gap.flatten()]))[0, 1]
    assert float(same) > 0.5


def test_a_page_may_be_coloured_by_any_column(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [f"w{i},{1900 + i},{x:.3f},{y:.3f}" for i, (x, y) in enumerate(rng.normal(size=(30, 2)))]
    (tmp_path / "t.csv").write_text("\n".join(["word,year,x,y", *rows]), encoding="utf-8")
    config = ExploreConfig(str(tmp_path / "t.csv"), besides=("year",), out=tmp_path / "p.html")
    page = explore(config).read_text(encoding="utf-8")
    assert ">year</option>" in page
    assert "--besides year" in page  # the command that repeats it


def test_many_vectors_are_placed_by_tangent_pca(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(3000, 6)) * [9, 3, 1, 1, 1, 1]
    found, told = cloud(ExploreConfig(saved(tmp_path, x), points=2500))
    assert told == "by tangent PCA"
    assert len(found.labels) == 2500
    radius = 2 * torch.atanh(found.points.norm(dim=1))
    assert float(radius.quantile(0.9)) == pytest.approx(3, rel=1e-3)
    rows = [int(label.removeprefix("row ")) for label in found.labels]
    # The first axis of the picture is that of the largest spread, up to sign.
    first = torch.tensor(x[rows, 0] - x[rows].mean(0)[0])
    tangent = radius / found.points.norm(dim=1) * found.points[:, 0]
    assert abs(float(torch.corrcoef(torch.stack([first, tangent]))[0, 1])) > 0.99
    assert list(found.columns) == ["norm"]


@pytest.mark.parametrize("metric", ["euclidean", "angle"])
def test_neighbours_are_those_of_all_dimensions(metric: str, tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(50, 6)).astype(np.float32)
    config = ExploreConfig(saved(tmp_path, x), metric=metric)  # type: ignore[arg-type]
    source = open_source(DiagnoseConfig(config.source, metric=config.metric))
    found, _ = vector_cloud(source, config, lambda share: None)
    d = source.draw(torch.arange(50)).distances.fill_diagonal_(math.inf)
    assert found.near is not None
    rows, far = found.near
    assert torch.equal(rows, d.topk(10, largest=False).indices)
    torch.testing.assert_close(far, d.gather(1, rows), atol=1e-6, rtol=1e-6)
    assert found.space.startswith("6 dimensions")


def test_further_columns_of_a_table_colour_points(tmp_path: Path) -> None:
    path = tmp_path / "v.csv"
    rows = [f"w{i},{i * 0.1:.2f},{i % 7:.2f},{'even' if i % 2 == 0 else 'odd'}" for i in range(30)]
    path.write_text("\n".join(["word,a,b,kind", *rows]), encoding="utf-8")
    found, _ = cloud(ExploreConfig(str(path)))
    assert found.columns["kind"][:3] == ["even", "odd", "even"]
    assert found.labels[3] == "w3"


def test_points_of_the_disk_stay_where_they_are(tmp_path: Path) -> None:
    x = np.random.default_rng(0).uniform(-0.6, 0.6, size=(50, 2))
    found, _ = cloud(ExploreConfig(saved(tmp_path, x), method="as-is"))
    np.testing.assert_allclose(found.points, x, atol=1e-7)


@pytest.mark.parametrize(
    ("x", "options", "match"),
    [
        (np.ones((9, 2)), {"method": "as-is"}, "inside the unit disk"),
        (np.ones((9, 3)) * 0.1, {"method": "as-is"}, "3 dimensions"),
        (np.ones((9, 3)), {}, "coincide"),
        (np.ones((9, 3)), {"method": "tangent-pca"}, "coincide"),
        (np.eye(9)[:, :3], {"method": "sectors"}, "for trees and graphs"),
        (1 - np.eye(9), {"method": "tangent-pca"}, "needs vectors"),
        (np.eye(9)[:, :3], {"points": 0}, "--points must be at least 4"),
        (np.eye(9)[:, :3], {"out": Path()}, "is a folder"),
    ],
)
def test_what_cannot_be_shown(
    x: np.ndarray, options: dict[str, Any], match: str, tmp_path: Path
) -> None:
    given = {"out": tmp_path / "page.html", **options}
    with pytest.raises(ValueError, match=match):
        explore(ExploreConfig(saved(tmp_path, x), **given))
    assert not (tmp_path / "page.html").exists()


def test_graphs_have_their_own_way_and_their_limit(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a graph takes sectors"):
        explore(ExploreConfig(method="hmds", out=tmp_path / "p.html"))
    with pytest.raises(ValueError, match=r"1,180 nodes; give --points 1180"):
        explore(ExploreConfig(points=500, out=tmp_path / "p.html"))


def test_the_page_says_what_it_shows_and_how_to_repeat_it(tmp_path: Path) -> None:
    path = explore(ExploreConfig(out=tmp_path / "sub/p.html"))
    page = path.read_text(encoding="utf-8")
    assert "1,180 nodes in the Poincaré disk" in page
    assert "beltrami explore --out=" in page
    assert "platypus.n.01" in page
    assert ExploreConfig("/a/b c.csv").page == Path("runs/explore-b_c.csv.html")
