"""Before the first step a deep model must pass on what its embedding says, as its twin does.

At 6, 12 and 24 layers of width 64, beside the flat model with an embedding of the same length: the
share of the stream that lies along the token's embedding, the lengths of the branches, the loss,
and how alike the tokens have become.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from beltrami.models.helm import HelmForCausalLM
from beltrami.models.helm.config import TIME_CHANNELS
from tests.models.helm.variants import VARIANTS, config, every_variant

HEAD, WORDS, LENGTH = 16, 256, 48
# Fields that a twin shares: what they do is not geometry.
SHARED = (
    "num_key_value_heads", "qk_norm", "attention_bias", "mlp_bias", "num_hidden_layers",
    "embedding_range", "tie_word_embeddings",
)  # fmt: skip


@dataclass
class Start:
    """What a model does before its first step."""

    share: float  # cosine of the stream after all layers and the embedding
    branches: Tensor  # root mean square length of each branch's output
    reach: Tensor  # the same over the length of the stream it is added to
    loss: float  # of words drawn evenly
    alike: float  # mean cosine of two tokens of the stream


def fields_at(variant: str, depth: int) -> dict[str, Any]:
    """Width 64 in heads whose values have 16 coordinates, with times, if there are any, on top.

    Flat words that are tied start as in Llama; at length 8 their scores would be 64 at the start.
    """
    switches = config(variant)
    flat_words = switches.tie_word_embeddings and switches.embedding == "flat"
    times = TIME_CHANNELS * (switches.attention_aggregate == "centroid")
    geometry = switches.geometry
    return {
        **VARIANTS[variant], "hidden_size": 4 * HEAD, "intermediate_size": 128,
        "num_hidden_layers": depth, "vocab_size": WORDS, "head_dim": HEAD + times,
        "embedding_range": 0.02 if flat_words else 1.0,
        "geometry": geometry * (depth // 2) if isinstance(geometry, list) else geometry,
    }  # fmt: skip


@functools.cache
def twin(**fields: Any) -> tuple[HelmForCausalLM, Start]:
    torch.manual_seed(0)
    sizes = {**fields_at("flat", fields["num_hidden_layers"]), **fields}
    model = HelmForCausalLM(config("flat", **sizes))
    return model, measure(model)


@torch.no_grad()
def measure(model: HelmForCausalLM) -> Start:
    branches, reach, stream = [], [], []

    def residual(_module: object, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        x, y = (t.square().sum(-1).mean().sqrt() for t in inputs)
        branches.append(y)
        reach.append(y / x)
        stream.append(output)

    hooks = [
        part.register_forward_hook(residual)
        for layer in model.model.layers
        for part in (layer.attention_residual, layer.mlp_residual)
    ]
    generator = torch.Generator().manual_seed(2)
    ids = torch.randperm(WORDS, generator=generator)[: 4 * LENGTH].view(4, LENGTH)
    scores = model(ids).logits
    for hook in hooks:
        hook.remove()
    x = stream[-1]
    share = F.cosine_similarity(x, model.model.embed_tokens(ids), dim=-1).mean()
    unit = F.normalize(x.flatten(0, 1), dim=-1)
    alike = (unit.sum(0).square().sum() - len(unit)) / (len(unit) * (len(unit) - 1))
    loss = (scores.logsumexp(-1) - scores.mean(-1)).mean()
    return Start(share.item(), torch.stack(branches), torch.stack(reach), loss.item(), alike.item())


def starts(variant: str, depth: int) -> tuple[Start, Start, bool]:
    """Of the variant and its twin; and whether all layers have the same matrices.

    Where they do, what differs is the geometry, not the draw.
    """
    fields = fields_at(variant, depth)
    shared = {name: fields[name] for name in SHARED if name in fields}
    if config(variant).embedding == "points":
        shared.pop("tie_word_embeddings", None)
    model, theirs = twin(**shared)
    torch.manual_seed(0)
    curved = HelmForCausalLM(config(**fields))
    own = curved.state_dict()
    layers = {name: p for name, p in model.state_dict().items() if "layers." in name}
    fitting = {name: p for name, p in layers.items() if own[name].shape == p.shape}
    curved.load_state_dict(fitting, strict=False)
    return measure(curved), theirs, len(fitting) == len(layers)


@pytest.mark.parametrize("depth", [6, 12, 24])
@every_variant
def test_the_start_is_that_of_the_twin(variant: str, depth: int) -> None:
    ours, theirs, same = starts(variant, depth)
    assert ours.share >= 0.7 * theirs.share
    assert ours.alike < max(0.2, theirs.alike + 0.02)  # Llama's own start at length 0.16
    assert abs(ours.loss - theirs.loss) < 0.05
    longer = ours.branches / theirs.branches
    switches = config(**fields_at(variant, depth))
    values = torch.tensor([switches.for_layer(i).value_size for i in range(depth)])
    longer[::2] /= (values / HEAD).sqrt()  # flat layers of a hybrid have times' channels, too
    for ratios in (longer[::2], longer[1::2]):
        assert ratios.mean() == pytest.approx(1, abs=0.1)
        assert not same or (ratios - 1).abs().max() < 0.1
    if variant == "published":  # γ = 4√d makes the stream long, and branches next to nothing
        assert ours.reach[-1] < 0.01 * theirs.reach[-1]
    else:
        assert (ours.reach / theirs.reach).mean() == pytest.approx(1, abs=0.1)
