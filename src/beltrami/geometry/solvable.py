r"""Hyperbolic space as a solvable group, in the coordinates (a, f) of Cartan networks.

A point is one tensor (..., d) with the Cartan coordinate `a = x[..., 0]` and the fiber
`f = x[..., 1:]`. (The papers call a "c"; here c is curvature.) The product

    y·x = (a_x + a_y, f_x + e^{−a_x}·f_y)

makes hyperbolic space a group whose left translations are isometries. In units of curvature −1,
`f` is all but the first Lorentz space coordinates and `e^{−a} = T − X₁` a light-cone coordinate;
`e^a` is the height in the upper half-space.

**The coordinates have no unit.** Curvature −c multiplies the metric by 1/c and changes no more:
Lorentz space parts are X/√c, distances are divided by √c, and products, homomorphisms, rotations,
exp and log at a point do not see c at all. Only functions that measure lengths take it.

Differences of nearby elements are rationalised, so distances are accurate for near pairs; they are
limited by the rounding of (a, f) itself, which moves a point by about eps·(1 + |f|)·max(1, |a|).
"""

from __future__ import annotations

import torch
from torch import Tensor

from beltrami.geometry import lorentz, poincare, radial
from beltrami.geometry.checks import Scalar, as_scalar, debugging, no_autocast, prepare
from beltrami.geometry.chord import dist_of_chord, dist_sq_of_chord, dot, root
from beltrami.geometry.plane_frame import log_light_cone
from beltrami.geometry.radial_map import radial_map

# --- the group ------------------------------------------------------------------------------------


def identity(
    dim: int, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
) -> Tensor:
    """The identity element (0, 0), shape (dim,)."""
    return torch.zeros(dim, dtype=dtype, device=device)


def product(y: Tensor, x: Tensor) -> Tensor:
    """The group product `y·x = (a_x + a_y, f_x + e^{−a_x}·f_y)`; (..., d) each."""
    (y, x), _, dtype = prepare(1.0, y=y, x=x)
    return _product(y, x).to(dtype)


def left_translate(y: Tensor, x: Tensor) -> Tensor:
    """`y·x` as the isometry of x that takes the identity to y; the same as `product`."""
    return product(y, x)


def inverse(x: Tensor) -> Tensor:
    """The inverse element `(−a, −e^a·f)`."""
    (x,), _, dtype = prepare(1.0, x=x)
    a, f = _parts(x)
    return torch.cat([-a, -torch.exp(a) * f], -1).to(dtype)


def relative(y: Tensor, x: Tensor) -> Tensor:
    """`y⁻¹·x = (Δ, f_x − e^{−Δ}·f_y)`, Δ = a_x − a_y, without cancellation for near points."""
    (y, x), _, dtype = prepare(1.0, y=y, x=x)
    return _relative(y, x).to(dtype)


def group_exp(v: Tensor) -> Tensor:
    """Exponential of the Lie algebra: `(v₀, v₁·(1 − e^{−v₀})/v₀)`; not the Riemannian one."""
    (v,), _, dtype = prepare(1.0, v=v)
    a, f = _parts(v)
    return torch.cat([a, f * _decay_mean(a)], -1).to(dtype)


def group_log(x: Tensor) -> Tensor:
    """Logarithm of the Lie group, `(a, f·a/(1 − e^{−a}))`: the inverse of `group_exp`."""
    (x,), _, dtype = prepare(1.0, x=x)
    a, f = _parts(x)
    return torch.cat([a, f / _decay_mean(a)], -1).to(dtype)


