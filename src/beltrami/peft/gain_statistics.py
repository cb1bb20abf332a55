"""What gains tokens get: the one number a token by which HypLoRA differs from LoRA."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from beltrami.kernels.hyplora.gained_linear import gram_matrix, squared_norms
from beltrami.kernels.launch.dtypes import no_autocast, upcast
from beltrami.peft.layer import HypLoraLayer
from beltrami.peft.projections import UpProjection


@torch.no_grad()
def measure_gains(
    model: nn.Module, batches: Iterable[Mapping[str, Tensor]], *, adapter: str = "default"
) -> dict[str, Tensor]:
    """The gain |Δ|/|B·A·x| of every token in every adapted layer.

    A layer whose B is 0, as it is before training, has no gains to speak of and is left out, and so
    are tokens that its update does not move.

    Args:
        model: with HypLoRA adapters.
        batches: keyword arguments for it. Tokens that `attention_mask` leaves out do not count.
        adapter: whose gains.

    Returns: for each layer's name its gains, (tokens,) in float32 at least, on the CPU.
    """
    parts_of: dict[str, list[Tensor]] = {}
    mask: dict[str, Tensor | None] = {"now": None}
    training = model.training
    with ExitStack() as hooks:
        for name, layer in model.named_modules():
            if isinstance(layer, HypLoraLayer) and adapter in layer.hyplora_B:
                hook = layer.hyplora_B[adapter].register_forward_pre_hook(
                    partial(_record, parts_of.setdefault(name, []), mask), with_kwargs=True
                )
                hooks.callback(hook.remove)
        if not parts_of:
            raise ValueError(f"the model has no HypLoRA adapter named {adapter!r}")
        if not any(adapter in layer.active_adapters for layer in _adapted(model)):
            raise ValueError(f"adapter {adapter!r} is not active; call set_adapter({adapter!r})")
        if any(layer.disable_adapters or layer.merged for layer in _adapted(model)):
            raise ValueError("adapters are disabled or merged: there are no gains to measure")
        model.eval()
        try:
            for batch in batches:
                mask["now"] = batch.get("attention_mask")
                model(**batch)
        finally:
            model.train(training)
    gains = {name: torch.cat(parts) for name, parts in parts_of.items() if parts}
    return {name: values for name, values in gains.items() if len(values)}


def _adapted(model: nn.Module) -> Iterator[HypLoraLayer]:
    return (layer for layer in model.modules() if isinstance(layer, HypLoraLayer))


def _record(
    gains: list[Tensor],
    mask: Mapping[str, Tensor | None],
    up: UpProjection,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> None:
    u, n2, curvatures, *rest = args
    time_in = rest[0] if rest else kwargs.get("time_in")
    with no_autocast(u):  # norms are not for bfloat16
        z, weight = up.adapter_map.coefficients(
            u, n2, curvatures, up.weight, time_in=time_in, time_out=up.time_weight
        )
        before = squared_norms(upcast(u), gram_matrix(up.weight)).squeeze(-1)
        after = squared_norms(upcast(z), gram_matrix(weight)).squeeze(-1)
    counts = before > 0
    tokens = mask["now"]
    if tokens is not None and tokens.shape == counts.shape:
        counts &= tokens.bool()
    gains.append((after[counts] / before[counts]).sqrt().cpu())
