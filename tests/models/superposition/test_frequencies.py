"""Laws of frequencies: their shape, their sum, and what does not fit."""

from __future__ import annotations

import math

import pytest
import torch

from beltrami.models.superposition import denser, empirical, exponential, linear, power_law


def test_laws_have_their_shape_and_their_density() -> None:
    for p in (power_law(50, 1.5, density=1.2), linear(50, density=1.2), exponential(50, 9.0)):
        assert p.dtype == torch.float64
        assert bool((p[1:] <= p[:-1]).all())
        assert float(p.sum()) == pytest.approx(1.2 if float(p.sum()) > 1.1 else 1.0)
    p = power_law(100, 1.5)
    assert float(p[3] / p[0]) == pytest.approx(4**-1.5)
    line = linear(10)
    assert (line[:-1] - line[1:]).tolist() == pytest.approx([float(line[-1])] * 9)
    falls = exponential(30, 7.0)
    assert (falls[1:] / falls[:-1]).tolist() == pytest.approx([math.exp(-1 / 7)] * 29)


def test_counts_in_falling_order() -> None:
    assert empirical(torch.tensor([1, 5, 2])).tolist() == [0.625, 0.25, 0.125]


def test_denser_up_to_a_feature_that_is_always_there() -> None:
    p = power_law(1000, 1.0)
    assert torch.equal(denser(p, 0.0), p)
    assert float(denser(p, 1.0)[0]) == pytest.approx(1.0)
    # The densities of the published sweep.
    sums = [round(float(denser(p, s / 8).sum()), 3) for s in range(9)]
    assert sums == [1.0, 1.811, 2.621, 3.432, 4.243, 5.053, 5.864, 6.675, 7.485]


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: power_law(0, 1.0), "n must be"),
        (lambda: power_law(5, -1.0), "got -1"),
        (lambda: power_law(5, float("nan")), "got nan"),
        (lambda: power_law(5, 1.0, density=0.0), "density must be positive"),
        (lambda: power_law(5, 2.0, density=2.0), "at most 1.46"),
        (lambda: exponential(5, 0.0), "scale"),
        (lambda: denser(power_law(5, 1.0), 1.5), "got 1.5"),
        (lambda: empirical(torch.tensor([1, 0])), "positive, got 0"),
        (lambda: empirical(torch.tensor([])), r"\(0,\)"),
        (lambda: empirical(torch.tensor([1.0, float("inf")])), "counts"),
        (lambda: empirical([1, 2]), "list"),  # type: ignore[arg-type]
    ],
)
def test_what_does_not_fit(make, match: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=match):
        make()
