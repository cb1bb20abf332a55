r"""Geodesic hyperplanes, horospheres and projections, for Lorentz and Poincaré points.

Everything here is told in the frame of a direction ẑ = z/|z|. A point x of the Lorentz model has
the coordinate `u = ẑ·x` along it and the rest `x⊥ = x − u·ẑ` across it, and with

    μ = √(1 + c·|x⊥|²),   η = asinh(√c·u/μ)/√c     (so √c·u = μ·sinh √cη,  √c·t = μ·cosh √cη)

moving the origin by `a` along ẑ only replaces η by η − a. The textbook forms, differences of
products like `cosh(√c a)(ẑ·x) − sinh(√c a)·t`, lose every digit a few units out; in these
coordinates each quantity is one product of accurate factors:

| quantity                                   | form                                     |
|--------------------------------------------|------------------------------------------|
| α: sinh(√c·signed distance to hyperplane)/√c | μ·sinh(√c(η − a))/√c                   |
| β: time in the frame of the hyperplane     | μ·cosh(√c(η − a))                        |
| mirror image y of x                        | y⊥ = x⊥, η_y = 2a − η                    |
| foot y of x on the hyperplane              | y⊥ = x⊥/√(1 + c·α²), η = a               |
| light-cone coordinate √c(t − u)            | μ·e^{−√cη}; its log is √c·Busemann       |
"""

from __future__ import annotations

import torch
from torch import Tensor

from beltrami.geometry import lorentz, poincare, radial
from beltrami.geometry.ball import check_inside, gap
from beltrami.geometry.checks import (
    Scalar,
    as_scalar,
    check_curvature,
    debugging,
    no_autocast,
    prepare,
)
from beltrami.geometry.chord import dot, half_sinh_sq, root
from beltrami.geometry.plane_frame import (
    log_light_cone,
    over_or_same,
    plane_frame,
    plane_scores,
    scaled_asinh,
    split_along,
)

# --- hyperplanes of the Lorentz model -------------------------------------------------------------


def signed_dist(
    x: Tensor, z: Tensor, a: Scalar = 0.0, c: Scalar = 1.0, *, keepdim: bool = False
) -> Tensor:
    r"""Signed distance to the geodesic hyperplane with normal z at distance a from the origin.

    `asinh(√c·α)/√c` with `α = cosh(√c a)(ẑ·x) − sinh(√c a)·t(x)`; positive on the side z points to.
    Tends to `ẑ·x − a` as c → 0. Only the direction of z counts; z = 0 has none and gets gradient 0.

    Args:
        x: points, (..., d).
        z: normals, (..., d).
        a: signed distance of the hyperplane from the origin; a number or (..., 1).
        c: curvature −c.

    Returns:
        (...), or (..., 1) with keepdim. Absolute error a few eps·max(1, √c|a|)/√c and relative
        error a few eps away from the hyperplane, given the rounded inputs; gradients likewise.
    """
    (x, z), a, c, _ = _prepare_plane(x, z, a, c)
    alpha, _ = plane_frame(x, z, a, c)
    out = scaled_asinh(alpha, c)
    return as_scalar(out, keepdim)


def logit(
    x: Tensor, z: Tensor, a: Scalar = 0.0, c: Scalar = 1.0, *, keepdim: bool = False
) -> Tensor:
    """`|z|·signed_dist(x, z, a)`: the score of one class in Lorentz multinomial regression.

    Tends to the affine score `z·x − a|z|` as c → 0. The score is 0 at z = 0, where it has a corner
    and its gradient with respect to z is taken as 0: do not initialise normals with zeros.

    Args and accuracy as in `signed_dist`.
    """
    (x, z), a, c, _ = _prepare_plane(x, z, a, c)
    alpha, _ = plane_frame(x, z, a, c)
    out = root(dot(z, z)) * scaled_asinh(alpha, c)
    return as_scalar(out, keepdim)


