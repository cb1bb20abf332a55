"""Heads before and after attention: kernels against the plain form."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import Tensor

from beltrami.kernels.layers.centroid_attention import centroid_attention
from beltrami.kernels.layers.heads import head_centroid, head_tiles, rotate
from tests.kernels.checks import assert_compiles_fused, assert_fused, results

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)


def inputs(
    batch: int = 2,
    tokens: int = 3,
    heads: int = 4,
    groups: int = 2,
    size: int = 10,
    value_size: int = 9,
    rotary: int = 10,
    tables: int = 1,
    dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, ...]:
    """q, k, v, R, the scale, and angles."""
    shapes = ((heads, size), (groups, size), (groups, value_size))
    q, k, v = (torch.randn(batch, tokens, *shape).to(dtype) for shape in shapes)
    scale = 0.2 + torch.rand(heads, 1)
    return q, k, v, torch.tensor([1.3]), scale, torch.randn(tables, tokens, rotary // 2)


def tiles(*tensors: Tensor, width: int = 16, **options: Any) -> tuple[Tensor, ...]:
    """Queries and keys with hi + lo instead of both: lo is a matter of how hi was rounded."""
    q, k, v, radius, scale, angles = tensors
    cos, sin = angles.detach().cos(), angles.detach().sin()
    return head_tiles(q, k, v, cos, sin, radius=radius, scale=scale, width=width, **options)


def centroid(*tensors: Tensor, **options: Any) -> tuple[Tensor | None, ...]:
    mean, radius, time_radius = tensors
    return head_centroid(mean, 10, radius=radius, time_radius=time_radius, **options)


def means(
    *shape: int, dtype: torch.dtype = torch.float32, width: int = 16
) -> tuple[Tensor, Tensor, Tensor]:
    """Means of points, with their times, and radii."""
    radius = torch.tensor([1.3])
    s = torch.randn(*shape, 10)
    t = 1.1 * torch.hypot(s.norm(dim=-1, keepdim=True), radius)
    high = t.to(dtype)
    times = [high, (t - high).to(dtype)] if dtype.itemsize == 2 else [high]
    rest = torch.zeros(*shape, width - 10 - len(times), dtype=dtype)
    return torch.cat([s.to(dtype), *times, rest], dim=-1), radius, torch.tensor([2.0])


def test_gradients() -> None:
    given = [t.double().requires_grad_(i < 5) for i, t in enumerate(inputs())]
    assert torch.autograd.gradcheck(lambda *t: tiles(*t, fused=False), given)
    given = [t.double().requires_grad_() for t in means(2, 3, 4)]
    assert torch.autograd.gradcheck(lambda *t: centroid(*t, fused=False), given)


@DTYPES
@pytest.mark.parametrize("changes", [
    {}, {"tables": 2}, {"rotary": 6}, {"size": 3, "value_size": 2, "rotary": 2}, {"tokens": 0},
    {"tokens": 1, "heads": 1, "groups": 1}, {"heads": 3, "groups": 3, "tokens": 17},
], ids=str)  # fmt: skip
def test_tiles(changes: dict[str, int], dtype: torch.dtype, device: str) -> None:
    given = inputs(**changes, dtype=dtype)  # type: ignore[arg-type]
    assert_fused(tiles, *given, device=device, beside=None)


@DTYPES
@pytest.mark.parametrize("shape", [(2, 3, 4), (1, 1, 1), (2, 0, 3), (1, 5, 7)])
def test_centroid(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> None:
    assert_fused(centroid, *means(*shape, dtype=dtype), device=device, beside=None)
    alone = functools.partial(head_centroid, size=10)
    mean, radius, _ = means(*shape, dtype=dtype)
    assert_fused(lambda m, r, **k: alone(m, radius=r, **k), mean, radius, beside=None)


def test_centroid_at_its_floor(device: str) -> None:
    mean, radius, time_radius = means(2, 3, 4)
    mean[..., 10] *= 0.5
    assert_fused(centroid, mean, radius, time_radius, device=device)


@DTYPES
def test_non_contiguous(dtype: torch.dtype, device: str) -> None:
    q, k, v, *rest = inputs(dtype=dtype)
    given = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in (q, k, v)]
    assert_fused(tiles, *given, *rest, device=device, beside=None)
    mean, *radii = means(2, 3, 4, dtype=dtype)
    assert_fused(centroid, mean.transpose(1, 2), *radii, device=device, beside=None)


@DTYPES
def test_times_are_those_of_the_coordinates(dtype: torch.dtype, device: str) -> None:
    """To the precision of the sum of two half-precision numbers."""
    given = inputs(size=40, rotary=40, value_size=40, tokens=7, dtype=dtype)
    _, k, v = tiles(*(t.to(device) for t in given), width=48, fused=True)
    for tile, sign, rest in ((k, -1, 1.3), (v, 1, 0.0)):
        head = tile.double().cpu()
        t = (head[..., :40].square().sum(-1) + 1.3**2).sqrt()
        stored = head[..., 40] + (head[..., 41] if dtype.itemsize == 2 else 0)
        torch.testing.assert_close(stored, sign * (t - rest), rtol=2.0**-14, atol=0)


def test_together_they_are_attention(device: str) -> None:
    q, k, v, radius, scale, angles = (t.to(device) for t in inputs(tokens=9))
    tensors = tiles(q, k, v, radius, scale, angles, fused=True)
    options = {"is_causal": True, "scale": 1.0, "enable_gqa": True}
    mean = torch.nn.functional.scaled_dot_product_attention(*tensors, **options).transpose(1, 2)
    got, time = head_centroid(mean, 9, radius=radius, time_radius=2.0, fused=True)
    q, k = rotate(q, angles.cos(), angles.sin()), rotate(k, angles.cos(), angles.sin())
    expected = centroid_attention(q, k, v, radius=radius, scale=scale, causal=True).flatten(2)
    torch.testing.assert_close(got, expected)
    assert time is not None
    q_sq = expected.square().sum(-1, keepdim=True)
    torch.testing.assert_close(time, (q_sq + 4).sqrt() - 2)


def test_partial_rotation_leaves_the_rest() -> None:
    x, angles = torch.randn(1, 3, 2, 8), torch.randn(1, 3, 2)
    turned = rotate(x, angles.cos(), angles.sin())
    assert torch.equal(turned[..., 4:], x[..., 4:])
    assert torch.equal(turned[..., :4], rotate(x[..., :4], angles.cos(), angles.sin()))


def test_flat_and_dot_heads() -> None:
    """What has no kernel: no times for dot products and means, flat ones without a radius."""
    q, k, v, radius, scale, angles = inputs(value_size=16, size=16, rotary=16)
    dot = tiles(q, k, v, radius, None, angles)
    assert torch.equal(dot[0], rotate(q, angles.cos(), angles.sin()).transpose(1, 2))
    assert torch.equal(dot[2], v.transpose(1, 2))
    q, k, v, _, scale, angles = inputs()
    flat = tiles(q, k, v, None, scale, angles)
    assert [t.shape[-1] for t in flat] == [16, 16, 16]
    assert not flat[2][..., 9:].any()
    out, time = head_centroid(flat[2].transpose(1, 2), 9, radius=None)
    assert time is None
    assert torch.equal(out, v.flatten(2))
    with pytest.raises(ValueError, match="curved space"):
        tiles(q, k, v, None, scale, angles, fused=True)


def test_the_same_bits_each_time(device: str) -> None:
    for function, given in ((tiles, inputs(tokens=33)), (centroid, means(2, 9, 4))):
        fused = functools.partial(function, fused=True)
        assert all(map(torch.equal, *(results(fused, *given, device=device) for _ in range(2))))


def test_compile() -> None:
    assert_compiles_fused(functools.partial(tiles, fused=True), lambda n: inputs(tokens=n))
    assert_compiles_fused(functools.partial(centroid, fused=True), lambda n: means(2, n, 4))


@pytest.mark.gpu
@DTYPES
@pytest.mark.parametrize("size", [60, 124])
def test_on_a_gpu(size: int, dtype: torch.dtype) -> None:
    """Eager and compiled, at the sizes of models."""
    given = inputs(2, 33, 16, 4, size, size, size, dtype=dtype)
    function = functools.partial(tiles, width=size + 4)
    assert_fused(function, *given, device="cuda")
    got = results(torch.compile(function, fullgraph=True), *given, device="cuda")
    for a, b in zip(got, results(function, *given, device="cuda"), strict=True):
        torch.testing.assert_close(a, b)
    given = means(2, 33, 16, dtype=dtype, width=size + 4)
    assert_fused(centroid, *given, device="cuda")
