"""Directions far apart: known optima, and unit length."""

from __future__ import annotations

import math

import pytest
import torch

from beltrami.models.hierarchy import least_angle, spherical_code


@pytest.mark.parametrize(
    ("count", "dim", "degrees", "within"),
    [
        (2, 3, 180.0, 1e-6),
        (4, 3, 109.4712, 1e-3),  # tetrahedron
        (6, 5, 101.5370, 1e-3),  # simplex
        (6, 3, 90.0, 1e-6),
        (9, 5, 90.0, 1e-6),
        (12, 3, 63.4349, 1.0),  # icosahedron
        (24, 4, 60.0, 3.0),  # the 24-cell
        (36, 2, 10.0, 1e-6),
    ],
)
def test_known_optima(count: int, dim: int, degrees: float, within: float) -> None:
    code = spherical_code(count, dim)
    assert code.shape == (count, dim)
    torch.testing.assert_close(code.norm(dim=-1), torch.ones(count).double())
    assert math.degrees(least_angle(code)) == pytest.approx(degrees, abs=within)


def test_large_codes_are_better_than_chance() -> None:
    code = spherical_code(1500, 4)  # chosen, not refined
    chance = torch.nn.functional.normalize(torch.randn(1500, 4).double(), dim=-1)
    assert least_angle(code) > 4 * least_angle(chance)


def test_the_same_every_time() -> None:
    first = spherical_code(30, 4).clone()
    spherical_code.cache_clear()
    assert torch.equal(first, spherical_code(30, 4))


def test_one_direction() -> None:
    assert least_angle(spherical_code(1, 4)) == math.pi


@pytest.mark.parametrize(("count", "dim"), [(0, 2), (3, 1)])
def test_bad_input(count: int, dim: int) -> None:
    with pytest.raises(ValueError, match="count"):
        spherical_code(count, dim)