def hyperplane_logits(
    x: Tensor,
    normals: Tensor,
    offsets: Tensor,
    c: Scalar = 1.0,
    *,
    product_dtype: torch.dtype | None = None,
) -> Tensor:
    r"""`logit` of every point against k hyperplanes, by one matrix product.

    The product runs in float32 (float64 for float64 inputs) also under autocast. It cannot use the
    cancellation-free coordinates of `logit`: α has an absolute error of eps·|x|·cosh(√c a), which
    spoils float32 scores near a hyperplane when √c(r + |a|) exceeds about 10. There, pass
    `product_dtype=torch.float64`, or use `logit`, which needs (..., k, d) memory. Here the product
    is all of size (..., k) that is kept for the backward pass.

    Args:
        x: points, (..., d).
        normals: (k, d); their lengths scale the scores.
        offsets: (k,), signed distances of the hyperplanes from the origin.
        c: curvature −c.
        product_dtype: dtype of the matrix product and of the difference that makes α.

    Returns:
        (..., k), float32 or float64.
    """
    (x, normals), c, _ = prepare(c, x=x, normals=normals)
    _check_table(normals, offsets)
    wide = product_dtype or x.dtype
    xw, zw, a = x.to(wide), normals.to(wide), offsets.to(device=x.device, dtype=wide)
    cw = c.to(wide) if isinstance(c, Tensor) else c
    with no_autocast(x):
        products = xw @ zw.mT  # (..., k)
    length = root(dot(zw, zw)).squeeze(-1)  # (k,)
    return scores_of_products(products, torch.sqrt(1 + cw * dot(xw, xw)), length, a, c, x.dtype)


def scores_of_products(
    products: Tensor,
    times: Tensor,
    lengths: Tensor,
    offsets: Tensor,
    c: Scalar,
    dtype: torch.dtype,
    stretch: Tensor | None = None,
) -> Tensor:
    """`logit` of points against k hyperplanes, given the products z·x, and the times √c·t of x.

    Keeps `products` for the backward pass and nothing else of its size.

    Args:
        products: z·x, (..., k), or z·v for points x = stretch·v; α is made in their dtype.
        times: √(1 + c|x|²), (..., 1).
        lengths: |z|, (k,). offsets: (k,), as in `hyperplane_logits`.
        c: curvature −c.
        dtype: of the result.
        stretch: (..., 1), or None for 1.

    Returns:
        (..., k).
    """
    cw = c.to(products.dtype) if isinstance(c, Tensor) else c
    q = cw * offsets * offsets
    up = over_or_same(radial.cosh_sq(q), lengths)
    # sinh(√c a)·t as a·sinhc(√c a)·√(1 + c|x|²), which has a limit as c → 0
    down = offsets * radial.sinhc_sq(q)
    c = c.to(dtype) if isinstance(c, Tensor) else c
    return plane_scores(products, up, stretch, down, times, lengths.to(dtype), c)


def project_to_hyperplane(x: Tensor, z: Tensor, a: Scalar = 0.0, c: Scalar = 1.0) -> Tensor:
    r"""The point of the hyperplane (z, a) nearest to x.

    `sinh(√c a)/√c·√(1 + c|y⊥|²)·ẑ + y⊥` with `y⊥ = x⊥/√(1 + c·α²)`: two perpendicular
    parts, neither of which cancels. With z = 0 the result means nothing.

    Args:
        x: points, (..., d).
        z: normals, (..., d).
        a: signed distance of the hyperplane from the origin; a number or (..., 1).
        c: curvature −c.

    Returns:
        (..., d). Relative error a few eps·max(1, √c r, √c|a|).
    """
    (x, z), a, c, dtype = _prepare_plane(x, z, a, c)
    alpha, _ = plane_frame(x, z, a, c)
    _, unit, _, perp = split_along(x, z)
    # hypot, since c·α² overflows float32 where α does not
    perp = perp / torch.hypot(torch.ones_like(alpha), alpha * c**0.5)
    along = a * radial.sinhc_sq(c * a * a) * torch.sqrt(1 + c * dot(perp, perp))
    return (along * unit + perp).to(dtype)


def reflect(x: Tensor, z: Tensor, a: Scalar = 0.0, c: Scalar = 1.0) -> Tensor:
    r"""The mirror image of x in the hyperplane (z, a); an isometry and its own inverse.

    `μ·sinh(√c(2a − η))/√c·ẑ + x⊥`. With z = 0 there is no mirror, and the result is x.

    Args and shapes as in `project_to_hyperplane`. Relative error a few eps·max(1, √c r, √c|a|).
    """
    (x, z), a, c, dtype = _prepare_plane(x, z, a, c)
    alpha, _ = plane_frame(x, z, 2 * a, c)
    _, unit, _, perp = split_along(x, z)
    return (perp - alpha * unit).to(dtype)


# --- hyperplanes of the Poincaré ball -------------------------------------------------------------


