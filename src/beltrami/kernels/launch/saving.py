"""Saving values of an autograd.Function when some of them may be plain numbers."""

from __future__ import annotations

from typing import Any

from torch import Tensor


def save_values(ctx: Any, values: tuple[Any, ...]) -> None:
    """Keep values for the backward pass: tensors through autograd, the rest as they are."""
    ctx.constants = tuple(None if isinstance(value, Tensor) else (value,) for value in values)
    ctx.save_for_backward(*[value for value in values if isinstance(value, Tensor)])


def load_values(ctx: Any) -> list[Any]:
    """What `save_values` kept, in the same order. Once: checkpoints unpack no tensor twice."""
    saved, taken, values = ctx.saved_tensors, 0, []
    for constant in ctx.constants:
        if constant is None:
            values.append(saved[taken])
            taken += 1
        else:
            values.append(constant[0])
    return values
