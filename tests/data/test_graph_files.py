"""Graphs from files: what is read, and what is said about bad files."""

from __future__ import annotations

import os
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import torch

from beltrami.data.graph_files import GraphError, read_graph

DISEASE = os.environ.get("BELTRAMI_TEST_DISEASE", "")  # the folder of HGCN's disease_lp


def write(folder: Path, **texts: str) -> dict[str, Path]:
    paths = {}
    for name, text in texts.items():
        paths[name] = folder / name.replace("_", ".")
        paths[name].write_text(text, encoding="utf-8")
    return paths


def test_numbered_nodes(tmp_path: Path) -> None:
    edges = tmp_path / "edges.csv"
    edges.write_text("source,target\n2,0\n0,1\n1,0\n\n1,1\n")
    features, labels = tmp_path / "f.npy", tmp_path / "l.npy"
    np.save(features, np.arange(8).reshape(4, 2))
    np.save(labels, np.array([10, -1, 2, 10]))
    graph = read_graph(edges, features, labels, name="little")
    assert graph.name == "little"
    assert len(graph) == 4  # node 3 has no edge
    assert graph.edges.tolist() == [[0, 0], [1, 2]]
    assert graph.edge_index.tolist() == [[0, 0, 1, 2], [1, 2, 0, 0]]
    assert graph.features.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert graph.features.dtype == torch.float32
    assert graph.label_names == ("2", "10")
    assert graph.labels.tolist() == [1, -1, 0, 1]
    assert graph.node_names is None


def test_named_nodes(tmp_path: Path) -> None:
    files = write(
        tmp_path,
        edges_tsv="ant\tbee\nbee\tcat\n",
        features_csv="node,legs,weight\ncat,4,5.5\nant,6,0.1\nbee,6,0.2\ndog,4,9\n",
        labels_csv="node,label\nbee,insect\ncat,mammal\nant,insect\ndog,\n",
    )
    graph = read_graph(*files.values())
    assert graph.node_names == ("cat", "ant", "bee", "dog")
    assert graph.edges.tolist() == [[0, 1], [2, 2]]
    assert graph.features[0].tolist() == pytest.approx([4, 5.5])
    assert graph.label_names == ("insect", "mammal")
    assert graph.labels.tolist() == [1, 0, 0, -1]


def test_edges_alone_have_degrees_as_features(tmp_path: Path) -> None:
    (edges,) = write(tmp_path, edges_csv="0 1\n0 2\n").values()
    graph = read_graph(edges)
    expected = torch.tensor([[1, 2.0], [1, 1], [1, 1]])
    expected[:, 1].log1p_()
    torch.testing.assert_close(graph.features, expected)
    assert graph.labels is None


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, bool])
def test_sparse_features_are_scipys(tmp_path: Path, dtype: type) -> None:
    matrix = scipy.sparse.random(7, 5, density=0.4, format="csr", random_state=0)
    matrix.data = (matrix.data * 9 + 1).astype(dtype)
    scipy.sparse.save_npz(tmp_path / "g.feats.npz", matrix)
    write(tmp_path, g_edges_csv="0,1\n5,6\n", g_labels_tsv="label\n" + "a\nb\na\nb\na\nb\na\n")
    (tmp_path / "README.txt").write_text("not one of them")
    graph = read_graph(tmp_path)
    assert graph.name == tmp_path.name
    np.testing.assert_array_equal(graph.features.numpy(), matrix.toarray().astype(np.float32))
    assert graph.labels.tolist() == [0, 1, 0, 1, 0, 1, 0]


@pytest.mark.skipif(
    not DISEASE, reason="set BELTRAMI_TEST_DISEASE to the folder of HGCN's disease_lp"
)
def test_the_disease_tree() -> None:
    graph = read_graph(DISEASE)
    assert (len(graph), graph.edges.shape[1], graph.features.shape[1]) == (2665, 2664, 11)
    assert graph.labels.bincount().tolist() == [1605, 1060]