def poincare_signed_dist(
    x: Tensor, p: Tensor, w: Tensor, c: Scalar = 1.0, *, keepdim: bool = False
) -> Tensor:
    r"""Signed distance in the ball to the hyperplane through p with normal w.

    `asinh(2√c⟨(−p)⊕x, ŵ⟩/(1 − c|(−p)⊕x|²))/√c`, formed without the Möbius sum as
    `asinh(2√c⟨A·δ − c|δ|²·p, ŵ⟩/(A·B))/√c`, δ = x − p, A = 1 − c|p|², B = 1 − c|x|².
    Multinomial regression in the ball (hyperbolic neural networks) multiplies it by λ(p)·|w|.

    Args:
        x: points of the ball, (..., d), c|x|² < 1.
        p: points of the hyperplanes, (..., d).
        w: normals, (..., d); only the direction counts, and 0 gives 0 with gradient 0.
        c: curvature −c.

    Returns:
        (...), or (..., 1) with keepdim. Error a few eps·cosh(√c r): the ball's own rounding.
    """
    (x, p, w), c, _ = prepare(c, x=x, p=p, w=w)
    if debugging():
        check_inside("x", x, c)
        check_inside("p", p, c)
    gap_x, gap_p = gap(x, c), gap(p, c)
    delta = x - p
    unit = over_or_same(w, root(dot(w, w)))
    inner = gap_p * dot(delta, unit) - c * dot(delta, delta) * dot(p, unit)
    out = scaled_asinh(2 * inner / (gap_p * gap_x), c)
    return as_scalar(out, keepdim)


def poincare_logit(
    x: Tensor, z: Tensor, r: Scalar = 0.0, c: Scalar = 1.0, *, keepdim: bool = False
) -> Tensor:
    r"""The unidirectional score of HNN++: `2|z|·signed_dist` to the hyperplane (z, 2r).

    `(2|z|/√c)·asinh(λ⟨√c x, ẑ⟩cosh(2√c r) − (λ−1)·sinh(2√c r))`, λ = 2/(1 − c|x|²). Since λ·x is
    the Lorentz point of x and (λ−1)/√c its time, it is evaluated there; 2r is the distance of the
    hyperplane from the origin. Tends to `4(z·x − r|z|)` as c → 0.

    Args:
        x: points of the ball, (..., d), c|x|² < 1.
        z: normals, (..., d).
        r: half the signed distance from the origin; a number or (..., 1).
        c: curvature −c.
    """
    (x, z), r, c, _ = _prepare_plane(x, z, r, c, name="r")
    return 2 * logit(poincare.to_lorentz(x, c), z, 2 * r, c, keepdim=keepdim)


def poincare_logits(
    x: Tensor,
    normals: Tensor,
    offsets: Tensor,
    c: Scalar = 1.0,
    *,
    product_dtype: torch.dtype | None = None,
) -> Tensor:
    """`poincare_logit` against k hyperplanes by one matrix product, as in `hyperplane_logits`.

    Here the offsets (k,) are r, half the distances of the hyperplanes from the origin.
    """
    (x, normals), c, _ = prepare(c, x=x, normals=normals)
    _check_table(normals, offsets)
    points = poincare.to_lorentz(x, c)
    return 2 * hyperplane_logits(points, normals, 2 * offsets, c, product_dtype=product_dtype)


# --- horospheres ----------------------------------------------------------------------------------


def busemann(x: Tensor, p: Tensor, c: Scalar = 1.0, *, keepdim: bool = False) -> Tensor:
    r"""Busemann function of the ideal point p: `log(√c(t − x·p))/√c`, 0 at the origin.

    The limit of d(x, γ(s)) − s along the ray γ from the origin to p: how much farther than the
    origin x is from p. Its level sets are the horospheres at p, its gradient has length 1. Tends to
    `−x·p` as c → 0, with an error of order √c (not c: horospheres are curved at first order).

    Args:
        x: points, (..., d).
        p: directions of ideal points, (..., d); scaled to length 1 here. 0 is no direction.
        c: curvature −c.

    Returns:
        (...), or (..., 1) with keepdim. Absolute error a few eps·max(1, √c r)/√c, and relative
        error a few eps near the origin, given the rounded inputs.
    """
    (x, p), c, _ = prepare(c, x=x, p=p)
    _, _, u, perp = split_along(x, p)
    out = -log_light_cone(u, perp, c)
    return as_scalar(out, keepdim)


def poincare_busemann(x: Tensor, p: Tensor, c: Scalar = 1.0, *, keepdim: bool = False) -> Tensor:
    """Busemann function in the ball, `log(|p − √c·x|²/(1 − c|x|²))/√c`, p scaled to length 1.

    Args:
        x: points of the ball, (..., d), c|x|² < 1.
        p: directions of ideal points, (..., d).
        c: curvature −c.
    """
    (x, p), c, _ = prepare(c, x=x, p=p)
    return busemann(poincare.to_lorentz(x, c), p, c, keepdim=keepdim)


