"""Sarkar's construction: against an independent one in high precision, and its promises."""

from __future__ import annotations

import math
import subprocess
import sys

import mpmath
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mpf
from torch import Tensor

from beltrami.data import Tree, load_hierarchy
from beltrami.data.hierarchy import Hierarchy
from beltrami.geometry import lorentz, poincare
from beltrami.models.hierarchy import PrecisionWarning, lost_edges, sarkar
from tests.models.hierarchy.trees import binary, comb, diamonds, path, star, tree_of, trees


def reference_distances(tree: Tree, edge: float) -> list[list[mpf]]:
    """The plane by Möbius maps: frames [[a, b], [b̄, ā]], sinh(d/2) = |ā_u·b_v − b_u·ā_v|."""
    degree = [sum(p == node for p in tree.parent) + (node > 0) for node in range(len(tree))]
    used = [0 if node == 0 else 1 for node in range(len(tree))]  # the parent's edge comes first
    frames = [(mpmath.mpc(1), mpmath.mpc(0))]
    for parent in tree.parent[1:]:
        turn = mpmath.expjpi(mpf(used[parent]) / degree[parent])  # half of the angle
        used[parent] += 1
        a, b = frames[parent]
        a, b = a * turn, b / turn
        c, s = mpmath.cosh(mpf(edge) / 2), mpmath.sinh(mpf(edge) / 2)
        a, b = a * c + b * s, a * s + b * c
        frames.append((a * 1j, -b * 1j))  # face the parent
    conj = mpmath.conj
    return [
        [2 * mpmath.asinh(abs(conj(a) * y - b * conj(x))) for x, y in frames] for a, b in frames
    ]


def worst_ratio(tree: Tree, edge: float, d: Tensor) -> float:
    hops = tree.distances()
    off = hops > 0
    assert bool((d <= hops * edge * (1 + 1e-13)).all())
    return (hops[off] * edge / d[off]).max().item() if off.any() else 1.0


def neighbours_are_nearest(tree: Tree, d: Tensor) -> bool:
    """That is, a mean average precision of 1."""
    hops = tree.distances()
    near = torch.where(hops == 1, d, 0.0).max(-1).values
    far = torch.where(hops > 1, d, math.inf).min(-1).values
    return bool((near < far).all())


@settings(max_examples=15)
@given(trees(), st.sampled_from([0.05, 0.3, 2.0]))
def test_distances_agree_with_moebius_maps(tree: Tree, epsilon: float) -> None:
    embedding = sarkar(tree, max_distortion=epsilon)
    found = embedding.distances()
    with mpmath.workprec(4 * embedding.precision_bits):
        expected = reference_distances(tree, embedding.edge_length)
        for i, row in enumerate(expected):
            for j, d in enumerate(row):
                assert abs(found[i, j].item() - d) <= 1e-14 * abs(d)
                assert abs(embedding.exact_distance(i, j) - d) <= mpf(2) ** -60 * max(1, d)


@settings(max_examples=25)
@given(trees(), st.floats(0.02, 3), st.integers(2, 5))
def test_distortion_is_below_the_bound_and_neighbours_are_nearest(
    tree: Tree, epsilon: float, dim: int
) -> None:
    embedding = sarkar(tree, max_distortion=epsilon, dim=dim)
    d = embedding.distances()
    worst = worst_ratio(tree, embedding.edge_length, d)
    assert worst <= embedding.distortion_bound * (1 + 1e-12)
    assert worst <= (1 + epsilon) * (1 + 1e-12)
    assert neighbours_are_nearest(tree, d)
    assert torch.equal(d, d.T)
    assert not d.diagonal().any()


@pytest.mark.parametrize("tree", [path(30), star(40), binary(6)], ids=["path", "star", "binary"])
@pytest.mark.parametrize("dim", [2, 4])
def test_named_trees(tree: Tree, dim: int) -> None:
    embedding = sarkar(tree, max_distortion=0.05, dim=dim)
    d = embedding.distances()
    assert worst_ratio(tree, embedding.edge_length, d) <= 1.05
    assert neighbours_are_nearest(tree, d)


def test_a_path_is_a_geodesic() -> None:
    tree = path(50)
    embedding = sarkar(tree, edge_length=0.7)
    torch.testing.assert_close(embedding.distances(), 0.7 * tree.distances(), rtol=1e-14, atol=0)


@pytest.mark.parametrize("dim", [2, 3, 6])
def test_edges_have_exactly_their_length(dim: int) -> None:
    tree = binary(4)
    embedding = sarkar(tree, edge_length=7.5, dim=dim)
    for node, parent in enumerate(tree.parent[1:], start=1):
        assert abs(embedding.exact_distance(node, parent) - 7.5) < mpf(2) ** -60