def homomorphism(x: Tensor, W: Tensor, b: Tensor | None = None) -> Tensor:
    """The group homomorphism `(a, W f + (1 − e^{−a})·b)`: every one that keeps a has this form.

    Args:
        x: (..., d).
        W: (d' − 1, d − 1), any matrix.
        b: (d' − 1,), or None for 0.

    Returns:
        (..., d'). Under autocast the product runs in the autocast dtype, as in a linear layer.
    """
    (x,), _, dtype = prepare(1.0, x=x)
    if W.ndim != 2 or W.shape[1] != x.shape[-1] - 1:
        raise ValueError(f"W must have shape (d', {x.shape[-1] - 1}), got {tuple(W.shape)}")
    if b is not None and b.shape != W.shape[:1]:
        raise ValueError(f"b must have shape {tuple(W.shape[:1])}, got {tuple(b.shape)}")
    a, f = _parts(x)
    f = torch.nn.functional.linear(f, W.to(f.dtype)).to(f.dtype)
    if b is not None:
        f = f - torch.expm1(-a) * b.to(f.dtype)
    return torch.cat([a, f], -1).to(dtype)


# --- distances ------------------------------------------------------------------------------------


def dist(x: Tensor, y: Tensor, c: Scalar = 1.0, *, keepdim: bool = False) -> Tensor:
    r"""Geodesic distance, the norm of `y⁻¹·x`.

    `(2/√c)·asinh √(sinh²(Δ/2) + |e^{Δ/2}f_x − e^{−Δ/2}f_y|²/4)`, Δ = a_x − a_y. Symmetric, 0 at
    x = y, where the gradient is taken as 0.

    Args:
        x, y: (..., d).
        c: curvature −c.

    Returns:
        (...), or (..., 1) with keepdim. Overflows in float32 beyond √c·d = 88.
    """
    (x, y), c, _ = prepare(c, x=x, y=y)
    out = dist_of_chord(4 * _half_sinh_sq(x, y), 1.0) / c**0.5
    return as_scalar(out, keepdim)


def dist_sq(x: Tensor, y: Tensor, c: Scalar = 1.0, *, keepdim: bool = False) -> Tensor:
    """Squared geodesic distance; smooth everywhere, also at x = y. As `dist`."""
    (x, y), c, _ = prepare(c, x=x, y=y)
    out = dist_sq_of_chord(4 * _half_sinh_sq(x, y), 1.0) / c
    return as_scalar(out, keepdim)


def dist0(x: Tensor, c: Scalar = 1.0, *, keepdim: bool = False) -> Tensor:
    """Distance to the identity, `(2/√c)·asinh √(sinh²(a/2) + e^a|f|²/4)`; relative error a few eps.

    The gradient at the identity is taken as 0.
    """
    (x,), c, _ = prepare(c, x=x)
    out = dist_of_chord(4 * _half_sinh_sq0(x), 1.0) / c**0.5
    return as_scalar(out, keepdim)


# --- the Riemannian metric  ds² = (da² + |df + f·da|²)/c ------------------------------------------


def inner(x: Tensor, u: Tensor, v: Tensor, c: Scalar = 1.0, *, keepdim: bool = False) -> Tensor:
    """Metric at x, `(u₀v₀ + (u₁ + u₀f)·(v₁ + v₀f))/c`, of tangent vectors in coordinates (a, f).

    Args:
        x, u, v: (..., d).
        c: curvature −c.
    """
    (x, u, v), c, _ = prepare(c, x=x, u=u, v=v)
    out = dot(_pull_back(x, u), _pull_back(x, v)) / c
    return as_scalar(out, keepdim)


def riemannian_grad(x: Tensor, g: Tensor, c: Scalar = 1.0) -> Tensor:
    """From a Euclidean gradient g in (a, f): `c·(r₀, g₁ − r₀·f)` with `r₀ = g₀ − f·g₁`."""
    (x, g), c, dtype = prepare(c, x=x, g=g)
    _, f = _parts(x)
    g0, g1 = _parts(g)
    r0 = g0 - dot(f, g1)
    return (c * torch.cat([r0, g1 - r0 * f], -1)).to(dtype)


def exp0(v: Tensor, c: Scalar = 1.0) -> Tensor:
    r"""Riemannian exponential at the identity, in an orthonormal frame: `dist0(exp0(v)) = |v|`.

    With w = √c·v and u = |w|: `(−log(cosh u − sinhc(u)·w₀), sinhc(u)·w₁)`, the logarithm taken
    without cancellation. (..., d) to (..., d); relative error a few eps·max(1, u).
    """
    (v,), c, dtype = prepare(c, v=v)
    return _exp0(v * c**0.5).to(dtype)


