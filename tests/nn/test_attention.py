"""Attention and linear attention against explicit sums."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import beltrami.nn as bnn
from beltrami.geometry import Curvature, Euclidean, Lorentz, lorentz


def randomised(layer: nn.Module) -> nn.Module:
    with torch.no_grad():
        for p in layer.parameters():
            p.normal_(std=0.3)
    return layer.double()


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_grouped_queries_are_repeated_keys(kv_heads: int) -> None:
    """Each key head serves heads/kv_heads query heads: full attention with rows repeated."""
    grouped = randomised(bnn.Attention(16, 4, manifold=Lorentz(1.0), kv_heads=kv_heads))
    full = bnn.Attention(16, 4, manifold=Lorentz(1.0)).double()
    state = grouped.state_dict()
    for name in ("weight", "time_weight", "bias"):
        rows = state[f"query_key_value.{name}"]
        q, k, v = rows.split([16, 4 * kv_heads, 4 * kv_heads])
        k, v = (
            t.unflatten(0, (kv_heads, 4)).repeat_interleave(4 // kv_heads, 0).flatten(0, 1)
            for t in (k, v)
        )
        state[f"query_key_value.{name}"] = torch.cat([q, k, v])
    full.load_state_dict(state)
    x = torch.randn(2, 5, 16, dtype=torch.float64)
    torch.testing.assert_close(grouped(x), full(x))


def test_attention_is_distances_and_centroids() -> None:
    c = 0.6
    layer = randomised(bnn.Attention(12, 3, manifold=Lorentz(c)))
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    q, k, v = (
        t.unflatten(-1, (3, 4)).transpose(1, 2) for t in layer.query_key_value(x).chunk(3, -1)
    )
    chord = lorentz.chord_sq(q.unsqueeze(-2), k.unsqueeze(-3), c)
    weights = (-chord / layer.log_scale.exp()[:, None, None]).softmax(-1)
    sets = v.unsqueeze(-3).expand(*weights.shape, 4)
    heads = lorentz.centroid(sets, weights, c).transpose(1, 2).flatten(-2)
    torch.testing.assert_close(layer(x), layer.out(heads))


def test_scale_starts_at_the_weight_of_dot_products() -> None:
    layer = bnn.Attention(32, 2, manifold=Lorentz(1.0))
    torch.testing.assert_close(2 / layer.log_scale.exp(), torch.full((2,), 16**-0.5))


def test_cross_attention_over_itself_is_self_attention() -> None:
    own = randomised(bnn.Attention(12, 3, manifold=Lorentz(1.0)))
    cross = bnn.Attention(12, 3, manifold=Lorentz(1.0), cross=True).double()
    state = {k: v for k, v in own.state_dict().items() if not k.startswith("query_key_value")}
    for name in ("weight", "time_weight", "bias"):
        rows = own.state_dict()[f"query_key_value.{name}"]
        state[f"query.{name}"], state[f"key_value.{name}"] = rows[:12], rows[12:]
    cross.load_state_dict(state)
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    torch.testing.assert_close(cross(x, x), own(x))


def test_rotary_positions_are_relative() -> None:
    layer = randomised(bnn.Attention(12, 3, manifold=Lorentz(1.0), rotary=True))
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    shifted = layer(x, positions=torch.arange(5) + 100)
    torch.testing.assert_close(shifted, layer(x), rtol=1e-6, atol=1e-8)
    assert not torch.allclose(layer(x, positions=torch.arange(5) * 2), layer(x))


def test_head_size_need_not_divide() -> None:
    layer = bnn.Attention(10, 4, manifold=Lorentz(1.0), head_size=6)
    assert layer(torch.randn(2, 3, 10)).shape == (2, 3, 10)


def test_masks_combine() -> None:
    layer = randomised(bnn.Attention(12, 3, manifold=Lorentz(1.0), causal=True))
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    key_mask = torch.tensor([[True] * 5, [True, False, True, True, False]])
    window = torch.ones(5, 5, dtype=torch.bool).triu(-1)
    allowed = window & torch.ones(5, 5, dtype=torch.bool).tril() & key_mask[:, None, None, :]
    full = bnn.Attention(12, 3, manifold=Lorentz(1.0)).double()
    full.load_state_dict(layer.state_dict())
    torch.testing.assert_close(layer(x, mask=window, key_mask=key_mask), full(x, mask=allowed))


def test_learnable_curvature_gets_a_gradient() -> None:
    curvature = Curvature(1.0)
    layer = randomised(bnn.Attention(12, 3, manifold=Lorentz(curvature), time=False))
    layer(torch.randn(2, 5, 12, dtype=torch.float64)).square().sum().backward()
    assert curvature.raw.grad.abs() > 1e-6


# --- linear attention -----------------------------------------------------------------------------


def explicit(layer: bnn.LinearAttention, x: Tensor, allowed: Tensor) -> Tensor:
    q, k, v = (
        t.unflatten(-1, (layer.heads, layer.head_size)).transpose(1, 2)
        for t in layer.query_key_value(x).chunk(3, -1)
    )

    def features(t: Tensor) -> Tensor:
        r = t.relu() + 1e-6
        return r.norm(dim=-1, keepdim=True) * nn.functional.normalize(r**layer.power, dim=-1, eps=0)

    weights = torch.where(allowed, features(q) @ features(k).mT, 0.0)
    mean = torch.nan_to_num(weights @ v / weights.sum(-1, keepdim=True))  # 0/0: looks nowhere
    return layer.out((mean + layer.value_map(v)).transpose(1, 2).flatten(-2))


@pytest.mark.parametrize("length", [1, 5, 64, 70, 130])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("manifold", [Lorentz(1.0), Euclidean()])
def test_linear_attention_is_the_explicit_sum(
    manifold: Lorentz | Euclidean, causal: bool, length: int
) -> None:
    layer = randomised(bnn.LinearAttention(8, 2, manifold=manifold, causal=causal, power=3.0))
    x = torch.randn(2, length, 8, dtype=torch.float64)
    key_mask = torch.rand(2, length) < 0.7
    key_mask[0, : length // 2] = False  # in the causal form, queries that may look nowhere
    allowed = key_mask[:, None, None, :].expand(2, 1, length, length)
    if causal:
        allowed = allowed & torch.ones(length, length, dtype=torch.bool).tril()
    torch.testing.assert_close(layer(x, key_mask=key_mask), explicit(layer, x, allowed))
    everywhere = torch.ones_like(allowed)
    if causal:
        everywhere = everywhere.tril()
    torch.testing.assert_close(layer(x), explicit(layer, x, everywhere))


def test_linear_attention_of_negative_queries_is_the_mean() -> None:
    """All features at their least value: every key counts by its length, none is left out."""
    layer = randomised(bnn.LinearAttention(8, 2, manifold=Euclidean()))
    x = torch.randn(1, 6, 8, dtype=torch.float64, requires_grad=True)
    with torch.no_grad():
        layer.query_key_value.weight.zero_()
        layer.query_key_value.bias[:16] = -1.0
    out = layer(x)
    out.sum().backward()
    assert out.isfinite().all()
    assert x.grad.isfinite().all()
