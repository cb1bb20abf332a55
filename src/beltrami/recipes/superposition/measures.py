"""The regimes of a stack, its members, and what is measured of it once it is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import torch
from torch import Tensor

from beltrami.analysis.isotropy import isotropy
from beltrami.analysis.superposition import fit_exponent, represented, unlearned_loss
from beltrami.models.superposition import Member, ToyStack
from beltrami.recipes.recipe import Evaluation, Metric
from beltrami.recipes.superposition.config import Readout

BINS = 40
LONGEST = 2.0  # of the histograms of lengths
# Curves over widths. Overlap is of rows longer than 1, as published, or of all that have length 1.
LOSS, HALF, ONE, OVERLAP, UNLEARNED = CURVES = (
    "loss", "represented", "above one", "overlap", "unlearned",
)  # fmt: skip
EXPONENT = "exponent"
NONE = -1.0  # in curves, since JSON has no NaN
_WIDE_RATE, _WIDE_FROM = 0.02, 8  # of the paper's experiment with many features


@dataclass(frozen=True)
class Regime:
    """All widths at one gamma.

    Args:
        key: in names of metrics. title: for people. gamma: None for rows of length 1.
    """

    key: str
    title: str
    gamma: float | None


@dataclass(frozen=True, kw_only=True)
class StackShape:
    """What all stacks of a run share.

    Args:
        features: n. widths: m of the models. gammas: of their weight decay.
        unit: whether rows of length 1 are a regime, too.
        batch: samples a step.
        rates: learning rate of all models, or "by width".
        warm_up: share of the steps.
        scale: of the loss; None for 1 over the batch.
        matrices: "TF32", or None for float32.
    """

    features: int
    widths: tuple[int, ...]
    gammas: tuple[float, ...]
    unit: bool
    batch: int
    rates: float | Literal["by width"]
    warm_up: float
    scale: float | None
    matrices: str | None = None

    @property
    def regimes(self) -> list[Regime]:
        """A regime for each gamma, and one more for rows of length 1."""
        regimes = [
            Regime(f"{gamma:g}", f"γ = {gamma:g}".replace("-", "−"), gamma) for gamma in self.gammas
        ]
        return [*regimes, Regime("unit", "rows of length 1", None)] if self.unit else regimes

    @property
    def members(self) -> list[Member]:
        """A model for every regime and width, in this order."""
        if self.rates == "by width":
            rates = [(_WIDE_RATE * (_WIDE_FROM / m) ** 0.25, 2 / m) for m in self.widths]
        else:
            rates = [(float(self.rates), self.rates)] * len(self.widths)
        return [
            Member(width, regime.gamma or 0.0, regime.gamma is None, *rate)
            for regime in self.regimes
            for width, rate in zip(self.widths, rates, strict=True)
        ]


@dataclass(frozen=True, kw_only=True)
class StackSettings(StackShape):
    """What the training of a stack depends on.

    Args:
        law: of the frequencies. density: features a sample. frequencies: their digest.
        steps: of the training. readout: how features are read.
        curvature: of hidden states, where the read-out has one.
    """

    law: str
    density: float
    frequencies: str
    steps: int
    readout: Readout
    curvature: float | None = None

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> StackSettings:
        """Those that a result.json holds."""
        names = {field.name for field in fields(cls)}
        known = {key: value for key, value in record.items() if key in names}
        lists = {key: tuple(known[key]) for key in ("widths", "gammas")}
        return cls(**{**known, **lists})


def metrics_of(regimes: Sequence[Regime]) -> tuple[Metric, ...]:
    """Of each regime: its widest model's loss, its exponent, the share of features it has."""
    kinds = (
        Metric(LOSS, "Loss", "of the widest; squared error a sample", "lower"),
        Metric(EXPONENT, "Exponent", "the loss falls as m^−exponent", None),
        Metric(HALF, "Features", "share with rows above ½, all widths", None),
    )
    return tuple(
        replace(kind, key=key(kind.key, regime), title=f"{kind.title}, {regime.title}")
        for regime in regimes
        for kind in kinds
    )


def key(name: str, regime: Regime) -> str:
    """A metric's or a curve's name."""
    return f"{name} {regime.key}"


@torch.no_grad()
def evaluation(
    stack: ToyStack, losses: Tensor, frequencies: Tensor, settings: StackShape
) -> Evaluation:
    """Metrics, and curves over the widths."""
    count = len(settings.widths)
    metrics: dict[str, float | None] = {}
    curves: dict[str, list[float]] = {}
    for i, regime in enumerate(settings.regimes):
        weights = [stack.weight(i * count + j).detach().cpu() for j in range(count)]
        unit = regime.gamma is None  # of which rows are longer than 1 is up to rounding
        own = {
            LOSS: losses[i * count : (i + 1) * count].tolist(),
            HALF: [float(represented(w)) for w in weights],
            ONE: [NONE if unit else float(represented(w, 1.0)) for w in weights],
            OVERLAP: [_overlap(w if unit else w[w.double().norm(dim=1) > 1]) for w in weights],
            UNLEARNED: [float(unlearned_loss(w, frequencies)) for w in weights],
            "lengths": _binned(weights[count // 2].norm(dim=1) / LONGEST).tolist(),
            "cosines": _cosines(weights[count // 2]),
        }
        curves |= {key(name, regime): values for name, values in own.items()}
        metrics[key(EXPONENT, regime)] = fit_exponent(settings.widths, own[LOSS]).exponent
        metrics[key(LOSS, regime)] = own[LOSS][-1]
        metrics[key(HALF, regime)] = sum(own[HALF]) / count
    return Evaluation(metrics, curves)


def _overlap(rows: Tensor) -> float:
    return isotropy(rows).mean_squared_cosine if len(rows) > 1 else NONE


def _cosines(w: Tensor) -> list[float]:
    """Shares of |cos| of pairs of rows above ½ in equal bins up to 1; 0 of fewer than two."""
    rows = torch.nn.functional.normalize(w[w.norm(dim=1) > 0.5].double(), dim=1)
    first, second = torch.triu_indices(len(rows), len(rows), 1)
    counts = _binned((rows @ rows.mT)[first, second].abs())
    return (counts / counts.sum().clamp(min=1)).tolist()


def _binned(shares: Tensor) -> Tensor:
    """How many of numbers from 0 on lie in each bin up to 1, the last with all that are above."""
    places = (shares * BINS).long().clamp(max=BINS - 1)
    return torch.bincount(places, minlength=BINS).double()
