"""What every kernel must do, whatever it computes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func

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


def results(
    function: Callable[..., tuple[Tensor | None, ...]], *inputs: Tensor, device: str = "cpu"
) -> list[Tensor]:
    """What a function returns and the gradients of all of it, projected; on the CPU."""
    inputs = tuple(t.detach().to(device).requires_grad_() for t in inputs)
    out = [t for t in function(*inputs) if t is not None]
    generator = torch.Generator().manual_seed(7)
    weights = [torch.randn(t.shape, generator=generator).to(t) for t in out]
    total = sum((t * w).sum(dtype=torch.float64) for t, w in zip(out, weights, strict=True))
    by_inputs = torch.autograd.grad(total, inputs, allow_unused=True, materialize_grads=True)
    return [t.detach().cpu() for t in (*out, *by_inputs)]


def assert_fused(
    function: Callable[..., tuple[Tensor | None, ...]],
    *inputs: Tensor,
    device: str = "cpu",
    beside: torch.dtype | None = torch.float64,
) -> None:
    """The kernels of a function give what its plain version gives in float64, but for rounding.

    Each number may be wrong by a unit in the last place of the largest in half precision, and by
    some of float32. `beside=None` compares with the plain version as it is, which rounds as well;
    the interpreter cuts off what it should round.
    """
    fused = results(lambda *t: function(*t, fused=True), *inputs, device=device)
    plain = results(lambda *t: function(*t, fused=False), *inputs)
    wide = inputs if beside is None else tuple(t.to(beside) for t in inputs)
    exact = results(lambda *t: function(*t, fused=False), *wide)
    half = any(t.dtype.itemsize == 2 for t in inputs)
    for a, b, c in zip(fused, plain, exact, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        if c.numel():
            tolerance = 20 * torch.finfo(torch.float32).eps
            if half:
                tolerance = 2.0**-7 if beside else 2.0**-6
            assert (a.double() - c.double()).abs().max() <= tolerance * c.abs().max()


def assert_compiles_fused(
    function: Callable[..., tuple[Tensor | None, ...]], inputs: Callable[[int], tuple[Tensor, ...]]
) -> None:
    """One graph for any number of tokens, with the kernels in it."""
    graphs = []

    def look(graph: torch.fx.GraphModule, _: object) -> object:
        graphs.append(graph)
        return make_boxed_func(graph)

    torch.compiler.reset()  # of functions of another test
    backend = aot_autograd(fw_compiler=look, bw_compiler=look)
    compiled = torch.compile(function, fullgraph=True, dynamic=True, backend=backend)
    for tokens in (7, 11):
        given = inputs(tokens)
        with torch._dynamo.config.patch(error_on_recompile=True):
            got = results(compiled, *given)
        for a, b in zip(got, results(function, *given), strict=True):
            torch.testing.assert_close(a, b)
    forward, backward = graphs
    for graph in (forward, backward):
        names = [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]
        assert sum(name.startswith("beltrami.") for name in names) == 1, names


def assert_compiles(function: Callable[..., Tensor], *inputs: Tensor) -> None:
    """One graph, and the values and gradients of eager mode."""
    compiled = torch.compile(function, fullgraph=True)
    torch.testing.assert_close(compiled(*inputs), function(*inputs), rtol=1e-5, atol=1e-5)
    for got, expected in zip(
        gradients(compiled, *inputs), gradients(function, *inputs), strict=True
    ):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