def project_to_horosphere(x: Tensor, p: Tensor, level: Scalar = 0.0, c: Scalar = 1.0) -> Tensor:
    r"""The point where the geodesic from x to the ideal point p meets `busemann = level`.

    It is the nearest point of that horosphere, at distance |busemann(x, p) − level|. In units of
    curvature −1, with h = −level and k = e^{−busemann(x) − h}: `(sinh h + e^h·k²|x⊥|²/2)·p + k·x⊥`.

    Args:
        x: points, (..., d).
        p: directions of ideal points, (..., d); scaled to length 1 here.
        level: value of the Busemann function; a number or (..., 1).
        c: curvature −c.

    Returns:
        (..., d). Relative error a few eps·max(1, √c r, √c|level|).
    """
    (x, p), level, c, dtype = _prepare_plane(x, p, level, c, names=("p", "level"))
    _, unit, u, perp = split_along(x, p)
    root_c, h = c**0.5, -level
    across = torch.exp(root_c * (log_light_cone(u, perp, c) - h)) * perp
    along = h * radial.sinhc_sq(c * h * h)
    along = along + root_c * torch.exp(root_c * h) * dot(across, across) / 2
    return (along * unit + across).to(dtype)


# --- projections to geodesics and geodesic subspaces ----------------------------------------------


def project_to_geodesic(x: Tensor, p: Tensor, q: Tensor, c: Scalar = 1.0) -> Tensor:
    r"""The point nearest to x on the geodesic through p and q.

    For a foot between p and q that lie apart, `(A·p + B·q)/√(A² + B² + 2AB·cosh √cd(p,q))`, where
    A·p + B·q is the ambient projection of x to the plane of p and q. With h = sinh²(√c·d/2) of the
    three pairs: `B = h_xp/(1+h_pq) + (h_pq + h_xp − h_xq)/(2h_pq(1+h_pq))` and A likewise. Else the
    nearer end, e, is taken to the origin, where `y = (ẑ·x/√(1 + c|x⊥|²))·ẑ` with z the other end,
    and back: `boost(y, e)`. If p = q the result is p.

    Args:
        x, p, q: points, (..., d).
        c: curvature −c.

    Returns:
        (..., d). Relative error a few eps for a foot between p and q that lie apart; elsewhere it
        grows as cosh(√c r) and with the length of the lever, as the rounding of p and q forces.
        Finite for feet up to √c·d = 44 (float32) beyond the nearer end.
    """
    (x, p, q), c, dtype = prepare(c, x=x, p=p, q=q)
    return _geodesic_foot(x, p, q, c).to(dtype)


def dist_to_geodesic(
    x: Tensor, p: Tensor, q: Tensor, c: Scalar = 1.0, *, keepdim: bool = False
) -> Tensor:
    """Distance of x to the geodesic through p and q, that is, to `project_to_geodesic(x, p, q)`.

    The gradient on the geodesic is taken as 0. If p = q it is the distance to p.
    """
    (x, p, q), c, _ = prepare(c, x=x, p=p, q=q)
    return lorentz.dist(x, _geodesic_foot(x, p, q, c), c, keepdim=keepdim)


def _geodesic_foot(x: Tensor, p: Tensor, q: Tensor, c: Scalar) -> Tensor:
    to_p, to_q, base = half_sinh_sq(x, p, c), half_sinh_sq(x, q, c), half_sinh_sq(p, q, c)
    # Between ends that lie apart A and B are positive, and A² + B² + 2AB·cosh does not cancel.
    apart = base > 1
    width = torch.where(apart, base, 1.0)
    # Divided one by one: base² leaves the range of float32 at radius 40.
    a = (to_q + (base + to_q - to_p) / (2 * width)) / (1 + base)
    b = (to_p + (base + to_p - to_q) / (2 * width)) / (1 + base)
    between = apart & (a > 0) & (b > 0)
    total = (1 + to_p + to_q) / (1 + base)  # a + b
    norm = torch.sqrt(torch.where(between, total * total + 4 * base * a * b, 1.0))
    inside = torch.where(between, a / norm, 0.0) * p + torch.where(between, b / norm, 0.0) * q
    # Elsewhere, seen from the nearer end, it is a projection to one direction.
    p_is_near = to_p <= to_q
    near = torch.where(p_is_near, p, q)
    x, far = (torch.where(between, near, y) for y in (x, torch.where(p_is_near, q, p)))
    # Scaled by about 1/cosh of their distances, whose squares leave float32: u/μ is a quotient.
    scale = 1 / (1 + 2 * torch.where(p_is_near, to_p, to_q).detach())
    other = lorentz.boost(far, -near, c) / (1 + 2 * base.detach())
    _, unit, u, perp = split_along(lorentz.boost(x, -near, c) * scale, other)
    along = u / torch.hypot(scale, root(c * dot(perp, perp)))
    return torch.where(between, inside, lorentz.boost(along * unit, near, c))


