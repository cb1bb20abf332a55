"""The norm of the residual stream, for layers that see only what normalisation left of it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from beltrami.kernels.launch.dtypes import accumulation_dtype


class NoResidualNormError(ValueError):
    """A model has no such norm where it is asked for."""


class ResidualNorm:
    """The mean square of each token in the stream that a block has normalised last.

    Hooks on the normalisations that are the block's own children write it, adapted layers of the
    block read it, and it is forgotten where the block ends. So it is never another block's, also
    not when a block is computed again for its gradients, and no graph is held.

    Args:
        name: of the block.
        block: the module.
        trained: names of layers that PEFT will copy and train (`modules_to_save`).
    """

    def __init__(self, name: str, block: nn.Module, trained: Iterable[str] = ()) -> None:
        self.name = name
        self.mean_square: Tensor | None = None
        norms = {n: m for n, m in block.named_children() if _is_norm(m)}
        if not norms:
            raise NoResidualNormError(
                f'norm_source="residual": {name or "the model"} has no normalisation of its own '
                'to take the norm from; exclude its layers, or use norm_source="input"'
            )
        copied = [n for n in norms if any(f"{name}.{n}".endswith(t) for t in trained)]
        if copied:
            raise ValueError(
                f'norm_source="residual" reads from {", ".join(copied)} of {name}, which '
                "modules_to_save would replace by a copy; leave one of the two out"
            )
        self._handles: list[RemovableHandle] = [
            m.register_forward_pre_hook(partial(_record, self)) for m in norms.values()
        ]
        self._handles.append(block.register_forward_pre_hook(partial(_forget_before, self)))
        self._handles.append(block.register_forward_hook(partial(_forget_after, self)))

    def of(self, x: Tensor, rows: Tensor | None = None) -> Tensor:
        """(..., 1) for the tokens of x, which are these rows of the batch."""
        mean_square = self.mean_square
        if mean_square is not None and rows is not None:
            mean_square = mean_square[rows]
        if mean_square is None or mean_square.shape[:-1] != x.shape[:-1]:
            shape = None if mean_square is None else tuple(mean_square.shape[:-1])
            seen = "none" if shape is None else f"tokens of shape {shape}"
            raise NoResidualNormError(
                f'norm_source="residual": before this layer, the normalisations of {self.name} saw '
                f"{seen}; the layer has {tuple(x.shape[:-1])}. Models that normalise after their "
                'layers have no such norm: exclude the layer, or use norm_source="input"'
            )
        return mean_square

    def remove(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self.mean_square = None


def _record(recorder: ResidualNorm, module: nn.Module, args: tuple[Any, ...]) -> None:
    stream = args[0]
    # Not by squares, of which autograd would keep the stream in float32.
    wide = accumulation_dtype(stream.dtype)
    norm = torch.linalg.vector_norm(stream, dim=-1, keepdim=True, dtype=wide)
    recorder.mean_square = norm.square() / stream.shape[-1]


def _forget_before(recorder: ResidualNorm, module: nn.Module, args: tuple[Any, ...]) -> None:
    recorder.mean_square = None


def _forget_after(
    recorder: ResidualNorm, module: nn.Module, args: tuple[Any, ...], output: Any
) -> None:
    recorder.mean_square = None


def _is_norm(module: nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    named = type(module).__name__.lower().endswith("norm")
    return named and isinstance(weight, Tensor) and weight.ndim == 1
