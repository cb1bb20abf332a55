"""The fused operations of a HELM block: time beside the bytes that they must move.

Each runs forwards and backwards as Triton kernels, as plain operators, and as those compiled, with
16k tokens, float32 streams and bfloat16 branches, as under autocast. `bytes` is what must be read
and written if nothing is read twice; what plain operators and compiled graphs read and write is
counted. `ideal` is the time of the bytes at the bandwidth of a large copy. `gpu` is the time of a
captured graph, `wall` that of calls from Python.

    python -m benchmarks.helm_kernels --device cuda
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
import tyro
from torch import Tensor
from torch._functorch import config as functorch_config
from torch._inductor import config as inductor_config
from torch._inductor import metrics
from torch.utils._python_dispatch import TorchDispatchMode

from beltrami.kernels.layers.gated import gated
from beltrami.kernels.layers.heads import head_centroid, head_tiles
from beltrami.kernels.layers.residual_norm import residual_norm

HEAD_DIM, TIME_CHANNELS, SEQUENCE = 64, 4, 2048
HEADER = (
    f"{'operation':24}{'version':11}{'gpu ms':>9}{'wall ms':>9}{'ideal ms':>9}{'MB':>8}{'x':>7}"
)


@dataclass(frozen=True)
class Options:
    """Time the operations of one block."""

    device: Literal["cpu", "cuda"] = "cpu"
    """cpu: Triton's interpreter, to see that everything runs; it needs TRITON_INTERPRET=1."""
    widths: tuple[int, ...] = (1024, 2048)
    """Of the stream; the MLP is 4 times as wide."""
    tokens: int = 16384
    """In sequences of 2048."""
    only: str = ""
    """Operations whose name contains this."""
    compiled: bool = True
    """Whether plain operators are compiled as well, which takes most of the time."""


@dataclass(frozen=True)
class Operation:
    """A function of tensors that takes `fused`; `rereads` is what its backward pass must read."""

    name: str
    function: Callable[..., Sequence[Tensor | None]]
    inputs: tuple[Tensor, ...]
    rereads: Literal["inputs", "results"] = "inputs"

    def both(self, fused: bool | None, compiled: bool = False) -> Callable[[], Any]:
        """A function that runs it forwards and backwards."""

        def forward(*tensors: Tensor) -> list[Tensor]:
            return [t for t in self.function(*tensors, fused=fused) if t is not None]

        if compiled:
            forward = torch.compile(forward, fullgraph=True, dynamic=False)
        inputs = [t.detach().requires_grad_() for t in self.inputs]
        weights = [torch.randn_like(t) for t in forward(*inputs)]
        return lambda: torch.autograd.grad(forward(*inputs), inputs, weights)

    def least_bytes(self) -> int:
        """Each tensor once a pass."""
        with torch.no_grad():
            results = [t for t in self.function(*self.inputs, fused=False) if t is not None]
        given, made = _bytes(self.inputs), _bytes(results)
        return 2 * (given + made) + (given if self.rereads == "inputs" else made)


