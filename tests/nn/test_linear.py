"""Each form of Linear against the formula of its paper, written out."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import beltrami.nn as bnn
from beltrami.geometry import Euclidean, Lorentz, PoincareBall, hyperplane, lorentz, poincare
from tests.kernels.checks import saved_bytes

C = 1.4


def randomised(layer: bnn.Linear) -> bnn.Linear:
    with torch.no_grad():
        for p in layer.parameters():
            p.normal_(std=0.4)
    return layer.double()


def points(manifold: Lorentz | PoincareBall, *shape: int) -> Tensor:
    return manifold.exp0(torch.randn(*shape, dtype=torch.float64))


def test_htc_is_the_published_layer_but_for_a_bias() -> None:
    """W·(t, s) + b, with the time column's share of the origin, w/√c, moved into the bias."""
    layer = randomised(bnn.Linear(5, 3, manifold=Lorentz(C)))
    x = points(Lorentz(C), 7, 5)
    stacked = torch.cat([lorentz.time(x, C, keepdim=True), x], -1)
    published = stacked @ torch.cat([layer.time_weight[:, None], layer.weight], 1).T
    published = published + layer.bias - layer.time_weight / C**0.5
    torch.testing.assert_close(layer(x), published)


def test_htc_without_time_is_nn_linear() -> None:
    layer = bnn.Linear(5, 3, manifold=Lorentz(C), time=False)
    assert set(dict(layer.named_parameters())) == {"weight", "bias"}
    x = torch.randn(4, 5)
    assert torch.equal(layer(x), nn.functional.linear(x, layer.weight, layer.bias))


def test_time_column_starts_at_zero() -> None:
    layer = bnn.Linear(5, 3, manifold=Lorentz(C))
    assert not layer.time_weight.any()
    x = torch.randn(4, 5)
    torch.testing.assert_close(layer(x), nn.functional.linear(x, layer.weight, layer.bias))


def test_start_is_that_of_nn_linear() -> None:
    ours, torchs = bnn.Linear(400, 300, manifold=Lorentz(C)), nn.Linear(400, 300)
    assert ours.weight.std().item() == pytest.approx(torchs.weight.std().item(), rel=0.02)
    assert ours.weight.abs().max() <= 1 / 20


@pytest.mark.parametrize("manifold", [Lorentz(C), PoincareBall(C)])
def test_tangent(manifold: Lorentz | PoincareBall) -> None:
    layer = randomised(bnn.Linear(5, 3, manifold=manifold, form="tangent"))
    x = points(manifold, 7, 5)
    expected = manifold.exp0(manifold.log0(x) @ layer.weight.T + layer.bias)
    torch.testing.assert_close(layer(x), expected)


@pytest.mark.parametrize("manifold", [Lorentz(C), PoincareBall(C)])
def test_mobius_moves_the_result_by_the_bias(manifold: Lorentz | PoincareBall) -> None:
    layer = randomised(bnn.Linear(5, 3, manifold=manifold, form="mobius"))
    x = points(manifold, 7, 5)
    y = manifold.exp0(manifold.log0(x) @ layer.weight.T)
    # exp_y of the bias carried from the origin to y: what the gyrovector sum means
    unit = manifold.transport_from0(y, layer.bias.expand_as(y))
    torch.testing.assert_close(layer(x), manifold.exp(y, unit))


def test_mobius_in_the_ball_is_the_gyrovector_formula() -> None:
    layer = randomised(bnn.Linear(5, 3, manifold=PoincareBall(C), form="mobius"))
    x = points(PoincareBall(C), 7, 5)
    expected = poincare.mobius_add(
        poincare.mobius_matvec(layer.weight, x, C), poincare.exp0(layer.bias, C), C
    )
    torch.testing.assert_close(layer(x), expected)


def test_forms_agree_between_the_models() -> None:
    """The ball is the Lorentz model in other coordinates, and so are these layers."""
    for form in ("tangent", "mobius", "hnnpp"):
        on_hyperboloid = randomised(bnn.Linear(5, 3, manifold=Lorentz(C), form=form))
        in_ball = bnn.Linear(5, 3, manifold=PoincareBall(C), form=form).double()
        in_ball.load_state_dict(on_hyperboloid.state_dict())
        x = points(Lorentz(C), 7, 5)
        expected = poincare.from_lorentz(on_hyperboloid(x), C)
        torch.testing.assert_close(in_ball(poincare.from_lorentz(x, C)), expected)


def test_hnnpp_outputs_have_the_asked_signed_distances() -> None:
    """v_k(x) is the signed distance of y to the hyperplane through 0 across axis k."""
    layer = randomised(bnn.Linear(5, 3, manifold=Lorentz(C), form="hnnpp"))
    x = points(Lorentz(C), 7, 5)
    y = layer(x)
    for k in range(3):
        axis = torch.eye(3, dtype=torch.float64)[k]
        expected = hyperplane.logit(x, layer.weight[k], layer.bias[k : k + 1], C)
        torch.testing.assert_close(hyperplane.signed_dist(y, axis, 0.0, C), expected)


def test_hnnpp_is_the_published_ball_layer() -> None:
    """Shimizu et al.: y = w/(1 + √(1 + c|w|²)), w = sinh(√c·v)/√c, v = 2|z|·asinh(...)/√c."""
    layer = randomised(bnn.Linear(5, 3, manifold=PoincareBall(C), form="hnnpp"))
    x = points(PoincareBall(C), 7, 5)
    v = hyperplane.poincare_logits(x, layer.weight / 2, layer.bias / 2, C)
    w = torch.sinh(C**0.5 * v) / C**0.5
    expected = w / (1 + torch.sqrt(1 + C * (w * w).sum(-1, keepdim=True)))
    torch.testing.assert_close(layer(x), expected)


