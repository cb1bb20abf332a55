"""Layers in a row, and the ownership of curvatures."""

from __future__ import annotations

from collections import OrderedDict

import pytest
import torch
from torch import nn

import beltrami.nn as bnn
from beltrami.geometry import Curvature, Lorentz, PoincareBall

A, B = Lorentz(1.0), Lorentz(0.5)


def linear(manifold: Lorentz) -> bnn.Linear:
    return bnn.Linear(4, 4, manifold=manifold)


def test_agreeing_layers_are_called_in_order() -> None:
    change = bnn.ChangeCurvature(manifold=A, manifold_out=B)
    net = bnn.Sequential(linear(A), nn.Identity(), change, bnn.Sequential(linear(B), linear(B)))
    x = torch.randn(3, 4)
    assert torch.equal(net(x), net[3][1](net[3][0](change(net[0](x)))))
    named = bnn.Sequential(OrderedDict(first=linear(A), second=linear(A)))
    assert torch.equal(named(x), named.second(named.first(x)))


@pytest.mark.parametrize(
    ("make", "where"),
    [
        (lambda: bnn.Sequential(linear(A), linear(B)), ("0", "1")),
        (lambda: bnn.Sequential(linear(A), nn.Identity(), linear(B)), ("0", "2")),
        (lambda: bnn.Sequential(linear(A), bnn.Sequential(linear(B))), ("0", "1.0")),
        (lambda: bnn.Sequential(nn.Sequential(linear(A)), linear(B)), ("0.0", "1")),
        (lambda: bnn.Sequential(OrderedDict(a=linear(A), b=linear(B))), ("0", "1")),
        (lambda: bnn.Sequential(linear(A)).append(linear(B)), ("0", "1")),
        (lambda: bnn.Sequential(linear(A)).extend([linear(A), linear(B)]), ("1", "2")),
        (lambda: bnn.Sequential(linear(A)).insert(0, linear(B)), ("0", "1")),
        (lambda: bnn.Sequential(linear(A), linear(A)).__setitem__(1, linear(B)), ("0", "1")),
        (lambda: bnn.check_chain(linear(A), linear(B)), ("0", "1")),
    ],
)
def test_a_change_of_curvature_is_named(make: object, where: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match=r"ChangeCurvature, Lift or Lower") as error:
        make()  # type: ignore[operator]
    message = str(error.value)
    assert f"layer {where[0]} (Linear)" in message
    assert f"layer {where[1]} (Linear)" in message
    assert "Lorentz(c=1.0)" in message
    assert "Lorentz(c=0.5)" in message


def test_a_refused_layer_is_not_added() -> None:
    net = bnn.Sequential(linear(A))
    with pytest.raises(ValueError, match="puts out points"):
        net.append(linear(B))
    assert len(net) == 1


def test_changes_that_agree_are_made() -> None:
    net = bnn.Sequential(linear(A)).append(linear(A)).extend([linear(A)]).insert(0, linear(A))
    net[2] = linear(A)
    assert len(net) == 4
    assert net(torch.randn(2, 4)).shape == (2, 4)


def test_other_models_and_other_curvature_objects_do_not_agree() -> None:
    ball = bnn.Linear(4, 4, manifold=PoincareBall(1.0))
    with pytest.raises(ValueError, match=r"Lorentz.*PoincareBall"):
        bnn.Sequential(linear(A), ball)
    learned = [linear(Lorentz(Curvature(1.0))) for _ in range(2)]
    with pytest.raises(ValueError, match="same manifold object"):
        bnn.Sequential(*learned)


class Owner(nn.Module):
    def __init__(self, layer: nn.Module, **owned: nn.Module | nn.Parameter) -> None:
        super().__init__()
        self.layer = layer
        for name, value in owned.items():
            setattr(self, name, value)


def test_check_model_finds_what_nobody_owns() -> None:
    curvature, tensor = Curvature(1.0), nn.Parameter(torch.ones(1))
    bnn.check_model(Owner(linear(Lorentz(curvature)), curvature=curvature))
    bnn.check_model(Owner(linear(Lorentz(tensor)), c=tensor))
    bnn.check_model(Owner(linear(Lorentz(Curvature(1.0, learnable=False)))))
    bnn.check_model(Owner(linear(A)))
    with pytest.raises(ValueError, match=r"^layer works on .* whose Curvature no module"):
        bnn.check_model(Owner(linear(Lorentz(curvature))))
    with pytest.raises(ValueError, match=r"^layer works on .* whose Parameter no module"):
        bnn.check_model(Owner(linear(Lorentz(tensor))))


def test_check_model_looks_at_modules_that_are_not_ours() -> None:
    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(3, 2))
            self.manifold_of = {"weight": Lorentz(Curvature(1.0))}

    with pytest.raises(ValueError, match="layer works on"):
        bnn.check_model(Owner(Table()))
