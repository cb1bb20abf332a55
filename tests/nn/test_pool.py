"""Pool: the centroid of what the mask leaves, and the origin where it leaves nothing."""

from __future__ import annotations

import pytest
import torch

from beltrami.geometry import Euclidean, Lorentz, Manifold, PoincareBall, lorentz, poincare
from beltrami.nn.pool import Pool

MANIFOLDS = [Lorentz(0.7), PoincareBall(0.7), Euclidean()]


@pytest.mark.parametrize("manifold", MANIFOLDS)
def test_centroid_of_the_tokens_kept(manifold: Manifold) -> None:
    x = manifold.random(4, 6, 5, std=0.8, dtype=torch.float64)
    mask = torch.rand(4, 6) > 0.4
    mask[:, 0] = True
    pool = Pool(manifold=manifold)
    out = pool(x, mask)
    for row, keep, point in zip(x, mask, out, strict=True):
        torch.testing.assert_close(point, manifold.centroid(row[keep]))
    torch.testing.assert_close(pool(x), manifold.centroid(x))


@pytest.mark.parametrize("manifold", MANIFOLDS)
def test_what_is_masked_does_not_matter(manifold: Manifold) -> None:
    x = manifold.random(3, 5, 4)
    mask = torch.tensor([True, True, False, True, False]).expand(3, 5)
    bad = x.clone()
    bad[:, 2], bad[:, 4] = torch.nan, torch.inf
    bad.requires_grad_()
    out = Pool(manifold=manifold)(bad, mask)
    torch.testing.assert_close(out, Pool(manifold=manifold)(x, mask))
    out.sum().backward()
    assert bad.grad is not None
    assert bad.grad.isfinite().all()
    assert (bad.grad[:, [2, 4]] == 0).all()
    assert (bad.grad[:, [0, 1, 3]] != 0).any()


@pytest.mark.parametrize("manifold", MANIFOLDS)
def test_nothing_left_is_the_origin(manifold: Manifold) -> None:
    x = manifold.random(3, 5, 4).requires_grad_()
    mask = torch.ones(3, 5, dtype=torch.bool)
    mask[1] = False
    out = Pool(manifold=manifold)(x, mask)
    assert torch.equal(out[1], torch.zeros(4))
    assert (out[[0, 2]] != 0).all()
    out.square().sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert (x.grad[1] == 0).all()
    weights = torch.zeros(3, 5, requires_grad=True)
    nothing = Pool(manifold=manifold)(x, weights=weights)
    assert torch.equal(nothing, torch.zeros(3, 4))
    nothing.sum().backward()
    assert weights.grad is not None
    assert weights.grad.isfinite().all()


@pytest.mark.parametrize("manifold", MANIFOLDS)
@pytest.mark.parametrize("scale", [1e-30, 1e-25, 1e25, 1e30])
def test_scale_of_the_weights_does_not_matter(manifold: Manifold, scale: float) -> None:
    """Also where their squares leave float32; the gradient goes with one over the scale."""
    x, w = manifold.random(3, 5, 4).requires_grad_(), torch.rand(3, 5).requires_grad_()
    scaled = (scale * w.detach()).requires_grad_()
    outs = [Pool(manifold=manifold)(x, weights=t) for t in (w, scaled)]
    torch.testing.assert_close(outs[1], outs[0])
    pairs = zip(outs, (w, scaled), strict=True)
    gradients = [torch.autograd.grad(y.square().sum(), [x, t]) for y, t in pairs]
    torch.testing.assert_close(gradients[1][0], gradients[0][0])
    torch.testing.assert_close(gradients[1][1] * scale, gradients[0][1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("manifold", MANIFOLDS)
def test_weights(manifold: Manifold) -> None:
    x = manifold.random(3, 5, 4, dtype=torch.float64)
    weights = torch.rand(3, 5, dtype=torch.float64)
    pool = Pool(manifold=manifold)
    torch.testing.assert_close(pool(x, weights=weights), manifold.centroid(x, weights))
    torch.testing.assert_close(pool(x, weights=7 * weights), pool(x, weights=weights))
    mask = weights > 0.3
    torch.testing.assert_close(
        pool(x, mask, weights), manifold.centroid(x, torch.where(mask, weights, 0))
    )


@pytest.mark.parametrize("manifold", MANIFOLDS)
def test_feature_maps(manifold: Manifold) -> None:
    x = manifold.random(2, 3, 4, 5)
    mask = torch.rand(2, 3, 4) > 0.5
    mask[:, 0, 0] = True
    pool = Pool(manifold=manifold, dims=2)
    assert pool(x).shape == (2, 5)
    flat = Pool(manifold=manifold)
    torch.testing.assert_close(pool(x), flat(x.flatten(1, 2)))
    torch.testing.assert_close(pool(x, mask), flat(x.flatten(1, 2), mask.flatten(1)))


def test_moves_with_the_points() -> None:
    """The centroid of boosted points is the boosted centroid."""
    for manifold, boost in ((Lorentz(0.7), lorentz.boost), (PoincareBall(0.7), poincare.boost)):
        x = manifold.random(6, 5, dtype=torch.float64)
        p = manifold.random(5, dtype=torch.float64)
        mask = torch.tensor([True, True, False, True, True, False])
        pool = Pool(manifold=manifold)
        torch.testing.assert_close(
            pool(boost(x, p, 0.7), mask), boost(pool(x, mask), p, 0.7), rtol=1e-9, atol=1e-9
        )


def test_errors() -> None:
    pool = Pool(manifold=Lorentz(), dims=2)
    with pytest.raises(ValueError, match=r"2 dimensions of at least one token.*got \(4, 5\)"):
        pool(torch.zeros(4, 5))
    with pytest.raises(ValueError, match=r"got \(2, 0, 3, 5\)"):
        pool(torch.zeros(2, 0, 3, 5))
    with pytest.raises(TypeError, match=r"mask must be bool.*torch.float32"):
        pool(torch.zeros(2, 3, 4, 5), torch.ones(2, 3, 4))
    with pytest.raises(ValueError, match=r"mask must have shape \(2, 3, 4\).*got \(2, 12\)"):
        pool(torch.zeros(2, 3, 4, 5), torch.ones(2, 12, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"weights must have shape"):
        pool(torch.zeros(2, 3, 4, 5), weights=torch.ones(12))
