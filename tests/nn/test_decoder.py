"""A decoder put together from the layers: its start, its cache, causality, padding and training."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import beltrami.nn as bnn
from beltrami.geometry import Curvature, Euclidean, Lorentz, Manifold
from beltrami.nn import KVCache

VOCABULARY = 256


class Decoder(nn.Module):
    """Embedding, causal blocks with rotary positions, norm and scores of the next token."""

    def __init__(
        self,
        manifold: Manifold,
        *,
        size: int = 16,
        heads: int = 4,
        depth: int = 2,
        vocabulary: int = VOCABULARY,
        **options: object,
    ) -> None:
        super().__init__()
        self.curvature = getattr(manifold, "curvature", None)
        self.embedding = bnn.Embedding(vocabulary, size, manifold=manifold)
        self.blocks = nn.ModuleList(
            bnn.TransformerBlock(
                size, heads, manifold=manifold, causal=True, rotary=True, **options
            )
            for _ in range(depth)
        )
        self.norm = bnn.RMSNorm(size, manifold=manifold)
        self.scores = bnn.MLR(size, vocabulary, manifold=manifold)
        bnn.check_model(self)

    def caches(self) -> list[KVCache]:
        return [KVCache() for _ in self.blocks]

    def stream(self, ids: Tensor, caches: list[KVCache] | None = None, **given: Tensor) -> Tensor:
        """The points after the last block."""
        x: Tensor = self.embedding(ids)
        for block, cache in zip(self.blocks, caches or [None] * len(self.blocks), strict=True):
            x = block(x, cache=cache, **given)
        return x

    def forward(self, ids: Tensor, caches: list[KVCache] | None = None, **given: Tensor) -> Tensor:
        out: Tensor = self.scores(self.norm(self.stream(ids, caches, **given)))
        return out


@torch.no_grad()
def shaken(model: nn.Module, std: float = 0.2) -> nn.Module:
    """A model away from its start, in float64."""
    for p in model.parameters():
        p.add_(std * torch.randn(p.shape))
    return model.double()


MANIFOLDS = {
    "lorentz": lambda: Lorentz(0.7),
    "learnable": lambda: Lorentz(Curvature(1.3)),
    "euclidean": Euclidean,
}
manifolds = pytest.mark.parametrize("manifold", MANIFOLDS.values(), ids=MANIFOLDS)


# --- the start ------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [48, 192])
@pytest.mark.parametrize("c", [0.0, 0.1, 1.0, 10.0])
def test_tokens_do_not_collapse_at_the_start(c: float, size: int) -> None:
    """Common inits leave all tokens of the last layer in one direction: cosine 0.5 to 0.99."""
    for seed in range(3):
        torch.manual_seed(seed)
        manifold = Lorentz(c) if c else Euclidean()
        model = Decoder(manifold, size=size, depth=6)
        with torch.no_grad():
            x = model.stream(torch.randint(VOCABULARY, (2, 64)))
        x = F.normalize(x, dim=-1)
        cosines = x @ x.mT
        others = ~torch.eye(64, dtype=torch.bool)
        assert float(cosines[:, others].mean()) < 0.2


def test_scores_are_moderate_at_the_start() -> None:
    """The first loss is about that of a uniform guess."""
    for c in (0.1, 1.0, 10.0):
        model = Decoder(Lorentz(c), size=48, depth=6)
        ids = torch.randint(VOCABULARY, (2, 33))
        with torch.no_grad():
            loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        assert abs(float(loss) - float(torch.tensor(VOCABULARY).log())) < 1.5


# --- the cache ------------------------------------------------------------------------------------


@manifolds
@pytest.mark.parametrize("kv_heads", [4, 2])
@pytest.mark.parametrize("chunks", [[1] * 9, [4, 1, 1, 3], [2, 7], [9]], ids=str)
@torch.no_grad()
def test_decoding_with_a_cache_is_the_full_forward(
    manifold: type[Manifold], kv_heads: int, chunks: list[int]
) -> None:
    model = shaken(Decoder(manifold(), kv_heads=kv_heads))
    ids = torch.randint(VOCABULARY, (3, 9))
    caches = model.caches()
    parts = [model(part, caches) for part in ids.split(chunks, dim=1)]
    torch.testing.assert_close(torch.cat(parts, 1), model(ids), rtol=1e-9, atol=1e-9)
    assert [cache.length for cache in caches] == [9, 9]


@manifolds
@torch.no_grad()
def test_a_left_padded_batch_decodes_as_its_sequences_alone(manifold: type[Manifold]) -> None:
    model = shaken(Decoder(manifold()))
    lengths, width, steps = [6, 2, 4], 6, 4
    sequences = [torch.randint(VOCABULARY, (n + steps,)) for n in lengths]
    prompts = torch.stack(
        [F.pad(s[:n], (width - n, 0)) for s, n in zip(sequences, lengths, strict=True)]
    )
    keep = torch.arange(width) >= torch.tensor([[width - n] for n in lengths])
    positions = (keep.cumsum(-1) - 1).relu()

    caches = model.caches()
    out = [model(prompts, caches, key_mask=keep, positions=positions)]
    for i in range(steps):
        ids = torch.stack([s[n + i] for s, n in zip(sequences, lengths, strict=True)]).unsqueeze(-1)
        keep = F.pad(keep, (0, 1), value=True)
        positions = positions[:, -1:] + 1
        out.append(model(ids, caches, key_mask=keep, positions=positions))
    found = torch.cat(out, 1)
    assert found.isfinite().all()  # also where a padding token looks nowhere
    for row, (s, n) in enumerate(zip(sequences, lengths, strict=True)):
        torch.testing.assert_close(found[row, width - n :], model(s[None])[0], rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_a_cache_forgets_and_reorders() -> None:
    model = shaken(Decoder(Lorentz(1.0)))
    ids = torch.randint(VOCABULARY, (3, 8))
    caches = model.caches()
    model(ids, caches)
    for cache in caches:
        cache.crop(5)
        cache.reorder(torch.tensor([2, 0]))
    index = torch.tensor([2, 0])
    new = torch.randint(VOCABULARY, (2, 3))
    expected = model(torch.cat([ids[index, :5], new], 1))[:, 5:]
    torch.testing.assert_close(model(new, caches), expected, rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_a_mask_holds_with_a_cache() -> None:
    model = shaken(Decoder(Lorentz(1.0)))
    ids = torch.randint(VOCABULARY, (2, 7))
    mask = torch.rand(7, 7) < 0.5
    caches = model.caches()
    parts = [
        model(ids[:, :4], caches, mask=mask[:4, :4]),
        model(ids[:, 4:], caches, mask=mask[4:]),
    ]
    torch.testing.assert_close(torch.cat(parts, 1), model(ids, mask=mask), rtol=1e-9, atol=1e-9)


# --- causality ------------------------------------------------------------------------------------


@manifolds
@pytest.mark.parametrize("given", ["nothing", "key_mask", "mask"])
def test_later_tokens_do_not_reach_earlier_ones(manifold: type[Manifold], given: str) -> None:
    """Not by a bit, however far out they are."""
    block = shaken(
        bnn.TransformerBlock(16, 4, manifold=manifold(), causal=True, rotary=True)
    ).float()
    x = torch.randn(2, 12, 16)
    kwargs: dict[str, Tensor] = {}
    if given == "key_mask":
        kwargs["key_mask"] = torch.rand(2, 12) < 0.7
    elif given == "mask":
        kwargs["mask"] = torch.rand(2, 4, 12, 12) < 0.7
    out = block(x, **kwargs)
    for start in (1, 5, 11):
        changed = x.clone()
        changed[:, start:] = 100 * torch.randn_like(x[:, start:])
        found = block(changed, **kwargs)
        assert torch.equal(found[:, :start], out[:, :start])
        assert not torch.equal(found[:, start:], out[:, start:])


@pytest.mark.parametrize("length", [1, 63, 64, 65, 150])
@manifolds
def test_causal_linear_attention_is_attention_to_the_prefix(
    manifold: type[Manifold], length: int
) -> None:
    """Also where the length is not a multiple of the chunks it works through."""
    m = manifold()
    causal = shaken(bnn.LinearAttention(8, 2, manifold=m, causal=True))
    whole = bnn.LinearAttention(8, 2, manifold=m).double()
    whole.load_state_dict(causal.state_dict())
    x = torch.randn(2, length, 8, dtype=torch.float64)
    out = causal(x)
    for i in {0, length // 2, length - 1, min(length - 1, 64)}:
        prefix = whole(x[:, : i + 1])[:, -1]
        torch.testing.assert_close(out[:, i], prefix, rtol=1e-9, atol=1e-9)


@manifolds
def test_later_tokens_do_not_reach_earlier_ones_in_linear_attention(
    manifold: type[Manifold],
) -> None:
    """Not by a bit, however far out they are, inside a chunk or across chunks."""
    layer = shaken(bnn.LinearAttention(8, 2, manifold=manifold(), causal=True)).float()
    x = torch.randn(2, 150, 8)
    out = layer(x)
    for start in (1, 40, 64, 70, 149):
        changed = x.clone()
        changed[:, start:] = 1000 * torch.randn_like(x[:, start:])
        found = layer(changed)
        assert torch.equal(found[:, :start], out[:, :start])
        assert not torch.equal(found[:, start:], out[:, start:])


@pytest.mark.parametrize("power", [1.0, 3.0, 5.0, 12.0])
def test_linear_attention_of_tokens_without_features(power: float) -> None:
    """All features at their least: every key weighs the same, whatever the power."""
    layer = bnn.LinearAttention(8, 2, manifold=Lorentz(1.0), power=power)
    with torch.no_grad():
        layer.query_key_value.bias[:16] = -100.0  # queries and keys
    x = torch.randn(2, 5, 8, requires_grad=True)
    out = layer(x)
    v = layer.query_key_value(x)[..., 16:].unflatten(-1, (2, 4))
    expected = layer.out((v.mean(1, keepdim=True) + layer.value_map(v)).flatten(-2))
    torch.testing.assert_close(out, expected)
    assert torch.autograd.grad(out.sum(), x)[0].isfinite().all()


# --- padding --------------------------------------------------------------------------------------


@manifolds
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", ["block", "attention", "linear"])
def test_padding_is_as_if_it_were_not_there(
    manifold: type[Manifold], causal: bool, kind: str
) -> None:
    make = {
        "block": bnn.TransformerBlock,
        "attention": bnn.Attention,
        "linear": bnn.LinearAttention,
    }[kind]
    layer = shaken(make(16, 4, manifold=manifold(), causal=causal))
    lengths, width = [7, 3, 5], 7
    keep = torch.arange(width) < torch.tensor(lengths).unsqueeze(-1)
    x = torch.randn(3, width, 16, dtype=torch.float64)
    padded = torch.where(keep.unsqueeze(-1), x, 30.0)
    out = layer(padded, key_mask=keep)
    assert out.isfinite().all()
    for row, n in enumerate(lengths):
        alone = layer(x[row : row + 1, :n])[0]
        torch.testing.assert_close(out[row, :n], alone, rtol=1e-9, atol=1e-9)


@manifolds
def test_padding_of_the_memory(manifold: type[Manifold]) -> None:
    block = shaken(bnn.TransformerBlock(16, 4, manifold=manifold(), cross=True))
    x, memory = torch.randn(2, 5, 16).double(), torch.randn(2, 6, 16).double()
    keep = torch.arange(6) < torch.tensor([[6], [4]])
    out = block(x, torch.where(keep.unsqueeze(-1), memory, 30.0), memory_mask=keep)
    for row, n in enumerate((6, 4)):
        alone = block(x[row : row + 1], memory[row : row + 1, :n])[0]
        torch.testing.assert_close(out[row], alone, rtol=1e-9, atol=1e-9)


def test_a_token_that_may_look_nowhere_attends_to_the_origin() -> None:
    layer = shaken(bnn.Attention(16, 4, manifold=Lorentz(1.0)))
    x = torch.randn(2, 5, 16, dtype=torch.float64, requires_grad=True)
    out = layer(x, key_mask=torch.tensor([[True] * 5, [False] * 5]))
    torch.testing.assert_close(out[1], layer.out(torch.zeros_like(out[1])))
    assert torch.autograd.grad(out.sum(), x)[0].isfinite().all()


# --- the plain Transformer ------------------------------------------------------------------------

SWITCHES = {"time": False, "residual": "euclidean", "score": "dot", "aggregate": "mean"}


@pytest.mark.parametrize("options", [{}, {"norm": "layer", "activation": "gelu", "bias": False}])
def test_all_switches_off_is_the_plain_block_to_the_last_bit(options: dict[str, object]) -> None:
    def build(manifold: Manifold) -> nn.Module:
        return bnn.TransformerBlock(
            16, 4, manifold=manifold, causal=True, rotary=True, **SWITCHES, **options
        )

    hyperbolic, twin = build(Lorentz(3.0)), build(Euclidean())
    twin.load_state_dict(hyperbolic.state_dict())  # the same names and shapes
    x = torch.randn(2, 9, 16, requires_grad=True)
    a, b = hyperbolic(x), twin(x)
    assert torch.equal(a, b)
    weights = torch.randn_like(a)
    for p, q in zip(
        torch.autograd.grad(a, [x, *hyperbolic.parameters()], weights),
        torch.autograd.grad(b, [x, *twin.parameters()], weights),
        strict=True,
    ):
        assert torch.equal(p, q)


def test_the_plain_block_is_the_one_of_the_books() -> None:
    block = bnn.TransformerBlock(
        16, 4, manifold=Lorentz(1.0), causal=True, residual_weight=1.0, **SWITCHES
    )
    x = torch.randn(2, 9, 16)

    def norm(name: str, x: Tensor) -> Tensor:
        return F.rms_norm(x, (16,), getattr(block, name).weight, 1e-6)

    def linear(layer: nn.Module, x: Tensor) -> Tensor:
        return F.linear(x, layer.weight, layer.bias)

    h = norm("attention_norm", x)
    q, k, v = (
        t.unflatten(-1, (4, 4)).transpose(1, 2)
        for t in linear(block.attention.query_key_value, h).chunk(3, -1)
    )
    scores = (q @ k.mT / 2).masked_fill(torch.ones(9, 9, dtype=torch.bool).triu(1), -torch.inf)
    heads = (scores.softmax(-1) @ v).transpose(1, 2).flatten(-2)
    y = x + linear(block.attention.out, heads)
    gate, value = linear(block.mlp.up, norm("mlp_norm", y)).chunk(2, -1)
    y = y + linear(block.mlp.down, F.silu(gate) * value)
    torch.testing.assert_close(block(x), y)


@pytest.mark.parametrize("switch", SWITCHES)
def test_each_switch_alone_changes_the_block(switch: str) -> None:
    """Of a trained block: at the start, time columns are 0."""
    torch.manual_seed(1)
    full = shaken(bnn.TransformerBlock(16, 4, manifold=Lorentz(1.0)))
    other = bnn.TransformerBlock(16, 4, manifold=Lorentz(1.0), **{switch: SWITCHES[switch]})
    other = other.double()
    other.load_state_dict(full.state_dict(), strict=False)
    x = torch.randn(2, 5, 16, dtype=torch.float64)
    assert float((full(x) - other(x)).detach().abs().max()) > 1e-3


# --- training -------------------------------------------------------------------------------------


@pytest.mark.parametrize("manifold", [MANIFOLDS["learnable"], Euclidean], ids=["lorentz", "flat"])
def test_a_decoder_learns_under_autocast(manifold: type[Manifold]) -> None:
    """Sequences are x, 3x + 1, 3(3x + 1) + 1, ... modulo 17: the next token follows from the last.

    The first tokens of a sequence and its rule are all there is to learn, so the loss goes to 0.
    """
    model = Decoder(manifold(), size=32, vocabulary=17)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    first = None
    for step in range(60):
        ids = [torch.randint(17, (16,))]
        while len(ids) < 13:
            ids.append((3 * ids[-1] + 1) % 17)
        batch = torch.stack(ids, 1)
        with torch.autocast("cpu", torch.bfloat16):
            scores = model(batch[:, :-1])
            loss = F.cross_entropy(scores.float().flatten(0, 1), batch[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        assert loss.isfinite(), step
        for name, p in model.named_parameters():
            assert p.grad is not None, name
            assert p.grad.isfinite().all(), (step, name)
        optimiser.step()
        first = first or loss.item()
    assert first > 2.0
    assert loss.item() < 0.25 * first
    assert all(p.isfinite().all() for p in model.parameters())
