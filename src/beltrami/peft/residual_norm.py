"""The norm of the residual stream, for layers that see only what normalisation left of it."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle


class ResidualNorm:
    """The mean square of each token in the stream that was normalised last.

    Hooks on a model's normalisations of its full width write it, adapted layers read it. Those of
    another width (of single heads, say) are not the residual stream and are left alone.
    """

    def __init__(self, model: nn.Module) -> None:
        self.mean_square: Tensor | None = None
        norms = [m for m in model.modules() if _is_norm(m)]
        if not norms:
            raise ValueError(
                'norm_source="residual" needs a model with normalisation layers, and '
                f'{type(model).__name__} has none; use norm_source="input"'
            )
        width = _hidden_size(model) or Counter(_width(m) for m in norms).most_common(1)[0][0]
        self._handles: list[RemovableHandle] = [
            m.register_forward_pre_hook(partial(_record, self)) for m in norms if _width(m) == width
        ]
        if not self._handles:
            raise ValueError(
                f'norm_source="residual" found no normalisation of the model\'s width, {width}; '
                'use norm_source="input"'
            )

    def of(self, x: Tensor) -> Tensor:
        """(..., 1) for the tokens of x."""
        found = self.mean_square
        if found is None or found.shape[:-1] != x.shape[:-1]:
            seen = "none" if found is None else tuple(found.shape[:-1])
            raise ValueError(
                'norm_source="residual": the last normalisation before this layer saw tokens of '
                f"shape {seen}, the layer has {tuple(x.shape[:-1])}; exclude the layer, or use "
                'norm_source="input"'
            )
        return found

    def remove(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self.mean_square = None


def _record(recorder: ResidualNorm, module: nn.Module, args: tuple[Any, ...]) -> None:
    recorder.mean_square = args[0].float().square().mean(-1, keepdim=True)


def _is_norm(module: nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    named = type(module).__name__.lower().endswith(("rmsnorm", "layernorm", "norm"))
    return named and isinstance(weight, Tensor) and weight.ndim == 1


def _width(module: nn.Module) -> int:
    return int(module.weight.numel())  # type: ignore[operator]


def _hidden_size(model: nn.Module) -> int | None:
    config = getattr(model, "config", None)
    size = getattr(config, "hidden_size", None)
    return size if isinstance(size, int) else None
