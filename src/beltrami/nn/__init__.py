"""Hyperbolic layers that keep the shapes of their Euclidean twins.

    import beltrami.nn as bnn
    from beltrami.geometry import Lorentz, Euclidean

    layer = bnn.Linear(512, 512, manifold=Lorentz(1.0))      # points (..., 512) to the same
    twin = bnn.Linear(512, 512, manifold=Euclidean())

One class a concept; the manifold is an argument, and `Euclidean()` gives the twin, which is the
limit of the layer as the curvature goes to 0. Points are plain tensors whose last dimension holds
their coordinates (the space part, in the Lorentz model), so a layer's input and output have the
shapes that they have in an ordinary network.
"""

from beltrami.geometry.manifold import check_model
from beltrami.nn.attention import Attention
from beltrami.nn.batchnorm import BatchNorm
from beltrami.nn.borders import Lift, Lower
from beltrami.nn.cache import KVCache
from beltrami.nn.change import ChangeCurvature
from beltrami.nn.classifiers import MLR, DistanceClassifier
from beltrami.nn.conv import Conv1d, Conv2d
from beltrami.nn.embedding import Embedding
from beltrami.nn.graph import (
    GraphAggregate,
    GraphAttention,
    GraphConv,
    TangentConv,
    add_self_loops,
    gcn_norm,
)
from beltrami.nn.layer import Layer
from beltrami.nn.linear import Linear
from beltrami.nn.linear_attention import LinearAttention
from beltrami.nn.mlp import MLP
from beltrami.nn.norm import LayerNorm, RMSNorm
from beltrami.nn.patch import PatchEmbedding
from beltrami.nn.pointwise import Activation, Dropout
from beltrami.nn.pool import Pool
from beltrami.nn.positions import LearnedPositions, Rotary
from beltrami.nn.residual import Residual
from beltrami.nn.sequential import Sequential, check_chain
from beltrami.nn.transformer import TransformerBlock

__all__ = [
    "MLP",
    "MLR",
    "Activation",
    "Attention",
    "BatchNorm",
    "ChangeCurvature",
    "Conv1d",
    "Conv2d",
    "DistanceClassifier",
    "Dropout",
    "Embedding",
    "GraphAggregate",
    "GraphAttention",
    "GraphConv",
    "KVCache",
    "Layer",
    "LayerNorm",
    "LearnedPositions",
    "Lift",
    "Linear",
    "LinearAttention",
    "Lower",
    "PatchEmbedding",
    "Pool",
    "RMSNorm",
    "Residual",
    "Rotary",
    "Sequential",
    "TangentConv",
    "TransformerBlock",
    "add_self_loops",
    "check_chain",
    "check_model",
    "gcn_norm",
]
