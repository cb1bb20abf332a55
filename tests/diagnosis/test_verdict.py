"""The rule: what it says of numbers on either side of its borders."""

from __future__ import annotations

from typing import Any

import pytest

from beltrami.diagnosis.verdict import LITTLE, RULE, STRONG, distortions, judge


def tree(excess: float, half: float, way: float) -> dict[str, Any]:
    delta = {
        "data": {"mean": 0.2 + excess, "half_width": half},
        "noise": {"mean": 0.2, "half_width": half},
        "tree": {"mean": 0.0, "half_width": 0.0},
    }
    return {
        "relative_delta": delta,
        "excess_over_noise": {"mean": excess, "half_width": half},
        "tree_likeness_score": {"mean": way, "half_width": half},
        "noises": {"noise": "noise"},
        "nearest_noise": "noise",
    }


def fits(hyperbolic: float, flat: float, noise: float) -> dict[str, Any]:
    def fit(distortion: float, flat: float) -> dict[str, Any]:
        return {"dimensions": 5, "distortion": distortion, "flat_distortion": flat}

    return {
        "fits": [fit(9, 9) | {"dimensions": 2}, fit(hyperbolic, flat)],
        "noise_fits": [fit(8, 8) | {"dimensions": 2}, fit(noise, flat)],
        "best_dimensions": 5,
    }


GOOD = fits(0.1, 0.3, 0.3)


@pytest.mark.parametrize(
    ("tree_", "fits_", "level", "worth", "words"),
    [
        (tree(-0.01, 0.02, 0.05), GOOD, "none", False, "not more tree-like"),
        (tree(+0.05, 0.01, -0.2), GOOD, "none", False, "not more tree-like"),
        (tree(-0.03, 0.01, LITTLE - 0.01), GOOD, "little", False, "little"),
        (tree(-0.05, 0.01, LITTLE + 0.01), GOOD, "some", True, "may help"),
        (tree(-0.15, 0.01, STRONG + 0.01), GOOD, "strong", True, "expected to help"),
        (tree(-0.15, 0.01, 0.7), fits(0.28, 0.3, 0.9), "strong", False, "flat space holds"),
        (tree(-0.15, 0.01, 0.7), None, "strong", True, "strongly"),
        (tree(-0.05, 0.01, 0.3), None, "some", True, "somewhat"),
        (tree(-0.15, 0.20, 0.7), GOOD, "unclear", False, "More --repeats"),
    ],
)
def test_the_rule(
    tree_: dict[str, Any], fits_: dict[str, Any] | None, level: str, worth: bool, words: str
) -> None:
    verdict = judge(tree_, fits_)
    assert (verdict.level, verdict.worth_trying) == (level, worth)
    assert words in verdict.answer
    assert "0.2" in verdict.reason
    assert verdict.as_dict()["rule"] == RULE


def test_the_distortions_are_of_the_best_dimensions() -> None:
    found = distortions(fits(0.1, 0.3, 0.2))
    assert (found.dimensions, found.hyperbolic, found.flat) == (5, 0.1, 0.3)
    assert (found.noise_hyperbolic, found.noise_flat) == (0.2, 0.3)


def test_noise_that_is_a_tree_tells_nothing() -> None:
    nothing = tree(0.0, 0.0, 0.0) | {"tree_likeness_score": {"mean": None, "half_width": None}}
    verdict = judge(nothing, GOOD)
    assert (verdict.level, verdict.worth_trying) == ("unclear", False)
    assert "nan" not in verdict.reason