def log0(x: Tensor, c: Scalar = 1.0) -> Tensor:
    """Riemannian logarithm at the identity, `asinhc(|X|)·X/√c` with X as in `to_lorentz`.

    (..., d) to (..., d); |log0(x)| = dist0(x).
    """
    (x,), c, dtype = prepare(c, x=x)
    return (_log0(x) / c**0.5).to(dtype)


def exp(x: Tensor, v: Tensor) -> Tensor:
    """Riemannian exponential at x of a tangent vector in coordinates (a, f): `x·exp0(w)`.

    w = (v₀, v₁ + v₀·f) is v pulled back to the identity. Geodesics do not depend on the curvature
    (see the module), so there is no c; at the identity `exp(e, √c·v) = exp0(v, c)`.
    """
    (x, v), _, dtype = prepare(1.0, x=x, v=v)
    return _product(x, _exp0(_pull_back(x, v))).to(dtype)


def log(x: Tensor, y: Tensor) -> Tensor:
    """Riemannian logarithm at x: the tangent vector, in coordinates (a, f), whose exp at x is y.

    0 at y = x. In float32 for distances up to 44/√c, the range of its squares.
    """
    (x, y), _, dtype = prepare(1.0, x=x, y=y)
    w0, w1 = _parts(_log0(_relative(x, y)))
    _, f = _parts(x)
    return torch.cat([w0, w1 - w0 * f], -1).to(dtype)


def norm(x: Tensor, v: Tensor, c: Scalar = 1.0, *, keepdim: bool = False) -> Tensor:
    """Metric norm `√⟨v, v⟩_x` of a tangent vector at x; its gradient at v = 0 is 0."""
    return root(inner(x, v, v, c, keepdim=keepdim))


def transport(x: Tensor, y: Tensor, v: Tensor) -> Tensor:
    """Parallel transport of the tangent vector v, in coordinates (a, f), from x to y.

    By left translations, which are isometries, from the identity to z = x⁻¹·y; there in Lorentz
    coordinates, see `transport_from0`.
    """
    (x, y, v), _, dtype = prepare(1.0, x=x, y=y, v=v)
    z = _relative(x, y)
    pulled = _transport_from0(z, _pull_back(x, v))
    return _push_forward(y, _pull_back(z, pulled)).to(dtype)


def transport_from0(y: Tensor, v: Tensor, c: Scalar = 1.0) -> Tensor:
    """Parallel transport from the identity to y of v in the orthonormal frame of `exp0`."""
    (y, v), c, dtype = prepare(c, y=y, v=v)
    return _transport_from0(y, v * c**0.5).to(dtype)


def transport_to0(x: Tensor, v: Tensor, c: Scalar = 1.0) -> Tensor:
    """Parallel transport of v from x to the identity, into the frame of `exp0`."""
    (x, v), c, dtype = prepare(c, x=x, v=v)
    a, f = _parts(x)
    v0, v1 = _parts(v)
    slope, rise = _first_slopes(a, f)
    first = slope * v0 + dot(rise, v1)
    vector = torch.cat([first, v1.expand(*first.shape[:-1], v1.shape[-1])], -1)
    return (lorentz.transport_to0(_to_lorentz(x), vector) / c**0.5).to(dtype)


def geodesic(x: Tensor, y: Tensor, t: Tensor | float) -> Tensor:
    """The point at fraction t of the geodesic from x (t = 0) to y (t = 1)."""
    (x, y), _, dtype = prepare(1.0, x=x, y=y)
    return _product(x, _exp0(t * _log0(_relative(x, y)))).to(dtype)


def midpoint(x: Tensor, y: Tensor) -> Tensor:
    """The point halfway between x and y."""
    return geodesic(x, y, 0.5)