def operations(width: int, tokens: int, device: str) -> Iterator[Operation]:
    """Those of a block, at bfloat16 but for the stream."""

    def make(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
        return torch.randn(*shape, device=device, dtype=dtype)

    narrow = torch.float32
    batch, heads, hidden = max(1, tokens // SEQUENCE), width // HEAD_DIM, 4 * width
    shape, size = (batch, tokens // batch), HEAD_DIM - TIME_CHANNELS
    radius = torch.full((1,), math.sqrt(width), device=device)
    column = make(*shape, 1, dtype=narrow).abs(), make(width, dtype=narrow)

    def residual(x: Tensor, y: Tensor, g: Tensor, w: Tensor, r: Tensor, tau: Tensor, w_tau: Tensor,
                 **options: Any) -> tuple[Tensor | None, ...]:  # fmt: skip
        with torch.autocast(device, torch.bfloat16):
            return residual_norm(
                x, y, g, w, radius=r, keep=True, tau=tau, time_weight=w_tau, **options
            )

    vectors = (make(width, dtype=narrow), torch.ones(1, device=device), radius)
    stream = (make(*shape, width, dtype=narrow), make(*shape, width))
    yield Operation("residual_norm", residual, (*stream, *vectors, *column))
    angles = make(1, shape[1], size // 2, dtype=narrow)
    tables = angles.cos(), angles.sin()

    def tiles(q: Tensor, k: Tensor, v: Tensor, r: Tensor, s: Tensor, **options: Any) -> Any:
        return head_tiles(q, k, v, *tables, radius=r, scale=s, width=HEAD_DIM, **options)

    qkv = tuple(make(*shape, heads, size) for _ in range(3))
    head_radius, scale = torch.full((1,), 8.0, device=device), torch.ones(heads, 1, device=device)
    yield Operation("head_tiles", tiles, (*qkv, head_radius, scale), "results")

    def centroid(mean: Tensor, r: Tensor, time_radius: Tensor, **options: Any) -> Any:
        return head_centroid(mean, size, radius=r, time_radius=time_radius, **options)

    mean = make(*shape, heads, HEAD_DIM)
    mean[..., size] = 12.0
    yield Operation("head_centroid", centroid, (mean, head_radius, radius))

    def gate(g: Tensor, u: Tensor, r: Tensor, **options: Any) -> tuple[Tensor | None, ...]:
        return gated(g, u, radius=r, **options)

    yield Operation("gated", gate, (make(*shape, hidden), make(*shape, hidden), 2 * radius))


class _Traffic(TorchDispatchMode):
    """Bytes that operators read and write, each tensor of each."""

    total = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        out = function(*args, **(kwargs or {}))
        if not function.is_view and "detach" not in str(function):
            self.total += _bytes([*args, *(out if isinstance(out, tuple | list) else [out])])
        return out


def _bytes(tensors: Sequence[Any]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors if isinstance(t, Tensor))


def bandwidth(device: str) -> float:
    """Bytes a second of a large copy."""
    size = 1 << (30 if device == "cuda" else 22)
    a = torch.zeros(size, dtype=torch.uint8, device=device)
    b = torch.empty_like(a)
    return 2 * size / (milliseconds(lambda: b.copy_(a), device)[0] / 1e3)


def milliseconds(run: Callable[[], Any], device: str) -> tuple[float, float]:
    """Of a captured graph, and of calls from Python; on a CPU both are the latter."""
    repeats = 20 if device == "cuda" else 1
    for _ in range(3 if device == "cuda" else 1):
        run()
    _wait(device)
    begin = time.perf_counter()
    for _ in range(repeats):
        run()
    _wait(device)
    wall = (time.perf_counter() - begin) * 1e3 / repeats
    if device == "cpu":
        return wall, wall
    from triton.testing import do_bench_cudagraph

    try:
        return do_bench_cudagraph(run, rep=40), wall
    except RuntimeError as error:  # what cannot be captured
        print(error)
        return wall, wall


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _count_compiled_bytes() -> None:
    """A compiler counts its bytes where it logs them, and compiles what is not in its cache."""
    logger = logging.getLogger("torch._inductor.compile_fx.__inductor_metrics")
    logger.setLevel(logging.INFO)
    logger.propagate, logger.handlers = False, [logging.NullHandler()]
    inductor_config.fx_graph_cache = False
    functorch_config.enable_autograd_cache = False


def main(options: Options) -> None:
    """Print a row for each operation and version."""
    device = options.device
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if options.compiled:
        _count_compiled_bytes()
    speed = bandwidth(device)
    print(f"copy: {speed / 1e12:.2f} TB/s, torch {torch.__version__}\n{HEADER}", flush=True)
    for width in options.widths:
        for operation in operations(width, options.tokens, device):
            if options.only not in operation.name:
                continue
            least = operation.least_bytes()
            for version in ("fused", "plain", "compiled")[: 3 if options.compiled else 2]:
                metrics.reset()
                run = operation.both(version == "fused", version == "compiled")
                moved = least
                if version == "plain":
                    with _Traffic() as traffic:
                        run()
                    moved = traffic.total
                gpu, wall = milliseconds(run, device)
                if version == "compiled":
                    moved = metrics.num_bytes_accessed
                ideal = least / speed * 1e3
                print(
                    f"{operation.name + f', {width}':24}{version:11}{gpu:9.3f}{wall:9.3f}"
                    f"{ideal:9.3f}{moved / 1e6:8.1f}{gpu / ideal:7.1f}",
                    flush=True,
                )
        torch.compiler.reset()


if __name__ == "__main__":
    main(tyro.cli(Options))
