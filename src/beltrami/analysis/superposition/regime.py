r"""Weak or strong superposition: what features take, or what exponents tell.

Of the weights (`classify_regime`): n features in m dimensions, of which the share φ½ is represented
(`features.py`).

    strong       φ½ ≥ 0.9: nearly all are, though there are many more than dimensions
    weak         φ½·n ≤ 3m: about as many as there are dimensions
    between      neither
    cannot tell  n < 4m: so few features that one rule could mean the other

Trained models of Liu et al. 2025, figure 3a, have φ½·n from m to 2.6m where weights are decayed
(γ ≥ 0.33), and φ½ from 0.99 up where they are grown (γ ≤ −0.56).

Of losses alone (`classify_exponent`, `classify_losses`): with features of frequency i^−a,

    strong predicts  α = max(1, 2(a − 1)); found are 0.8 to 1.3 times that
    weak predicts    α = max(0, a − 1); found are from 0.2 below to 0.4 above

The ranges are those of figure 4b, of γ ≤ −0.33 and of 0.11 ≤ γ ≤ 0.56. The answer is the one range
that the interval of α meets. It is "cannot tell" where it meets both, or lies outside, and
"between" where it lies between the two. Where a is not known, strong is α from 0.8 to 1.3, and weak
all below that is above 0: a steep weak one, of a near 2, looks the same as a strong one, and the
words say so. Losses that rise are in neither regime, nor are those that may, but where weak
superposition is known to have an exponent of 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from beltrami.analysis.superposition.exponent import Numbers, fit_exponent
from beltrami.checks import check_integer

Name = Literal["weak", "strong", "between", "cannot tell"]

STRONG_SHARE = 0.9  # of features represented, from which on
WEAK_FEATURES = 3.0  # represented for each dimension, up to which
FEATURES = 4  # for each dimension, below which the rules are too near to each other
STRONG_EXPONENTS = (0.8, 1.3)  # times the predicted one
WEAK_EXPONENTS = (-0.2, 0.4)  # off the predicted one


@dataclass(frozen=True)
class Regime:
    """A name, and a sentence that has the rule in it.

    Args:
        name: "weak", "strong", "between" or "cannot tell".
        words: why.
    """

    name: Name
    words: str

    def __str__(self) -> str:
        return f"{self.name}: {self.words}"


def classify_regime(phi: float, n: int, m: int) -> Regime:
    """From the share of features that are represented; see the head of this file for the rule.

    Args:
        phi: φ½, as `represented(w)` gives it.
        n: features. m: dimensions.
    """
    phi = float(phi)
    if not 0 <= phi <= 1:
        raise ValueError(f"phi is a share, from 0 to 1, got {phi}")
    check_integer("n", n)
    check_integer("m", m)
    if n < FEATURES * m:
        return Regime(
            "cannot tell",
            f"{n} features in {m} dimensions are fewer than {FEATURES} a dimension, too few to "
            "tell the regimes apart",
        )
    share = f"{phi:.3g} of {n} features are represented in {m} dimensions"
    if phi >= STRONG_SHARE:
        return Regime("strong", f"{share}, {STRONG_SHARE:g} or more")
    each = phi * n / m
    if each <= WEAK_FEATURES:
        return Regime("weak", f"{share}, {each:.2g} a dimension, {WEAK_FEATURES:g} or fewer")
    return Regime(
        "between",
        f"{share}: more than {WEAK_FEATURES:g} a dimension, and fewer than {STRONG_SHARE:g} of all",
    )


def classify_exponent(
    exponent: float, low: float, high: float, *, data_exponent: float | None = None
) -> Regime:
    """From the exponent of losses over widths; see the head of this file for the rule.

    Args:
        exponent: α of L ∝ m^−α. low, high: its interval.
        data_exponent: a, where frequencies of features fall as i^−a; None if it is not known.
    """
    if not low <= exponent <= high:
        raise ValueError(f"the interval {low:g} to {high:g} does not have {exponent:g} in it")
    if data_exponent is not None and not math.isfinite(data_exponent):
        raise ValueError(f"data_exponent must be finite, got {data_exponent}")
    interval = f"α = {exponent:.2f}, from {low:.2f} to {high:.2f}"
    if high < 0:
        name: Name = "cannot tell"
        why = ": losses rise with width, as they do in neither regime"
    elif data_exponent is None:
        name, why = _without_data(low, high)
    else:
        name, why = _with_data(low, high, data_exponent)
    return Regime(name, interval + why)


def _with_data(low: float, high: float, a: float) -> tuple[Name, str]:
    middle, flat = max(1.0, 2 * (a - 1)), max(0.0, a - 1)
    strong = STRONG_EXPONENTS[0] * middle, STRONG_EXPONENTS[1] * middle
    weak = WEAK_EXPONENTS[0] + flat, WEAK_EXPONENTS[1] + flat
    rule = (
        f"for a = {a:g} strong superposition has {strong[0]:.2g} to {strong[1]:.2g} "
        f"and weak {weak[0]:.2g} to {weak[1]:.2g}"
    )
    if low <= 0 < weak[0] and high < strong[0]:
        return "cannot tell", f": losses may not fall with width at all; {rule}"
    is_strong = low <= strong[1] and high >= strong[0]
    is_weak = low <= weak[1] and high >= weak[0]
    if is_strong and is_weak:
        return "cannot tell", f", which meets both; {rule}"
    if is_strong or is_weak:
        return "strong" if is_strong else "weak", f"; {rule}"
    if weak[1] < low and high < strong[0]:
        return "between", f"; {rule}"
    return "cannot tell", f", which is neither; {rule}"


def _without_data(low: float, high: float) -> tuple[Name, str]:
    least, most = STRONG_EXPONENTS
    rule = f"strong superposition has {least:g} to {most:g}"
    if low <= 0 and high < least:
        return "cannot tell", ": losses may not fall with width at all"
    if high < least:
        return "weak", f"; {rule}, and this is less"
    if least <= low and high <= most:
        same = f"a from {1 + low:.2f} to {1 + high:.2f}"
        why = "Weak superposition looks the same where frequencies of features fall as i^−a with"
        return "strong", f"; {rule}. {why} {same}"
    if low > most:
        why = "and this is more: features may be very unequal, a above 1.6"
        return "cannot tell", f"; {rule}, {why}"
    return "cannot tell", f"; {rule}, and the interval has that and other numbers"


def classify_losses(
    widths: Numbers, losses: Numbers, *, first: int = 0, data_exponent: float | None = None
) -> Regime:
    """From losses over widths, by the 95 % interval of their exponent.

    Args:
        widths, losses, first: as for `fit_exponent`.
        data_exponent: as for `classify_exponent`.
    """
    fit = fit_exponent(widths, losses, first=first)
    return classify_exponent(fit.exponent, fit.low, fit.high, data_exponent=data_exponent)
