"""Where the tests of fused kernels run them."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    """Where a fused kernel runs; the plain one it is compared with is on the CPU."""
    if request.param == "cpu" and torch.cuda.is_available():
        pytest.skip("has a GPU, where the kernel is compiled and not interpreted")
    return str(request.param)
