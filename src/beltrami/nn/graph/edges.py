"""The edges of a graph as layers take them: checks, self loops, symmetric normalisation."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from beltrami.geometry.checks import debugging
from beltrami.kernels.launch.dtypes import accumulation_dtype
from beltrami.nn.graph.scatter import scatter_sum


class Edges(NamedTuple):
    """Where messages start and end, (E,) each, and what they weigh, (E,)."""

    source: Tensor
    target: Tensor
    weight: Tensor


def read_edges(
    x: Tensor, edge_index: Any, edge_weight: Tensor | None, layer: str, *, self_loops: bool = False
) -> Edges:
    """The edges among the nodes of x, (..., N, d), checked; weights are 1 unless given.

    Args:
        x: points at the nodes.
        edge_index: int64 (2, E), or a sparse adjacency matrix with targets as its rows (PyG's
            `adj_t`): a sparse tensor of torch, or anything with a method `coo()` that returns
            rows, columns and values or None (torch_sparse's `SparseTensor`).
        edge_weight: (E,), not negative; not with an adjacency matrix, whose values are the weights.
        layer: for errors.
        self_loops: whether nodes that have no edge to themselves get one.
    """
    if x.ndim < 2:
        raise ValueError(
            f"{layer} takes the points of all nodes, x of shape (..., N, d), got {tuple(x.shape)}"
        )
    dtype = accumulation_dtype(x.dtype)
    edge_index, edge_weight = _unpack(edge_index, edge_weight, layer)
    nodes = x.shape[-2]
    check_edges(edge_index, edge_weight, nodes, layer)
    if edge_index.device != x.device:
        raise ValueError(
            f"{layer}: x is on {x.device} but edge_index is on {edge_index.device}: move one"
        )
    if edge_weight is not None:
        edge_weight = edge_weight.to(dtype)
    if self_loops:
        edge_index, edge_weight = add_self_loops(edge_index, edge_weight, nodes)
    source, target = edge_index.unbind(0)
    weight = torch.ones_like(source, dtype=dtype) if edge_weight is None else edge_weight
    return Edges(source, target, weight.to(dtype))


def _unpack(edge_index: Any, edge_weight: Tensor | None, layer: str) -> tuple[Any, Tensor | None]:
    """An adjacency matrix, if it is one, as (2, E) and weights."""
    is_tensor = isinstance(edge_index, Tensor)
    sparse = is_tensor and edge_index.layout != torch.strided
    if not sparse and (is_tensor or not hasattr(edge_index, "coo")):
        return edge_index, edge_weight
    if edge_weight is not None:
        raise ValueError(
            f"{layer}: edge_weight was given together with an adjacency matrix; put the weights "
            "into the matrix"
        )
    if sparse:
        matrix = edge_index.to_sparse_coo().coalesce()
        row, column = matrix.indices().unbind(0)
        value = matrix.values()
    else:
        row, column, value = edge_index.coo()
    return torch.stack([column, row]), value


def check_edges(edge_index: Any, edge_weight: Tensor | None, nodes: int, layer: str) -> None:
    """Raise unless these are edges among `nodes` nodes.

    Node numbers are looked at where that costs no waiting for a device: on a CPU, or in `debug`.
    """
    if not isinstance(edge_index, Tensor):
        raise TypeError(
            f"{layer}: edge_index must be an int64 tensor of shape (2, E), got "
            f"{type(edge_index).__name__}"
        )
    if edge_index.dtype != torch.int64:
        raise TypeError(f"{layer}: edge_index must be int64, got {edge_index.dtype}: use .long()")
    if edge_index.ndim != 2 or edge_index.shape[0] != 2:
        hint = ""
        if edge_index.ndim == 2 and edge_index.shape[1] == 2:
            hint = ": use edge_index.t()"
        raise ValueError(
            f"{layer}: edge_index must have shape (2, E), sources above targets, got "
            f"{tuple(edge_index.shape)}{hint}"
        )
    if edge_weight is not None:
        if not edge_weight.is_floating_point():
            raise TypeError(f"{layer}: edge_weight must be floating point, got {edge_weight.dtype}")
        if edge_weight.shape != edge_index.shape[1:]:
            raise ValueError(
                f"{layer}: edge_weight must have shape (E,) = ({edge_index.shape[1]},), got "
                f"{tuple(edge_weight.shape)}"
            )
    if torch.compiler.is_compiling() or not (edge_index.device.type == "cpu" or debugging()):
        return
    if edge_index.numel():
        low, high = (int(i) for i in edge_index.aminmax())
        if low < 0 or high >= nodes:
            raise ValueError(
                f"{layer}: edge_index must hold node numbers from 0 to {nodes - 1}, the rows of x; "
                f"got {low if low < 0 else high}"
            )
    if edge_weight is not None and debugging() and bool((edge_weight < 0).any()):
        raise ValueError(
            f"{layer}: edge_weight must not be negative, got {edge_weight.min().item()}"
        )


def add_self_loops(
    edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int
) -> tuple[Tensor, Tensor]:
    """The edges and one loop a node, (2, E + N) and (E + N,).

    A node that has a loop already keeps it: the one added to it has weight 0, which counts as no
    edge everywhere here. So the result has the same shape for all graphs of equal size, and nothing
    waits for a device.
    """
    source, target = edge_index.unbind(0)
    if edge_weight is None:
        edge_weight = torch.ones(
            edge_index.shape[1], dtype=torch.get_default_dtype(), device=edge_index.device
        )
    loops = scatter_sum((source == target).to(edge_weight.dtype), target, num_nodes)
    node = torch.arange(num_nodes, device=edge_index.device)
    added = (loops == 0).to(edge_weight.dtype)
    return (
        torch.cat([edge_index, torch.stack([node, node])], dim=1),
        torch.cat([edge_weight, added]),
    )


def gcn_norm(
    edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int, *, self_loops: bool = True
) -> tuple[Tensor, Tensor]:
    """Edges with the weights `w/√(dᵢ·dⱼ)` of a GCN (Kipf and Welling 2017), after adding loops.

    dᵢ is the sum of the weights of the edges into i; at a node without any it counts as infinite.
    """
    if self_loops:
        edge_index, edge_weight = add_self_loops(edge_index, edge_weight, num_nodes)
    elif edge_weight is None:
        edge_weight = torch.ones(
            edge_index.shape[1], dtype=torch.get_default_dtype(), device=edge_index.device
        )
    return edge_index, symmetric(Edges(edge_index[0], edge_index[1], edge_weight), num_nodes)


def symmetric(edges: Edges, num_nodes: int) -> Tensor:
    """The weights of `gcn_norm`, for edges as they are."""
    source, target, weight = edges
    degree = scatter_sum(weight, target, num_nodes)
    reached = degree > 0
    share = torch.where(reached, torch.where(reached, degree, 1.0).rsqrt(), 0.0)
    return weight * share.index_select(0, source) * share.index_select(0, target)