def project_to_subspace(x: Tensor, directions: Tensor, c: Scalar = 1.0) -> Tensor:
    r"""The point nearest to x on the geodesic subspace through the origin spanned by directions.

    `P x/√(1 + c|x − P x|²)` with `P = VᵀV`. The same formula projects Klein points by `P` alone.

    Args:
        x: points, (..., d).
        directions: orthonormal rows V, (k, d). Not checked: take them from `torch.linalg.qr`.
        c: curvature −c.

    Returns:
        (..., d). Relative error a few eps of |x|; the products run outside autocast.
    """
    (x, directions), c, dtype = prepare(c, x=x, directions=directions)
    _check_directions(directions)
    with no_autocast(x):
        inside = (x @ directions.mT) @ directions
    rest = x - inside
    return (inside / torch.sqrt(1 + c * dot(rest, rest))).to(dtype)


def horospherical_projection(x: Tensor, directions: Tensor, c: Scalar = 1.0) -> Tensor:
    r"""HoroPCA's projection: same Busemann values at k ideal points, on their geodesic subspace.

    The point `y = Σ yᵢ·vᵢ` with `busemann(y, vᵢ) = busemann(x, vᵢ)` for all i; of the two there
    are, the one on the origin's side of the hull of the ideal points (so points of the subspace on
    that side stay where they are). With hᵢ = √c(t − vᵢ·x), in units of curvature −1:
    `t_y = (1 + Σhᵢ²)/(Σhᵢ + √D)`, `D = (t − Σvᵢ·x)² + (k−1)|x − P x|²`, `yᵢ = t_y − hᵢ`.

    Args:
        x: points, (..., d).
        directions: orthonormal rows, (k, d), 1 ≤ k ≤ d: the ideal points.
        c: curvature −c.

    Returns:
        (..., d). Busemann values agree to a few eps·cosh(√c r). Not differentiable where D = 0, on
        the hull itself; the gradient of √D is taken as 0 there. Memory (..., k, d).
    """
    (x, directions), c, dtype = prepare(c, x=x, directions=directions)
    _check_directions(directions)
    c_rows = c.unsqueeze(-2) if isinstance(c, Tensor) and c.ndim > 1 else c
    levels = busemann(x.unsqueeze(-2), directions, c_rows)  # (..., k)
    h = torch.exp(c**0.5 * levels)
    with no_autocast(x):
        u = x @ directions.mT  # (..., k)
        rest = x - u @ directions
        k = directions.shape[-2]
        side = torch.sqrt(1 + c * dot(x, x)) - c**0.5 * u.sum(-1, keepdim=True)
        spread = root(side * side + (k - 1) * c * dot(rest, rest))
        t = (1 + dot(h, h)) / (h.sum(-1, keepdim=True) + spread)
        return (((t - h) / c**0.5) @ directions).to(dtype)


# --- helpers --------------------------------------------------------------------------------------


def _prepare_plane(
    x: Tensor,
    z: Tensor,
    a: Scalar,
    c: Scalar,
    *,
    name: str = "a",
    names: tuple[str, str] | None = None,
) -> tuple[tuple[Tensor, Tensor], Tensor, Scalar, torch.dtype]:
    """`prepare` for x, a direction and a scalar a row, which becomes a tensor."""
    direction, scalar = names or ("z", name)
    (x, z), c, dtype = prepare(c, **{"x": x, direction: z})
    a = check_curvature(a, x.dtype, x.device, name=scalar, signed=True)
    a = a if isinstance(a, Tensor) else x.new_full((), a)
    return (x, z), a, c, dtype


def _check_table(normals: Tensor, offsets: Tensor) -> None:
    if normals.ndim != 2 or offsets.shape != normals.shape[:1]:
        raise ValueError(
            "normals must have shape (k, d) and offsets (k,), got "
            f"{tuple(normals.shape)} and {tuple(offsets.shape)}"
        )
    if not offsets.is_floating_point():
        raise TypeError(f"offsets must be a floating point tensor, got {offsets.dtype}")


def _check_directions(directions: Tensor) -> None:
    if directions.ndim != 2 or not 1 <= directions.shape[0] <= directions.shape[1]:
        raise ValueError(
            f"directions must have shape (k, d) with 1 ≤ k ≤ d, got {tuple(directions.shape)}"
        )
