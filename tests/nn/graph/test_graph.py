"""Layers on graphs against dense formulas, their symmetries, isolated nodes, and bad input."""

from __future__ import annotations

import copy
import itertools
import math

import pytest
import torch
from torch import Tensor, nn

import beltrami
import beltrami.nn as bnn
from beltrami.geometry import Curvature, Euclidean, Lorentz, Manifold, PoincareBall, lorentz
from beltrami.nn.graph.scatter import edge_softmax

MANIFOLDS = [Lorentz(0.7), PoincareBall(0.7), Euclidean()]
FORMS = ("centroid", "origin", "local")
NODES, SIZE = 9, 4


def random_graph(seed: int = 0, edges: int = 20) -> tuple[Tensor, Tensor]:
    """Directed edges without loops among nodes 0..7, and weights; node 8 is isolated."""
    g = torch.Generator().manual_seed(seed)
    every = torch.tensor([(i, j) for i in range(8) for j in range(8) if i != j]).t()
    index = every[:, torch.randperm(every.shape[1], generator=g)[:edges]]
    return index, torch.rand(edges, generator=g, dtype=torch.float64) + 0.1


def points(manifold: Manifold, seed: int = 0, std: float = 0.8) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return manifold.random(NODES, SIZE, std=std, dtype=torch.float64, generator=g)


def adjacency(index: Tensor, weight: Tensor, *, loops: bool) -> Tensor:
    """A[i, j] is the weight of the edge from j to i."""
    a = torch.zeros(NODES, NODES, dtype=torch.float64)
    a.index_put_((index[1], index[0]), weight, accumulate=True)
    return a + torch.eye(NODES, dtype=torch.float64) * (a.diagonal() == 0) if loops else a


def randomised(layer: nn.Module, std: float = 0.4) -> nn.Module:
    with torch.no_grad():
        for p in layer.parameters():
            p.normal_(std=std)
    return layer.double()


def a_rotation() -> Tensor:
    return torch.linalg.qr(torch.randn(SIZE, SIZE, dtype=torch.float64))[0]


def layers(manifold: Manifold) -> list[nn.Module]:
    made: list[nn.Module] = [bnn.GraphAggregate(manifold=manifold, form=form) for form in FORMS]
    forms = ("hgcn",) if isinstance(manifold, PoincareBall) else ("htc", "hybonet", "hgcn")
    made += [bnn.GraphConv(SIZE, 6, manifold=manifold, form=form) for form in forms]
    if not isinstance(manifold, PoincareBall):
        made += [bnn.GraphAttention(SIZE, 6, 2, manifold=manifold)]
    return [randomised(layer) for layer in made]


# --- the mean of the neighbours -------------------------------------------------------------------


@pytest.mark.parametrize("manifold", MANIFOLDS, ids=repr)
@pytest.mark.parametrize("loops", [True, False])
def test_centroid_is_that_of_each_neighbourhood(manifold: Manifold, loops: bool) -> None:
    x = points(manifold)
    index, weight = random_graph()
    layer = bnn.GraphAggregate(manifold=manifold, self_loops=loops)
    a = adjacency(index, weight, loops=loops)
    some = a.sum(1) > 0
    expected = manifold.centroid(x.expand(NODES, NODES, SIZE)[some], a[some])
    out = layer(x, index, weight)
    torch.testing.assert_close(out[some], expected)
    assert not out[~some].any()
    assert some.all() == loops


@pytest.mark.parametrize("manifold", MANIFOLDS, ids=repr)
@pytest.mark.parametrize("norm", ["mean", "symmetric"])
@pytest.mark.parametrize("form", ["origin", "local"])
def test_tangent_means_are_the_formula(manifold: Manifold, norm: str, form: str) -> None:
    x = points(manifold)
    index, weight = random_graph()
    a = adjacency(index, weight, loops=True)
    degree = a.sum(1)
    a = a / degree[:, None] if norm == "mean" else a / (degree[:, None] * degree).sqrt()
    if form == "origin":
        expected = manifold.exp0(a @ manifold.log0(x))
    else:
        logs = manifold.log(x[:, None], x[None])  # (target, source, d)
        expected = manifold.exp(x, (a.unsqueeze(-1) * logs).sum(1))
    layer = bnn.GraphAggregate(manifold=manifold, form=form, norm=norm)
    torch.testing.assert_close(layer(x, index, weight), expected)