def centroid(x: Tensor, weights: Tensor | None = None) -> Tensor:
    """The Lorentz centroid of points (..., n, d), weights (..., n); it does not depend on c."""
    (x,), _, dtype = prepare(1.0, x=x)
    return _from_lorentz(lorentz.centroid(_to_lorentz(x), weights, 1.0)).to(dtype)


def pairwise_dist(x: Tensor, y: Tensor, c: Scalar = 1.0) -> Tensor:
    """All distances between (..., n, d) and (..., m, d): (..., n, m), through the Lorentz model."""
    (x, y), c, _ = prepare(c, x=x, y=y)
    return lorentz.pairwise_dist(_to_lorentz(x) / c**0.5, _to_lorentz(y) / c**0.5, c)


# --- rotations ------------------------------------------------------------------------------------


def paint_rotation(x: Tensor, Q: Tensor) -> Tensor:
    """`(a, Q f)` for an orthogonal (d−1, d−1) matrix Q: an isometry and an automorphism.

    Orthogonality is not checked. Under autocast the product runs in the autocast dtype.
    """
    if Q.ndim != 2 or Q.shape[0] != Q.shape[1]:
        raise ValueError(f"Q must be a square matrix, got shape {tuple(Q.shape)}")
    return homomorphism(x, Q)


def fiber_rotation(x: Tensor, theta: Tensor) -> Tensor:
    r"""The isometry fixing the identity that turns the Cartan direction to theta.

    With θ = (t₀, t) of length 1, the rotation `[[t₀, tᵀ], [−t, I − ttᵀ/(1+t₀)]]` of the Lorentz
    coordinates (X₁, f):

        a' = −log(T − t₀X₁ − t·f),     f' = f − t·(X₁ + (t·f)/(1+t₀)).

    The argument of the logarithm is formed as a sum of squares. With σ = t/(1+|t₀|) and u = e^a·f,
    it is `e^{−a}(|σ|²e^{2a} + |σ̂ − |σ|u|²)/(1+|σ|²)` for t₀ ≥ 0 and
    `e^a(1 + |f − e^{−a}σ|²)/(1+|σ|²)` for t₀ < 0, so float32 is as good with |f|² = 10⁸ as with 1.

    Args:
        x: (..., d).
        theta: (..., d), scaled to length 1 here. 0 counts as (1, 0), the identity map. At (−1, 0),
            where the rotation has no limit, it is the point reflection (X₁, f) → (−X₁, −f), and the
            gradient with respect to t is 0.

    Returns:
        (..., d).
    """
    (x, theta), _, dtype = prepare(1.0, x=x, theta=theta)
    length = root(dot(theta, theta))
    theta = theta / torch.where(length > 0, length, 1.0)
    t0, t = _parts(theta)
    t0 = torch.where(length > 0, t0, 1.0)
    a, f = _parts(x)
    return torch.cat([_rotated_height(a, f, t0, t), _rotated_fiber(a, f, t0, t)], -1).to(dtype)


def _rotated_height(a: Tensor, f: Tensor, t0: Tensor, t: Tensor) -> Tensor:
    """a' of `fiber_rotation`: `±a − log G`, by log1p where G is near 1."""
    forward = t0 >= 0
    sigma = t / (1 + t0.abs())
    k = dot(sigma, sigma)
    # the same expression serves both: u = e^a·f forward, and f itself, in units of e^{−a}, backward
    h = torch.where(forward, a, -a)
    u = torch.where(forward, torch.exp(a), 1.0) * f
    shrunk = torch.where(forward, 1.0, torch.exp(-a)) * sigma
    f2 = torch.where(forward, k, 1.0) * dot(u, u)
    # k·expm1(2h), in an order that does not make 0·∞ of k = 0
    lift = k * torch.expm1(h) * (torch.exp(h) + 1)
    excess = (f2 - 2 * dot(shrunk, u) + lift) / (1 + k)
    # Forward, a small sum has small terms; backward, only for a small fiber.
    small = (excess.abs() < 0.5) & (forward | (f2 < 1))
    near = torch.log1p(torch.where(small, excess, 0.0))
    raised = torch.where(forward, torch.exp(a), 1.0) * sigma
    squares = torch.where(
        forward,
        dot(raised, raised) + _unit_gap_sq(sigma, k, u),
        1 + dot(u - shrunk, u - shrunk),
    )
    far = torch.log(torch.where(small, 1.0, squares / (1 + k)))
    return h - torch.where(small, near, far)


