"""Textbook formulas in high precision: the reference every geometry function is measured against.

Vectors are plain lists of mpmath numbers. All functions are analytic (norms are √Σx², without
conjugation), so that a complex step gives exact directional derivatives: `f(x + ih·e).imag / h`.
The working precision is far above the 60 digits wanted: textbook forms lose up to 70 at radius 40,
which is the point of not using them in floating point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mpmath
from mpmath import mp

mp.dps = 160
STEP = mpmath.mpf(10) ** -60

Vector = list[Any]


def vector(values: Sequence[float]) -> Vector:
    return [mpmath.mpf(float(v)) for v in values]


def dot(a: Vector, b: Vector) -> Any:
    return mpmath.fsum(p * q for p, q in zip(a, b, strict=True))


def combine(*terms: tuple[Any, Vector]) -> Vector:
    """Σ coefficient·vector."""
    return [mpmath.fsum(k * v[i] for k, v in terms) for i in range(len(terms[0][1]))]


def size(a: Vector) -> Any:
    return mpmath.sqrt(dot(a, a))


def ratio(f: Callable[[Any], Any], z: Any) -> Any:
    """f(z)/z with its limit 1 at 0, for odd f with slope 1."""
    return mpmath.mpf(1) if z == 0 else f(z) / z


def directional(f: Callable[..., Any], args: list[Any], index: int, direction: Any) -> Any:
    """Derivative of `f(*args)` (a number or a vector) along `direction` in argument `index`."""
    step = mpmath.mpc(0, STEP)
    moved = list(args)
    if isinstance(args[index], list):
        moved[index] = [a + step * e for a, e in zip(args[index], direction, strict=True)]
    else:
        moved[index] = args[index] + step * direction
    out = f(*moved)
    return [o.imag / STEP for o in out] if isinstance(out, list) else out.imag / STEP


# --- Lorentz model, space-only coordinates ------------------------------------------------------


def time(x: Vector, c: Any) -> Any:
    return mpmath.sqrt(1 / c + dot(x, x))


def excess_time(x: Vector, c: Any) -> Any:
    return time(x, c) - 1 / mpmath.sqrt(c)


def minkowski(x: Vector, y: Vector, c: Any) -> Any:
    return dot(x, y) - time(x, c) * time(y, c)


def chord_sq(x: Vector, y: Vector, c: Any) -> Any:
    return -2 / c - 2 * minkowski(x, y, c)


def dist(x: Vector, y: Vector, c: Any) -> Any:
    cosh = -c * minkowski(x, y, c)
    if mpmath.re(cosh) < 1 and mpmath.im(cosh) == 0:  # one point, up to the last of 160 digits
        cosh = mpmath.mpf(1)
    return mpmath.acosh(cosh) / mpmath.sqrt(c)


def dist_sq(x: Vector, y: Vector, c: Any) -> Any:
    return dist(x, y, c) ** 2


def dist0(x: Vector, c: Any) -> Any:
    k = mpmath.sqrt(c)
    return mpmath.asinh(k * size(x)) / k


def exp0(v: Vector, c: Any) -> Vector:
    return combine((ratio(mpmath.sinh, mpmath.sqrt(c) * size(v)), v))


def log0(x: Vector, c: Any) -> Vector:
    return combine((ratio(mpmath.asinh, mpmath.sqrt(c) * size(x)), x))


def inner(x: Vector, u: Vector, v: Vector, c: Any) -> Any:
    return dot(u, v) - c * dot(x, u) * dot(x, v) / (1 + c * dot(x, x))


def norm(x: Vector, v: Vector, c: Any) -> Any:
    return mpmath.sqrt(inner(x, v, v, c))


def exp(x: Vector, v: Vector, c: Any) -> Vector:
    z = mpmath.sqrt(c) * norm(x, v, c)
    return combine((mpmath.cosh(z), x), (ratio(mpmath.sinh, z), v))


def log(x: Vector, y: Vector, c: Any) -> Vector:
    z = mpmath.sqrt(c) * dist(x, y, c)
    gain = 1 / ratio(mpmath.sinh, z)
    return combine((gain, y), (-gain * mpmath.cosh(z), x))


def transport(x: Vector, y: Vector, v: Vector, c: Any) -> Vector:
    product = dot(y, v) - time(y, c) * dot(x, v) / time(x, c)
    gain = product / (1 / c - minkowski(x, y, c))
    return combine((1, v), (gain, x), (gain, y))


def transport_from0(y: Vector, v: Vector, c: Any) -> Vector:
    return combine((1, v), (c * dot(y, v) / (1 + mpmath.sqrt(c) * time(y, c)), y))


def transport_to0(x: Vector, v: Vector, c: Any) -> Vector:
    t = mpmath.sqrt(c) * time(x, c)
    return combine((1, v), (-c * dot(x, v) / (t * (1 + t)), x))


def geodesic(x: Vector, y: Vector, c: Any, t: Any) -> Vector:
    z = mpmath.sqrt(c) * dist(x, y, c)
    if z == 0:  # rounded to one point
        return combine((1 - t, x), (t, y))
    return combine(
        (mpmath.sinh((1 - t) * z) / mpmath.sinh(z), x), (mpmath.sinh(t * z) / mpmath.sinh(z), y)
    )


def midpoint(x: Vector, y: Vector, c: Any) -> Vector:
    return geodesic(x, y, c, mpmath.mpf(1) / 2)


def boost(x: Vector, p: Vector, c: Any) -> Vector:
    k = mpmath.sqrt(c)
    return combine((1, x), (k * time(x, c) + c * dot(p, x) / (1 + k * time(p, c)), p))


def riemannian_grad(x: Vector, g: Vector, c: Any) -> Vector:
    return combine((1, g), (c * dot(x, g), x))


def centroid(points: list[Vector], weights: Sequence[float], c: Any) -> Vector:
    z = combine(*zip(weights, points, strict=True))
    t = mpmath.fsum(w * time(x, c) for w, x in zip(weights, points, strict=True))
    return combine((1 / mpmath.sqrt(c * (t * t - dot(z, z))), z))


def change_curvature(x: Vector, c: Any, new_c: float) -> Vector:
    return combine((mpmath.sqrt(c / mpmath.mpf(new_c)), x))


def wrapped_normal_log_prob(x: Vector, mean: Vector, c: Any, std: float) -> Any:
    d, r = len(x), dist(x, mean, c)
    z = mpmath.sqrt(c) * r
    normal = -(r * r) / (2 * mpmath.mpf(std) ** 2) - d * mpmath.log(
        mpmath.mpf(std) * mpmath.sqrt(2 * mpmath.pi)
    )
    return normal - (d - 1) * mpmath.log(ratio(mpmath.sinh, z))