@pytest.mark.parametrize(("manifold", "copies"), [(Lorentz(C), 2), (PoincareBall(C), 3)])
def test_hnnpp_keeps_few_copies_of_its_output(
    manifold: Lorentz | PoincareBall, copies: int
) -> None:
    layer = bnn.Linear(4, 400, manifold=manifold, form="hnnpp")
    x = manifold.exp0(torch.randn(300, 4)).requires_grad_()
    assert saved_bytes(lambda: layer(x)) < (copies + 0.2) * layer(x).nbytes


def test_hyperplane_outputs_are_distances_through_sinh() -> None:
    """sinh(√c·d)/√c times |u|, with the hyperplane at distance a/|u| along u."""
    layer = randomised(bnn.Linear(5, 3, manifold=Lorentz(C), form="hyperplane"))
    x = points(Lorentz(C), 7, 5)
    length = layer.weight.norm(dim=-1)
    y = torch.asinh(C**0.5 * layer(x) / length) / C**0.5
    expected = hyperplane.hyperplane_logits(x, layer.weight, layer.bias / length, C) / length
    torch.testing.assert_close(y, expected)


def test_hyperplane_is_htc_with_a_tied_time_column() -> None:
    layer = randomised(bnn.Linear(5, 3, manifold=Lorentz(C), form="hyperplane"))
    x = points(Lorentz(C), 7, 5)
    z = C**0.5 * layer.bias / layer.weight.norm(dim=-1)
    htc = bnn.Linear(5, 3, manifold=Lorentz(C)).double()
    with torch.no_grad():
        htc.weight.copy_(torch.cosh(z)[:, None] * layer.weight)
        htc.time_weight.copy_(-layer.weight.norm(dim=-1) * torch.sinh(z))
        htc.bias.copy_(htc.time_weight / C**0.5)  # t = τ + 1/√c
    torch.testing.assert_close(layer(x), htc(x))


def test_hybonet_has_the_time_its_gate_says() -> None:
    layer = randomised(bnn.Linear(5, 3, manifold=Lorentz(C), form="hybonet"))
    x = points(Lorentz(C), 7, 5)
    y = layer(x)
    tau = lorentz.excess_time(x, C)
    gate = torch.sigmoid(x @ layer.gate_weight + layer.gate_time_weight * tau + layer.gate_bias)
    energy = layer.log_scale.exp() * gate + 0.5
    torch.testing.assert_close(lorentz.excess_time(y, C), C**0.5 * energy)
    u = x @ layer.weight.T + tau[:, None] * layer.time_weight + layer.bias
    torch.testing.assert_close(
        nn.functional.normalize(y, dim=-1), nn.functional.normalize(u, dim=-1)
    )


def test_hybonet_at_u_zero_is_the_origin() -> None:
    layer = bnn.Linear(5, 3, manifold=Lorentz(C), form="hybonet")
    x = torch.zeros(2, 5, requires_grad=True)
    y = layer(x)
    y.sum().backward()
    assert torch.equal(y, torch.zeros(2, 3))
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("size", [1e-20, 1e-25, 1e-35])
def test_hybonet_takes_the_direction_of_short_vectors(size: float) -> None:
    """Their squares underflow; below 1e-30 they have no direction."""
    layer = bnn.Linear(3, 3, manifold=Lorentz(C), form="hybonet", time=False)
    with torch.no_grad():
        layer.weight.copy_(torch.eye(3))
        layer.gate_weight.zero_()
    u = torch.tensor([[3.0, 0.0, -4.0]])
    x = (size * u).requires_grad_()
    y = layer(x)
    expected = u / 5 * (2 + C) ** 0.5 if size > 1e-30 else torch.zeros(1, 3)  # E = 1
    torch.testing.assert_close(y, expected)
    (y * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
    for t in (x, *layer.parameters()):
        assert t.grad is None or t.grad.isfinite().all()
    assert x.grad is not None
    if size > 1e-30:
        g = torch.tensor([1.0, 2.0, 3.0])
        across = (2 + C) ** 0.5 * (g - (g @ u[0]) / 25 * u[0]) / 5
        torch.testing.assert_close(x.grad[0] * size, across)


def test_repr_names_the_time_column() -> None:
    assert "time=True" in repr(bnn.Linear(2, 2, manifold=Lorentz(C)))
    assert "time=False" in repr(bnn.Linear(2, 2, manifold=Lorentz(C), time=False))


def test_euclidean_forms() -> None:
    x = torch.randn(7, 5, dtype=torch.float64)
    plain = randomised(bnn.Linear(5, 3, manifold=Euclidean()))
    for form in ("tangent", "mobius"):
        layer = bnn.Linear(5, 3, manifold=Euclidean(), form=form).double()
        layer.load_state_dict(plain.state_dict())
        torch.testing.assert_close(layer(x), plain(x))
    hnnpp = bnn.Linear(5, 3, manifold=Euclidean(), form="hnnpp").double()
    hnnpp.load_state_dict(plain.state_dict())
    expected = x @ plain.weight.T - plain.bias * plain.weight.norm(dim=-1)
    torch.testing.assert_close(hnnpp(x), expected)


def test_default_forms() -> None:
    assert bnn.Linear(2, 2, manifold=Lorentz(C)).form == "htc"
    assert bnn.Linear(2, 2, manifold=Euclidean()).form == "htc"
    assert bnn.Linear(2, 2, manifold=PoincareBall(C)).form == "hnnpp"
    with pytest.raises(ValueError, match=r"PoincareBall.*'hnnpp', 'mobius', 'tangent'; got 'htc'"):
        bnn.Linear(2, 2, manifold=PoincareBall(C), form="htc")
