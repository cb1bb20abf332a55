"""What is measured of a trained stack: losses, lengths, overlaps, exponents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from beltrami.analysis.isotropy import isotropy
from beltrami.analysis.superposition import fit_exponent, represented, unlearned_loss
from beltrami.models.superposition import ToyStack
from beltrami.recipes.recipe import Evaluation, Metric
from beltrami.recipes.superposition.regimes import Regime, regimes_of

BINS = 40
LONGEST = 2.0  # of the histograms of lengths
EXPONENT, LOSS, HALF, ONE = "exponent", "loss", "represented", "above one"
OVERLAP = "overlap"  # of rows longer than 1, as published; of all that have length 1
NONE = -1.0  # in curves, since JSON has no NaN
CURVES = (LOSS, HALF, ONE, OVERLAP, "unlearned")


def metrics_of(regimes: Sequence[Regime]) -> tuple[Metric, ...]:
    """Of each regime: its widest model's loss, its exponent, the share of features it has."""
    found = []
    for r in regimes:
        found += [
            Metric(
                key(LOSS, r), f"Loss, {r.title}", "of the widest; squared error a sample", "lower"
            ),
            Metric(key(EXPONENT, r), f"Exponent, {r.title}", "the loss falls as m^−exponent", None),
            Metric(
                key(HALF, r), f"Features, {r.title}", "share with rows above ½, all widths", None
            ),
        ]
    return tuple(found)


def key(name: str, regime: Regime) -> str:
    """A metric's or a curve's name."""
    return f"{name} {regime.key}"


@torch.no_grad()
def evaluation(
    stack: ToyStack, losses: Tensor, frequencies: Tensor, settings: Mapping[str, Any]
) -> Evaluation:
    """Metrics, and curves over the widths."""
    widths = settings["widths"]
    metrics: dict[str, float | None] = {}
    curves: dict[str, list[float]] = {}
    for i, regime in enumerate(regimes_of(settings)):
        here = range(i * len(widths), (i + 1) * len(widths))
        lists: dict[str, list[float]] = {name: [] for name in CURVES}
        for j in here:
            w = stack.weight(j).detach().cpu()
            lists[LOSS].append(float(losses[j]))
            lists[HALF].append(float(represented(w)))
            unit = regime.gamma is None  # of which rows are longer than 1 is up to rounding
            lists[ONE].append(NONE if unit else float(represented(w, 1.0)))
            lists[OVERLAP].append(_overlap(w if unit else w[w.double().norm(dim=1) > 1]))
            lists["unlearned"].append(float(unlearned_loss(w, frequencies)))
        curves |= {key(name, regime): values for name, values in lists.items()}
        middle = stack.weight(here[len(widths) // 2]).detach().cpu()
        curves[key("lengths", regime)] = _lengths(middle)
        curves[key("cosines", regime)] = _cosines(middle)
        metrics[key(EXPONENT, regime)] = fit_exponent(widths, lists[LOSS]).exponent
        metrics[key(LOSS, regime)] = lists[LOSS][-1]
        metrics[key(HALF, regime)] = sum(lists[HALF]) / len(widths)
    return Evaluation(metrics, curves)


def _overlap(rows: Tensor) -> float:
    """Mean squared cosine; none of fewer than two rows."""
    return isotropy(rows).mean_squared_cosine if len(rows) > 1 else NONE


def _lengths(w: Tensor) -> list[float]:
    """Counts of lengths in equal bins up to 2; longer ones are in the last."""
    return _binned(w.norm(dim=1) / LONGEST).tolist()


def _cosines(w: Tensor) -> list[float]:
    """Shares of |cos| of pairs of rows above ½ in equal bins up to 1; none of fewer than two."""
    rows = torch.nn.functional.normalize(w[w.norm(dim=1) > 0.5].double(), dim=1)
    if len(rows) < 2:
        return [0.0] * BINS
    first, second = torch.triu_indices(len(rows), len(rows), 1)
    counts = _binned((rows @ rows.mT)[first, second].abs())
    return (counts / counts.sum()).tolist()


def _binned(shares: Tensor) -> Tensor:
    """How many of numbers from 0 on lie in each bin up to 1, the last with all that are above."""
    places = (shares * BINS).long()
    return torch.bincount(torch.where(places < BINS, places, BINS - 1), minlength=BINS).double()
