"""What every kernel must do, whatever it computes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from beltrami.analysis import saved_memory as memory


def saved_bytes(function: Callable[[], Tensor], *, besides: tuple[Tensor, ...] = ()) -> int:
    """Bytes kept for the backward pass of something that has one."""
    kept, out = memory.saved_bytes(function, besides=besides)
    assert out.requires_grad
    return kept


def leaf(*shape: int, dtype: torch.dtype = torch.float64, scale: float = 1.0) -> Tensor:
    return (scale * torch.randn(*shape, dtype=dtype)).requires_grad_()


def gradients(function: Callable[..., Tensor], *inputs: Tensor) -> tuple[Tensor, ...]:
    """Gradients of a fixed random projection of the output."""
    out = function(*inputs)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(7)).to(out)
    return torch.autograd.grad((out * weights).sum(), inputs)


def assert_compiles(function: Callable[..., Tensor], *inputs: Tensor) -> None:
    """One graph, and the values and gradients of eager mode."""
    compiled = torch.compile(function, fullgraph=True)
    torch.testing.assert_close(compiled(*inputs), function(*inputs), rtol=1e-5, atol=1e-5)
    for got, expected in zip(
        gradients(compiled, *inputs), gradients(function, *inputs), strict=True
    ):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
