"""BELTRAMI_KERNELS in the place of fused=None."""

from __future__ import annotations

import pytest
import torch

from beltrami.kernels.launch.dispatch import dispatch, requested, takes_operator

pytest.importorskip("triton", reason="Triton comes for Linux alone")
LAW = "layers.curvature_law_triton"


def test_fused_takes_kernels_where_they_can(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    monkeypatch.setenv("BELTRAMI_KERNELS", "fused")
    x = torch.ones(3, device=device)
    assert dispatch(LAW, None, x) is not None
    assert dispatch(LAW, None, x.double()) is None
    assert dispatch(LAW, False, x) is None
    assert takes_operator(None, x, traced=False)
    assert not takes_operator(None, x.double())
    assert not takes_operator(None, x, reason="it is too large")
    assert not takes_operator(False, x)


def test_reference_takes_none(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    monkeypatch.setenv("BELTRAMI_KERNELS", "reference")
    x = torch.ones(3, device=device)
    assert dispatch(LAW, None, x) is None
    assert not takes_operator(None, x)
    assert takes_operator(True, x)
    assert requested(None) is False
    assert requested(True) is True


def test_other_values_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BELTRAMI_KERNELS", "fast")
    with pytest.raises(ValueError, match="BELTRAMI_KERNELS must be reference or fused, got 'fast'"):
        dispatch(LAW, None, torch.ones(3))


def test_without_it_a_gpu_has_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BELTRAMI_KERNELS", raising=False)
    assert requested(None) is None
    assert not takes_operator(None, torch.ones(3))


def test_tensors_of_two_devices() -> None:
    with pytest.raises(ValueError, match="one device, got cpu and meta"):
        takes_operator(True, torch.ones(3), torch.ones(3, device="meta"))