def test_siblings_are_equally_spaced() -> None:
    """In the plane: seen from their parent all neighbours at a node differ by 2π/k."""
    tree = tree_of(0, 0, 0, 1, 1, 1, 1, 4)
    embedding = sarkar(tree, edge_length=6.0)
    d = embedding.distances()
    around = [0, 4, 5, 6, 7]  # node 1's neighbours, in order
    for gap in (1, 2):
        chords = torch.stack([d[around[i], around[(i + gap) % 5]] for i in range(5)])
        angle = 2 * math.pi * gap / 5
        expected = math.acosh(math.cosh(6) ** 2 - math.sinh(6) ** 2 * math.cos(angle))
        torch.testing.assert_close(chords, torch.full((5,), expected).double())


def test_children_keep_their_order_around_the_root() -> None:
    x = sarkar(star(5), edge_length=1.0).lorentz()[1:]
    angle = torch.atan2(x[:, 1], x[:, 0]) % (2 * math.pi)
    torch.testing.assert_close(angle, 2 * math.pi / 5 * torch.arange(5, dtype=torch.float64))


@pytest.mark.parametrize("c", [0.01, 3.0])
def test_curvature_scales_lengths(c: float) -> None:
    one, other = sarkar(binary(4)), sarkar(binary(4), curvature=c)
    assert other.edge_length == pytest.approx(one.edge_length / math.sqrt(c))
    expected = one.distances() / math.sqrt(c)
    torch.testing.assert_close(other.distances(), expected, rtol=1e-13, atol=0)
    exact = float(other.exact_distance(9, 22))
    assert exact == pytest.approx(expected[9, 22].item(), rel=1e-13)


def test_twice_the_bits_change_nothing() -> None:
    tree = load_hierarchy("carnivores").spanning_tree()
    embedding = sarkar(tree)
    wide = sarkar(tree, precision_bits=2 * embedding.precision_bits)
    assert torch.equal(embedding.distances(), wide.distances())
    for i, j in ((1, 100), (60, 61), (130, 5), (0, 130)):
        assert abs(embedding.exact_distance(i, j) - wide.exact_distance(i, j)) < mpf(2) ** -60


def test_rows() -> None:
    embedding = sarkar(binary(4))
    full = embedding.distances()
    rows = torch.tensor([7, 0, 30])
    torch.testing.assert_close(embedding.distances(rows), full[rows], rtol=1e-15, atol=0)
    torch.testing.assert_close(embedding.distances([5]), full[[5]], rtol=1e-15, atol=0)
    torch.testing.assert_close(embedding.radii, full[0], rtol=1e-15, atol=0)
    assert embedding.distances(torch.empty(0, dtype=torch.int64)).shape == (0, 31)
    assert embedding.distances([]).shape == (0, 31)


@pytest.mark.parametrize("edge", [0.3, 0.005])
def test_short_edges_have_no_promise_but_right_distances(edge: float) -> None:
    tree = star(6) if edge > 0.01 else binary(3)
    embedding = sarkar(tree, edge_length=edge)
    if edge > 0.01:
        assert embedding.distortion_bound == math.inf
    with mpmath.workprec(200):
        expected = [[float(d) for d in row] for row in reference_distances(tree, edge)]
    torch.testing.assert_close(
        embedding.distances(), torch.tensor(expected, dtype=torch.float64), rtol=1e-13, atol=1e-18
    )
    torch.testing.assert_close(
        embedding.distances([3]),
        torch.tensor(expected[3:4], dtype=torch.float64),
        rtol=1e-13,
        atol=1e-18,
    )


def test_many_nodes_are_quick_to_measure() -> None:
    """All pairs of 1,200 nodes with 40 neighbours: a fraction of a second, and right."""
    generator = torch.Generator().manual_seed(0)
    parents = [0] * 40 + [
        int(torch.randint(max(0, node - 300), node, (), generator=generator))
        for node in range(41, 1200)
    ]
    embedding = sarkar(tree_of(*parents))
    d = embedding.distances()
    assert embedding.precision_bits > 500
    for i, j in torch.randint(1200, (50, 2), generator=generator).tolist():
        exact = embedding.exact_distance(i, j)
        assert abs(d[i, j].item() - exact) <= 1e-13 * exact


# --- conversion to tensors ------------------------------------------------------------------------


@pytest.mark.parametrize("c", [1.0, 0.2])
@pytest.mark.parametrize("dim", [2, 5])
def test_models_agree_with_the_distances(c: float, dim: int) -> None:
    embedding = sarkar(binary(3), edge_length=2.5, dim=dim, curvature=c)
    d = embedding.distances()
    x, z, v = embedding.lorentz(), embedding.poincare(), embedding.tangent()
    tight = {"rtol": 1e-9, "atol": 1e-9}
    torch.testing.assert_close(lorentz.pairwise_dist(x, x, c), d, **tight)
    torch.testing.assert_close(poincare.pairwise_dist(z, z, c), d, **tight)
    torch.testing.assert_close(lorentz.exp0(v, c), x, **tight)
    torch.testing.assert_close(lorentz.dist0(x, c), embedding.radii)


