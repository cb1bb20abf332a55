"""One power law for several families: what is recovered, and whether its errors are right."""

from __future__ import annotations

import math
import random

import pytest
import torch
from scipy import optimize

from beltrami.analysis.superposition import JointFit, fit_losses
from tests.analysis.superposition.published import (
    ALPHA,
    DATASETS,
    MEAN_SQUARED,
    MODELS,
    OFFSETS,
    SCALE,
)


def design() -> tuple[list[float], list[float], list[str], list[str]]:
    """The published fit's 27 models on 4 data sets, with the losses that it has for them."""
    widths, losses, families, datasets = [], [], [], []
    for family, sizes in MODELS.items():
        for m in sizes:
            for dataset, offset in zip(DATASETS, OFFSETS[family], strict=True):
                widths.append(float(m))
                losses.append(SCALE * m**-ALPHA + offset)
                families.append(family)
                datasets.append(dataset)
    return widths, losses, families, datasets


def noisy(losses: list[float], sigma: float, seed: int) -> list[float]:
    g = torch.Generator().manual_seed(seed)
    off = torch.randn(len(losses), generator=g, dtype=torch.float64) * sigma
    return (torch.tensor(losses, dtype=torch.float64) + off).tolist()


def test_the_published_law_is_recovered() -> None:
    widths, losses, families, datasets = design()
    found = fit_losses(widths, losses, families, datasets)
    assert (found.points, found.freedom, len(found.offsets)) == (108, 90, 16)
    assert found.exponent == pytest.approx(ALPHA, rel=1e-6)
    assert found.scale == pytest.approx(SCALE, rel=1e-5)
    for offset in found.offsets:
        expected = OFFSETS[offset.family][DATASETS.index(str(offset.dataset))]
        assert offset.value == pytest.approx(expected, abs=1e-6)
        assert offset.points == len(MODELS[offset.family])
    assert found.r_squared == pytest.approx(1)
    assert found.at(2048, "opt", "c4") == pytest.approx(SCALE * 2048**-ALPHA + 2.2745)


def test_the_published_error_is_too_small() -> None:
    """With all 18 parameters it is 0.059, and 173 of A; published is 0.036."""
    widths, losses, families, datasets = design()
    sigma = math.sqrt(MEAN_SQUARED * 108 / 90)
    found = [
        fit_losses(widths, noisy(losses, sigma, seed), families, datasets) for seed in range(20)
    ]
    error = sum(one.exponent_error for one in found) / 20
    assert error == pytest.approx(0.059, abs=0.003)
    assert sum(one.scale_error / one.scale for one in found) / 20 == pytest.approx(
        173 / 476, rel=0.1
    )
    assert sum(one.mean_squared for one in found) / 20 == pytest.approx(MEAN_SQUARED, rel=0.1)


@pytest.mark.parametrize("together", [0.0, 1.0])
def test_errors_of_models_are_what_repetition_shows(together: float) -> None:
    """Four data sets, on which models are off alike, or each for itself: 95 % hold either way."""
    widths = [8.0, 16, 32, 64, 128, 16, 64, 256, 512, 1024]
    families = ["a"] * 5 + ["b"] * 5
    offsets = {"a": 0.5, "b": 1.0}
    sets = ["w", "x", "y", "z"]
    exact = [
        4 * m**-0.6 + offsets[f] + 0.1 * d
        for d in range(4)
        for m, f in zip(widths, families, strict=True)
    ]
    names = [f"{f} {m}" for m, f in zip(widths, families, strict=True)] * 4
    datasets = [s for s in sets for _ in widths]
    held = {True: 0, False: 0}
    for seed in range(300):
        g = torch.Generator().manual_seed(seed)
        own = 0.01 * torch.randn(10, generator=g, dtype=torch.float64).repeat(4)
        each = 0.01 * torch.randn(40, generator=g, dtype=torch.float64)
        off = together * own + (1 - together) * each
        losses = [loss + float(o) for loss, o in zip(exact, off, strict=True)]
        for by_models in held:
            fit = fit_losses(
                widths * 4, losses, families * 4, datasets, names if by_models else None
            )
            held[by_models] += fit.low <= 0.6 <= fit.high
    assert 273 <= held[True] <= 296  # 285 ± 3σ
    assert (held[False] < 240) == (together == 1)


def test_one_loss_a_model_is_the_usual_error() -> None:
    widths = [8.0, 16, 32, 64, 128]
    losses = [4 * m**-0.6 + 0.01 * (-1) ** i for i, m in enumerate(widths)]
    usual = fit_losses(widths, losses, ["a"] * 5)
    found = fit_losses(widths, losses, ["a"] * 5, models=list("vwxyz"))
    assert (found.low, found.high) == pytest.approx((usual.low, usual.high))
    with pytest.raises(ValueError, match="need at least 4 models, got 3"):
        fit_losses(
            [8, 16, 32] * 2,
            [3, 2, 1.5, 4, 3, 2.4],
            ["a"] * 6,
            ["x"] * 3 + ["y"] * 3,
            list("uvwuvw"),
        )
    with pytest.raises(ValueError, match="5 widths and 2 models"):
        fit_losses(widths, losses, ["a"] * 5, models=["v", "w"])