@pytest.mark.parametrize("form", ["centroid", "local"])
def test_means_commute_with_every_isometry(form: str) -> None:
    c = 0.7
    x, rotation = points(Lorentz(c)), a_rotation()
    way = torch.randn(SIZE, dtype=torch.float64)
    index, weight = random_graph()
    layer = bnn.GraphAggregate(manifold=Lorentz(c), form=form)

    def move(y: Tensor) -> Tensor:
        return lorentz.boost(lorentz.rotate(y, rotation), way, c)

    torch.testing.assert_close(layer(move(x), index, weight), move(layer(x, index, weight)))


@pytest.mark.parametrize("manifold", MANIFOLDS, ids=repr)
@pytest.mark.parametrize("form", FORMS)
def test_means_commute_with_rotations(manifold: Manifold, form: str) -> None:
    x, rotation = points(manifold), a_rotation()
    index, weight = random_graph()
    layer = bnn.GraphAggregate(manifold=manifold, form=form)
    torch.testing.assert_close(
        layer(x @ rotation.t(), index, weight), layer(x, index, weight) @ rotation.t()
    )


@pytest.mark.parametrize(("radius", "error"), [(6.0, 1e-3), (8.0, 0.05), (20.0, 60.0)])
def test_local_mean_keeps_its_digits_far_out(radius: float, error: float) -> None:
    """Up to what rounding the points costs, and finite with its gradients."""
    v = torch.nn.functional.normalize(torch.randn(100, 8, dtype=torch.float64), dim=-1)
    x = (math.sinh(radius) * v).float().requires_grad_()
    index = torch.randint(0, 100, (2, 400))
    layer = bnn.GraphAggregate(manifold=Lorentz(1.0), form="local")
    y = layer(x, index)
    assert lorentz.dist(y.double(), layer(x.detach().double(), index)).median() < error
    lorentz.dist0(y).sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_centroid_keeps_its_digits_far_out(dtype: torch.dtype) -> None:
    """Where `t² − |x|²` of the sum has none left: against the same in float64, and `centroid`."""
    index, weight = random_graph()
    g = torch.Generator().manual_seed(3)
    v = torch.randn(NODES, SIZE, generator=g, dtype=torch.float64) * 0.05
    v[:, 0] += 12.0  # a bundle at distance 12: coordinates of 1e5, and squares of 1e10
    x = lorentz.exp0(v, 1.0).to(dtype).requires_grad_()
    layer = bnn.GraphAggregate(manifold=Lorentz(1.0))
    out = layer(x, index, weight.to(dtype))
    a = adjacency(index, weight, loops=True).to(dtype)
    expected = lorentz.centroid(x.double().expand(NODES, NODES, SIZE), a.double(), 1.0)
    # A norm taken as t² − |x|² would be wrong in its first digit in float32.
    off = (out.double() - expected).norm(dim=-1) / expected.norm(dim=-1)
    assert off.max() < 20 * torch.finfo(dtype).eps
    out.sum().backward()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("curved", [True, False])
def test_centroid_has_the_gradient_of_its_formula(curved: bool) -> None:
    index, weight = random_graph()
    curvature = Curvature(0.7).double() if curved else None
    manifold = Lorentz(curvature) if curvature is not None else Euclidean()
    layer = bnn.GraphAggregate(manifold=manifold)
    for std in (0.3, 3.0):  # near the origin, and where the sums are split
        x = points(Lorentz(0.7), std=std)

        def f(x: Tensor, weight: Tensor) -> Tensor:
            return layer(x, index, weight)

        given = x.requires_grad_(), weight.clone().requires_grad_()
        assert torch.autograd.gradcheck(f, given, rtol=1e-4)
        if curvature is not None:
            assert torch.autograd.gradcheck(lambda raw, x=x: f(x, weight), (curvature.raw,))


# --- convolutions ---------------------------------------------------------------------------------


