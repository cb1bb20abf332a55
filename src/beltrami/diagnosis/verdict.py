"""What the numbers say, in words, by a rule that is stated beside them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from beltrami.diagnosis.numbers import as_interval
from beltrami.diagnosis.tree_likeness import DATA

LITTLE, STRONG = 0.25, 0.6  # of the way from noise to a tree
WORTH = 0.1  # share of flat space's distortion that hyperbolic space saves
BROKEN = 0.01  # share of violated triangle inequalities, above which there is no verdict
RULE = (
    "The rule: δ, Gromov's measure relative to the diameter, is compared with the δ of noise of "
    "the same size and spread. Vectors are also compared with noise that has their distances from "
    "the mean as well, because a few points far out look like a star, which is a tree. The noise "
    "with the smaller δ counts. If the 95 % interval of the difference includes 0, or the data "
    "have a larger δ, they are not more tree-like than noise. "
    "Otherwise 1 − δ/δ of noise says how far they are on the way from noise (0) to a tree (1): "
    f"below {LITTLE} a little, from {STRONG} strongly. And "
    f"hyperbolic space must distort the distances at least {WORTH:.0%} less than flat space of as "
    "many dimensions. That alone would say little: hyperbolic space holds noise of many dimensions "
    "better, too, as the fits show. Where no fits were asked for, δ decides. Distances of which "
    f"more than {BROKEN:.0%} of the triangles violate the triangle inequality get no verdict."
)


@dataclass(frozen=True)
class Verdict:
    """A short answer, what it rests on, and whether to try hyperbolic geometry."""

    answer: str
    reason: str
    level: str  # "none", "little", "some", "strong" or "unclear"
    worth_trying: bool

    def as_dict(self) -> dict[str, Any]:
        """The fields, and the rule, for the document."""
        return {**asdict(self), "rule": RULE}


def judge(tree: dict[str, Any], fits: dict[str, Any] | None, broken: float = 0.0) -> Verdict:
    """The verdict on tree-likeness, with what the fits of curvature add where there are any.

    Args:
        tree, fits: these parts. broken: the share of violated triangle inequalities.
    """
    nearest = tree["nearest_noise"]
    delta = {name: as_interval(estimate) for name, estimate in tree["relative_delta"].items()}
    excess, way = (as_interval(tree[k]) for k in ("excess_over_noise", "tree_likeness_score"))
    reason = (
        f"Relative δ is {delta[DATA].format()}, that of {tree['noises'][nearest]} "
        f"{delta[nearest].format()}, and that of a tree {delta['tree'].format()}: the difference "
        f"to noise is {excess.format()}."
    )
    if broken > BROKEN:
        return _unclear(
            f"{broken:.1%} of the triangles violate the triangle inequality, so that these are "
            "distances of no space.",
            reason,
        )
    if tree["tree_likeness_score"]["mean"] is None:
        return _unclear("noise of this size and spread is a tree itself.", reason)
    if excess.mean + (excess.half_width or 0.0) >= 0:
        if way.mean >= LITTLE:
            return _unclear(
                "these data look more tree-like than noise, but the samples differ too much. More "
                "--repeats would narrow the interval.",
                reason,
            )
        answer = "not expected to help here: these data are not more tree-like than noise."
        return Verdict(f"Hyperbolic geometry is {answer}", reason, "none", False)
    reason += f" They are {way.mean:.0%} of the way from noise to a tree."
    if way.mean < LITTLE:
        answer = "expected to help little: these data are only slightly more tree-like than noise."
        return Verdict(f"Hyperbolic geometry is {answer}", reason, "little", False)
    level = "strong" if way.mean >= STRONG else "some"
    like = f"these data are {'strongly' if level == 'strong' else 'somewhat'} tree-like"
    if fits is None:
        return Verdict(f"{like.capitalize()}.", reason, level, True)
    fit = distortions(fits)
    reason += (
        f" In {fit.dimensions} dimensions hyperbolic space distorts the distances by "
        f"{fit.hyperbolic:.3f} in the mean and flat space by {fit.flat:.3f}; of noise these "
        f"are {fit.noise_hyperbolic:.3f} and {fit.noise_flat:.3f}."
    )
    if fit.hyperbolic > (1 - WORTH) * fit.flat:
        answer = (
            f"{like.capitalize()}, but flat space holds them about as well: try hyperbolic "
            "geometry only where few dimensions count."
        )
        return Verdict(answer, reason, level, False)
    chance = "is expected to help" if level == "strong" else "may help"
    answer = f"Hyperbolic geometry {chance}: {like}. Try it beside its Euclidean twin."
    return Verdict(answer, reason, level, True)


def _unclear(why: str, reason: str) -> Verdict:
    return Verdict(f"No clear answer: {why}", reason, "unclear", False)


@dataclass(frozen=True)
class Distortions:
    """Distortions of data and noise in hyperbolic and flat space, by the best fit."""

    dimensions: int
    hyperbolic: float
    flat: float
    noise_hyperbolic: float
    noise_flat: float


def distortions(fits: dict[str, Any]) -> Distortions:
    """Distortions in the dimensions that fit the data best."""
    place = [fit["dimensions"] for fit in fits["fits"]].index(fits["best_dimensions"])
    data, noise = fits["fits"][place], fits["noise_fits"][place]
    return Distortions(
        data["dimensions"],
        data["distortion"],
        data["flat_distortion"],
        noise["distortion"],
        noise["flat_distortion"],
    )
