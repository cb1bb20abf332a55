r"""How much n directions in d dimensions must overlap.

The mean of cos² over pairs of different directions is at least (n − d)/(d(n − 1)) for n > d
(Welch, 1974), and 0 is reached for n ≤ d. Where every pair has just that, κ², they are an
equiangular tight frame (ETF). Random directions have 1/d.
"""

from __future__ import annotations

from beltrami.checks import check_integer


def welch_bound(n: int, d: int) -> float:
    """κ², the least mean of cos² that n directions in d dimensions can have."""
    check_integer("n", n, 2)
    check_integer("d", d)
    return 0.0 if n <= d else (n - d) / (d * (n - 1))


def expected_kappa(n: int, m: int) -> float:
    """κ² of the features that a strong toy model represents well, with rows longer than 1.

    They are about ν = min(n, m²/2) of n, as many as can be nearly equiangular in m dimensions, so
    that κ² = (ν − m)/(m(ν − 1)). From the dashed line of Liu et al. 2025, figure 6d, whose ν is
    not written down: it has 0.082 at m = 10, which is ν = 50.
    """
    check_integer("n", n, 2)
    check_integer("m", m)
    nu = min(n, m * m / 2)
    return 0.0 if nu <= m else (nu - m) / (m * (nu - 1))