def test_flat_symmetric_convolution_is_a_gcn() -> None:
    """`D^-½(A + I)D^-½·(XWᵀ + b)`, Kipf and Welling 2017."""
    layer = randomised(
        bnn.GraphConv(
            SIZE, 6, manifold=Euclidean(), form="hgcn", norm="symmetric", activation="relu"
        )
    )
    index, _ = random_graph()
    index = torch.cat([index, index.flip(0)], 1).unique(dim=1)
    x = points(Euclidean())
    a = adjacency(index, torch.ones(index.shape[1], dtype=torch.float64), loops=True)
    scale = a.sum(1).rsqrt()
    dense = scale[:, None] * a * scale
    expected = torch.relu(dense @ (x @ layer.linear.weight.t() + layer.linear.bias))
    torch.testing.assert_close(layer(x, index), expected)


@pytest.mark.parametrize("form", ["htc", "hybonet", "hgcn"])
def test_convolution_is_its_parts(form: str) -> None:
    manifold = Lorentz(0.7)
    x, (index, weight) = points(manifold), random_graph()
    layer = randomised(bnn.GraphConv(SIZE, 6, manifold=manifold, form=form, activation="tanh"))
    y = layer.aggregate(layer.linear(x), index, weight)
    expected = manifold.exp0(manifold.log0(y).tanh()) if form == "hgcn" else y.tanh()
    torch.testing.assert_close(layer(x, index, weight), expected)
    assert layer.linear.form == ("mobius" if form == "hgcn" else form)
    assert layer.aggregate.form == ("origin" if form == "hgcn" else "centroid")


def test_output_may_have_another_curvature() -> None:
    a, b, ball = Lorentz(1.0), Lorentz(0.25), PoincareBall(2.0)
    x, (index, _) = points(a), random_graph()
    for form, target in itertools.product(("htc", "hgcn"), (b, ball)):
        layer = randomised(bnn.GraphConv(SIZE, 6, manifold=a, manifold_out=target, form=form))
        same = copy.deepcopy(layer)
        same.change = None
        assert layer.manifold_out is target
        before, after = a.dist0(same(x, index)), target.dist0(layer(x, index))
        ratio = math.sqrt(a.c / target.c) if form == "htc" else 1.0  # √c·d is kept, or d
        torch.testing.assert_close(after, before * ratio)
    with pytest.raises(ValueError, match=r"GraphConv.*Lift"):
        bnn.check_chain(layer, bnn.Linear(6, 6, manifold=a))
    with pytest.raises(TypeError, match="use Lower"):
        bnn.GraphConv(SIZE, 6, manifold=a, manifold_out=Euclidean())


# --- attention ------------------------------------------------------------------------------------


@pytest.mark.parametrize("manifold", [Lorentz(0.7), Euclidean()], ids=repr)
@pytest.mark.parametrize(("score", "aggregate"), [("distance", "centroid"), ("dot", "mean")])
def test_attention_on_a_complete_graph_is_attention(
    manifold: Manifold, score: str, aggregate: str
) -> None:
    options = {"manifold": manifold, "score": score, "aggregate": aggregate}
    dense = randomised(bnn.Attention(SIZE, 2, **options))
    layer = bnn.GraphAttention(SIZE, SIZE, 2, **options).double()
    layer.load_state_dict(dense.state_dict())
    nodes = torch.arange(NODES)
    index = torch.cartesian_prod(nodes, nodes).t()
    x = points(manifold)
    torch.testing.assert_close(layer(x, index), dense(x.unsqueeze(0)).squeeze(0))


def test_attention_looks_where_edges_are() -> None:
    """A mask of `Attention` is a graph."""
    manifold = Lorentz(0.7)
    dense = randomised(bnn.Attention(SIZE, 2, manifold=manifold))
    layer = bnn.GraphAttention(SIZE, SIZE, 2, manifold=manifold, self_loops=False).double()
    layer.load_state_dict(dense.state_dict())
    index, weight = random_graph()
    mask = adjacency(index, weight, loops=False) > 0  # node 8 looks nowhere
    x = points(manifold)
    expected = dense(x.unsqueeze(0), mask=mask).squeeze(0)
    torch.testing.assert_close(layer(x, index), expected)
    # An edge twice has twice the weight, and weight 0 is not an edge, whatever its score.
    twice = torch.cat([index, index[:, :4]], 1)
    weights = torch.ones(index.shape[1], dtype=torch.float64)
    weights[:4] = 2
    torch.testing.assert_close(layer(x, twice), layer(x, index, weights))
    more = torch.cat([index, torch.arange(NODES).expand(2, -1)], 1)
    zeros = torch.cat([torch.ones_like(weights), torch.zeros(NODES, dtype=torch.float64)])
    torch.testing.assert_close(layer(x, more, zeros), expected)


