"""With PyTorch Geometric, where it is installed."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import beltrami.nn as bnn
from beltrami.geometry import Euclidean, Lorentz

pytestmark = pytest.mark.filterwarnings("ignore")  # of another library
pyg = pytest.importorskip("torch_geometric", reason="PyTorch Geometric is not installed")


@pytest.fixture
def data() -> object:
    g = torch.Generator().manual_seed(0)
    index = torch.randint(6, (2, 14), generator=g)
    return pyg.data.Data(
        x=torch.randn(6, 4, generator=g),
        edge_index=index[:, index[0] != index[1]].unique(dim=1).contiguous(),
    )


def test_flat_layer_is_theirs(data: object) -> None:
    theirs = pyg.nn.GCNConv(4, 5)
    ours = bnn.GraphConv(4, 5, manifold=Euclidean(), form="hgcn", norm="symmetric", bias=False)
    ours.load_state_dict({"linear.weight": theirs.lin.weight.detach()})
    torch.testing.assert_close(ours(data.x, data.edge_index), theirs(data.x, data.edge_index))
    dense = [
        pyg.utils.to_dense_adj(edges, edge_attr=weight, max_num_nodes=6)
        for edges, weight in (
            bnn.gcn_norm(data.edge_index, None, 6),
            pyg.nn.conv.gcn_conv.gcn_norm(data.edge_index, None, 6),
        )
    ]
    torch.testing.assert_close(*dense)


def test_their_sequential_and_ours(data: object) -> None:
    H = Lorentz(1.0)
    layers = [
        bnn.Lift(4, manifold=H),
        bnn.GraphConv(4, 8, manifold=H),
        bnn.TangentConv(pyg.nn.GATv2Conv(8, 8), manifold=H),
        bnn.GraphAttention(8, 3, manifold=H),
    ]
    steps = [(layers[0], "x -> x"), *((layer, "x, edge_index -> x") for layer in layers[1:])]
    net = pyg.nn.Sequential("x, edge_index", steps)
    x = layers[0](data.x)
    for layer in layers[1:]:
        x = layer(x, data.edge_index)
    torch.testing.assert_close(net(data.x, data.edge_index), x)
    net(data.x, data.edge_index).sum().backward()
    assert all(p.grad is not None for p in net.parameters())


def test_their_layers_in_the_tangent_space(data: object) -> None:
    H, theirs = Lorentz(0.5), pyg.nn.SAGEConv(4, 5)
    layer: nn.Module = bnn.TangentConv(theirs, manifold=H)
    x = H.exp0(data.x)
    torch.testing.assert_close(
        layer(x, data.edge_index), H.exp0(theirs(H.log0(x), data.edge_index))
    )


def test_their_adjacency_matrix(data: object) -> None:
    layer = bnn.GraphConv(4, 5, manifold=Lorentz(1.0))
    expected = layer(data.x, data.edge_index)
    moved = pyg.transforms.ToSparseTensor()(data.clone())
    torch.testing.assert_close(layer(data.x, moved.adj_t), expected)
    index = pyg.EdgeIndex(data.edge_index, sparse_size=(6, 6))
    torch.testing.assert_close(layer(data.x, index), expected)
