from __future__ import annotations

import json

import pytest
import torch

from beltrami.geometry import (
    Curvature,
    Euclidean,
    Lorentz,
    Manifold,
    PoincareBall,
    Product,
    Solvable,
    Sphere,
    Stereographic,
)
from beltrami.geometry.description import describe, from_description

SPACES = [
    Lorentz(0.5),
    PoincareBall(2.0),
    Euclidean(),
    Sphere(1.5),
    Solvable(0.7),
    Stereographic(-0.3),
    Product([(Lorentz(0.5), 2), (Euclidean(), 3), (PoincareBall(1.0), 2, 2)], p=1),
]


@pytest.mark.parametrize("manifold", SPACES, ids=repr)
def test_a_manifold_comes_back_from_json(manifold: Manifold) -> None:
    description = json.loads(json.dumps(describe(manifold)))
    assert from_description(description) == manifold


def test_learned_curvatures_become_numbers() -> None:
    one = from_description(describe(Lorentz(Curvature(0.3))))
    assert one.c == pytest.approx(0.3)
    several = Product([(Lorentz(Curvature(0.6, size=2)), 3, 2)])
    back = from_description(describe(several))
    x, y = several.random(2, 6)
    assert torch.allclose(back.dist(x, y), several.dist(x, y))


@pytest.mark.parametrize(
    "wrong", [{}, {"kind": "cube"}, {"kind": "lorentz"}, {"kind": "lorentz", "c": None}]
)
def test_a_wrong_description_is_shown(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="does not describe a manifold"):
        from_description(wrong)
    with pytest.raises(ValueError, match="c must be a positive"):
        from_description({"kind": "lorentz", "c": -1.0})


def test_a_manifold_of_others_is_refused() -> None:
    class Own(Lorentz):
        pass

    with pytest.raises(TypeError, match="Own has no description"):
        describe(Own(1.0))