def _unit_gap_sq(sigma: Tensor, k: Tensor, u: Tensor) -> Tensor:
    """`|σ̂ − |σ|u|² = 1 − 2σ·u + |σ|²|u|²`, which has a meaning also at σ = 0."""
    q = k * dot(u, u)
    plain = q < 0.25
    length = root(torch.where(plain, 1.0, k))
    gap = sigma / length - length * torch.where(plain, 0.0, u)
    return torch.where(plain, 1 - 2 * dot(sigma, torch.where(plain, u, 0.0)) + q, dot(gap, gap))


def _rotated_fiber(a: Tensor, f: Tensor, t0: Tensor, t: Tensor) -> Tensor:
    """f' of `fiber_rotation`; t·(t·f)/(1+t₀) as (1−t₀)·t̂(t̂·f) for t₀ < 0."""
    forward = t0 >= 0
    length = torch.where(forward, 1.0, root(dot(t, t)))
    flip = length == 0
    length = torch.where(flip, 1.0, length)
    unit = t / length  # t itself where t₀ ≥ 0
    scale = torch.where(forward, 1 / (1 + t0.abs()), 1 + t0.abs())
    turned = f - t * _first(a, f) - unit * (dot(unit, f) * scale)
    return torch.where(flip, -f, turned)


# --- hyperplanes ----------------------------------------------------------------------------------


def functional(x: Tensor, w: Tensor, alpha: Tensor, beta: Tensor) -> Tensor:
    r"""k linear functionals of the Lorentz coordinates: `w·f + α·e^a(1+|f|²) + β·e^{−a}`.

    `⟨ν, X⟩` in the ambient space, with ν = (−(α+β), α−β, w): the score of a Cartan head. If
    |w|² > 4αβ, its zero set is a geodesic hyperplane; see `hyperplane_dist`.

    Args:
        x: (..., d).
        w: (k, d − 1).
        alpha, beta: (k,).

    Returns:
        (..., k), float32 or float64; the product runs in that dtype also under autocast. Error a
        few eps of the largest term.
    """
    (x,), _, _ = prepare(1.0, x=x)
    _check_functional(x, w, alpha, beta)
    a, f = _parts(x)
    w, alpha, beta = w.to(x.dtype), alpha.to(x.dtype), beta.to(x.dtype)
    with no_autocast(x):
        linear = f @ w.mT  # (..., k)
    return linear + alpha * (torch.exp(a) * (1 + dot(f, f))) + beta * torch.exp(-a)


def hyperplane_dist(x: Tensor, w: Tensor, alpha: Tensor, beta: Tensor, c: Scalar = 1.0) -> Tensor:
    """Signed distances to the zero sets of k functionals, `asinh(value/√(|w|²−4αβ))/√c`.

    Args and shapes as in `functional`. Defined where |w|² > 4αβ; a functional without zeros has no
    distance, and the result is NaN (`ValueError` inside `beltrami.debug()`).
    """
    (x,), c, _ = prepare(c, x=x)
    value = functional(x, w, alpha, beta)
    w, alpha, beta = w.to(x.dtype), alpha.to(x.dtype), beta.to(x.dtype)
    square = (w * w).sum(-1) - 4 * alpha * beta  # (k,)
    if debugging() and not bool((square > 0).all()):
        raise ValueError("every functional needs |w|² > 4·alpha·beta to have a hyperplane")
    return torch.asinh(value / torch.sqrt(square)) / c**0.5


