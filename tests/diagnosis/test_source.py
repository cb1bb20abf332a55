"""Sources: what they are taken for, what is left out, and what cannot be used."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from beltrami.analysis.null_models import tree_distances
from beltrami.diagnosis.config import DiagnoseConfig
from beltrami.diagnosis.source import (
    DistanceSource,
    GraphSource,
    VectorSource,
    broken_triangles,
    open_source,
    random_network,
    shortcuts,
)


def table(tmp_path: Path, values: np.ndarray, name: str = "x.npy") -> DiagnoseConfig:
    np.save(tmp_path / name, values)
    return DiagnoseConfig(str(tmp_path / name))


def test_a_matrix_is_taken_for_vectors(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(30, 5))
    source = open_source(table(tmp_path, x))
    assert isinstance(source, VectorSource)
    drawn = source.draw(torch.tensor([3, 1, 4]))
    expected = np.linalg.norm(x[[3, 1, 4], None] - x[None, [3, 1, 4]], axis=-1)
    np.testing.assert_allclose(drawn.distances, expected, atol=1e-6)
    np.testing.assert_allclose(source.norms, np.linalg.norm(x, axis=1), rtol=1e-6)
    assert source.label(3) == "row 3"


def test_the_columns_of_a_table_are_told(tmp_path: Path) -> None:
    path = tmp_path / "v.csv"
    rows = [f"▁w{i},{i / 7:.3f},{i * i / 5:.3f},{i % 3}" for i in range(9)]
    path.write_text("\n".join(["word,x,y,group", *rows]), encoding="utf-8")
    source = open_source(DiagnoseConfig(str(path)))
    assert source.facts["columns"] == "'x', 'y', 'group'"
    assert source.notes() == [
        "dimensions with whole numbers alone, unlike others: 'group'; if one is a class or a "
        "number of the row, give --besides group"
    ]
    assert source.label(3) == "w3"
    source = open_source(DiagnoseConfig(str(path), besides=("group",)))
    assert (source.facts["columns"], source.notes()) == ("'x', 'y'", [])


def test_rows_that_are_not_finite_are_left_out_and_counted(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(20, 3))
    x[2, 1], x[5, 0], x[7] = np.nan, np.inf, 0
    source = open_source(table(tmp_path, x))
    assert isinstance(source, VectorSource)
    assert source.count == 18
    assert source.facts["rows_that_are_not_finite"] == 2
    assert source.facts["rows_of_zeros"] == 1
    np.testing.assert_allclose(source.points(torch.tensor([2])), x[[3]], rtol=1e-6)


def test_a_row_of_zeros_has_no_angle(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(20, 3))
    x[7] = 0
    np.save(tmp_path / "x.npy", x)
    source = open_source(DiagnoseConfig(str(tmp_path / "x.npy"), metric="angle"))
    assert source.count == 19
    assert source.facts["rows_without_a_direction_left_out"] == 1
    assert float(source.draw(torch.arange(19)).distances.max()) <= np.pi


def test_labels_stay_with_their_rows(tmp_path: Path) -> None:
    path = tmp_path / "v.csv"
    lines = [f"word{i},{'nan' if i == 1 else i},{i * i}" for i in range(6)]
    path.write_text("\n".join(["name,a,b", *lines]), encoding="utf-8")
    source = open_source(DiagnoseConfig(str(path)))
    assert [source.label(i) for i in range(3)] == ["word0", "word2", "word3"]


def test_square_symmetric_matrices_are_distances(tmp_path: Path) -> None:
    d = tree_distances(25).numpy()
    source = open_source(table(tmp_path, d))
    assert isinstance(source, DistanceSource)
    assert source.facts["triangle_violation_rate"] == 0
    some = torch.tensor([4, 0, 9])
    np.testing.assert_array_equal(source.draw(some).distances, d[np.ix_(some, some)])
    lopsided = d.copy()
    lopsided[0, 1] += 1
    with pytest.raises(
        ValueError, match=r"looks like distances, but .* symmetric.* --kind vectors"
    ):
        open_source(table(tmp_path, lopsided))
    assert isinstance(
        open_source(DiagnoseConfig(str(tmp_path / "x.npy"), kind="vectors")), VectorSource
    )
    with pytest.raises(ValueError, match="symmetric"):
        open_source(DiagnoseConfig(str(tmp_path / "x.npy"), kind="distances"))


def test_rounding_makes_no_vectors_of_distances(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(40, 200))
    source = open_source(table(tmp_path, 1 - np.corrcoef(x)))
    assert isinstance(source, DistanceSource)
    assert float(source.draw(torch.arange(40)).distances.diagonal().abs().max()) == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -3.0])
def test_distances_with_a_bad_pair_are_refused(tmp_path: Path, bad: float) -> None:
    d = tree_distances(60).numpy()
    d[3, 7] = d[7, 3] = bad
    with pytest.raises(ValueError, match="looks like distances, but"):
        open_source(table(tmp_path, d))


def test_infinite_distances_are_called_that(tmp_path: Path) -> None:
    d = tree_distances(40).numpy()
    d[:20, 20:] = d[20:, :20] = np.inf
    with pytest.raises(ValueError, match=r"looks like distances, but .* not finite"):
        open_source(table(tmp_path, d))


def test_half_of_random_numbers_are_no_triangles() -> None:
    g = torch.Generator().manual_seed(0)
    d = torch.rand(200, 200, generator=g, dtype=torch.float64)
    d = torch.triu(d, 1) + torch.triu(d, 1).mT
    assert broken_triangles(d) == pytest.approx(0.5, abs=0.02)


def test_one_impossible_distance_is_found() -> None:
    d = tree_distances(200)
    assert shortcuts(d) == 0
    d[5, 9] = d[9, 5] = 500.0
    assert shortcuts(d) == 1


def test_symmetric_matrices_of_something_else_are_vectors(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(30, 30))
    assert isinstance(open_source(table(tmp_path, np.cov(x))), VectorSource)
    assert isinstance(open_source(table(tmp_path, x - x.T)), VectorSource)


def test_distances_must_be_square(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((4, 5)))
    with pytest.raises(ValueError, match=r"4 × 5.*--kind vectors"):
        open_source(DiagnoseConfig(str(tmp_path / "x.npy"), kind="distances"))


def test_squares_of_distances_are_no_metric() -> None:
    line = torch.arange(20.0).double()
    d = (line.unsqueeze(0) - line.unsqueeze(1)).abs()
    assert broken_triangles(d) == 0
    assert broken_triangles(d.square()) > 0.2


def test_a_graph_is_its_largest_component(tmp_path: Path) -> None:
    path = tmp_path / "g.tsv"
    path.write_text("a\tb\nb\tc\nc\td\nd\te\nx\ty\n", encoding="utf-8")
    source = open_source(DiagnoseConfig(str(path)))
    assert isinstance(source, GraphSource)
    assert source.count == 5
    assert source.facts["components"] == 2
    assert source.facts["nodes_outside_the_largest_component_left_out"] == 2
    assert source.draw(torch.arange(5)).distances[0].tolist() == [0, 1, 2, 3, 4]


def test_a_csv_of_words_and_numbers_is_no_graph(tmp_path: Path) -> None:
    path = tmp_path / "v.csv"
    path.write_text("\n".join(f"w{i},{i / 7:.4f}" for i in range(9)), encoding="utf-8")
    assert isinstance(open_source(DiagnoseConfig(str(path))), VectorSource)
    rows = [f"{i / 7:.4f},{i * i / 5}" for i in range(9)]
    path.write_text("\n".join(["x,y", *rows]), encoding="utf-8")
    assert isinstance(open_source(DiagnoseConfig(str(path))), VectorSource)


def test_edges_by_numbers_with_spaces_are_a_graph(tmp_path: Path) -> None:
    path = tmp_path / "g.txt"
    path.write_text("0 1\n1 2\n2 3\n3 0\n", encoding="utf-8")
    assert isinstance(open_source(DiagnoseConfig(str(path))), GraphSource)


@pytest.mark.parametrize(
    ("content", "match"),
    [("a\tb\n", "2 usable points"), ("a\tb\tc\n", "columns"), ("a\ta\n", "own parent")],
)
def test_graphs_that_cannot_be_used(content: str, match: str, tmp_path: Path) -> None:
    path = tmp_path / "g.tsv"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=match):
        open_source(DiagnoseConfig(str(path), kind="edges"))


@pytest.mark.parametrize("name", ["g.csv", "g.tsv", "g.txt", "g.edges"])
@pytest.mark.parametrize(
    "header",
    ["source,target,weight", '"Source","Target","Weight"', "from,to,weight", "# from,to,weight",
     "source,target,type,id,weight", "weight,child,parent"],
)  # fmt: skip
def test_edges_with_weights_are_no_vectors(name: str, header: str, tmp_path: Path) -> None:
    path = tmp_path / name
    rows = [[str(i), str(i + 1), *["1"] * (header.count(",") - 1)] for i in range(9)]
    text = "\n".join([header, *map(",".join, rows)])
    path.write_text(text.replace(",", "\t") if name == "g.tsv" else text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"weights are not read.* --kind edges .*--kind vectors"):
        open_source(DiagnoseConfig(str(path)))
    if name in ("g.csv", "g.tsv"):
        assert isinstance(open_source(DiagnoseConfig(str(path), kind="vectors")), VectorSource)


def test_a_third_column_beside_ends_makes_no_vectors(tmp_path: Path) -> None:
    text = "\n".join(["child,parent,since", *(f"{i},{i + 1},1999" for i in range(9))])
    for name in ("g.csv", "g.edges"):
        (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match="weights are not read"):
        open_source(DiagnoseConfig(str(tmp_path / "g.csv")))
    # This cannot be of vectors, and there is no weight that would be lost.
    assert isinstance(open_source(DiagnoseConfig(str(tmp_path / "g.edges"))), GraphSource)


@pytest.mark.parametrize("header", ["x,y,weight", "source,x,y", "id,parent,height,weight"])
def test_vectors_may_have_a_column_of_weights(header: str, tmp_path: Path) -> None:
    path = tmp_path / "v.csv"
    row = ",".join(["1"] * (header.count(",") + 1))
    path.write_text("\n".join([header, *[row] * 9]), encoding="utf-8")
    assert isinstance(open_source(DiagnoseConfig(str(path))), VectorSource)


@pytest.mark.parametrize(
    ("rows", "match"),
    [(["3,4", "21,21", "5,9"], "own parent"), (["1,2", "3,4", "5,6", "7,8"], "2 usable points")],
)
@pytest.mark.parametrize("header", [[], ["x,y"]])
def test_whole_numbers_that_are_no_edges_may_be_vectors(
    header: list[str], rows: list[str], match: str, tmp_path: Path
) -> None:
    path = tmp_path / "v.csv"
    path.write_text("\n".join([*header, *rows, "10,11"]), encoding="utf-8")
    with pytest.raises(ValueError, match=f"{match}.*--kind vectors"):
        open_source(DiagnoseConfig(str(path)))
    with pytest.raises(ValueError, match=match) as caught:
        open_source(DiagnoseConfig(str(path), kind="edges"))
    assert "--kind vectors" not in str(caught.value)
    assert isinstance(open_source(DiagnoseConfig(str(path), kind="vectors")), VectorSource)


def test_names_that_are_no_edges_are_no_vectors(tmp_path: Path) -> None:
    path = tmp_path / "g.csv"
    path.write_text("a,b\nb,b\n", encoding="utf-8")
    with pytest.raises(ValueError, match="own parent") as caught:
        open_source(DiagnoseConfig(str(path)))
    assert "--kind vectors" not in str(caught.value)


def test_a_graph_tells_how_far_its_hops_are(tmp_path: Path) -> None:
    path = tmp_path / "g.tsv"
    path.write_text("\n".join(f"{i}\t{i // 3}" for i in range(1, 300)), encoding="utf-8")
    shares: list[float] = []
    source = open_source(DiagnoseConfig(str(path)), shares.append)
    assert isinstance(source, GraphSource)
    shares.clear()
    rows = torch.randperm(300, generator=torch.Generator().manual_seed(0))[:200]
    drawn = source.draw(rows)
    assert drawn.distances.dtype == torch.float64
    assert torch.equal(drawn.distances, source.network.hops(torch.arange(300))[rows][:, rows])
    assert len(shares) > 1
    assert shares[-1] == 1
    assert source.null(drawn, 0).shape[0] <= 200


def test_too_few_rows(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="3 usable points"):
        open_source(table(tmp_path, np.random.default_rng(0).normal(size=(3, 2))))


def test_an_unknown_name_is_answered_with_those_that_are_known() -> None:
    with pytest.raises(ValueError, match=r"(?s)smolm2.*smollm2.*wordnet-mammals"):
        open_source(DiagnoseConfig("smolm2"))


def test_noise_has_the_spread_of_the_data(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(400, 3)) * [5, 1, 0.1]
    source = open_source(table(tmp_path, x))
    drawn = source.draw(torch.arange(400))
    null = source.null(drawn, 0)
    ratio = float(null.square().mean() / drawn.distances.square().mean())
    assert 0.8 < ratio < 1.2


def test_a_random_graph_has_as_many_edges() -> None:
    graph = random_network(300, 600, seed=1)
    assert 250 < len(graph) <= 300
    assert 500 < graph.edges.shape[1] <= 600
    assert int(graph.components().max()) == 0
    assert random_network(300, 600, seed=1).digest() == graph.digest()
