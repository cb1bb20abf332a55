from __future__ import annotations

from pathlib import Path

import pytest
import torch

from beltrami.embeddings import Embedding, nearest_rows
from beltrami.geometry import Euclidean, Lorentz, Product
from tests.embeddings.small import LABELS, tree


def test_neighbours_are_those_of_the_space() -> None:
    embedding = tree()
    neighbours = embedding.nearest("a", k=3)
    assert neighbours[0].label == "left"
    for neighbour in neighbours:
        assert neighbour.distance == embedding.distance("a", neighbour.label)
    assert [n.distance for n in neighbours] == sorted(n.distance for n in neighbours)
    assert len(embedding.nearest("a", k=100)) == len(embedding) - 1


def test_a_point_has_neighbours_too() -> None:
    embedding = tree()
    assert embedding.nearest(embedding["a"], k=1)[0] == ("a", 0.0)
    with pytest.raises(ValueError, match="a point has shape"):
        embedding.nearest(torch.zeros(3))
    with pytest.raises(ValueError, match="not finite"):
        embedding.nearest(torch.tensor([0.0, torch.nan]))


def test_the_neighbours_of_all_rows_are_those_of_each() -> None:
    embedding = tree(c=0.4)
    distances_of = embedding.manifold.pairwise_dist(embedding.points, embedding.points)
    rows, distances = nearest_rows(lambda block: distances_of[block].clone(), 7, 3)
    for i, label in enumerate(LABELS):
        neighbours = embedding.nearest(label, 3)
        expected = torch.tensor([n.distance for n in neighbours], dtype=torch.float64)
        assert torch.allclose(distances[i], expected)
        assert {LABELS[row] for row in rows[i][:1].tolist()} <= {
            n.label for n in neighbours if n.distance < neighbours[0].distance + 1e-9
        }


def test_ancestors_go_up_to_the_root() -> None:
    embedding = tree()
    assert embedding.parents("c d") == ["right"]
    assert embedding.ancestors("c d") == ["right", "root"]
    assert embedding.ancestors("root") == []


@pytest.mark.parametrize("geometry", ["lorentz", "product", "euclidean"])
def test_a_new_node_is_nearest_to_its_ancestors(geometry: str) -> None:
    product = Product([(Lorentz(1.0), 1), (Lorentz(1.0), 1)])
    manifold = {"lorentz": Lorentz(1.0), "product": product, "euclidean": Euclidean()}[geometry]
    start = tree()
    points = manifold.exp0(start.manifold.log0(start.points))
    embedding = Embedding(LABELS, points, manifold, edges=start.edges, name="tree")
    point = embedding.add("new", ["left"])
    assert torch.equal(embedding["new"], point)
    assert len(embedding) == 8
    assert embedding.ancestors("new") == ["left", "root"]
    assert {n.label for n in embedding.nearest("new", 2)} == {"left", "root"}
    assert torch.equal(embedding.points[:7], points)
    embedding.add("newer", ["new", "right"])
    assert embedding.parents("newer") == ["new", "right"]


def test_a_new_point_has_the_dtype_of_the_others() -> None:
    start = tree()
    embedding = Embedding(LABELS, start.points.float(), start.manifold, edges=start.edges)
    assert embedding.add("new", ["left"]).dtype == torch.float32
    assert embedding.points.dtype == torch.float32


def test_a_hierarchy_is_taken_as_it_is() -> None:
    hierarchy = tree().hierarchy
    assert hierarchy is not None
    embedding = Embedding(hierarchy, tree().points, tree().manifold)
    assert embedding.hierarchy is hierarchy
    assert embedding.name == "tree"
    assert list(embedding) == list(LABELS)


def test_a_new_node_of_cones_lies_beyond_its_parent() -> None:
    start = tree()
    embedding = Embedding(
        LABELS, start.points, start.manifold, edges=start.edges, facts={"cones": True}
    )
    v = start.manifold.log0(embedding.add("new", ["left"]))
    assert v[0] < -1
    assert abs(float(v[1])) < 1e-12


def test_what_cannot_be_added_is_named() -> None:
    embedding = tree()
    with pytest.raises(ValueError, match="labelled 'a' already"):
        embedding.add("a", ["left"])
    with pytest.raises(ValueError, match="did you mean 'left'"):
        embedding.add("new", ["lef"])
    for parents in ("left", []):
        with pytest.raises(ValueError, match="parents must be a list"):
            embedding.add("new", parents)
    assert len(embedding) == 7


def test_without_a_taxonomy_there_are_neighbours_alone() -> None:
    start = tree()
    embedding = Embedding(LABELS, start.points, start.manifold)
    assert embedding.edges is None
    embedding.add("new", ["a"])
    assert embedding.edges is None
    embedding = Embedding(LABELS, start.points, start.manifold)
    with pytest.raises(ValueError, match="has no taxonomy"):
        embedding.ancestors("a")
    assert embedding.nearest("a") == start.nearest("a")


def test_bad_points_are_refused() -> None:
    with pytest.raises(ValueError, match=r"shape \(2, 3\) for 7 labels"):
        Embedding(LABELS, torch.zeros(2, 3), Euclidean())


def test_a_saved_embedding_comes_back(tmp_path: Path) -> None:
    start = tree(c=0.7)
    start.facts["cones"] = True
    back = Embedding.load(start.save(tmp_path / "deeper" / "tree.safetensors"))
    assert back.labels == start.labels
    assert torch.equal(back.points, start.points)
    assert back.manifold == start.manifold
    assert (back.name, back.facts) == (start.name, start.facts)
    assert back.edges is not None
    assert start.edges is not None
    assert torch.equal(back.edges, start.edges)


@pytest.mark.parametrize("content", [b"", b"nothing of ours", b"\x08\0\0\0\0\0\0\0{}      "])
def test_another_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other.safetensors"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is not a saved embedding"):
        Embedding.load(path)
