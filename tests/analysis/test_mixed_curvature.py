"""Products of spaces: the one that distances come from is found."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from beltrami.analysis.mixed_curvature import (
    ProductSuggestion,
    name,
    split,
    suggest_product,
)
from beltrami.analysis.null_models import sphere_distances, tree_distances

STEPS = 120


def suggested(d: Tensor, **options: object) -> ProductSuggestion:
    given = {"sample": 60, "steps": STEPS, "repeats": 2, "signatures": ("H", "E", "S"), **options}
    return suggest_product(d, **given)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "best"), [("tree", "H"), ("sphere", "S"), ("flat", "E")])
def test_single_spaces_are_recognised(kind: str, best: str) -> None:
    flat = torch.randn(60, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    d = {
        "tree": tree_distances(60),
        "sphere": sphere_distances(60),
        "flat": torch.cdist(flat, flat),
    }[kind]
    found = suggested(d)
    assert found.fits[0].signature == best
    assert [fit.distortion for fit in found.fits] == sorted(fit.distortion for fit in found.fits)
    assert not found.clear  # a single space is no better than itself


def test_the_curvature_of_a_sphere_is_found() -> None:
    found = suggested(3 * sphere_distances(80), signatures=("S",), steps=300)
    (curvature,) = found.fits[0].curvatures
    assert curvature == pytest.approx(1 / 9, rel=0.1)
    assert found.fits[0].distortion < 0.03


def test_curvatures_have_their_unit_and_sign() -> None:
    one = suggested(tree_distances(40), signatures=("HS",))
    ten = suggested(10 * tree_distances(40), signatures=("HS",))
    for small, large in zip(one.fits[0].curvatures, ten.fits[0].curvatures, strict=True):
        assert large == pytest.approx(small / 100, rel=1e-3)
    assert one.fits[0].curvatures[0] < 0 < one.fits[0].curvatures[1]
    assert one.fits[0].distortion == pytest.approx(ten.fits[0].distortion, rel=1e-6)


def test_a_product_is_named_by_its_factors() -> None:
    found = suggested(tree_distances(30), signatures=("HES",), dimensions=7, steps=2)
    assert name(found.fits[0]) == "H3 × E2 × S2"
    assert "H3 × E2 × S2" in found.plot().svg
    assert split(7, 3) == (3, 2, 2)


def test_one_sample_has_no_interval() -> None:
    found = suggested(tree_distances(30), repeats=1, steps=2)
    assert math.isnan(found.fits[0].half_width)
    assert not found.clear


def test_two_points_that_nearly_coincide_decide_nothing() -> None:
    x = torch.randn(40, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x[1] = x[0] + 1e-9
    found = suggested(torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist"))
    assert found.fits[0].signature == "E"
    assert found.fits[0].distortion < 0.05


def test_a_signature_does_not_change_the_others() -> None:
    alone = suggested(tree_distances(30), signatures=("H",), steps=5).fits[0]
    beside = suggested(tree_distances(30), signatures=("E", "H"), steps=5)
    assert next(fit for fit in beside.fits if fit.signature == "H") == alone


def test_the_work_is_told() -> None:
    shares: list[float] = []
    suggested(tree_distances(20), steps=1, tick=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1


@pytest.mark.parametrize(
    ("d", "options", "match"),
    [
        (tree_distances(20), {"signatures": ("X",)}, "got 'X'"),
        (tree_distances(20), {"signatures": ()}, "must not be empty"),
        (tree_distances(20), {"signatures": ("H", "H")}, "or repeat one"),
        (tree_distances(20), {"signatures": ("HHH",), "dimensions": 2}, "at most 2, got 'HHH'"),
        (tree_distances(20), {"sample": 4}, "sample must be at least 8"),
        (tree_distances(5), {}, "takes 8 points, and there are 5"),
        (torch.zeros(20, 20), {}, "coincide"),
        (torch.ones(20, 20), {}, "diagonal"),
    ],
)
def test_bad_input(d: Tensor, options: dict[str, object], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        suggested(d, **options)
