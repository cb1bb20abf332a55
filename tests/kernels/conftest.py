"""Fused kernels run in Triton's interpreter where there is no GPU.

It must be asked for before a kernel is defined, and kernels are imported on first use.
"""

from __future__ import annotations

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    """Where a fused kernel runs; the plain one it is compared with is on the CPU."""
    if request.param == "cpu" and torch.cuda.is_available():
        pytest.skip("has a GPU, where the kernel is compiled and not interpreted")
    return str(request.param)
