"""PatchEmbedding: one linear map a patch, and tokens inside what the dtype holds."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from beltrami.geometry import Euclidean, Lorentz, Manifold, PoincareBall
from beltrami.nn.patch import PatchEmbedding

MANIFOLDS = [Lorentz(0.7), PoincareBall(0.7), Euclidean()]


def _by_hand(layer: PatchEmbedding, images: Tensor) -> Tensor:
    """Every patch cut out by slicing, row by row, times the flattened weight."""
    h, w = layer.patch_size
    height, width = layer.image_size
    patches = [
        images[:, :, i : i + h, j : j + w].flatten(1)
        for i in range(0, height, h)
        for j in range(0, width, w)
    ]
    out = torch.stack(patches, dim=1) @ layer.weight.flatten(1).mT
    return out if layer.bias is None else out + layer.bias


@pytest.mark.parametrize("manifold", MANIFOLDS)
@pytest.mark.parametrize("bias", [True, False])
def test_a_linear_map_a_patch(manifold: Manifold, bias: bool) -> None:
    layer = PatchEmbedding((6, 8), (3, 2), 2, 5, manifold=manifold, bias=bias).double()
    assert (layer.manifold, layer.manifold_out) == (Euclidean(), manifold)
    if layer.bias is not None:
        torch.nn.init.normal_(layer.bias)
    images = torch.randn(3, 2, 6, 8, dtype=torch.float64)
    tokens = layer(images)
    assert tokens.shape == (3, layer.patches, 5) == (3, 8, 5)
    linear = _by_hand(layer, images)
    expected = manifold.exp0(linear) if isinstance(manifold, PoincareBall) else linear
    torch.testing.assert_close(tokens, expected)
    tokens.square().sum().backward()
    assert all(p.grad is not None and (p.grad != 0).all() for p in layer.parameters())


@pytest.mark.parametrize("radius", [1.0, 0.2])
@pytest.mark.parametrize("smooth", [True, False])
def test_starts_at_its_radius(radius: float, smooth: bool) -> None:
    """Whether pixels are noise or all alike in a patch: only their mean square counts."""
    layer = PatchEmbedding(32, 16, 3, 768, manifold=Euclidean(), radius=radius)
    images = torch.randn(8, 3, 32, 32)
    if smooth:
        images = torch.randn(8, 3, 2, 2).repeat_interleave(16, 2).repeat_interleave(16, 3)
        images /= images.square().mean().sqrt()
    norm = layer(images).detach().square().sum(-1).mean().sqrt()
    torch.testing.assert_close(norm, torch.tensor(radius), rtol=0.05, atol=0)


@pytest.mark.parametrize("manifold", [Lorentz(0.2), Lorentz(9.0), Euclidean(), PoincareBall(0.2)])
def test_default_radius_is_that_of_coordinates_of_variance_one(manifold: Manifold) -> None:
    layer = PatchEmbedding(32, 16, 3, 768, manifold=manifold)
    tokens = layer(torch.randn(8, 3, 32, 32)).detach()
    if isinstance(manifold, PoincareBall):
        radius = manifold.dist0(tokens).mean().item()
        assert radius == pytest.approx(math.asinh(math.sqrt(0.2 * 768)) / math.sqrt(0.2), rel=0.05)
    else:
        assert tokens.square().mean().item() == pytest.approx(1.0, rel=0.1)


def test_radius_is_a_length_of_the_space_part_and_has_no_bound_there() -> None:
    for manifold in (Lorentz(1.0), Euclidean()):
        layer = PatchEmbedding(32, 16, 3, 16, manifold=manifold, radius=60.0)
        norm = layer(torch.randn(50, 3, 32, 32)).detach().square().sum(-1).mean().sqrt()
        torch.testing.assert_close(norm, torch.tensor(60.0), rtol=0.05, atol=0)
        with pytest.raises(ValueError, match=r"PatchEmbedding: radius must be positive"):
            PatchEmbedding(32, 16, 3, 16, manifold=manifold, radius=-1.0)
    with pytest.raises(ValueError, match=r"√c·radius < 15"):
        PatchEmbedding(32, 16, 3, 16, manifold=PoincareBall(1.0), radius=60.0)


@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_ball_tokens_are_inside_the_ball(scale: float) -> None:
    """Also for pixels nobody normalised."""
    ball = PoincareBall(1.0)
    layer = PatchEmbedding(32, 16, 3, 768, manifold=ball, radius=1.0)
    distance = ball.dist0(layer(scale * torch.randn(4, 3, 32, 32)))
    assert distance.isfinite().all()
    assert distance.max() < 20
    if scale == 1.0:
        torch.testing.assert_close(distance, torch.ones_like(distance), rtol=0.2, atol=0)


def test_ball_tokens_stay_float32_under_autocast() -> None:
    """A ball of bfloat16 would end at a radius of 4."""
    layer = PatchEmbedding(8, 4, 3, 16, manifold=PoincareBall(), radius=6.0)
    images = torch.randn(2, 3, 8, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        tokens = layer(images)
    assert tokens.dtype == torch.float32
    exact = PoincareBall().dist0(layer(images))
    torch.testing.assert_close(PoincareBall().dist0(tokens), exact, rtol=0.02, atol=0)


def test_errors_name_both_sizes() -> None:
    with pytest.raises(ValueError, match=r"patch_size=5 does not divide image_size=32"):
        PatchEmbedding(32, 5, 3, 8, manifold=Lorentz())
    with pytest.raises(ValueError, match=r"patch_size=\(4, 5\) does not divide"):
        PatchEmbedding(32, (4, 5), 3, 8, manifold=Lorentz())
    with pytest.raises(ValueError, match=r"image_size must be one integer or 2 of them"):
        PatchEmbedding((32, 32, 32), 4, 3, 8, manifold=Lorentz())  # type: ignore[arg-type]
    layer = PatchEmbedding(32, 4, 3, 8, manifold=Lorentz())
    with pytest.raises(ValueError, match=r"\(B, 3, 32, 32\), got \(2, 3, 28, 28\)"):
        layer(torch.zeros(2, 3, 28, 28))
    with pytest.raises(ValueError, match=r"got \(2, 32, 32, 3\)"):
        layer(torch.zeros(2, 32, 32, 3))