EDGES = "0,1\n1,2\n"
BAD: dict[str, tuple[dict[str, str], str]] = {
    "one column": ({"edges_csv": "0,1\n2\n"}, r"edges\.csv, line 2: .*two columns, found '2'"),
    "three columns": ({"edges_csv": "0,1,2\n"}, r"line 1: .*found '0 1 2'"),
    "an empty end": ({"edges_csv": "a,b\na,\n"}, "line 2"),
    "no edges": ({"edges_csv": "source,target\n"}, "has no edges"),
    "a quote": ({"edges_csv": '"a,b\n'}, "line 1"),
    "words among features": (
        {"edges_csv": EDGES, "features_csv": "1,2\n3,x\n5,6\n"},
        r"features\.csv, line 2: 'x' is not a number",
    ),
    "ragged features": (
        {"edges_csv": EDGES, "features_csv": "1,2\n3\n5,6\n"},
        "line 2: expected 2 features, found 1",
    ),
    "features that are not finite": (
        {"edges_csv": EDGES, "features_csv": "1,2\n3,inf\n5,6\n"},
        "feature 1 of node 1 is not finite",
    ),
    "too few features": (
        {"edges_csv": EDGES, "features_csv": "1\n2\n"},
        r"edges\.csv, line 2: node 2 has no row in .*features\.csv, which has 2",
    ),
    "labels of another length": (
        {"edges_csv": EDGES, "features_csv": "1\n2\n3\n4\n", "labels_csv": "a\nb\na\n"},
        r"labels\.csv has 3 rows, but .*features\.csv has 4",
    ),
    "two labels": (
        {"edges_csv": EDGES, "labels_csv": "0,a\n1,b\n2,a\n1,a\n"},
        r"labels\.csv, line 4: node '1' has two labels",
    ),
    "labels of nobody": (
        {"edges_csv": EDGES, "labels_csv": "0,a\nx,b\n2,a\n"},
        "line 2: 'x' is not a node",
    ),
    "no label": ({"edges_csv": EDGES, "labels_csv": "0,\n1,\n2,\n"}, "no node has a label"),
    "two rows of features": (
        {"edges_csv": "a,b\n", "features_csv": "a,1\nb,2\na,3\n"},
        "line 3: node 'a' has two rows",
    ),
    "names without columns": (
        {"edges_csv": "a,b\n", "labels_csv": "x\ny\n"},
        "expected two columns, node and label; found 1",
    ),
}


@pytest.mark.parametrize(("files", "says"), BAD.values(), ids=BAD)
def test_bad_tables(tmp_path: Path, files: dict[str, str], says: str) -> None:
    write(tmp_path, **files)
    with pytest.raises(GraphError, match=says):
        read_graph(tmp_path)


def test_bad_bytes(tmp_path: Path) -> None:
    edges = tmp_path / "edges.csv"
    edges.write_bytes(b"0,1\n\xff,2\n")
    with pytest.raises(GraphError, match=r"line 2: not UTF-8"):
        read_graph(edges)
    edges.write_bytes(b"0,1\n" + b"x" * (2 << 20))
    with pytest.raises(GraphError, match=r"line 2: longer than"):
        read_graph(edges)
    with pytest.raises(GraphError, match="cannot read"):
        read_graph(tmp_path / "nothing.csv")


def test_bad_arrays(tmp_path: Path) -> None:
    edges = tmp_path / "edges.csv"
    edges.write_text(EDGES)
    features = tmp_path / "features.npy"
    np.save(features, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(GraphError, match="safe to read"):
        read_graph(edges, features)
    np.save(features, np.zeros(3))
    with pytest.raises(GraphError, match=r"shape \(nodes, features\), got float64 of shape \(3,\)"):
        read_graph(edges, features)
    with features.open("wb") as file:  # a header that claims far more than there is
        header = {"descr": "<f8", "fortran_order": False, "shape": (1 << 40, 9)}
        np.lib.format.write_array_header_1_0(file, header)
    with pytest.raises(GraphError, match=r"safe to read|more than"):
        read_graph(edges, features)
    with pytest.raises(GraphError, match=r"must be \.npz, \.npy, \.csv or \.tsv, not '\.pkl'"):
        read_graph(edges, tmp_path / "x.pkl")
    np.save(tmp_path / "l.npy", np.array([0.5, 1, 2]))
    with pytest.raises(GraphError, match="labels must be whole numbers"):
        read_graph(edges, None, tmp_path / "l.npy")


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("indices", [0, 1, 9]),
        ("indices", [0, -1, 1]),
        ("indptr", [0, 2, 1, 3]),
        ("indptr", [0, 1, 2]),
        ("shape", [3, 1 << 40]),
        ("shape", [3]),
        ("data", [1.0]),
        ("format", b"csc"),
    ],
)
def test_bad_sparse_matrices(tmp_path: Path, part: str, value: object) -> None:
    parts = {
        "indices": np.array([0, 1, 1]),
        "indptr": np.array([0, 1, 2, 3]),
        "shape": np.array([3, 2]),
        "data": np.array([1.0, 2.0, 3.0]),
        "format": np.array(b"csr"),
    }
    edges, features = tmp_path / "edges.csv", tmp_path / "f.npz"
    edges.write_text(EDGES)
    np.savez(features, **parts)
    assert read_graph(edges, features).features.tolist() == [[1, 0], [0, 2], [0, 3]]
    np.savez(features, **{**parts, part: np.array(value)})
    with pytest.raises(GraphError, match=r"f\.npz"):
        read_graph(edges, features)
    features.write_bytes(features.read_bytes()[:100])
    with pytest.raises(GraphError, match=r"f\.npz"):
        read_graph(edges, features)


