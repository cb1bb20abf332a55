"""Every geometry function against 160-digit textbook formulas, on a subset of the grid.

`make bench-numerics` runs the whole grid; this subset meets every function, dtype and radius, and
every curvature and dimension at least once a radius.
"""

from __future__ import annotations

import pytest

from tests.accuracy.grid import DTYPES, RADII, Case, Cell, measure
from tests.accuracy.modules import all_cases

# (c, dim) for each dtype and radius. 513 dimensions cost most, so only a few radii meet them.
SUBSET = [(0.01, 3), (1.0, 1), (10.0, 2), (0.1, 64)]
WIDE_RADII = (1.0, 40.0)


def _cells(case: Case) -> list[Cell]:
    cells = [Cell(t, r, c, d) for t in DTYPES for r in RADII for c, d in SUBSET]
    cells += [Cell(t, r, 1.0, 513) for t in DTYPES for r in WIDE_RADII]
    return list(case.cells(iter(cells)))


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=f"{module}: {case.name}")
        for module, cases in all_cases().items()
        for case in cases
    ],
)
def test_within_contract(case: Case) -> None:
    failures = []
    for cell in _cells(case):
        errors = measure(case, cell, samples=1)
        bound = case.bound(cell) * cell.eps
        gradient_bound = (case.gradient_bound or case.bound)(cell) * cell.eps
        if errors.value > bound:
            failures.append(f"{cell}: value off by {errors.value:.1e}, allowed {bound:.1e}")
        worst = max(errors.gradient, errors.c_gradient)
        if worst > gradient_bound:
            failures.append(f"{cell}: gradient off by {worst:.1e}, allowed {gradient_bound:.1e}")
    assert not failures, "\n".join(failures)