def horosphere(x: Tensor, c: Scalar = 1.0) -> Tensor:
    """Euclidean vectors as points of the horosphere a = 0: `(0, √c·x)`, (..., n) to (..., n + 1).

    The inner geometry of the image is Euclidean; distances become `(2/√c)·asinh(√c|x − y|/2)`.
    """
    (x,), c, dtype = prepare(c, x=x)
    f = x * c**0.5
    return torch.cat([torch.zeros_like(f[..., :1]), f], -1).to(dtype)


# --- other models ---------------------------------------------------------------------------------


def to_lorentz(x: Tensor, c: Scalar = 1.0) -> Tensor:
    """Lorentz space part `(sinh a + e^a|f|²/2, f)/√c`; (..., d) to (..., d)."""
    (x,), c, dtype = prepare(c, x=x)
    return (_to_lorentz(x) / c**0.5).to(dtype)


def from_lorentz(x: Tensor, c: Scalar = 1.0) -> Tensor:
    """`(−log(T − X₁), X_{2..})` with X = √c·x, the logarithm without cancellation.

    The absolute error of a is a few eps, times cosh of the radius where X₁ is a small rest of it.
    """
    (x,), c, dtype = prepare(c, x=x)
    return _from_lorentz(x * c**0.5).to(dtype)


def to_half_space(x: Tensor) -> Tensor:
    """Upper half-space coordinates `(e^a·f, e^a)`, the height last; without unit, like (a, f)."""
    (x,), _, dtype = prepare(1.0, x=x)
    a, f = _parts(x)
    height = torch.exp(a)
    return torch.cat([height * f, height], -1).to(dtype)


def from_half_space(x: Tensor) -> Tensor:
    """`(log z, u/z)` of half-space points (u, z), height z > 0 last."""
    (x,), _, dtype = prepare(1.0, x=x)
    u, z = x[..., :-1], x[..., -1:]
    if debugging() and not bool((z > 0).all()):
        raise ValueError(
            "x has half-space points whose height, the last coordinate, is not positive"
        )
    return torch.cat([torch.log(z), u / z], -1).to(dtype)


def to_poincare(x: Tensor, c: Scalar = 1.0) -> Tensor:
    """Ball coordinates `X/((1 + T)√c)`, with 1 + T = 2 + 2·sinh²(√c·dist0/2)."""
    (x,), c, dtype = prepare(c, x=x)
    return (_to_lorentz(x) / (2 * (1 + _half_sinh_sq0(x)) * c**0.5)).to(dtype)


def from_poincare(x: Tensor, c: Scalar = 1.0) -> Tensor:
    """`from_lorentz` of the point 2x/(1 − c|x|²); c|x|² < 1."""
    (x,), c, dtype = prepare(c, x=x)
    return _from_lorentz(poincare.to_lorentz(x, c) * c**0.5).to(dtype)


# --- in units of curvature −1, on checked tensors -------------------------------------------------


def _parts(x: Tensor) -> tuple[Tensor, Tensor]:
    """(a, f), shapes (..., 1) and (..., d − 1)."""
    return x[..., :1], x[..., 1:]


def _product(y: Tensor, x: Tensor) -> Tensor:
    ay, fy = _parts(y)
    ax, fx = _parts(x)
    f = fx + torch.exp(-ax) * fy
    return torch.cat([(ax + ay).expand(*f.shape[:-1], 1), f], -1)


def _relative(y: Tensor, x: Tensor) -> Tensor:
    """y⁻¹·x; for |Δ| < 1 with the difference of the fibers taken first."""
    ay, fy = _parts(y)
    ax, fx = _parts(x)
    delta = ax - ay
    near = delta.abs() < 1
    f = torch.where(
        near,
        (fx - fy) - torch.expm1(-torch.where(near, delta, 0.0)) * fy,
        fx - torch.exp(-torch.where(near, 0.0, delta)) * fy,
    )
    return torch.cat([delta.expand(*f.shape[:-1], 1), f], -1)