def test_errors_are_what_repetition_shows() -> None:
    """300 data sets of 3 families: z-values are Student's, and 95 % intervals hold 95 %."""
    widths = [8.0, 16, 32, 64, 128, 256, 16, 64, 256, 512, 32, 128, 1024, 2048]
    families = ["a"] * 6 + ["b"] * 4 + ["c"] * 4
    true = {"a": 0.5, "b": 1.0, "c": 0.2}
    exact = [4 * m**-0.6 + true[f] for m, f in zip(widths, families, strict=True)]
    runs = [fit_losses(widths, noisy(exact, 0.01, seed), families) for seed in range(300)]
    holds = sum(run.low <= 0.6 <= run.high for run in runs)
    assert 273 <= holds <= 296  # 285 ± 3σ
    for name, off in (
        ("α", [(run.exponent - 0.6) / run.exponent_error for run in runs]),
        ("A", [(run.scale - 4) / run.scale_error for run in runs]),
        ("B", [(run.offsets[1].value - 1.0) / run.offsets[1].error for run in runs]),
    ):
        z = torch.tensor(off)
        # Student's t with 9 degrees of freedom has the standard deviation √(9/7).
        assert float(z.std()) == pytest.approx(math.sqrt(9 / 7), rel=0.15), name
        assert abs(float(z.mean())) < 0.3, name


def test_against_scipy() -> None:
    widths, losses, families, _ = design()
    losses = noisy(losses, 0.07, 1)
    found = fit_losses(widths, losses, families)
    names = list(MODELS)
    place = [names.index(family) for family in families]
    m = torch.tensor(widths, dtype=torch.float64).numpy()

    def law(_: object, alpha: float, scale: float, *offsets: float) -> object:
        return scale * (m / 1000) ** -alpha + torch.tensor(offsets).double()[place].numpy()

    best, covariance = optimize.curve_fit(law, m, losses, p0=[1.0, 1.0, 2.0, 2.0, 2.0, 2.0])
    assert found.exponent == pytest.approx(best[0], rel=1e-4)
    assert found.scale == pytest.approx(best[1] * 1000 ** best[0], rel=1e-3)
    assert [o.value for o in found.offsets] == pytest.approx(best[2:].tolist(), rel=1e-4)
    assert found.exponent_error == pytest.approx(covariance[0, 0] ** 0.5, rel=1e-3)
    assert [o.error for o in found.offsets] == pytest.approx(
        [covariance[i, i] ** 0.5 for i in range(2, 6)], rel=1e-3
    )


def simple(shuffle: int | None = None, scale: float = 1.0) -> JointFit:
    points = [
        (m, 3 * m**-0.8 + b + 0.01 * math.sin(m), f)
        for f, b in (("a", 0.3), ("b", 0.6))
        for m in (4, 8, 16, 32, 64)
    ]
    if shuffle is not None:
        random.Random(shuffle).shuffle(points)
    widths, losses, families = zip(*points, strict=True)
    return fit_losses(widths, [scale * loss for loss in losses], families)


def test_neither_order_nor_scale_matters() -> None:
    plain, other = simple(), simple(shuffle=3, scale=7.0)
    assert other.exponent == pytest.approx(plain.exponent, rel=1e-6)
    assert other.exponent_error == pytest.approx(plain.exponent_error, rel=1e-5)
    assert other.scale == pytest.approx(7 * plain.scale, rel=1e-6)
    assert {o.family: o.value for o in other.offsets} == pytest.approx(
        {o.family: 7 * o.value for o in plain.offsets}
    )


def test_a_family_with_one_width_has_an_offset_and_no_say() -> None:
    widths = [4.0, 8, 16, 32, 64]
    losses = [3 * m**-0.8 + 0.2 + 0.01 * math.cos(m) for m in widths]
    alone = fit_losses(widths, losses, ["a"] * 5)
    found = fit_losses([*widths, 8.0], [*losses, 2.0], ["a"] * 5 + ["b"])
    assert [offset.family for offset in found.lone] == ["b"]
    assert not alone.lone
    assert found.exponent == pytest.approx(alone.exponent)
    assert found.exponent_error == pytest.approx(alone.exponent_error)
    assert found.freedom == alone.freedom
    assert found.at(8, "b") == pytest.approx(2.0)
    assert found.offsets[1].error > found.offsets[0].error


def test_no_power_law_ends_at_the_edge() -> None:
    widths = [2.0**i for i in range(1, 10)]
    logarithm = fit_losses(widths, [9 - math.log(m) for m in widths], ["a"] * 9)
    assert logarithm.at_edge
    assert logarithm.exponent == pytest.approx(0.01)
    assert not simple().at_edge


def test_the_numbers() -> None:
    assert simple().as_dict()["freedom"] == 6
    assert simple().covariance.shape == (4, 4)


@pytest.mark.parametrize(
    ("widths", "losses", "families", "message"),
    [
        ([1, 2, 3], [3, 2, 1], "aaa", "need at least 4 losses, got 3"),
        ([1, 2, 3, 4], [3, 2, 1.5, 1], "aabb", "need at least 5 losses, got 4"),
        ([1, 2, 1, 2, 1, 2], [3, 2, 3, 2, 3, 2], "aabbbb", "3 different widths.*'1', '2'"),
        ([1, 2, 3, 4, 2], [3, 2, 2, 2, 2], "abcda", "need at least 7 losses"),
        ([1, 2, 3, 4], [1, 2, 3, 4], "aaaa", "do not fall with width"),
        ([1, 2, 3, 4], [3, 2, 1, 0.5], "aaa", "4 widths and 3 families"),
        ([1, 2, 3, 4], [3, 2, 1, math.inf], "aaaa", "losses must be finite"),
    ],
)
def test_bad_input(widths: list[float], losses: list[float], families: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit_losses(widths, losses, list(families))


def test_bad_names() -> None:
    with pytest.raises(ValueError, match="10 widths and 1 datasets"):
        fit_losses([1] * 10, [1] * 10, ["a"] * 10, ["x"])
    with pytest.raises(ValueError, match="no offset was fitted for family 'c'"):
        simple().at(3, "c")