@pytest.mark.parametrize("model", ["lorentz", "poincare", "tangent"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_rounding_moves_points_by_what_is_stated(model: str, dtype: torch.dtype) -> None:
    c = 0.5
    edge = (4.0 if dtype == torch.float64 else 2.0) / math.sqrt(c)
    ternary = tree_of(*[node // 3 for node in range(360)])
    embedding = sarkar(ternary, edge_length=edge, curvature=c)
    moved = embedding.moved(embedding.convert(model, dtype), model)
    stated = torch.finfo(dtype).eps / 2 * torch.sinh(embedding.radii * math.sqrt(c)) / math.sqrt(c)
    assert bool((moved <= 2 * stated + 1e-15).all())
    assert moved.max() > stated.max() / 20


def test_points_that_may_fall_together_are_announced() -> None:
    embedding = sarkar(comb(10), edge_length=4.5)
    for convert in (embedding.lorentz, embedding.tangent):
        with pytest.warns(PrecisionWarning, match="bits"):
            convert()
    with pytest.raises(ValueError, match="border of the ball"):
        sarkar(star(8), edge_length=45.0).poincare()
    with pytest.raises(ValueError, match="overflow"):
        sarkar(comb(10), edge_length=9.5).lorentz(torch.float32)
    spread = sarkar(comb(10), edge_length=400.0)
    with pytest.warns(PrecisionWarning, match="bits"):
        spread.tangent()  # can be written, of no use
    with pytest.raises(ValueError, match="overflow"):
        spread.lorentz()


def test_what_is_no_point_is_infinitely_far() -> None:
    embedding = sarkar(star(3), edge_length=1.0)
    z = embedding.poincare()
    z[1], z[2, 0] = torch.tensor([1.0, 0.0]), math.nan
    moved = embedding.moved(z, "poincare")
    assert moved.isinf().tolist() == [False, True, True, False]


# --- hierarchies that are not trees ---------------------------------------------------------------


def test_edges_lost_to_the_spanning_tree() -> None:
    dag = diamonds()
    tree = dag.spanning_tree()
    kept = {(tree.labels[i], tree.labels[p]) for i, p in enumerate(tree.parent) if p >= 0}
    lost = {(dag.labels[c], dag.labels[p]) for c, p in lost_edges(dag).tolist()}
    every = {(dag.labels[c], dag.labels[p]) for c, p in dag.edges.tolist()}
    assert lost
    assert lost | kept == every
    assert not lost & kept
    assert len(lost_edges(dag, tree)) == len(lost)


def test_several_trees_lose_nothing() -> None:
    forest = Hierarchy("two", ("a", "b", "c", "d"), torch.tensor([[1, 0], [3, 2]]))
    assert lost_edges(forest).shape == (0, 2)
    embedding = sarkar(forest.spanning_tree())
    assert len(embedding) == 5


# --- the smallest, and bad input ------------------------------------------------------------------


@pytest.mark.parametrize("dim", [2, 4])
def test_one_and_two_nodes(dim: int) -> None:
    alone = sarkar(Tree("one", ("a",), (-1,)), dim=dim)
    assert alone.distances().tolist() == [[0.0]]
    assert alone.lorentz().tolist() == [[0.0] * dim]
    two = sarkar(path(1), dim=dim)
    torch.testing.assert_close(two.distances(), torch.tensor([[0.0, 1], [1, 0]]).double())


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        ({"tree": [0, 1]}, TypeError, "Tree, got list"),
        ({"tree": diamonds()}, TypeError, "spanning_tree"),
        ({"dim": 1}, ValueError, "dim must be at least 2"),
        ({"dim": 2.0}, TypeError, "dim"),
        ({"curvature": 0.0}, ValueError, "curvature"),
        ({"edge_length": -1.0}, ValueError, "edge_length"),
        ({"edge_length": "1"}, TypeError, "edge_length"),
        ({"edge_length": 1e6}, ValueError, "1000000 are the most"),
        ({"max_distortion": 0.0}, ValueError, "max_distortion"),
        ({"max_distortion": 1e-9}, ValueError, "larger dim or max_distortion"),
        ({"max_distortion": 0.1, "edge_length": 1.0}, ValueError, "not both"),
        ({"precision_bits": 53}, ValueError, "at least"),
        ({"precision_bits": True}, TypeError, "precision_bits"),
    ],
)
def test_bad_input(arguments: dict, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        sarkar(**{"tree": binary(3)} | arguments)


def test_bad_rows_and_models() -> None:
    embedding = sarkar(binary(2), edge_length=2.0)
    for rows in ([7], [-1], [0.5], [[1]], [True]):
        with pytest.raises(ValueError, match="rows"):
            embedding.distances(rows)
    with pytest.raises(ValueError, match="model"):
        embedding.convert("klein")
    with pytest.raises(TypeError, match="dtype"):
        embedding.lorentz(torch.int64)
    with pytest.raises(ValueError, match="points"):
        embedding.moved(torch.zeros(3, 2), "lorentz")


def test_the_precision_of_others_is_left_alone() -> None:
    before = mpmath.mp.prec
    sarkar(binary(3)).exact_distance(1, 5)
    assert mpmath.mp.prec == before


def test_import_is_light() -> None:
    code = (
        "import sys, beltrami.models.hierarchy as h;"
        "print([m for m in ('transformers', 'mpmath', 'scipy') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