def test_two_files_of_a_kind(tmp_path: Path) -> None:
    write(tmp_path, edges_csv=EDGES, more_edges_tsv=EDGES)
    with pytest.raises(GraphError, match="two files of edges"):
        read_graph(tmp_path)
    with pytest.raises(GraphError, match="is a folder"):
        read_graph(tmp_path, "features.npy")
    (tmp_path / "empty").mkdir()
    with pytest.raises(GraphError, match="has no file of edges"):
        read_graph(tmp_path / "empty")


@pytest.mark.parametrize(
    "node", ["3000000000", "99999999999999999999", "9" * 5000, "0" * 5000, "2000000"]
)
def test_numbers_of_nodes_have_a_bound(tmp_path: Path, node: str) -> None:
    edges, labels = tmp_path / "edges.csv", tmp_path / "labels.csv"
    edges.write_text(f"0,1\n0,{node}\n2,3\n")
    with pytest.raises(GraphError, match=r"edges\.csv, line 2: node .* from 0") as caught:
        read_graph(edges)
    assert len(str(caught.value)) < 400 + len(str(edges))
    edges.write_text(EDGES)
    labels.write_text(f"node,label\n{node},a\n0,b\n")
    with pytest.raises(GraphError, match=r"labels\.csv, line 2: node .* from 0"):
        read_graph(edges, None, labels)


def test_labels_of_many_digits_are_only_names(tmp_path: Path) -> None:
    edges, labels = tmp_path / "edges.csv", tmp_path / "labels.csv"
    edges.write_text("0,1\n")
    labels.write_text(f"{'9' * 5000}\n1\n")
    assert read_graph(edges, None, labels).labels.tolist() == [1, 0]  # type: ignore[union-attr]


def test_gaps_among_numbers_are_nodes_without_edges(tmp_path: Path) -> None:
    edges = tmp_path / "edges.csv"
    edges.write_text("0,1\n0,5000\n")
    assert len(read_graph(edges)) == 5001


def npy(shape: str, data: bytes = b"") -> bytes:
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def archived(path: Path, content: bytes, method: int = zipfile.ZIP_DEFLATED) -> bytearray:
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("data.npy", content)
    return bytearray(path.read_bytes())


@pytest.mark.parametrize(
    "shape", ["(1 << 40,)", "(1099511627776,)", "(-1,)", "(4, -4)", "(2,", "3"]
)
def test_headers_in_archives_that_claim_too_much(tmp_path: Path, shape: str) -> None:
    edges, features = tmp_path / "edges.csv", tmp_path / "f.npz"
    edges.write_text(EDGES)
    archived(features, npy(shape, bytes(16)))
    with pytest.raises(GraphError, match=r"f\.npz is not a NumPy archive that is safe to read"):
        read_graph(edges, features)


@pytest.mark.parametrize("damage", ["deflate", "encrypted", "compression", "version", "cut"])
def test_damaged_archives(tmp_path: Path, damage: str) -> None:
    edges, features = tmp_path / "edges.csv", tmp_path / "f.npz"
    edges.write_text(EDGES)
    good = npy("(100,)", np.arange(100.0).tobytes())
    raw = archived(features, good)
    central = raw.index(b"PK\x01\x02")
    if damage == "deflate":
        raw[60:90] = b"\xff" * 30
    elif damage == "encrypted":  # the flags, in both headers
        raw[6] |= 1
        raw[central + 8] |= 1
    elif damage == "compression":
        raw[8] = raw[central + 10] = 77
    elif damage == "version":
        raw = archived(features, good[:6] + b"\x09" + good[7:])
    else:
        raw = archived(features, good[:-8])
    features.write_bytes(raw)
    with pytest.raises(GraphError, match=r"f\.npz is not a NumPy archive that is safe to read"):
        read_graph(edges, features)
