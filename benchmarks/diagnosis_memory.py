"""How much memory a diagnosis of a large embedding table takes.

`python -m benchmarks.diagnosis_memory` writes a table of random numbers to a temporary folder, as
large as that of a large language model, diagnoses it in a process of its own, and prints the most
memory that process had, files that are mapped into it included. On Linux.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file

from benchmarks.command import execute

# Not by getrusage, which begins with what the process had that started this one.
_CODE = """
import sys
from beltrami.cli import main
code = main(["diagnose", *sys.argv[1:], "--json"])
with open("/proc/self/status") as status:
    most = next(line for line in status if line.startswith("VmHWM:"))
print(most.split()[1], file=sys.stderr)
sys.exit(code)
"""
_BLOCK = 8192


@dataclass(frozen=True)
class Options:
    """Diagnose a large table, and say what memory it took."""

    rows: int = 128_256
    """Of the table."""
    columns: int = 4096
    """Of the table."""
    only: tuple[str, ...] = ()
    """Parts of the diagnosis, as `beltrami diagnose --only` takes them; the usual ones if none."""


def write_table(path: Path, rows: int, columns: int) -> None:
    """Half-precision random numbers."""
    g = torch.Generator().manual_seed(0)
    x = torch.empty(rows, columns, dtype=torch.float16)
    for first in range(0, rows, _BLOCK):
        some = x[first : first + _BLOCK]
        some.copy_(torch.randn(some.shape, generator=g))
    save_file({"model.embed_tokens.weight": x}, path)


def most_memory(path: Path, folder: Path, only: Sequence[str] = ()) -> float:
    """Gigabytes that a process needs at most which diagnoses this file."""
    words = [str(path), "--out", str(folder), *(["--only", *only] if only else [])]
    done = subprocess.run([sys.executable, "-c", _CODE, *words], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the diagnosis failed: {done.stderr[-2000:]}")
    return int(done.stderr.split()[-1]) * 1024 / 1e9


def run(options: Options) -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "table.safetensors"
        write_table(path, options.rows, options.columns)
        size = path.stat().st_size / 1e9
        memory = most_memory(path, folder / "out", options.only)
    print(f"{options.rows:,} × {options.columns:,}, a file of {size:.2f} GB: {memory:.2f} GB")
    return 0


if __name__ == "__main__":
    execute(run, Options)
