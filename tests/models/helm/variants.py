"""The variants of HELM that every test of this folder runs over, at 2 layers of width 32.

A new part joins by a row in `VARIANTS`: its name and the fields of `HelmConfig` that it sets.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from beltrami.geometry import Curvature
from beltrami.models.helm import HelmConfig, HelmForCausalLM

WORDS = 40

SIZES: dict[str, Any] = {
    "vocab_size": WORDS, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "max_position_embeddings": 64, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": None,
}  # fmt: skip

VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "tied": {"tie_word_embeddings": True, "logits": "distance"},
    "distance": {"logits": "distance"},
    "linear": {"logits": "linear"},
    "linear-time": {"logits": "linear", "time_columns": "all"},
    "no-time": {"time_columns": "none"},
    "hyperplane": {"time_columns": "hyperplane"},
    # The constant γ with which an empty branch leaves |x|² = d as it is, at w = κ = 1.
    "gamma": {"residual_scale": 2.197},
    "published": {"residual_scale": "4*sqrt(d)"},
    "boost": {"residual": "boost"},
    "flat-residual": {"residual": "euclidean"},
    "dot-centroid": {"attention_score": "dot"},
    "distance-mean": {"attention_aggregate": "mean"},
    "dot-mean": {"attention_score": "dot", "attention_aggregate": "mean"},
    "only-words": {
        "residual": "euclidean", "time_columns": "none", "attention_score": "dot",
        "attention_aggregate": "mean",
    },
    "qk-norm": {"qk_norm": True},
    "radius": {"radius_input": True},
    "fixed": {"learn_curvature": "no", "learn_residual": False, "residual_weight": 0.8},
    "per-layer": {"learn_curvature": "layer"},
    "hybrid": {"geometry": ["lorentz", "euclidean"]},
    "hybrid-layers": {"geometry": ["euclidean", "lorentz"], "learn_curvature": "layer"},
    "grouped": {"num_key_value_heads": 2},
    "wide-heads": {"head_dim": 12},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "flat-embedding": {"embedding": "flat", "logits": "linear", "tie_word_embeddings": True},
    "flat": {"geometry": "euclidean"},
    "flat-tied": {"geometry": "euclidean", "tie_word_embeddings": True},
    "flat-distance": {"geometry": "euclidean", "attention_score": "distance"},
}  # fmt: skip
every_variant = pytest.mark.parametrize("variant", VARIANTS)
# For what does not depend on each part: with points, hyperplanes, words' points, and Llama.
some_variants = pytest.mark.parametrize("variant", ["default", "tied", "hybrid", "flat"])


def config(variant: str = "default", **fields: Any) -> HelmConfig:
    return HelmConfig(**{**SIZES, **VARIANTS[variant], **fields})


def build(variant: str = "default", **fields: Any) -> HelmForCausalLM:
    """An untrained model, always the same."""
    torch.manual_seed(0)
    return HelmForCausalLM(config(variant, **fields)).eval()


def trained(variant: str = "default", **fields: Any) -> HelmForCausalLM:
    """A model in float64 that has left its start: no parameter is 0, 1, or the same in all rows."""
    model = build(variant, **fields).double()
    shake(model)
    return model


@torch.no_grad()
def shake(model: nn.Module, std: float = 0.15) -> None:
    """Add noise to all parameters and to curvatures that are not learned."""
    generator = torch.Generator().manual_seed(1)

    def noise(p: Tensor) -> Tensor:
        return std * torch.randn(p.shape, generator=generator, dtype=torch.float64).to(p.dtype)

    for p in model.parameters():
        p += noise(p)
    for module in model.modules():
        if isinstance(module, Curvature) and not module.learnable:
            module.raw += noise(module.raw)


def tokens(rows: int = 2, length: int = 9, seed: int = 0) -> Tensor:
    """Tokens that are none of the special ones."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, WORDS, (rows, length), generator=generator)


def left_padded(*lengths: int) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens, mask and positions of rows of these lengths."""
    width = max(lengths)
    ids = tokens(len(lengths), width)
    mask = (torch.arange(width) >= width - torch.tensor(lengths)[:, None]).long()
    return ids * mask, mask, (mask.cumsum(-1) - 1).clamp(min=0)


def logits(model: PreTrainedModel, ids: Tensor, **given: Any) -> Tensor:
    with torch.no_grad():
        return model(ids, **given).logits


def assert_near(a: Tensor, b: Tensor, error: float) -> None:
    torch.testing.assert_close(a, b, rtol=0, atol=error)
