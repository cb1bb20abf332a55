"""The largest gains of rows, plain and fused; in Triton's interpreter where there is no GPU."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from torch import Tensor

from beltrami.kernels.row_gaps import row_gaps

SIZES = [1, 2, 3, 17, 64, 65, 130]


def matrix(n: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    a = torch.randn(n, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (a + a.mT).to(dtype).fill_diagonal_(-torch.inf)


def by_hand(a: Tensor, first: int, last: int) -> list[float]:
    found = []
    for i in range(first, last):
        gains = [float(torch.minimum(a[i], a[:, j]).max() - a[i, j]) for j in range(i + 1, len(a))]
        found.append(max(gains, default=float("-inf")))
    return found


@pytest.mark.parametrize("n", SIZES)
def test_the_definition(n: int) -> None:
    a = matrix(n)
    assert row_gaps(a, 0, n).tolist() == by_hand(a, 0, n)
    assert row_gaps(a, n // 2, n).tolist() == by_hand(a, n // 2, n)
    assert len(row_gaps(a, n, n)) == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("n", SIZES)
def test_fused_is_the_plain_one(n: int, dtype: torch.dtype, device: str) -> None:
    pytest.importorskip("triton", reason="Triton comes for Linux alone")
    a = matrix(n, dtype).to(device)
    for first, last in ((0, n), (n // 3, n - n // 4)):
        found = row_gaps(a, first, last, fused=True)
        assert found.dtype == dtype
        assert torch.equal(found.cpu(), row_gaps(a.cpu(), first, last, fused=False))


def test_fused_takes_a_view(device: str) -> None:
    pytest.importorskip("triton", reason="Triton comes for Linux alone")
    a = matrix(40).to(device)[::2, ::2]
    assert torch.equal(row_gaps(a, 0, 20, fused=True).cpu(), row_gaps(a.cpu(), 0, 20, fused=False))


@pytest.mark.parametrize(
    ("a", "rows", "error", "match"),
    [
        (torch.zeros(3, 3, dtype=torch.float16), (0, 3), TypeError, "float16"),
        ([[0.0]], (0, 1), TypeError, "list"),
        (torch.zeros(3, 4), (0, 3), ValueError, r"\(3, 4\)"),
        (torch.zeros(3, 3), (2, 1), ValueError, "got 2 to 1"),
        (torch.zeros(3, 3), (0, 4), ValueError, "got 0 to 4"),
    ],
)
def test_bad_input(a: Tensor, rows: tuple[int, int], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        row_gaps(a, *rows)


COMPILE = """
import os, re, subprocess, sys, tempfile, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from beltrami.kernels import row_gaps_triton as module

tools = os.path.join(os.path.dirname(triton.__file__), "backends/nvidia/bin")
for dtype, (rows, steps) in module.ROWS_AND_STEPS.items():
    pointer = "*fp32" if "32" in str(dtype) else "*fp64"
    kinds = dict.fromkeys(("n", "first", "last", "strips"), "i32")
    kinds |= {"a_ptr": pointer, "found_ptr": pointer}
    kinds |= dict.fromkeys(("ROWS", "COLUMNS", "STEPS"), "constexpr")
    sizes = {"ROWS": rows, "COLUMNS": module.COLUMNS, "STEPS": steps}
    ordered = {name: kinds[name] for name in module._gaps.arg_names}
    source = ASTSource(module._gaps, ordered, sizes, {})
    target = GPUTarget("cuda", 90, 32)
    built = triton.compile(source, target=target, options={"num_warps": module.WARPS})
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(built.asm["cubin"])
        file.flush()
        used = subprocess.run(
            [os.path.join(tools, "cuobjdump"), "-res-usage", file.name],
            capture_output=True, text=True, check=True,
        ).stdout
    print(re.search(r"STACK:(\\d+)", used)[1])
"""


def test_registers_hold_the_tile() -> None:
    """Compiled for a GPU, which needs none: a tile that spilled was slower than plain torch."""
    pytest.importorskip("triton.backends.nvidia", reason="Triton's compiler for CUDA is not there")
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", COMPILE],
        capture_output=True,
        text=True,
        env=environment,
    )
    last = (done.stderr.strip().splitlines() or [""])[-1]
    if any(word in last for word in ("ImportError", "ModuleNotFound", "FileNotFound")):
        pytest.skip(f"this Triton compiles in another way, or has not its tools here: {last}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["0", "0"]  # bytes of a stack, for float32 and float64
