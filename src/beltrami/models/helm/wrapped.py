"""What a linear layer multiplies by, whatever wraps it: adapters, quantisation, other engines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, cast

import torch
from torch import Tensor, nn


def is_plain(layer: nn.Module) -> bool:
    """Whether a layer is its matrix: no adapter, quantisation, hook or sharding in the way."""
    if type(layer) is not nn.Linear or has_hooks(layer):
        return False
    return is_whole(layer.weight)


def is_whole(weight: object) -> bool:
    """Whether a parameter is its numbers: not split over processes, not quantised."""
    return type(weight) is nn.Parameter or type(weight) is Tensor


def has_hooks(layer: nn.Module) -> bool:
    """Whether something happens when a layer is called, beside its product."""
    return bool(layer._forward_hooks or layer._forward_pre_hooks or hasattr(layer, "_hf_hook"))


def must_be_called(layer: nn.Module) -> bool:
    """Whether `layer(x)` is another number than the product with `matrix_of(layer)`."""
    dropout = [m for m in layer.modules() if isinstance(m, nn.Dropout) and m.p]
    return has_hooks(layer) or (layer.training and bool(dropout))


@contextmanager
def at_hand(layer: nn.Module) -> Iterator[None]:
    """Inside, parameters that accelerate keeps on another device or on disk are there."""
    hook: Any = getattr(layer, "_hf_hook", None)
    if hook is None:
        yield
        return
    hook.pre_forward(layer)
    try:
        yield
    finally:
        hook.post_forward(layer, None)


def keep_at_hand(layer: nn.Module) -> None:
    """Let accelerate keep parameters where they are used without a call of their module."""
    if hasattr(layer, "_hf_hook"):
        hooks: Any = import_module("accelerate.hooks")  # has no types
        cast(Any, layer._hf_hook).pre_forward(layer)
        hooks.remove_hook_from_module(layer)


def matrix_of(layer: nn.Module, asked_by: str) -> Tensor:
    """The matrix, (out, in), with its gradient; merging an adapter leaves it as it is.

    Args:
        layer: an `nn.Linear`, quantised or not, with LoRA adapters or a trained copy of PEFT's
            `modules_to_save` or not. Others are a `ValueError`.
        asked_by: who needs the matrix, for the message.
    """
    if hasattr(layer, "_hf_hook"):
        with at_hand(layer):
            return _matrix(layer, asked_by)
    return _matrix(layer, asked_by)


def _matrix(layer: nn.Module, asked_by: str) -> Tensor:
    wrapped: Any = layer
    if hasattr(layer, "original_module"):  # PEFT's modules_to_save
        copies, active = wrapped.modules_to_save, wrapped.active_adapters
        off = wrapped.disable_adapters or not active or active[0] not in copies
        return matrix_of(wrapped.original_module if off else copies[active[0]], asked_by)
    if not hasattr(layer, "base_layer"):
        return _weight(layer)
    if not hasattr(layer, "lora_A") or not isinstance(wrapped.base_layer, nn.Linear):
        raise ValueError(_message(layer, asked_by))
    if wrapped.disable_adapters and wrapped.merged:
        wrapped.unmerge()
    matrix = matrix_of(wrapped.base_layer, asked_by)
    if wrapped.disable_adapters or wrapped.merged:
        return matrix
    variants, biases = getattr(wrapped, "lora_variant", {}), getattr(wrapped, "lora_bias", {})
    for name in wrapped.active_adapters:
        if name not in wrapped.lora_A:
            continue
        if name in variants or biases.get(name) or layer._forward_pre_hooks:
            raise ValueError(_message(layer, asked_by))
        matrix = matrix + wrapped.get_delta_weight(name)
    return matrix


def _weight(layer: nn.Module) -> Tensor:
    weight = cast(Any, layer.weight)
    if is_whole(weight):  # first, and for the compiler all that there is
        return cast(Tensor, weight)
    if type(weight).__name__ in ("Int8Params", "Params4bit"):
        from transformers.integrations.bitsandbytes import dequantize_bnb_weight

        with torch.no_grad():
            return cast(Tensor, dequantize_bnb_weight(weight, getattr(layer, "state", None)))
    if type(weight).__module__.startswith("torchao."):
        return cast(Tensor, weight.dequantize())
    return cast(Tensor, weight)


def _message(layer: nn.Module, asked_by: str) -> str:
    return (
        f"{asked_by} reads the matrix of its layer, and {type(layer).__module__}."
        f"{type(layer).__name__} has none that is the same for all tokens: leave the layer out of "
        "target_modules, adapt it by plain LoRA (no DoRA, no bias, one adapter a batch), or train "
        'it whole, such as modules_to_save=["lm_head"]'
    )
