"""Saving the inputs of an autograd.Function when some of them may be plain numbers."""

from __future__ import annotations

from typing import Any

from torch import Tensor


def save_inputs(ctx: Any, inputs: tuple[Any, ...]) -> None:
    """Keep all inputs for the backward pass: tensors through autograd, the rest as they are."""
    ctx.constants = tuple(None if isinstance(value, Tensor) else (value,) for value in inputs)
    ctx.save_for_backward(*[value for value in inputs if isinstance(value, Tensor)])


def load_inputs(ctx: Any) -> list[Any]:
    """What `save_inputs` kept, in the same order."""
    saved, taken, values = ctx.saved_tensors, 0, []
    for constant in ctx.constants:
        if constant is None:
            values.append(saved[taken])
            taken += 1
        else:
            values.append(constant[0])
    return values