def test_softmax_over_edges() -> None:
    target = torch.tensor([0, 0, 2, 2, 2])
    scores = torch.tensor([1e4, 1e4 + 1, -1e4, -1e4, 5e4], requires_grad=True)
    weight = torch.tensor([1.0, 1.0, 1.0, 3.0, 0.0])
    shares = edge_softmax(scores, weight, target, 4)
    first = torch.tensor([1e4, 1e4 + 1]).softmax(0)
    torch.testing.assert_close(shares, torch.tensor([*first, 0.25, 0.75, 0.0]))
    shares[0].backward()
    assert scores.grad.isfinite().all()
    torch.testing.assert_close(scores.grad[0], first[0] * first[1])


# --- what holds for all ---------------------------------------------------------------------------


@pytest.mark.parametrize("manifold", MANIFOLDS, ids=repr)
def test_numbering_of_nodes_and_order_of_edges_do_not_matter(manifold: Manifold) -> None:
    x, (index, weight) = points(manifold), random_graph()
    nodes, edges = torch.randperm(NODES), torch.randperm(index.shape[1])
    place = torch.argsort(nodes)  # old number to new
    for layer in layers(manifold):
        out = layer(x, index, weight)
        moved = layer(x[nodes], place[index[:, edges]], weight[edges])
        torch.testing.assert_close(moved, out[nodes])
        assert torch.equal(layer(x, index, weight), out)  # the same bits at each call


@pytest.mark.parametrize("manifold", MANIFOLDS, ids=repr)
def test_isolated_nodes(manifold: Manifold) -> None:
    """With loops a node alone is its own mean; without any edge nothing is NaN."""
    x = points(manifold).requires_grad_()
    none = torch.empty(2, 0, dtype=torch.int64)
    for form in FORMS:
        layer = bnn.GraphAggregate(manifold=manifold, form=form)
        torch.testing.assert_close(layer(x, none), x)
        bare = bnn.GraphAggregate(manifold=manifold, form=form, self_loops=False)
        expected = x if form == "local" else torch.zeros_like(x)
        torch.testing.assert_close(bare(x, none), expected)
    for layer in layers(manifold):
        out = layer(x, none)
        assert out.isfinite().all()
        (g,) = torch.autograd.grad(out.square().sum(), x)
        assert g.isfinite().all()
        assert layer(x[:0], none).shape == (0, out.shape[-1])


def test_a_curvature_that_is_learned_gets_its_gradient() -> None:
    curvature = Curvature(1.0)
    x, (index, _) = points(Lorentz(1.0)).float(), random_graph()
    for layer in (
        bnn.GraphAggregate(manifold=Lorentz(curvature)),
        bnn.GraphConv(SIZE, 6, manifold=Lorentz(curvature), time=False),
        bnn.GraphAttention(SIZE, 6, 2, manifold=Lorentz(curvature), time=False),
    ):
        curvature.raw.grad = None
        layer(x, index).square().sum().backward()
        assert curvature.raw.grad.abs() > 1e-6


# --- edges ----------------------------------------------------------------------------------------


def test_self_loops_are_added_where_there_are_none() -> None:
    index = torch.tensor([[0, 1, 1], [1, 1, 2]])
    edges, weight = bnn.add_self_loops(index, None, 4)
    assert edges.tolist() == [[0, 1, 1, 0, 1, 2, 3], [1, 1, 2, 0, 1, 2, 3]]
    assert weight.tolist() == [1, 1, 1, 1, 0, 1, 1]


def test_symmetric_weights() -> None:
    index = torch.tensor([[0, 1, 2], [1, 2, 1]])
    given = torch.tensor([2.0, 3.0, 4.0])
    edges, weight = bnn.gcn_norm(index, given, 4, self_loops=False)
    assert torch.equal(edges, index)
    degree = torch.tensor([0.0, 6.0, 3.0, 0.0])  # node 0 has no edge in, so its messages weigh 0
    torch.testing.assert_close(
        weight, torch.tensor([0.0, *(given[1:] / (degree[1] * degree[2]).sqrt())])
    )
    _, looped = bnn.gcn_norm(index, None, 4)
    torch.testing.assert_close(looped[:3], torch.tensor([3**-0.5, 6**-0.5, 6**-0.5]))


