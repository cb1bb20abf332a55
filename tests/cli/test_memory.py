"""Freed memory goes back to the system."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import torch
from beltrami.cli.memory import give_back_large_blocks
give_back_large_blocks()
def held():
    with open("/proc/self/status") as status:
        return int(next(line for line in status if line.startswith("RssAnon")).split()[1]) // 1024
torch.ones(1 << 21).add(1)
before, kept = held(), []
for _ in range(60):
    block = torch.ones(1 << 21)  # 8 MiB, of which a little is kept
    kept.append(block[: 1 << 15].clone())
    del block
print(held() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="by glibc")
def test_blocks_that_are_freed_are_not_held() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 60  # MiB: 60 pieces of 128 KiB, and some more
