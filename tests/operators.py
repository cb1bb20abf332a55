"""Counting the operators that a computation dispatches."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

# Operators that only describe the same memory in another way: they launch no kernel, so that what
# they cost is some microseconds of the host, which a compiler removes.
_VIEWS = """
    _reshape_alias _unsafe_view alias as_strided detach diagonal expand permute select slice split
    split_with_sizes squeeze t transpose unbind unfold unsqueeze view
"""
VIEWS = frozenset(_VIEWS.split())


class CountOperators(TorchDispatchMode):
    """Counts the operators dispatched inside the context, by name; `total()` leaves out views."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: collections.Counter[str] = collections.Counter()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.counts[str(function)] += 1
        return function(*args, **(kwargs or {}))

    def total(self) -> int:
        """How many operators ran, without views."""
        return sum(n for name, n in self.counts.items() if name.split(".")[1] not in VIEWS)


def count_operators(module: Callable[[Tensor], Tensor], x: Tensor) -> tuple[int, int]:
    """Operators of a forward pass and of its backward pass, both without views.

    Gradients are collected as in a step after `zero_grad`: no operator adds them up.
    """
    with CountOperators() as forward:
        out = module(x)
    g = torch.ones_like(out)
    for p in (x, *(module.parameters() if isinstance(module, torch.nn.Module) else ())):
        p.grad = None
    with CountOperators() as backward:
        out.backward(g)
    return forward.total(), backward.total()