class Coo:
    """Stands in for torch_sparse's SparseTensor."""

    def __init__(self, matrix: Tensor) -> None:
        self.matrix = matrix.coalesce()

    def coo(self) -> tuple[Tensor, Tensor, Tensor]:
        return *self.matrix.indices().unbind(0), self.matrix.values()


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_adjacency_matrices_have_targets_as_rows() -> None:
    x, (index, weight) = points(Lorentz(1.0)), random_graph()
    layer = randomised(bnn.GraphConv(SIZE, 6, manifold=Lorentz(1.0)))
    expected = layer(x, index, weight)
    matrix = torch.sparse_coo_tensor(index.flip(0), weight, (NODES, NODES), check_invariants=True)
    for adjacent in (matrix, matrix.to_sparse_csr(), Coo(matrix)):
        torch.testing.assert_close(layer(x, adjacent), expected)
    with pytest.raises(ValueError, match="edge_weight was given together with an adjacency"):
        layer(x, matrix, weight)


BAD = {
    "a list": ([[0], [1]], None, TypeError, "int64 tensor of shape \\(2, E\\), got list"),
    "int32": (torch.zeros(2, 3, dtype=torch.int32), None, TypeError, "int32: use .long"),
    "rows": (torch.zeros(3, 2).long(), None, ValueError, "\\(3, 2\\): use edge_index.t"),
    "a vector": (torch.zeros(4).long(), None, ValueError, "\\(4,\\)"),
    "a node too many": (torch.tensor([[0], [9]]), None, ValueError, "from 0 to 8.*got 9"),
    "a negative node": (torch.tensor([[-1], [0]]), None, ValueError, "got -1"),
    "weights of integers": (
        torch.zeros(2, 1).long(),
        torch.ones(1).long(),
        TypeError,
        "edge_weight must be floating point",
    ),
    "too many weights": (
        torch.zeros(2, 1).long(),
        torch.ones(2),
        ValueError,
        "edge_weight must have shape \\(E,\\) = \\(1,\\), got \\(2,\\)",
    ),
}


@pytest.mark.parametrize(("index", "weight", "error", "says"), BAD.values(), ids=BAD)
def test_bad_edges(index: Tensor, weight: Tensor | None, error: type[Exception], says: str) -> None:
    x = torch.zeros(NODES, SIZE)
    for layer in (
        bnn.GraphAggregate(manifold=Lorentz(1.0)),
        bnn.GraphConv(SIZE, 4, manifold=Lorentz(1.0)),
        bnn.GraphAttention(SIZE, 4, manifold=Lorentz(1.0)),
    ):
        with pytest.raises(error, match=f"^{type(layer).__name__}.*{says}"):
            layer(x, index, weight)


def test_bad_arguments() -> None:
    H, none = Lorentz(1.0), torch.empty(2, 0, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"GraphAggregate takes the points of all nodes.*\(4,\)"):
        bnn.GraphAggregate(manifold=H)(torch.zeros(4), none)
    with pytest.raises(
        ValueError, match="form must be one of 'centroid', 'origin', 'local'; got 'sum'"
    ):
        bnn.GraphAggregate(manifold=H, form="sum")
    with pytest.raises(ValueError, match="norm must be one of 'mean', 'symmetric'; got 'max'"):
        bnn.GraphAggregate(manifold=H, norm="max")
    with pytest.raises(ValueError, match=r"GraphConv on PoincareBall.*hgcn'; got 'htc'"):
        bnn.GraphConv(4, 4, manifold=PoincareBall(1.0), form="htc")
    with pytest.raises(ValueError, match="heads=3 must divide out_features=4"):
        bnn.GraphAttention(4, 4, 3, manifold=H)
    with pytest.raises(TypeError, match=r"TangentConv: module must be an nn\.Module, got function"):
        bnn.TangentConv(lambda x: x, manifold=H)
    weight = torch.tensor([-1.0])
    with beltrami.debug(), pytest.raises(ValueError, match=r"must not be negative, got -1\.0"):
        bnn.GraphAggregate(manifold=H)(torch.zeros(2, 4), torch.zeros(2, 1).long(), weight)
