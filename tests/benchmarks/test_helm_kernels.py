"""The command that times the operations of a HELM block runs without a GPU."""

from __future__ import annotations

import pytest
import torch

from benchmarks.helm_kernels import Options, main, operations

pytest.importorskip("triton", reason="Triton comes for Linux alone")


@pytest.mark.skipif(torch.cuda.is_available(), reason="kernels are compiled where there is a GPU")
def test_prints_each_operation(capsys: pytest.CaptureFixture[str]) -> None:
    main(Options(widths=(64,), tokens=2, compiled=False))
    rows = [line.split(", ")[0] for line in capsys.readouterr().out.splitlines()[2:]]
    names = ("residual_norm", "head_tiles", "head_centroid", "gated")
    assert rows == [name for name in names for _ in range(2)]


def test_least_bytes() -> None:
    """Of the gate: three tensors forwards and five backwards, beside a few numbers."""
    gate = list(operations(64, 4, "cpu"))[-1]
    assert 0 <= gate.least_bytes() - 8 * 4 * 256 * 2 < 100
