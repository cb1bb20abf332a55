"""The law of learned curvatures is that of `Curvature`, value and slope."""

from __future__ import annotations

import pytest
import torch

from beltrami.geometry import Curvature
from beltrami.kernels.layers.curvature_law import learned_curvature
from beltrami.peft.config import CURVATURE_BOUNDS
from beltrami.peft.projections import LearnedCurvature

RAW = (-1e30, -1e6, -7.0, -2.5, -0.3, 0.0, 1e-6, 0.3, 2.5, 7.0, 1e6, 1e30)


@pytest.mark.parametrize("start", [0.1, 1.0, 2.0])
@pytest.mark.parametrize("raw", RAW)
def test_value_and_slope_are_those_of_the_module(start: float, raw: float) -> None:
    law = Curvature(start, bounds=CURVATURE_BOUNDS, learnable=False)
    r = torch.tensor([raw], dtype=torch.float64, requires_grad=True)
    expected = law.value_at(r)
    (slope,) = torch.autograd.grad(expected, r)
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 3e-6)):
        x = torch.tensor([raw], dtype=dtype, requires_grad=True)
        found = learned_curvature(x, start, *law.reach)
        (by_x,) = torch.autograd.grad(found, x)
        assert found.dtype == by_x.dtype == dtype
        torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=0)
        torch.testing.assert_close(by_x.double(), slope, rtol=10 * tolerance, atol=1e-30)
        with torch.no_grad():
            assert torch.equal(learned_curvature(x, start, *law.reach), found)


def test_narrow_parameters_have_wide_curvatures() -> None:
    module = LearnedCurvature((0.1, 2.0)).bfloat16()
    module.reset_parameters()
    found = module()
    assert [c.dtype for c in found] == [torch.float32] * 2
    assert [float(c.detach()) for c in found] == pytest.approx([0.1, 2.0], rel=1e-7)
    sum(found).backward()  # type: ignore[union-attr]
    assert module.weight.grad is not None
    assert module.weight.grad.dtype == torch.bfloat16
    torch.testing.assert_close(
        module.weight.grad.float(), torch.tensor([0.1, 2.0]), rtol=4e-3, atol=0
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_fused_is_the_plain_one(dtype: torch.dtype, device: str) -> None:
    pytest.importorskip("triton", reason="Triton comes for Linux alone")
    law = Curvature(0.5, bounds=CURVATURE_BOUNDS, learnable=False)
    raw = torch.tensor([*RAW] * 2, dtype=dtype)
    leaves = [raw.clone().requires_grad_(), raw.to(device).requires_grad_()]
    plain = learned_curvature(leaves[0], 0.5, *law.reach, fused=False)
    fused = learned_curvature(leaves[1], 0.5, *law.reach, fused=True)
    assert fused.dtype == torch.float32
    torch.testing.assert_close(fused.cpu(), plain, rtol=1e-5, atol=0)
    for value in (plain, fused):
        value.sum().backward()
    assert leaves[0].grad is not None
    assert leaves[1].grad is not None
    torch.testing.assert_close(leaves[1].grad.cpu(), leaves[0].grad, rtol=1e-2, atol=1e-30)
    with pytest.raises(ValueError, match="it computes in float32"):
        learned_curvature(raw.double().to(device), 0.5, *law.reach, fused=True)