def _half_sinh_sq(x: Tensor, y: Tensor) -> Tensor:
    """sinh²(d/2), (..., 1); symmetric in x and y."""
    ax, fx = _parts(x)
    ay, fy = _parts(y)
    h = (ax - ay) / 2
    near = h.abs() < 0.5
    h_near, h_far = torch.where(near, h, 0.0), torch.where(near, 0.0, h)
    f = torch.where(
        near,
        torch.cosh(h_near) * (fx - fy) + torch.sinh(h_near) * (fx + fy),
        torch.exp(h_far) * fx - torch.exp(-h_far) * fy,
    )
    return torch.sinh(h) ** 2 + dot(f, f) / 4


def _half_sinh_sq0(x: Tensor) -> Tensor:
    """sinh²(dist0/2), (..., 1)."""
    a, f = _parts(x)
    # e^{a/2}·f before squaring: |f|² alone overflows earlier
    scaled = torch.exp(a / 2) * f
    return torch.sinh(a / 2) ** 2 + dot(scaled, scaled) / 4


def _decay_mean(a: Tensor) -> Tensor:
    """(1 − e^{−a})/a, 1 at 0: the mean of e^{−s} over 0 ≤ s ≤ a."""
    near = a.abs() < 1
    a_near, a_far = torch.where(near, a, 0.0), torch.where(near, 1.0, a)
    series = torch.exp(-a_near / 2) * radial.sinhc_sq(a_near * a_near / 4)
    return torch.where(near, series, -torch.expm1(-a_far) / a_far)


def _pull_back(x: Tensor, v: Tensor) -> Tensor:
    """The tangent vector at the identity that left translation by x takes to v."""
    _, f = _parts(x)
    v0, v1 = _parts(v)
    w1 = v1 + v0 * f
    return torch.cat([v0.expand(*w1.shape[:-1], 1), w1], -1)


def _push_forward(x: Tensor, w: Tensor) -> Tensor:
    """The tangent vector at x that left translation by x makes of w: undoes `_pull_back`."""
    _, f = _parts(x)
    w0, w1 = _parts(w)
    v1 = w1 - w0 * f
    return torch.cat([w0.expand(*v1.shape[:-1], 1), v1], -1)


def _first_slopes(a: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
    """The derivatives of X₁ in a, which is the time T, and in f."""
    scaled = torch.exp(a / 2) * f
    return torch.cosh(a) + dot(scaled, scaled) / 2, torch.exp(a) * f


def _transport_from0(y: Tensor, v: Tensor) -> Tensor:
    first, v1 = _parts(lorentz.transport_from0(_to_lorentz(y), v))
    slope, rise = _first_slopes(*_parts(y))
    return torch.cat([(first - dot(rise, v1)) / slope, v1], -1)


def _first(a: Tensor, f: Tensor) -> Tensor:
    """The first Lorentz space coordinate X₁."""
    scaled = torch.exp(a / 2) * f
    return torch.sinh(a) + dot(scaled, scaled) / 2


def _to_lorentz(x: Tensor) -> Tensor:
    a, f = _parts(x)
    return torch.cat([_first(a, f), f], -1)


def _from_lorentz(x: Tensor) -> Tensor:
    first, f = _parts(x)
    return torch.cat([log_light_cone(first, f, 1.0), f], -1)


def _exp0(w: Tensor) -> Tensor:
    return _from_lorentz(radial_map(w, 1.0, "sinh"))


def _log0(x: Tensor) -> Tensor:
    return radial_map(_to_lorentz(x), 1.0, "asinh")


def _check_functional(x: Tensor, w: Tensor, alpha: Tensor, beta: Tensor) -> None:
    if w.ndim != 2 or w.shape[1] != x.shape[-1] - 1:
        raise ValueError(f"w must have shape (k, {x.shape[-1] - 1}), got {tuple(w.shape)}")
    for name, t in (("alpha", alpha), ("beta", beta)):
        if t.shape != w.shape[:1]:
            raise ValueError(f"{name} must have shape {tuple(w.shape[:1])}, got {tuple(t.shape)}")
