"""docs/numerics.md: the contract in words, ours beside the peers, and the whole grid."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from benchmarks.accuracy_grid import Row

CONTRACT = """\
# Numerics

The first complaint about every hyperbolic library is NaN. This page says what beltrami promises
instead, and what was measured. All of it is written by `make bench-numerics`, which also fails when
a single cell of the grid exceeds its bound.

{status}

## The contract

Errors are relative, against a reference of more than 60 digits that is computed *from the rounded
inputs*: they measure the algorithm and not the representation. `eps` is the dtype's (1.2e-7 in
float32, 2.2e-16 in float64), `r` is the distance from the origin times √c.

- **Well conditioned: 16 eps.** Distances between points that are apart, distances from the origin,
  maps to the tangent space at the origin. At every radius up to 40.
- **Exponential maps: 16 eps·max(1, r).** sinh turns an error of its argument into one r times as
  large, whoever computes it.
- **Near pairs: 16 eps·cosh(r).** Rounding the coordinates of a point at radius r moves it by
  eps·cosh(r). Two points close together and far out cannot have a better distance than that from
  rounded coordinates: at r = 20 in float32 the coordinates say nothing about a neighbour, and no
  formula can change it. Ours does not make it worse.
- **Gradients** meet the bounds of their function, in the points and in the curvature, and are
  finite everywhere. At points where a function has no gradient (`dist` at x = y) it is 0.
- **Nothing is clamped.** There is no `eps` in a value path, no projection that moves points, no
  saturating distance.

In the Poincaré ball a coordinate rounded to eps moves every point by eps·cosh(r), so that the last
bound holds for nearly all of its functions, and points end where 1 − |x|² does: r of about 17 in
float32 and 37 in float64. The Lorentz model has no such wall; use it for points further out.
"""

PEERS = """\
## Beside geoopt and HypLL

The same {samples} pairs in {dim} dimensions at curvature −1 for everyone; largest relative error.
*far*: directions at least 60° apart. *near*: a pair min(r, 1)/100 apart. **NaN** is a NaN or an
infinity in at least one of the {samples} results, an empty cell is a radius the dtype has no ball
point for, and *bound* is what our contract allows. Errors above 1 have no correct digit, and a
bound above 1 promises none. geoopt's Lorentz gradients are compared in its own coordinates (t, x).
Versions: {versions}.
"""

GRID = """\
## The whole grid

Worst relative error over c ∈ {curvatures} and dimensions {dims} at each radius √c·r, for values,
gradients in the points (∇) and gradients in the curvature (∂c). *worst/bound* is the largest error
in units of the bound that holds in its cell: below 1 everywhere, or the command fails. Where that
bound is above 1 (near pairs at r ≥ 20 in float32, at r = 40 in float64) coordinates hold no digit,
and only finiteness is promised. Each cell draws {samples}. Curvature gradients are relative to
themselves or to f/c, and a few gradients (projections to hyperplanes and geodesics, distances in
the solvable group, means of close points) have wider bounds, 64 to 100 times the plain ones, where
rounding the inputs alone moves the exact gradient by as much; the cases in `tests/accuracy/` say
which.
"""


def number(error: float | None) -> str:
    """One digit is what an error is worth."""
    if error is None:
        return ""
    if not math.isfinite(error):
        return "**NaN**"
    if error == 0:
        return "0"
    digit, _, exponent = f"{error:.0e}".partition("e")
    return digit if int(exponent) == 0 else f"{digit}e{int(exponent)}"


def bound(value: float | None) -> str:
    return "> 1" if value is not None and value > 1 else number(value)


def radius_name(radius: float) -> str:
    return f"{radius:g}".replace("1e-06", "1e-6").replace("0.001", "1e-3")


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


MODEL_NAMES = {"lorentz": "Lorentz model", "poincare": "Poincaré ball"}


def status(rows: list[Row]) -> str:
    """What the grid says today."""
    cells, bad = sum(r.cells for r in rows), [r for r in rows if not r.ratio <= 1]
    if not bad:
        worst = max(r.ratio for r in rows)
        return (
            f"**Today: {cells:,} cells, every value and gradient finite, the largest error "
            f"{worst:.2f} of its bound.**"
        )
    names = ", ".join(sorted({f"{r.module} {r.label} ({r.dtype})" for r in bad}))
    return f"**Today: {cells:,} cells, and these exceed their bound somewhere: {names}.**"


def peer_tables(rows: list[dict[str, Any]], radii: Sequence[float]) -> str:
    """One table a model and dtype."""
    parts = []
    header = ["function", "library", *(f"r = {radius_name(r)}" for r in radii)]
    for (model, dtype), group in groupby(rows, key=lambda r: (r["model"], r["dtype"])):
        body = []
        for function, same in groupby(group, key=lambda r: r["function"]):
            for i, row in enumerate(same):
                name = f"`{function}`" if i == 0 else ""
                library = str(row["library"])
                library = {"beltrami": "**beltrami**", "bound": "*bound*"}.get(library, library)
                errors = [
                    bound(e) if row["library"] == "bound" else number(e) for e in row["errors"]
                ]
                body.append([name, library, *errors])
        parts.append(f"### {MODEL_NAMES[str(model)]}, {dtype}\n\n{table(header, body)}")
    return "\n\n".join(parts)


def summary(rows: list[Row]) -> str:
    """One line a module: how many cells, how close to the bound, where."""
    body = []
    for module, group in groupby(rows, key=lambda r: r.module):
        found = list(group)
        line = [f"`{module}`", str(sum(r.cells for r in found))]
        line.append(str(sum(not math.isfinite(r.ratio) for r in found)))
        for dtype in ("float32", "float64"):
            worst = max((r for r in found if r.dtype == dtype), key=lambda r: r.ratio)
            line.append(f"{worst.ratio:.2f} ({worst.label}, r = {radius_name(worst.radius)})")
        body.append(line)
    header = ["module", "cells", "with NaN", "float32: worst/bound", "float64: worst/bound"]
    return table(header, body)


def grid_tables(rows: list[Row]) -> str:
    """One folded table a module and dtype."""
    parts = []
    for (module, dtype), group in groupby(rows, key=lambda r: (r.module, r.dtype)):
        parts.append(f'??? note "{module}, {dtype}"\n\n{_indent(_grid_table(list(group)))}')
    return "\n\n".join(parts)


def _grid_table(rows: list[Row]) -> str:
    radii = sorted({r.radius for r in rows})
    body = []
    for name, group in groupby(rows, key=lambda r: r.label):
        found = {r.radius: r for r in group}
        for part, mark in (("value", ""), ("gradient", "∇ "), ("c_gradient", "∂c ")):
            errors = [getattr(found[r], part) if r in found else None for r in radii]
            worst = max(getattr(r, f"{part}_ratio") for r in found.values())
            if part != "value" and not any(errors):
                continue
            body.append([f"{mark}{name}", *(number(e) for e in errors), f"{worst:.2f}"])
    return table(["function", *(radius_name(r) for r in radii), "worst/bound"], body)


def _indent(text: str) -> str:
    return "\n".join(f"    {line}" if line else "" for line in text.splitlines())


def by_module(rows: Iterable[Row]) -> list[Row]:
    """In the order of the tables; cases keep the order of their first appearance."""
    order: dict[tuple[str, str], int] = {}
    rows = list(rows)
    for row in rows:
        order.setdefault((row.module, row.case), len(order))
    return sorted(rows, key=lambda r: (r.module, r.dtype, order[r.module, r.case], r.radius))
