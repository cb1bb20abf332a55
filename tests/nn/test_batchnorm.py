"""BatchNorm: where a batch leaves, against logarithms and transport, running statistics, limits."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from beltrami.geometry import Curvature, Euclidean, Lorentz, Manifold, PoincareBall, lorentz
from beltrami.nn.batchnorm import BatchNorm

SIZE = 5
MANIFOLDS = [Lorentz(0.7), PoincareBall(0.7), Euclidean()]


def _batch(manifold: Manifold, *shape: int, std: float = 0.4) -> Tensor:
    """Points about a centre that is not the origin."""
    centre = manifold.exp0(torch.linspace(-0.5, 1.0, SIZE, dtype=torch.float64))
    v = std * torch.randn(*shape, SIZE, dtype=torch.float64)
    return manifold.exp(centre.expand(*shape, SIZE), manifold.transport_from0(centre, v))


def _randomised(layer: BatchNorm) -> BatchNorm:
    with torch.no_grad():
        layer.gain.fill_(0.6)
        layer.bias.copy_(layer.manifold.exp0(0.5 * torch.randn(SIZE, dtype=layer.bias.dtype)))
    return layer


def _by_maps(layer: BatchNorm, x: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    """Logarithm at the mean, to the origin, scaled, to β, exponential there."""
    m = layer.manifold
    v = m.transport_to0(mean, m.log(mean, x))
    v = layer.gain * v / torch.sqrt(var + layer.eps)
    return m.exp(layer.bias, m.transport_from0(layer.bias, v))


@pytest.mark.parametrize("manifold", MANIFOLDS)
@pytest.mark.parametrize("shape", [(40,), (4, 3, 7)])
def test_against_maps_at_the_mean(manifold: Manifold, shape: tuple[int, ...]) -> None:
    layer = _randomised(BatchNorm(SIZE, manifold=manifold).double())
    x = _batch(manifold, *shape)
    mean = manifold.centroid(x.reshape(-1, SIZE))
    var = manifold.dist_sq(x, mean).mean()
    torch.testing.assert_close(layer(x), _by_maps(layer, x, mean, var), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("manifold", MANIFOLDS)
def test_a_batch_leaves_with_the_gain_as_its_spread_about_the_bias(manifold: Manifold) -> None:
    layer = _randomised(BatchNorm(SIZE, manifold=manifold, eps=1e-12).double())
    y = layer(_batch(manifold, 300))
    rms = manifold.dist_sq(y, layer.bias).mean().sqrt()
    torch.testing.assert_close(rms, layer.gain[0])
    # The centroid of a batch is not kept by the scaling of its distances, but nearly.
    assert manifold.dist(manifold.centroid(y), layer.bias) < 0.02


@pytest.mark.parametrize("manifold", MANIFOLDS)
def test_plain_layer_has_no_parameters_and_centres(manifold: Manifold) -> None:
    layer = BatchNorm(SIZE, manifold=manifold, affine=False, track_running_stats=False, eps=1e-12)
    assert not layer.state_dict()
    assert layer.no_weight_decay() == set()
    x = _batch(manifold, 200)
    y = layer(x)
    torch.testing.assert_close(
        manifold.dist0(y).square().mean(), torch.ones((), dtype=torch.float64)
    )
    layer.eval()
    torch.testing.assert_close(layer(x), y)  # nothing else to normalise by


@pytest.mark.parametrize("manifold", MANIFOLDS)
@pytest.mark.parametrize("momentum", [0.3, None])
def test_running_statistics(manifold: Manifold, momentum: float | None) -> None:
    layer = _randomised(BatchNorm(SIZE, manifold=manifold, momentum=momentum).double())
    mean = torch.zeros(SIZE, dtype=torch.float64)
    var = torch.ones(1, dtype=torch.float64)
    for step in range(1, 4):
        x = _batch(manifold, 20)
        layer(x)
        part = 1 / step if momentum is None else momentum
        centre = manifold.centroid(x)
        mean = manifold.geodesic(mean, centre, part)
        var = (1 - part) * var + part * manifold.dist_sq(x, centre).mean()
        torch.testing.assert_close(layer.running_mean, mean)
        torch.testing.assert_close(layer.running_var, var)
        assert layer.num_batches_tracked == step
    layer.eval()
    x = _batch(manifold, 20)
    torch.testing.assert_close(layer(x), _by_maps(layer, x, mean, var), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(layer.running_mean, mean)  # eval changes nothing
    assert layer(x[:0]).shape == (0, SIZE)
    layer.reset_running_stats()
    assert (layer.running_mean == 0).all()
    assert layer.num_batches_tracked == 0


@pytest.mark.parametrize("manifold", MANIFOLDS)
@pytest.mark.parametrize("rows", [1, 6])
def test_a_batch_without_spread_goes_to_the_bias(manifold: Manifold, rows: int) -> None:
    layer = _randomised(BatchNorm(SIZE, manifold=manifold))
    x = _batch(manifold, 1).float().expand(rows, SIZE).clone().requires_grad_()
    y = layer(x)
    assert manifold.dist(y, layer.bias).max() < 1e-3
    y.square().sum().backward()
    for t in (x, *layer.parameters()):
        assert t.grad is not None
        assert t.grad.isfinite().all()
    assert layer.running_mean.isfinite().all()
    assert layer.running_var.isfinite().all()


@pytest.mark.parametrize("manifold", [Lorentz(1.0), Lorentz(30.0), PoincareBall(1.0)])
def test_an_outlier_of_a_large_batch_stays_in_float32(manifold: Manifold) -> None:
    """It leaves at √N = 71 times the spread, whose sinh no float32 holds."""
    x = torch.cat([torch.full((1, 4), 0.3), 1e-3 * torch.randn(4999, 4)]).requires_grad_()
    layer = BatchNorm(4, manifold=manifold)
    with torch.no_grad():
        layer.bias.fill_(0.1)
    y = layer(x)
    assert y.isfinite().all()
    distance = manifold.dist(y.double(), layer.bias.double()) * manifold.c**0.5
    limit = 15.3 if isinstance(manifold, PoincareBall) else 30
    assert limit - 2 < distance[0] < limit + 1e-3  # where it is shortened to, but for rounding
    assert distance[1:].max() < 10
    manifold.dist0(y).sum().backward()
    for t in (x, layer.gain, layer.bias):
        assert t.grad is not None
        assert t.grad.isfinite().all()


@pytest.mark.parametrize("size", [1, 2, 64])
def test_points_at_the_edge_of_the_ball(size: int) -> None:
    """Points on both sides of a ball are twice as far apart as its float32 has room for."""
    manifold = PoincareBall(0.5)
    for _ in range(20):
        layer = BatchNorm(size, manifold=manifold, momentum=0.9)
        middle, others = torch.randn(1, size), torch.randn(8, size)
        x = manifold.project(1e3 * torch.cat([middle.expand(30, -1), others, -middle]))
        x.requires_grad_()
        y = layer(x)
        manifold.dist0(y).sum().backward()
        assert x.grad is not None
        results = y, x.grad, layer.eval()(x), layer.running_mean, layer.running_var
        assert all(bool(t.isfinite().all()) for t in results)
        wide = x.detach().double()
        exact = manifold.dist_sq(wide, manifold.centroid(wide)).mean()
        torch.testing.assert_close(
            (layer.running_var - 0.1) / 0.9, exact[None].float(), rtol=0.3, atol=0
        )


def test_running_mean_follows_a_learned_border() -> None:
    """As c grows the ball shrinks, and the mean at its edge with it."""
    curvature = Curvature(1.0)
    manifold = PoincareBall(curvature)
    layer = BatchNorm(4, manifold=manifold)
    v = 0.3 * torch.randn(32, 4) + torch.tensor([4.0, 0.0, 0.0, 0.0])
    for raw in torch.linspace(0, 2, 20):
        with torch.no_grad():
            curvature.raw.fill_(raw)
        for training in (False, True):
            y = layer.train(training)(manifold.project(manifold.exp0(v)))
            assert y.isfinite().all()
    manifold.check_point(layer.running_mean)


def test_only_far_points_are_shortened_and_keep_their_order() -> None:
    layer = BatchNorm(2, manifold=Lorentz(1.0), affine=False).double().eval()
    layer.eps = 0.0
    r = torch.linspace(0, 44, 200, dtype=torch.float64)
    u = torch.tensor([0.6, -0.8], dtype=torch.float64)
    y = layer(lorentz.exp0(r[:, None] * u, 1.0))
    out = lorentz.dist0(y, 1.0)
    torch.testing.assert_close(out[r <= 20], r[r <= 20])
    torch.testing.assert_close(torch.nn.functional.normalize(y[1:], dim=-1), u.expand(199, 2))
    assert (out.diff() > 0).all()
    assert (out.diff() <= r.diff() * (1 + 1e-9)).all()
    assert 29 < out[-1] < 30


def test_flat_twin_is_the_formula() -> None:
    layer = _randomised(BatchNorm(SIZE, manifold=Euclidean()).double())
    x = torch.randn(30, SIZE, dtype=torch.float64) + 3
    centred = x - x.mean(0)
    expected = layer.gain * centred / torch.sqrt(centred.square().sum(-1).mean() + layer.eps)
    torch.testing.assert_close(layer(x), expected + layer.bias)


@pytest.mark.parametrize("kind", [Lorentz, PoincareBall])
@pytest.mark.parametrize("training", [True, False])
def test_flat_limit(kind: type, training: bool) -> None:
    twin = _randomised(BatchNorm(SIZE, manifold=Euclidean()).double())
    v = torch.randn(30, SIZE, dtype=torch.float64) + 1
    twin(v)
    errors = []
    for c in (1e-2, 1e-4, 1e-6):
        manifold = kind(c)
        layer = BatchNorm(SIZE, manifold=manifold).double()
        layer.load_state_dict(twin.state_dict())
        with torch.no_grad():
            layer.bias.copy_(manifold.exp0(twin.bias))
            layer.running_mean.copy_(manifold.exp0(twin.running_mean))
        out = layer.train(training)(manifold.exp0(v))
        state = {k: t.clone() for k, t in twin.state_dict().items()}
        errors.append((manifold.log0(out) - twin.train(training)(v)).abs().max().item())
        twin.load_state_dict(state)
    assert errors[1] < 0.02 * errors[0]
    assert errors[2] < 0.02 * errors[1]


@pytest.mark.parametrize("kind", [Lorentz, PoincareBall])
def test_gradients(kind: type) -> None:
    curvature = Curvature(0.8).double()
    layer = _randomised(BatchNorm(SIZE, manifold=kind(curvature), eps=0.1).double())
    x = _batch(kind(0.8), 4).requires_grad_()
    module = torch.nn.ModuleDict({"layer": layer, "curvature": curvature})
    module.forward = layer.forward  # type: ignore[method-assign]

    def call(x: Tensor, raw: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
        state = {"curvature.raw": raw, "layer.gain": gain, "layer.bias": bias}
        return torch.func.functional_call(module, state, (x,))

    inputs = [x, torch.tensor([0.1], dtype=torch.float64), layer.gain, layer.bias]
    assert torch.autograd.gradcheck(call, [t.detach().requires_grad_() for t in inputs])


def test_turns_with_the_points() -> None:
    """A rotation of the batch rotates the result, when the bias is the origin."""
    rotation, _ = torch.linalg.qr(torch.randn(SIZE, SIZE, dtype=torch.float64))
    for manifold in MANIFOLDS:
        layer = BatchNorm(SIZE, manifold=manifold).double()
        x = _batch(manifold, 20)
        torch.testing.assert_close(layer(x @ rotation), layer(x) @ rotation)


@pytest.mark.parametrize("manifold", MANIFOLDS)
def test_half_precision_batches_are_measured_in_float32(manifold: Manifold) -> None:
    layer = _randomised(BatchNorm(SIZE, manifold=manifold))
    x = _batch(manifold, 200).bfloat16()
    y = layer(x)
    assert y.dtype == torch.bfloat16
    assert layer.running_var.dtype == torch.float32
    torch.testing.assert_close(y.float(), layer(x.float()), rtol=0.02, atol=0.02)


def test_names_and_errors() -> None:
    layer = BatchNorm(SIZE, manifold=Lorentz())
    assert set(layer.state_dict()) == {
        "gain",
        "bias",
        "running_mean",
        "running_var",
        "num_batches_tracked",
    }
    assert layer.gain.shape == (1,)
    assert layer.manifold_of == {"bias": Lorentz()}
    assert layer.no_weight_decay() == {"gain", "bias"}
    with pytest.raises(ValueError, match=r"empty batch has no mean, got \(0, 5\)"):
        layer(torch.zeros(0, SIZE))
    with pytest.raises(ValueError, match=r"momentum must lie in \[0, 1\] or be None, got 2"):
        BatchNorm(SIZE, manifold=Lorentz(), momentum=2.0)
    with pytest.raises(ValueError, match=r"eps must be positive"):
        BatchNorm(SIZE, manifold=Lorentz(), eps=0.0)
    with pytest.raises(ValueError, match=r"drop it with"):
        layer(torch.zeros(3, SIZE + 1))
