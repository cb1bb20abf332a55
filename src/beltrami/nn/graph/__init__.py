"""Layers on graphs: points of a manifold at the nodes, messages along the edges.

A graph is a plain `edge_index`, int64 of shape (2, E), sources in row 0 and targets in row 1, as in
PyTorch Geometric, with optional weights (E,). Layers are called `layer(x, edge_index, edge_weight)`
with points (..., N, d) and work in PyG's `Sequential` as its own do; nothing of PyG is imported.
"""

from beltrami.nn.graph.aggregate import GraphAggregate
from beltrami.nn.graph.attention import GraphAttention
from beltrami.nn.graph.conv import GraphConv
from beltrami.nn.graph.edges import add_self_loops, gcn_norm
from beltrami.nn.graph.tangent import TangentConv

__all__ = [
    "GraphAggregate",
    "GraphAttention",
    "GraphConv",
    "TangentConv",
    "add_self_loops",
    "gcn_norm",
]
