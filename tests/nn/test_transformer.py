"""The block's parts: modules of one's own, and rotations that the model makes once."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import beltrami.nn as bnn
from beltrami.geometry import Curvature, Lorentz
from beltrami.nn import KVCache
from tests.operators import CountOperators

H = Lorentz(0.7)


def same_parameters(block: nn.Module, other: nn.Module) -> None:
    with torch.no_grad():
        for p in block.parameters():
            p.add_(0.2 * torch.randn_like(p))
    other.load_state_dict(block.state_dict())


# --- parts ----------------------------------------------------------------------------------------


def test_given_parts_are_those_of_the_default_block() -> None:
    default = bnn.TransformerBlock(16, 4, manifold=H, causal=True, cross=True, norm="layer")
    own = bnn.TransformerBlock(
        16,
        manifold=H,
        attention=bnn.Attention(16, 4, manifold=H, causal=True),
        cross_attention=bnn.Attention(16, 4, manifold=H, cross=True),
        mlp=bnn.MLP(16, default.mlp.hidden, manifold=H),
        norm=bnn.LayerNorm,
    )
    same_parameters(default, own)
    x, memory = torch.randn(2, 5, 16), torch.randn(2, 7, 16)
    mask, memory_mask = torch.rand(5, 5) < 0.7, torch.rand(2, 7) < 0.7
    expected = default(x, memory, mask=mask, memory_mask=memory_mask)
    assert torch.equal(own(x, memory, mask=mask, memory_mask=memory_mask), expected)


def test_a_part_gets_the_options_that_were_given_and_no_others() -> None:
    """So that attention which knows neither masks nor caches fits."""
    block = bnn.TransformerBlock(
        16, manifold=H, attention=bnn.LinearAttention(16, 4, manifold=H), mlp=nn.Identity()
    )
    x = torch.randn(2, 5, 16)
    keep = torch.arange(5) < torch.tensor([[5], [3]])
    torch.testing.assert_close(block(x, key_mask=keep)[1, :3], block(x[1:, :3])[0])
    with pytest.raises(TypeError, match="mask"):
        block(x, mask=torch.ones(5, 5, dtype=torch.bool))


def test_norms_come_from_a_factory_for_each_branch() -> None:
    norm = functools.partial(bnn.RMSNorm, eps=1e-3)
    block = bnn.TransformerBlock(16, 4, manifold=H, cross=True, norm=norm)
    norms = [block.attention_norm, block.cross_norm, block.mlp_norm]
    assert [n.eps for n in norms] == [1e-3] * 3
    assert len({id(n) for n in norms}) == 3


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"causal": True}, "causal"),
        ({"heads": 4, "rotary": True}, "rotary, heads"),
        ({"score": "dot", "aggregate": "mean"}, "score, aggregate"),
        ({"mlp": nn.Identity(), "hidden": 8}, "hidden"),
    ],
)
def test_options_of_a_part_that_is_given_are_refused(options: dict[str, Any], named: str) -> None:
    attention = bnn.Attention(16, 4, manifold=H)
    with pytest.raises(ValueError, match=f"TransformerBlock: {named} cannot be given together"):
        bnn.TransformerBlock(16, manifold=H, attention=attention, **options)


def test_parts_live_on_the_manifold_of_the_block() -> None:
    other = Lorentz(2.0)
    with pytest.raises(ValueError, match="give both the same manifold object"):
        bnn.TransformerBlock(16, manifold=H, attention=bnn.Attention(16, 4, manifold=other))
    cross = bnn.Attention(16, 4, manifold=other, cross=True)
    with pytest.raises(ValueError, match="give both the same manifold object"):
        bnn.TransformerBlock(16, 4, manifold=H, cross_attention=cross)
    with pytest.raises(ValueError, match="give both the same manifold object"):
        bnn.TransformerBlock(16, 4, manifold=H, mlp=bnn.MLP(16, 8, manifold=other))


# --- rotations ------------------------------------------------------------------------------------


class Decoder(nn.Module):
    """Blocks in a row that turn their heads themselves, or are handed one rotation."""

    def __init__(self, depth: int, *, shared: bool) -> None:
        super().__init__()
        self.rotary = bnn.Rotary(4) if shared else None
        self.blocks = nn.ModuleList(
            bnn.TransformerBlock(16, 4, manifold=H, causal=True, rotary=not shared, kv_heads=2)
            for _ in range(depth)
        )

    def forward(self, x: Tensor, caches: list[KVCache] | None = None) -> Tensor:
        rotation = None
        if self.rotary is not None:
            start = caches[0].length if caches else 0
            rotation = self.rotary.cos_sin(torch.arange(start, start + x.shape[1]), x.dtype)
        for i, block in enumerate(self.blocks):
            x = block(x, rotation=rotation, cache=caches[i] if caches else None)
        return x


def test_a_model_makes_the_rotation_once_and_gives_the_same_numbers() -> None:
    shared, alone = Decoder(3, shared=True), Decoder(3, shared=False)
    same_parameters(shared, alone)
    x = torch.randn(2, 9, 16)
    with CountOperators() as once:
        out = shared(x)
    with CountOperators() as often:
        expected = alone(x)
    assert torch.equal(out, expected)
    assert once.counts["beltrami.rotary_table.default"] == 1
    assert often.counts["beltrami.rotary_table.default"] == 3


def test_a_handed_down_rotation_works_with_a_cache_and_compiles() -> None:
    model = Decoder(2, shared=True).double()
    x = torch.randn(2, 9, 16, dtype=torch.float64)
    expected = model(x)
    with torch.no_grad():
        caches = [KVCache(), KVCache()]
        parts = [model(part, caches) for part in x.split([4, 1, 4], dim=1)]
    torch.testing.assert_close(torch.cat(parts, 1), expected, rtol=1e-9, atol=1e-9)
    torch.compiler.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), expected)


def test_a_learned_curvature_is_evaluated_once_a_block() -> None:
    curvature = Curvature(0.7)
    block = bnn.TransformerBlock(16, 4, manifold=Lorentz(curvature), causal=True)
    x = torch.randn(2, 5, 16)
    with CountOperators() as in_block:
        block(x)
    with CountOperators() as law:
        curvature.evaluate()
    fixed = bnn.TransformerBlock(16, 4, manifold=H, causal=True)
    with CountOperators() as with_number:
        fixed(x)
    assert in_block.total() <= with_number.total() + 2 * law.total()


def test_a_block_without_gain_adds_as_it_did() -> None:
    manifold = Lorentz(1.0)
    block = bnn.TransformerBlock(8, 2, manifold=manifold, residual_gain=False, residual_weight=0.5)
    assert {m.scale for m in block.modules() if isinstance(m, bnn.Residual)} == {None}
    with_gain = bnn.TransformerBlock(8, 2, manifold=manifold, residual_weight=0.5)
    with_gain.load_state_dict(block.state_dict())
    x = manifold.random(1, 3, 8)
    assert not torch.allclose(block(x), with_gain(x))
