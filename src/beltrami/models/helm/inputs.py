"""Checks of what a HELM model is given, with messages that name the value and the fix.

They look at shapes, and at values only on a CPU, so that nothing waits for a device.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from beltrami.models.helm.config import HelmConfig


def check_inputs(
    config: HelmConfig,
    input_ids: Tensor | None,
    inputs_embeds: Tensor | None,
    attention_mask: Any,
    position_ids: Tensor | None,
    cache: Cache | None,
    heads: int,
) -> None:
    """Raise `ValueError` or `TypeError` for what does not fit the model or each other.

    `heads` are those of keys and values in this process.
    """
    if (input_ids is None) == (inputs_embeds is None):
        raise ValueError("give exactly one of input_ids and inputs_embeds")
    given = inputs_embeds if input_ids is None else input_ids
    assert given is not None
    if input_ids is not None:
        _check_tokens(config, input_ids)
    elif given.ndim != 3 or given.shape[-1] != config.hidden_size:
        raise ValueError(
            f"inputs_embeds must have shape (batch, tokens, {config.hidden_size}), got "
            f"{tuple(given.shape)}"
        )
    batch, length = given.shape[:2]
    past = 0
    if cache is not None:
        _check_cache(config, cache, batch, heads)
        seen = cache.get_seq_length()
        past = seen if isinstance(seen, int) else 0
    if isinstance(attention_mask, Tensor):
        _check_mask(attention_mask, batch, length, past)
    _check_positions(config, position_ids, past + length)


def fit_mask(mask: Any, dtype: torch.dtype, backend: str | None) -> Any:
    """A 4-D mask as attention takes it: added to the scores, in the dtype of queries, or bool.

    The eager attention of transformers adds whatever it is given, True as 1, in float32; there the
    least number of float64 is −∞, of which a row has no softmax.
    """
    if not isinstance(mask, Tensor) or mask.ndim != 4:  # flash attention's are 2-D
        return mask
    lowest = max(torch.finfo(dtype).min, torch.finfo(torch.float32).min)
    if mask.dtype == torch.bool:
        if backend != "eager":
            return mask
        return torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, lowest)
    if mask.dtype == dtype != torch.float64:
        return mask
    return mask.clamp(min=max(lowest, torch.finfo(mask.dtype).min)).to(dtype)


def _check_tokens(config: HelmConfig, ids: Tensor) -> None:
    if ids.is_floating_point() or ids.dtype == torch.bool or ids.ndim != 2:
        raise TypeError(
            f"input_ids must be integers of shape (batch, tokens), got {ids.dtype} of shape "
            f"{tuple(ids.shape)}"
        )
    if ids.device.type == "cpu" and ids.numel():
        low, high = int(ids.min()), int(ids.max())
        if low < 0 or high >= config.vocab_size:
            raise ValueError(
                f"input_ids has token {low if low < 0 else high}, but vocab_size is "
                f"{config.vocab_size}: use the model's own tokenizer, or "
                "model.resize_token_embeddings(len(tokenizer))"
            )


def _check_mask(mask: Tensor, batch: int, length: int, past: int) -> None:
    if mask.ndim not in (2, 4) or mask.shape[0] not in (1, batch):
        raise ValueError(
            f"attention_mask must have shape (batch, tokens) or (batch, 1, tokens, keys) with "
            f"batch={batch}, got {tuple(mask.shape)}"
        )
    if mask.ndim == 2 and mask.shape[1] < past + length:
        raise ValueError(
            f"attention_mask has {mask.shape[1]} tokens a row for {length} tokens: it must cover "
            f"them and the {past} in the cache"
        )
    if mask.ndim == 4 and (mask.shape[2] not in (1, length) or mask.shape[3] < past + length):
        raise ValueError(
            f"a 4-D attention_mask must have shape (batch, 1, {length}, {past + length}), got "
            f"{tuple(mask.shape)}"
        )
    if mask.ndim == 4 and mask.dtype != torch.bool and not mask.is_floating_point():
        raise TypeError(
            f"a 4-D attention_mask is bool (True where a token may look) or a number that is added "
            f"to the scores, got {mask.dtype}: use mask.bool()"
        )


def _check_cache(config: HelmConfig, cache: Cache, batch: int, heads: int) -> None:
    layers = getattr(cache, "layers", [])
    if len(layers) > config.num_hidden_layers:
        raise ValueError(
            f"past_key_values has {len(layers)} layers, the model has {config.num_hidden_layers}: "
            "it is the cache of another model"
        )
    keys = getattr(layers[0], "keys", None) if layers else None
    if not isinstance(keys, Tensor) or keys.ndim != 4:
        return
    expected = heads, config.head_dim
    if (keys.shape[1], keys.shape[3]) != expected:
        raise ValueError(
            f"past_key_values has {keys.shape[1]} heads of {keys.shape[3]} channels, the model "
            f"{expected[0]} of {expected[1]}: it is the cache of another model"
        )
    if keys.shape[0] != batch:
        raise ValueError(
            f"past_key_values is of a batch of {keys.shape[0]}, the tokens are of one of {batch}"
        )


def _check_positions(config: HelmConfig, positions: Tensor | None, end: int) -> None:
    parameters: Any = config.rope_parameters or {}
    if parameters.get("rope_type", "default") != "default":
        return
    if positions is not None:
        if positions.device.type != "cpu" or not positions.numel():
            return
        end = int(positions.max()) + 1
    if end > config.max_position_embeddings:
        raise ValueError(
            f"position {end - 1} lies beyond max_position_embeddings="
            f"{config.max_position_embeddings}: use shorter sequences, or scale positions, as with "
            'rope_parameters={"rope_type": "yarn", "factor": 4.0, "rope_theta": 10000.0}'
        )
