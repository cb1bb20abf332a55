"""The default model written out by hand, slowly, on points with their times."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

import beltrami.nn as bnn
from beltrami.geometry import Lorentz, lorentz
from beltrami.models.helm.model import HelmDecoderLayer
from tests.models.helm.variants import assert_near, logits, tokens, trained


def ambient(x: Tensor, c: float) -> Tensor:
    """(time, space)."""
    return torch.cat([lorentz.time(x, c, keepdim=True), x], -1)


def lorentz_length(z: Tensor) -> Tensor:
    """|z|_L = √(t² − |s|²)."""
    return (z[..., :1] ** 2 - z[..., 1:].square().sum(-1, keepdim=True)).sqrt()


def residual(x: Tensor, y: Tensor, w: float, c: float) -> Tensor:
    x, y = ambient(x, c), ambient(y, c)
    z = x + w * y
    excess = x[..., :1] - 1 / math.sqrt(c)
    gamma = (1 + w) * (1 + 2 * w / (1 + w) ** 2 * excess * math.sqrt(c)).sqrt()
    return (gamma * z / (math.sqrt(c) * lorentz_length(z)))[..., 1:]


def norm(x: Tensor, weight: Tensor) -> Tensor:
    return weight * x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()


def timed(x: Tensor, weight: Tensor, time: Tensor, c: float) -> Tensor:
    excess = lorentz.time(x, c, keepdim=True) - 1 / math.sqrt(c)
    return x @ weight.mT + excess * time


def rotated(x: Tensor) -> Tensor:
    """Pairs (i, i + size/2) turned by position·10000^(−2i/size); angles are float32."""
    length, size = x.shape
    frequencies = 10000.0 ** -(torch.arange(0, size, 2).float() / size)
    angles = torch.arange(length).float()[:, None] * frequencies
    cos, sin = angles.cos().double(), angles.sin().double()
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def attention(layer: HelmDecoderLayer, x: Tensor, c: float, head_c: float) -> Tensor:
    part = layer.self_attn
    size, heads = part.score_size, 4
    q, k, v = (
        (x @ p.weight.mT).unflatten(-1, (heads, size))
        for p in (part.q_proj, part.k_proj, part.v_proj)
    )
    points = []
    for head in range(heads):
        queries, keys = rotated(q[:, head]), rotated(k[:, head])
        sigma = part.log_scale[head].exp()
        for t in range(len(x)):
            chords = lorentz.chord_sq(queries[t], keys[: t + 1], head_c)
            weights = (-chords / sigma).softmax(-1)
            points.append(lorentz.centroid(v[: t + 1, head], weights, head_c))
    out = torch.stack(points).unflatten(0, (heads, len(x))).transpose(0, 1).flatten(1)
    return timed(out, part.o_proj.weight, part.o_time, c)


def mlp(layer: HelmDecoderLayer, x: Tensor, c: float) -> Tensor:
    part = layer.mlp
    hidden = F.silu(x @ part.gate_proj.weight.mT) * (x @ part.up_proj.weight.mT)
    return timed(hidden, part.down_proj.weight, part.down_time, c)


@torch.no_grad()
def test_the_default_model_by_hand() -> None:
    model = trained()
    ids = tokens(1, 7)
    c, head_c = (m.value.item() for m in (model.model.curvature, model.model.head_curvature))
    x = model.model.embed_tokens.weight[ids[0]]
    for layer in model.model.layers:
        y = attention(layer, norm(x, layer.input_layernorm.weight), c, head_c)
        x = residual(x, y, layer.attention_residual.log_weight.exp().item(), c)
        y = mlp(layer, norm(x, layer.post_attention_layernorm.weight), c)
        x = residual(x, y, layer.mlp_residual.log_weight.exp().item(), c)
    x = norm(x, model.model.norm.weight)
    words = model.config.vocab_size
    scores = bnn.MLR(32, words, manifold=Lorentz(model.word_scores.curvature.value.item())).double()
    scores.weight.copy_(model.lm_head.weight)
    scores.offset.copy_(model.word_scores.offset)
    assert_near(logits(model, ids)[0], scores(x), 1e-10)


@torch.no_grad()
def test_tied_scores_by_hand() -> None:
    model = trained("tied")
    h = model.model(tokens()).last_hidden_state
    c = model.model.curvature.value.item()
    points = model.get_input_embeddings().weight
    apart = lorentz.dist(h[..., None, :], points, c).square()
    expected = -apart / model.word_scores.log_temperature.exp()
    assert_near(logits(model, tokens()), expected, 1e-10)


@torch.no_grad()
def test_hyperplane_columns_by_hand() -> None:
    """Coordinates of an output are signed distances, through sinh, times the row's length."""
    model = trained("hyperplane")
    part, c = model.model.layers[0].mlp, model.model.curvature.value.item()
    h = torch.randn(5, 48, dtype=torch.float64)
    rows, offset = part.down_proj.weight, part.down_offset
    length = rows.norm(dim=-1)
    plane = math.sqrt(c) * offset / length
    time = lorentz.time(h, c, keepdim=True)
    expected = torch.cosh(plane) * (h @ rows.mT) - length * torch.sinh(plane) * time
    assert_near(part.project(h, "down")[0], expected, 1e-12)


@torch.no_grad()
def test_radius_input_by_hand() -> None:
    model = trained("radius")
    layer, c = model.model.layers[0], model.model.curvature.value.item()
    x = model.model.embed_tokens(tokens())
    radius = math.sqrt(c) * lorentz.dist0(x, c, keepdim=True) - math.asinh(math.sqrt(c * 32))
    seen = []
    layer.self_attn.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    logits(model, tokens())
    expected = norm(x, layer.input_layernorm.weight) + radius * layer.attention_radius
    assert_near(seen[0], expected, 1e-12)
