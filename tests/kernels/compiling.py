"""Compiles kernels for a GPU, which needs none: what the interpreter takes, the compiler may not.

Run as a program, without TRITON_INTERPRET, it says of each kernel how many bytes its registers do
not hold: a tile that spills is slower than plain torch.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

WIDE = {"gram_ptr", "n2_ptr", "m2_ptr", "dn2_ptr", "by_c_ptr", "between_ptr", "value_ptr"}
WIDE |= {"slope_ptr"}
FLOATS = {"c_or_ptr", "scaling", "cap_squared", "begin", "up", "down"}


def spilled(
    kernel: Any,
    constants: dict[str, Any],
    pointers: str | None = None,
    floats: str = "fp32",
    arguments: tuple[Any, ...] = (),
    **options: Any,
) -> int:
    """Bytes of a stack; what pointers point to is told, by arguments, or goes by their names."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    options |= {name: n for name, n in constants.items() if name not in kernel.arg_names}
    constants = {name: n for name, n in constants.items() if name not in options}
    given = dict(zip(kernel.arg_names, arguments, strict=False))
    constants |= {name: None for name, value in given.items() if value is None}
    kinds: dict[str, str] = {}
    for name in kernel.arg_names:
        if name in constants:
            kinds[name] = "constexpr"
        elif name in given:
            value = given[name]
            narrow = {"torch.bfloat16": "*bf16", "torch.float32": "*fp32"}
            number = "i32" if isinstance(value, int) else floats
            kinds[name] = narrow[str(value.dtype)] if hasattr(value, "dtype") else number
        elif name in FLOATS:
            kinds[name] = floats
        elif name.endswith("_ptr"):
            kinds[name] = pointers or ("*fp32" if name in WIDE else "*bf16")
        else:
            kinds[name] = "i32"
    places = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
    # Addresses and sizes are multiples of 16, as Triton finds out of those that are.
    multiples = [i for i, kind in enumerate(kinds.values()) if kind == "i32" or kind[0] == "*"]
    attributes = {(i,): [["tt.divisibility", 16]] for i in multiples}
    source = ASTSource(kernel, kinds, places, attributes)
    built = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(built.asm["cubin"])
        file.flush()
        used = subprocess.run(
            [tool, "-res-usage", file.name], capture_output=True, text=True, check=True
        ).stdout
    found = re.search(r"STACK:(\d+)", used)
    assert found is not None, used
    return int(found[1])


def spills_of(kernels: str) -> list[int]:
    """Of each of some kernels of this file; skips the test where Triton has not its tools."""
    return [int(line) for line in _printed("spills", kernels)]


def kernels_seen(case: str) -> list[list[str]]:
    """Which arguments each kernel writes that `torch.compile` finds in an adapted layer."""
    return [line.split() for line in _printed("kernels", case)]


def size_guards() -> tuple[str, list[str]]:
    """The size of the traced result of an adapted layer, and the guards on the number of tokens."""
    size, *guards = _printed("kernels", "any number of tokens")
    return size, guards


def _printed(what: str, of: str) -> list[str]:
    pytest.importorskip("triton.backends.nvidia", reason="Triton's compiler for CUDA is not there")
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.kernels.compiling", what, of],
        capture_output=True,
        text=True,
        env=environment,
        cwd=Path(__file__).parents[2],
    )
    last = (done.stderr.strip().splitlines() or [""])[-1]
    missing = any(word in last for word in ("ImportError", "ModuleNotFound", "FileNotFound"))
    if missing and ("triton" in last or "cuobjdump" in last):
        pytest.skip(f"this Triton compiles in another way, or has not its tools here: {last}")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def row_gaps() -> Iterator[int]:
    """In float32 and in float64."""
    from beltrami.kernels.pairs import row_gaps_triton as module

    for dtype, (rows, steps) in module.ROWS_AND_STEPS.items():
        sizes = {"ROWS": rows, "COLUMNS": module.COLUMNS, "STEPS": steps}
        pointers = "*fp32" if "32" in str(dtype) else "*fp64"
        yield spilled(module._gaps, sizes, pointers, num_warps=module.WARPS)


def adapted_linear() -> Iterator[int]:
    """At the sizes of the benchmark."""
    import torch

    from beltrami.kernels.hyplora import adapted_linear_triton as adapted
    from beltrami.kernels.hyplora.gain import Gain
    from beltrami.kernels.layers import curvature_law_triton as law

    for rank, stereographic in ((16, False), (32, False), (32, True)):
        rows = {
            "C_STORED": False,
            "LIMITED": True,
            "STEREOGRAPHIC": stereographic,
            "RANK": rank,
            "ROWS": adapted.FORWARD_ROWS,
            "COLUMNS": adapted.COLUMNS,
            "WIDEN": False,
        }
        for kernel in (adapted._rows, adapted._gradient_rows):
            yield spilled(kernel, rows)
            yield spilled(kernel, rows, floats="fp64")  # as torch.compile hands numbers over
        x, out = (torch.empty(1, n, dtype=torch.bfloat16) for n in (4096, 14336))
        down, up = x.new_empty(rank, 4096), x.new_empty(14336, rank)
        with patch.object(adapted, "launch") as launch:
            adapted.few(x, down, up, Gain(1.0, 1.0, 5.0, stereographic), out)
        for call in launch.call_args_list:
            yield spilled(call.args[0], call.kwargs)
    yield spilled(law._law, {"COUNT": law.COUNT})


