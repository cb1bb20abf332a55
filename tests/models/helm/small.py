"""The smallest models with everything in them, always the same, away from their start."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from beltrami.models.helm import HelmConfig, HelmForCausalLM

VOCABULARY = 61
FLAT: dict[str, Any] = {"geometry": "euclidean", "head_dim": 8}
# Each way in which words are scored, and Llama.
KINDS: dict[str, dict[str, Any]] = {
    "mlr": {},
    "linear": {"logits": "linear"},
    "distance": {"logits": "distance"},
    "tied": {"logits": "distance", "tie_word_embeddings": True},
    "flat": FLAT,
}


def config(**changes: Any) -> HelmConfig:
    fields: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 12,
        "max_position_embeddings": 64,
        "pad_token_id": 0,
    }
    return HelmConfig(**{**fields, **changes})


def model(seed: int = 0, **changes: Any) -> HelmForCausalLM:
    """In float32 and evaluation mode; time columns and offsets are not 0."""
    torch.manual_seed(seed)
    built = HelmForCausalLM(config(**changes)).eval()
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return built


def tokens(rows: int = 3, length: int = 7, seed: int = 5) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, VOCABULARY, (rows, length), generator=generator)


def rows(count: int, length: int = 8) -> list[dict[str, Tensor]]:
    """Samples for a Trainer."""
    return [{"input_ids": row, "labels": row} for row in tokens(count, length)]


def logits(built: Any, ids: Tensor | None = None) -> Tensor:
    with torch.no_grad():
        out: Tensor = built(input_ids=tokens() if ids is None else ids).logits
    return out
