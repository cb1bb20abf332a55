"""The geometry on a CUDA device: same results as on the CPU, no synchronisation, no bf16 leaks."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from beltrami.geometry import lorentz, poincare

pytestmark = pytest.mark.gpu

ONE = {
    "lorentz.exp0": lorentz.exp0,
    "lorentz.log0": lorentz.log0,
    "lorentz.time": lorentz.time,
    "lorentz.dist0": lorentz.dist0,
    "poincare.exp0": poincare.exp0,
}
TWO = {
    "lorentz.dist": lorentz.dist,
    "lorentz.dist_sq": lorentz.dist_sq,
    "lorentz.exp": lorentz.exp,
    "lorentz.log": lorentz.log,
    "lorentz.midpoint": lorentz.midpoint,
    "lorentz.boost": lorentz.boost,
    "lorentz.pairwise_dist": lorentz.pairwise_dist,
    "poincare.dist": lambda x, y, c: poincare.dist(
        poincare.from_lorentz(x, c), poincare.from_lorentz(y, c), c
    ),
    "poincare.mobius_add": lambda x, y, c: poincare.mobius_add(
        poincare.from_lorentz(x, c), poincare.from_lorentz(y, c), c
    ),
}
CASES = [
    *(pytest.param(f, 1, id=n) for n, f in ONE.items()),
    *(pytest.param(f, 2, id=n) for n, f in TWO.items()),
    pytest.param(lorentz.transport, 3, id="lorentz.transport"),
    pytest.param(lambda x, c: lorentz.centroid(x, None, c), 1, id="lorentz.centroid"),
]


def _inputs(count: int, dtype: torch.dtype) -> list[Tensor]:
    g = torch.Generator().manual_seed(0)
    return [
        lorentz.uniform_ball(33, 17, radius=3.0, dtype=dtype, generator=g) for _ in range(count)
    ]


@pytest.fixture
def no_sync() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("function", "count"), CASES)
def test_same_as_on_the_cpu(
    function: Callable[..., Tensor], count: int, dtype: torch.dtype
) -> None:
    results = []
    for device in ("cpu", "cuda"):
        args = [x.to(device).requires_grad_() for x in _inputs(count, dtype)]
        c = torch.full((1,), 0.7, dtype=dtype, device=device, requires_grad=True)
        out = function(*args, c)
        cotangent = torch.linspace(0.5, 1.5, out.numel(), dtype=dtype).reshape(out.shape)
        grads = torch.autograd.grad(out, [*args, c], cotangent.to(device))
        results.append([t.cpu() for t in (out, *grads)])
    tolerance = {"rtol": 2e-5, "atol": 1e-5} if dtype == torch.float32 else {}
    for cpu, cuda in zip(*results, strict=True):
        torch.testing.assert_close(cuda, cpu, **tolerance)


@pytest.mark.parametrize(("function", "count"), CASES)
def test_does_not_wait_for_the_device(
    function: Callable[..., Tensor], count: int, no_sync: None
) -> None:
    args = [x.to("cuda", non_blocking=True).requires_grad_() for x in _inputs(count, torch.float32)]
    c = torch.ones(1, device="cuda", requires_grad=True)
    function(*args, c).sum().backward()
    assert all(a.grad is not None for a in args)


@pytest.mark.parametrize(("function", "count"), CASES)
def test_autocast_does_not_touch_the_geometry(function: Callable[..., Tensor], count: int) -> None:
    args = [x.cuda() for x in _inputs(count, torch.float32)]
    exact = function(*args, 0.7)
    with torch.autocast("cuda", torch.bfloat16):
        torch.testing.assert_close(function(*args, 0.7), exact)


def test_devices_are_not_mixed() -> None:
    x = torch.zeros(2, 3)
    with pytest.raises(ValueError, match="x is on cpu but y is on cuda"):
        lorentz.dist(x, x.cuda())


@pytest.mark.parametrize("name", ["lorentz.dist", "lorentz.log", "poincare.dist"])
def test_compiled_for_the_device(name: str) -> None:
    x, y = (t.cuda().requires_grad_() for t in _inputs(2, torch.float32))
    function = TWO[name]
    results = []
    for f in (function, torch.compile(function, fullgraph=True)):
        out = f(x, y, 0.7)
        results.append((out, *torch.autograd.grad(out.sum(), (x, y))))
    for eager, compiled in zip(*results, strict=True):
        torch.testing.assert_close(compiled, eager, rtol=2e-5, atol=1e-5)