def helm_block() -> Iterator[int]:
    """Forwards and backwards, at the sizes of the benchmark."""
    from beltrami.kernels.launch import dispatch
    from beltrami.kernels.layers import gated_triton, heads_triton, residual_norm_triton
    from benchmarks.helm_kernels import operations

    modules = (residual_norm_triton, heads_triton, heads_triton, gated_triton)
    dispatch._INTERPRETED = True
    for module, operation in zip(modules, operations(1024, 1, "cpu"), strict=True):
        with patch.object(module, "launch") as launch:
            operation.both(True)()  # forwards twice
        for call in launch.call_args_list[len(launch.call_args_list) // 3 :]:
            kernel, _, *arguments = call.args
            yield spilled(kernel, call.kwargs, arguments=tuple(arguments))


def traced_adapted_linear(
    tokens: int, *, learned: bool = False, device: str = "cpu"
) -> Iterator[str]:
    """What is written by the kernels, as autograd hands them to a compiler.

    A torch that knows no GPU traces the passes of one, but only without gradients.
    """
    import torch
    from torch._functorch.aot_autograd import aot_function, make_boxed_func
    from torch._subclasses import FakeTensorMode

    from beltrami.kernels.hyplora.adapted_linear_operator import adapted_linear_operator
    from beltrami.kernels.hyplora.gain import Gain

    graphs = []

    def look(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return make_boxed_func(graph)

    def function(*tensors: Any) -> Any:
        x, weight, down, up, c = tensors
        c = c if learned else 0.3
        return adapted_linear_operator(x, weight, None, down, up, Gain(c, 2.0, 10.0))

    sizes = [(tokens, 256), (512, 256), (32, 256), (512, 32)]
    with FakeTensorMode(allow_non_fake_inputs=True):
        tensors = [torch.empty(s, dtype=torch.bfloat16, device=device) for s in sizes]
        tensors.append(torch.empty(1, device=device))
        if device == "cpu":
            for t in tensors if learned else tensors[:-1]:
                t.requires_grad_()
        y = aot_function(function, look, look)(*tensors)
        if device == "cpu":
            y.backward(torch.empty_like(y))
    for graph in graphs:
        for node in graph.graph.nodes:
            if "triton_kernel" in str(node.target):
                yield " ".join(node.kwargs["tensors_to_clone"])
            elif "auto_functionalized" in str(node.target):
                yield str(node.args[0])


def guards_of_any_size() -> Iterator[str]:
    """What has to hold of the number of tokens for the traced code of an adapted layer."""
    import torch
    from torch._functorch.aot_autograd import aot_function, make_boxed_func
    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import (
        DimDynamic,
        ShapeEnv,
        StatelessSymbolicContext,
    )

    from beltrami.kernels.hyplora.adapted_linear_operator import adapted_linear_operator
    from beltrami.kernels.hyplora.gain import Gain

    def function(*tensors: Any) -> Any:
        x, weight, down, up = tensors
        return adapted_linear_operator(x, weight, None, down, up, Gain(0.3, 2.0, 10.0))

    sizes = [(6, 256), (512, 256), (32, 256), (512, 32)]
    x, *rest = (torch.empty(s, dtype=torch.bfloat16, requires_grad=True) for s in sizes)
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    any_size = StatelessSymbolicContext([DimDynamic.DYNAMIC, DimDynamic.STATIC])
    tensors = [mode.from_tensor(x, symbolic_context=any_size)]
    tensors += [mode.from_tensor(t, static_shapes=True) for t in rest]

    def keep(graph: Any, _: Any) -> Any:
        return make_boxed_func(graph)

    with mode:
        y = aot_function(function, keep, keep, dynamic=True)(*tensors)
    yield " ".join(map(str, y.shape))
    yield from (str(guard.expr) for guard in mode.shape_env.guards)


def _pretend_to_have_a_gpu() -> None:
    """Triton reads kernels for the GPU that is there."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    class Driver:
        def get_current_target(self) -> GPUTarget:
            return GPUTarget("cuda", 90, 32)

    driver.set_active(Driver())


if __name__ == "__main__":
    if sys.argv[1] == "kernels":
        _pretend_to_have_a_gpu()
        printed: dict[str, Any] = {
            "many tokens": lambda: traced_adapted_linear(8192),
            "many tokens, learned c": lambda: traced_adapted_linear(8192, learned=True),
            "some tokens": lambda: traced_adapted_linear(512),
            "on a GPU": lambda: traced_adapted_linear(8192, device="cuda"),
            "any number of tokens": guards_of_any_size,
        }
    else:
        printed = {"row_gaps": row_gaps, "adapted_linear": adapted_linear, "helm": helm_block}
    for line in printed[sys.argv[2]]():
        print(line)
