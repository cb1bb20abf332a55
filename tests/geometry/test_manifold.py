"""One table of laws for all manifolds, and the objects' manners (equality, printing, copies)."""

import copy
import math
import pickle
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import beltrami
from beltrami.geometry import (
    Curvature,
    Euclidean,
    Lorentz,
    Manifold,
    PoincareBall,
    Product,
    Solvable,
    Sphere,
    Stereographic,
    lorentz,
    poincare,
    solvable,
)

CURVATURES = (0.1, 1.0, 4.0)


def product_of(c: float, p: float) -> Product:
    return Product([(Lorentz(c), 3), (Sphere(c), 3), (Euclidean(), 1), (PoincareBall(c), 2, 2)], p)


def _table() -> list[tuple[Manifold, int]]:
    rows: list[tuple[Manifold, int]] = [(Euclidean(), 4), (Stereographic(0.0), 4)]
    for c in CURVATURES:
        rows += [(Lorentz(c), 4), (PoincareBall(c), 4), (Sphere(c), 4), (Solvable(c), 4)]
        rows += [(Stereographic(-c), 4), (Stereographic(c), 4)]
    return [*rows, (Lorentz(1.0), 1), (PoincareBall(1.0), 1), (product_of(0.5, 2), 11)]


TABLE = _table()
FINSLER = [(product_of(0.5, 1), 11), (product_of(0.5, 3), 11), (product_of(0.5, math.inf), 11)]
DTYPES = [torch.float64, torch.float32]

all_manifolds = pytest.mark.parametrize(
    ("M", "d"), TABLE, ids=[f"{m!r}-{d}" if d < 11 else "Product" for m, d in TABLE]
)
all_dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=["float64", "float32"])


def scale(M: Manifold) -> float:
    """The length by which this manifold's own radius of curvature is 1."""
    c = 1.0 if isinstance(M, Product) else abs(float(M.c))
    return c**-0.5 if c > 0 else 1.0


def points(M: Manifold, d: int, *shape: int, dtype=torch.float64, seed: int = 0) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return M.random(*shape, d, std=0.5 * scale(M), dtype=dtype, generator=g)


def tangents(M: Manifold, x: Tensor, seed: int = 0, length: float = 0.7) -> Tensor:
    """Random tangent vectors at x, of the given length in units of `scale`."""
    g = torch.Generator().manual_seed(100 + seed)
    v = torch.randn(x.shape, dtype=x.dtype, generator=g)
    v = M.project_tangent(x, v)
    return v * (length * scale(M) / M.norm(x, v, keepdim=True))


def close(a: Tensor, b: Tensor, *, factor: float = 1.0) -> None:
    """Equal to a few hundred roundings of the largest entry."""
    assert a.dtype == b.dtype
    tolerance = 200 * torch.finfo(a.dtype).eps * factor
    torch.testing.assert_close(a, b, rtol=0, atol=tolerance * max(1.0, float(b.abs().max())))


# --- laws -----------------------------------------------------------------------------------------


@all_dtypes
@all_manifolds
def test_exp_and_log_are_inverse(M: Manifold, d: int, dtype: torch.dtype) -> None:
    x, y = points(M, d, 20, dtype=dtype), points(M, d, 20, dtype=dtype, seed=1)
    v = tangents(M, x)
    close(M.log(x, M.exp(x, v)), v)
    close(M.exp(x, M.log(x, y)), y)
    close(M.exp0(M.log0(y)), y)
    assert not M.log(x, x).any()
    close(M.exp(x, torch.zeros_like(x)), x)


@all_dtypes
@all_manifolds
def test_lengths_are_distances(M: Manifold, d: int, dtype: torch.dtype) -> None:
    x, y = points(M, d, 20, dtype=dtype), points(M, d, 20, dtype=dtype, seed=1)
    v = tangents(M, x)
    close(M.dist(x, M.exp(x, v)), M.norm(x, v))
    close(M.norm(x, M.log(x, y)), M.dist(x, y))
    close(M.norm(x, v) ** 2, M.inner(x, v, v))
    close(M.dist(x, y) ** 2, M.dist_sq(x, y))
    close(M.log0(x).norm(dim=-1), M.dist0(x))
    close(M.dist0(x), M.dist(M.origin(d, dtype=dtype), x))
    assert M.dist(x, y, keepdim=True).shape == (20, 1)


@pytest.mark.parametrize(("M", "d"), FINSLER, ids=["p=1", "p=3", "p=inf"])
def test_lengths_are_distances_for_other_exponents(M: Manifold, d: int) -> None:
    x, y = points(M, d, 20), points(M, d, 20, seed=1)
    v = tangents(M, x)
    close(M.dist(x, M.exp(x, v)), M.norm(x, v))
    close(M.norm(x, M.log(x, y)), M.dist(x, y))
    close(M.dist0(x), M.dist(M.origin(d, dtype=x.dtype), x))


@all_dtypes
@all_manifolds
def test_distance_is_symmetric_zero_on_the_diagonal_and_triangular(
    M: Manifold, d: int, dtype: torch.dtype
) -> None:
    x = points(M, d, 12, dtype=dtype)
    assert not M.dist(x, x).any()
    matrix = M.dist(x[:, None], x[None])
    close(matrix, matrix.T, factor=0.05)
    detour = (matrix[:, :, None] + matrix[None]).amin(1)
    slack = 100 * torch.finfo(dtype).eps * float(matrix.max())
    assert bool((matrix <= detour + slack).all())
    off = ~torch.eye(12, dtype=torch.bool)
    close(M.pairwise_dist(x, x)[off], matrix[off])
    assert M.pairwise_dist(x[:5], x).shape == (5, 12)


@all_dtypes
@all_manifolds
def test_transport_is_an_isometry_along_the_geodesic(
    M: Manifold, d: int, dtype: torch.dtype
) -> None:
    x, y = points(M, d, 20, dtype=dtype), points(M, d, 20, dtype=dtype, seed=1)
    u, v = tangents(M, x), tangents(M, x, seed=1)
    tu, tv = M.transport(x, y, u), M.transport(x, y, v)
    close(M.inner(y, tu, tv), M.inner(x, u, v))
    close(M.transport(y, x, tv), v)
    close(M.transport(x, y, M.log(x, y)), -M.log(y, x))
    close(M.transport(x, x, v), v)


@all_dtypes
@all_manifolds
def test_transport_to_and_from_the_origin(M: Manifold, d: int, dtype: torch.dtype) -> None:
    x = points(M, d, 20, dtype=dtype)
    g = torch.Generator().manual_seed(0)
    u, v = (
        torch.randn(20, M.tangent0_size(d), dtype=dtype, generator=g) * scale(M) for _ in range(2)
    )
    close(M.transport_to0(x, M.transport_from0(x, v)), v)
    # The frame at the origin is orthonormal, as that of exp0 is.
    close(M.inner(x, M.transport_from0(x, u), M.transport_from0(x, v)), (u * v).sum(-1))
    close(M.exp(x, M.transport_from0(x, 0.3 * M.log0(x))), M.exp0(1.3 * M.log0(x)), factor=10)


@all_dtypes
@all_manifolds
def test_geodesics(M: Manifold, d: int, dtype: torch.dtype) -> None:
    x, y = points(M, d, 20, dtype=dtype), points(M, d, 20, dtype=dtype, seed=1)
    whole = M.dist(x, y)
    close(M.geodesic(x, y, 0.0), x)
    close(M.geodesic(x, y, 1.0), y)
    for t in (0.25, 0.5, 0.9):
        z = M.geodesic(x, y, t)
        close(M.dist(x, z), t * whole)
        close(M.dist(z, y), (1 - t) * whole)
        close(z, M.exp(x, t * M.log(x, y)))
    close(M.midpoint(x, y), M.geodesic(x, y, 0.5))
    t = torch.rand(20, 1, dtype=dtype, generator=torch.Generator().manual_seed(0))
    close(M.dist(x, M.geodesic(x, y, t)), t.squeeze(-1) * whole)


@all_dtypes
@all_manifolds
def test_centroids(M: Manifold, d: int, dtype: torch.dtype) -> None:
    x = points(M, d, 4, 6, dtype=dtype)
    w = torch.rand(4, 6, dtype=dtype, generator=torch.Generator().manual_seed(0)) + 0.1
    m = M.centroid(x, w)
    assert m.shape == (4, d)
    close(M.centroid(x), M.centroid(x, torch.full_like(w, 0.5)))
    close(M.centroid(x, 3 * w), m)
    close(M.centroid(x.flip(-2), w.flip(-1)), m)
    close(M.centroid(x[:, :2]), M.midpoint(x[:, 0], x[:, 1]))
    close(M.centroid(x[:, :1].expand(4, 6, d), w), x[:, 0])
    one = torch.zeros_like(w)
    one[:, 2] = 1
    close(M.centroid(x, one), x[:, 2])


@all_manifolds
def test_riemannian_gradient_is_the_gradient_in_the_metric(M: Manifold, d: int) -> None:
    x, y = points(M, d, 20), points(M, d, 20, seed=1)
    g = torch.randn(20, d, dtype=x.dtype, generator=torch.Generator().manual_seed(0))
    v = tangents(M, x)
    close(M.inner(x, M.riemannian_grad(x, g), v), (g * v).sum(-1))
    x.requires_grad_()
    (g,) = torch.autograd.grad(M.dist_sq(x, y).sum(), x)
    close(M.riemannian_grad(x, g).detach(), -2 * M.log(x, y).detach())


@all_manifolds
def test_retraction_agrees_to_first_order(M: Manifold, d: int) -> None:
    x = points(M, d, 20)
    v = tangents(M, x)
    errors = [float(M.dist(M.retract(x, h * v), M.exp(x, h * v)).max()) for h in (1e-2, 1e-3)]
    assert errors[0] < 1e-2 * scale(M)
    assert errors[1] <= errors[0] / 50 + 1e-12
    close(M.project(M.retract(x, v)), M.retract(x, v))


@pytest.mark.parametrize(
    "make",
    [Lorentz, PoincareBall, Sphere, Stereographic, lambda c: Stereographic(-c), Solvable],
    ids=["Lorentz", "PoincareBall", "Sphere", "Stereographic+", "Stereographic-", "Solvable"],
)
def test_flat_limit(make: Callable[[float], Manifold]) -> None:
    """In the frame at the origin everything tends to Euclidean, with an error of order c."""
    g = torch.Generator().manual_seed(0)
    u, v, w = (torch.randn(30, 3, dtype=torch.float64, generator=g) for _ in range(3))
    flat = {
        "dist": (u - v).norm(dim=-1),
        "midpoint": (u + v) / 2,
        "centroid": (u + v + w) / 3,
        "geodesic": 0.3 * u + 0.7 * v,
        "transport": w,
    }
    errors: dict[str, list[float]] = {name: [] for name in flat}
    for c in (1e-3, 1e-4, 1e-5):
        M = make(c)
        x, y, z = M.exp0(u), M.exp0(v), M.exp0(w)
        curved = {
            "dist": M.dist(x, y),
            "midpoint": M.log0(M.midpoint(x, y)),
            "centroid": M.log0(M.centroid(torch.stack([x, y, z], -2))),
            "geodesic": M.log0(M.geodesic(x, y, 0.7)),
            "transport": M.transport_to0(y, M.transport(x, y, M.transport_from0(x, w))),
        }
        for name, value in curved.items():
            errors[name].append(float((value - flat[name]).abs().max()))
    for name, (a, b, e) in errors.items():
        assert 0 < a < 0.1, name
        assert a / b == pytest.approx(10, rel=0.2), name
        assert b / e == pytest.approx(10, rel=0.2), name


def _rotation(d: int) -> Tensor:
    a = torch.randn(d, d, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    return torch.linalg.qr(a).Q


def _isometries() -> list[tuple[str, Manifold, Callable[[Tensor], Tensor]]]:
    p = 0.4 * torch.randn(4, dtype=torch.float64, generator=torch.Generator().manual_seed(6))
    q = p / (1 + p.norm())
    R = _rotation(4)
    return [
        ("rotation", Euclidean(), lambda x: x @ R.T),
        ("translation", Euclidean(), lambda x: x + p),
        ("rotation", Lorentz(0.5), lambda x: lorentz.rotate(x, R)),
        ("boost", Lorentz(0.5), lambda x: lorentz.boost(x, p, 0.5)),
        ("rotation", PoincareBall(0.5), lambda x: x @ R.T),
        ("translation", PoincareBall(0.5), lambda x: poincare.mobius_add(q, x, 0.5)),
        ("rotation", Sphere(0.5), lambda x: x @ R.T),
        ("rotation", Stereographic(-0.5), lambda x: x @ R.T),
        ("translation", Solvable(0.5), lambda x: solvable.product(p, x)),
        ("rotation", Solvable(0.5), lambda x: solvable.fiber_rotation(x, p)),
        ("rotation", Stereographic(0.5), lambda x: x @ R.T),
    ]


@pytest.mark.parametrize(("name", "M", "move"), _isometries(), ids=lambda a: str(a)[:24])
def test_isometries_change_nothing(
    name: str, M: Manifold, move: Callable[[Tensor], Tensor]
) -> None:
    x, y = points(M, 4, 20), points(M, 4, 20, seed=1)
    close(M.dist(move(x), move(y)), M.dist(x, y))
    close(M.dist_sq(move(x), move(y)), M.dist_sq(x, y))
    close(M.midpoint(move(x), move(y)), move(M.midpoint(x, y)))
    close(M.geodesic(move(x), move(y), 0.2), move(M.geodesic(x, y, 0.2)))
    close(M.centroid(move(x)), move(M.centroid(x)))
    v = tangents(M, x)
    _, moved = torch.autograd.functional.jvp(move, x, v)
    close(M.exp(move(x), moved), move(M.exp(x, v)))
    close(M.norm(move(x), moved), M.norm(x, v))


@settings(deadline=None, max_examples=60)
@given(
    kind=st.sampled_from([Lorentz, PoincareBall, Sphere, Solvable]),
    c=st.floats(1e-3, 1e2),
    d=st.integers(2, 7),
    reach=st.floats(1e-5, 1.0),
    seed=st.integers(0, 2**20),
)
def test_laws_hold_for_any_curvature_and_size(
    kind: type, c: float, d: int, reach: float, seed: int
) -> None:
    M = kind(c)
    g = torch.Generator().manual_seed(seed)
    std = reach * c**-0.5 / d
    x, y, z = (M.random(d, std=std, dtype=torch.float64, generator=g) for _ in range(3))
    bound = 1e-13 * std if kind is not Sphere else 1e-14 * c**-0.5
    assert abs(float(M.dist(x, M.exp(x, M.log(x, y))) - M.dist(x, y))) <= 10 * bound
    assert float(M.dist(M.exp(x, M.log(x, y)), y)) <= 10 * bound
    assert float(M.dist(x, z)) <= float(M.dist(x, y) + M.dist(y, z)) + bound
    v = M.log(x, z)
    assert abs(float(M.norm(y, M.transport(x, y, v)) - M.norm(x, v))) <= 10 * bound
    assert abs(float(2 * M.dist(x, M.midpoint(x, y)) - M.dist(x, y))) <= 10 * bound


# --- every method, every way of calling it --------------------------------------------------------

CALLS: dict[str, Callable[..., Tensor]] = {
    "dist": lambda M, x, y, u, v, v0: M.dist(x, y),
    "dist_sq": lambda M, x, y, u, v, v0: M.dist_sq(x, y),
    "dist0": lambda M, x, y, u, v, v0: M.dist0(x),
    "exp": lambda M, x, y, u, v, v0: M.exp(x, v),
    "log": lambda M, x, y, u, v, v0: M.log(x, y),
    "exp0": lambda M, x, y, u, v, v0: M.exp0(v0),
    "log0": lambda M, x, y, u, v, v0: M.log0(x),
    "transport": lambda M, x, y, u, v, v0: M.transport(x, y, v),
    "transport_from0": lambda M, x, y, u, v, v0: M.transport_from0(y, v0),
    "transport_to0": lambda M, x, y, u, v, v0: M.transport_to0(x, v),
    "inner": lambda M, x, y, u, v, v0: M.inner(x, u, v),
    "norm": lambda M, x, y, u, v, v0: M.norm(x, v),
    "geodesic": lambda M, x, y, u, v, v0: M.geodesic(x, y, 0.3),
    "midpoint": lambda M, x, y, u, v, v0: M.midpoint(x, y),
    "riemannian_grad": lambda M, x, y, u, v, v0: M.riemannian_grad(x, u),
    "retract": lambda M, x, y, u, v, v0: M.retract(x, v),
    "project": lambda M, x, y, u, v, v0: M.project(x),
    "project_tangent": lambda M, x, y, u, v, v0: M.project_tangent(x, u),
    # Functions of sets: (..., n, d).
    "pairwise_dist": lambda M, x, y, u, v, v0: M.pairwise_dist(x, y),
    "centroid": lambda M, x, y, u, v, v0: M.centroid(x),
}
SETS = {"pairwise_dist", "centroid"}
NOT_TENSORS = {
    "c",
    "c_like",
    "check_point",
    "origin",
    "radius_like",
    "random",
    "shape",
    "tangent0_size",
}

ONE_OF_EACH = [
    (Euclidean(), 4),
    (Lorentz(0.5), 4),
    (PoincareBall(0.5), 4),
    (Sphere(0.5), 4),
    (Stereographic(0.5), 4),
    (Stereographic(-0.5), 4),
    (Solvable(0.5), 4),
    (product_of(0.5, 1.5), 11),
]
one_of_each = pytest.mark.parametrize(
    ("M", "d"), ONE_OF_EACH, ids=[repr(m)[:20] for m, _ in ONE_OF_EACH]
)
all_calls = pytest.mark.parametrize("name", CALLS)


def arguments(M: Manifold, d: int, *shape: int, dtype=torch.float64) -> tuple[Tensor, ...]:
    x, y = points(M, d, *shape, dtype=dtype), points(M, d, *shape, dtype=dtype, seed=1)
    g = torch.Generator().manual_seed(2)
    v0 = torch.randn(*shape, M.tangent0_size(d), dtype=dtype, generator=g)
    if x.numel() == 0:
        return x, y, torch.zeros_like(x), torch.zeros_like(x), v0
    return x, y, tangents(M, x), tangents(M, x, seed=1), v0


def test_every_method_is_in_the_table() -> None:
    public = {n for n in vars(Manifold) if not n.startswith("_")}
    assert public == set(CALLS) | NOT_TENSORS


@pytest.mark.slow
@one_of_each
def test_compiles_without_a_graph_break(M: Manifold, d: int) -> None:
    """All methods in one graph: each function by itself is compiled in test_public.py."""
    torch.compiler.reset()
    if isinstance(M, Product):  # fewer factors: tracing is what takes the time
        M, d = Product([(Lorentz(0.5), 2, 2), (Euclidean(), 1)], p=1.5), 5
    args = arguments(M, d, 3)

    def everything(*args: Tensor) -> list[Tensor]:
        return [call(M, *args) for call in CALLS.values()]

    compiled = torch.compile(everything, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(*args), everything(*args), rtol=0, atol=0)


@all_calls
@one_of_each
def test_vmap_agrees_with_the_batched_call(M: Manifold, d: int, name: str) -> None:
    args = arguments(M, d, 3, 2)
    call = CALLS[name]
    out = torch.vmap(lambda *a: call(M, *a))(*args)
    torch.testing.assert_close(out, call(M, *args), rtol=1e-14, atol=1e-14)


@all_calls
@one_of_each
def test_empty_batches(M: Manifold, d: int, name: str) -> None:
    args = arguments(M, d, 0, 2)
    out = CALLS[name](M, *(a.requires_grad_() for a in args))
    assert out.shape[0] == 0
    out.sum().backward()


@all_calls
@one_of_each
def test_half_precision_is_computed_in_float32(M: Manifold, d: int, name: str) -> None:
    args = [a.bfloat16() for a in arguments(M, d, 5)]
    out = CALLS[name](M, *args)
    wide = CALLS[name](M, *(a.float() for a in args))
    scalar = name.startswith(("dist", "inner", "norm", "pairwise"))
    assert out.dtype == (torch.float32 if scalar else torch.bfloat16)
    torch.testing.assert_close(out, wide.to(out.dtype), rtol=0, atol=0)


@all_calls
@one_of_each
def test_autocast_changes_nothing(M: Manifold, d: int, name: str) -> None:
    args = arguments(M, d, 5, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        out = CALLS[name](M, *args)
    torch.testing.assert_close(out, CALLS[name](M, *args), rtol=0, atol=0)


@all_calls
@one_of_each
def test_gradients_are_finite_at_coincident_points_and_at_the_origin(
    M: Manifold, d: int, name: str
) -> None:
    for x in (points(M, d, 3), M.origin(3, d, dtype=torch.float64)):
        zero = torch.zeros_like(x)
        v0 = torch.zeros(3, M.tangent0_size(d), dtype=x.dtype)
        args = [a.clone().requires_grad_() for a in (x, x, zero, zero, v0)]
        out = CALLS[name](M, *args)
        grads = torch.autograd.grad(out.sum(), args, allow_unused=True)
        assert bool(torch.isfinite(out).all())
        assert all(bool(torch.isfinite(g).all()) for g in grads if g is not None)


@one_of_each
def test_wrong_input_is_named(M: Manifold, d: int) -> None:
    x, y, _, v, v0 = arguments(M, d, 3)
    for call in (
        lambda: M.dist(x, y[..., :-1]),
        lambda: M.exp(x, v[..., :-1]),
        lambda: M.transport(x, y, v[..., :-1]),
        lambda: M.retract(x, v[..., :-1]),
        lambda: M.exp(x[..., 0], v),
        lambda: M.transport_from0(x, v0[..., :-1]),
    ):
        with pytest.raises(ValueError, match=r"dimension|coordinate"):
            call()
    for call in (
        lambda: M.dist(x.long(), y),
        lambda: M.exp0(v0.long()),
        lambda: M.dist0(x.tolist()),
    ):
        with pytest.raises(TypeError, match="must be a"):
            call()
    with pytest.raises(ValueError, match="meta"):
        M.dist(x, y.to("meta"))
    bad = x.clone()
    bad[1, 0] = math.nan
    M.dist(bad, y)
    with beltrami.debug(), pytest.raises(ValueError, match="not finite"):
        M.dist(bad, y)
    M.check_point(x)
    with pytest.raises(ValueError, match="not finite"):
        M.check_point(bad)


def test_points_off_the_manifold_are_found_and_brought_back() -> None:
    far = torch.full((2, 3), 5.0)
    for M in (PoincareBall(1.0), Sphere(1.0), Stereographic(-1.0)):
        with pytest.raises(ValueError):
            M.check_point(far)
        M.check_point(M.project(far))
    Lorentz(1.0).check_point(far)
    Stereographic(1.0).check_point(far)


# --- the objects ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Lorentz, PoincareBall, Sphere, Stereographic])
def test_equal_by_value_when_fixed_and_by_identity_when_not(kind: type) -> None:
    assert kind(1.0) == kind(1)
    assert hash(kind(1.0)) == hash(kind(1))
    assert kind(1.0) != kind(2.0)
    assert len({kind(1.0), kind(1.0), kind(2.0)}) == 2
    assert kind(1.0) != Euclidean()
    one, other = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
    assert kind(one) == kind(one) != kind(other)
    assert kind(one) != kind(1.0)
    assert hash(kind(one)) == hash(kind(one))
    if kind is not Stereographic:
        one, other = Curvature(1.0), Curvature(1.0)
        assert kind(one) == kind(one) != kind(other)


def test_equality_of_the_others() -> None:
    assert Euclidean() == Euclidean() != Lorentz(1.0)
    assert hash(Euclidean()) == hash(Euclidean())
    assert Lorentz(1.0) != PoincareBall(1.0)
    one, same = (Product([(Lorentz(1.0), 2), (Euclidean(), 3)]) for _ in range(2))
    assert one == same
    assert hash(one) == hash(same)
    assert one != Product([(Lorentz(1.0), 2), (Euclidean(), 3)], p=1)
    assert one != Product([(Lorentz(2.0), 2), (Euclidean(), 3)])
    assert Product([(Lorentz(1.0), 2)] * 2) == Product([(Lorentz(1.0), 2, 2)])


def test_print() -> None:
    assert repr(Lorentz(1)) == "Lorentz(c=1.0)"
    assert repr(PoincareBall(0.5)) == "PoincareBall(c=0.5)"
    assert repr(Euclidean()) == "Euclidean()"
    assert repr(Stereographic(-1.0)) == "Stereographic(kappa=-1.0)"
    assert repr(Lorentz(torch.ones(4, 1))) == "Lorentz(c=tensor of shape (4, 1))"
    assert repr(Lorentz(Curvature(0.5))).startswith("Lorentz(c=Curvature(init=0.5")
    P = Product([(Lorentz(1.0), 2), (Lorentz(1.0), 2), (Euclidean(), 3)], p=math.inf)
    assert repr(P) == "Product([(Lorentz(c=1.0), 2, 2), (Euclidean(), 3)], p=inf)"


def test_curvature_now() -> None:
    curvature = Curvature(2.0)
    H = Lorentz(curvature)
    assert Lorentz(2.0).c == 2.0
    torch.testing.assert_close(H.c, torch.tensor([2.0]))
    with torch.no_grad():
        curvature.raw.fill_(1.0)
    assert H.c.item() > 5
    assert Stereographic(-0.5).c == 0.5
    assert Stereographic(-0.5).kappa == -0.5
    assert Euclidean().c == 0.0
    with pytest.raises(AttributeError, match="no single curvature"):
        _ = Product([(H, 2)]).c


def test_learnable_curvature_gets_the_gradient_of_the_functions() -> None:
    x, y = torch.randn(2, 5, 3, dtype=torch.float64).unbind()
    curvature = Curvature(0.7).double()
    Lorentz(curvature).dist(x, y).sum().backward()
    c = torch.tensor([0.7], dtype=torch.float64, requires_grad=True)
    lorentz.dist(x, y, c).sum().backward()
    torch.testing.assert_close(curvature.raw.grad, 0.7 * c.grad)  # d/d log c


def test_a_curvature_a_head() -> None:
    curvature = Curvature(1.0, size=3)
    with torch.no_grad():
        curvature.raw.copy_(torch.tensor([-1.0, 0.0, 1.0]))
    x, y = torch.randn(2, 5, 3, 6, 4).unbind()  # (batch, head, token, d)
    for make in (Lorentz, Sphere):
        H = make(curvature)
        heads = [make(c) for c in curvature.value.flatten().tolist()]
        a, b = (
            t if make is Lorentz else H.project(t.transpose(1, 2)).transpose(1, 2) for t in (x, y)
        )
        torch.testing.assert_close(
            H.pairwise_dist(a, b),
            torch.stack([h.pairwise_dist(a[:, i], b[:, i]) for i, h in enumerate(heads)], 1),
        )
        torch.testing.assert_close(
            H.centroid(a), torch.stack([h.centroid(a[:, i]) for i, h in enumerate(heads)], 1)
        )
        torch.testing.assert_close(
            H.dist(a[:, :, 0], b[:, :, 0]),
            torch.stack([h.dist(a[:, i, 0], b[:, i, 0]) for i, h in enumerate(heads)], 1),
        )


class Embedding(nn.Module):
    def __init__(self, manifold: Manifold) -> None:
        super().__init__()
        self.weight = nn.Parameter(manifold.random(4, 3))
        self.manifold_of = {"weight": manifold}


@pytest.mark.parametrize("wrap", [False, True], ids=["Lorentz", "Product"])
def test_copies_point_at_the_copied_curvature(wrap: bool) -> None:
    model = nn.Module()
    model.curvature = Curvature(1.0)
    H: Manifold = Lorentz(model.curvature)
    model.table = Embedding(Product([(H, 3)]) if wrap else H)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        found = twin.table.manifold_of["weight"]
        inside = found.factors[0].manifold if wrap else found
        assert inside == Lorentz(twin.curvature)
        assert inside != H
        assert list(twin.state_dict()) == ["curvature.raw", "table.weight"]
    assert pickle.loads(pickle.dumps(Lorentz(2.0))) == Lorentz(2.0)
    assert copy.deepcopy(product_of(1.0, 2)) == product_of(1.0, 2)


def test_random_points_have_no_gradient_and_the_asked_type() -> None:
    for M, d in ONE_OF_EACH:
        x = M.random(7, d, std=0.1, dtype=torch.float64, generator=torch.Generator())
        assert x.shape == (7, d)
        assert x.dtype == torch.float64
        M.check_point(x)
        assert M.origin(2, d).shape == (2, d)
        assert not M.dist0(M.origin(2, d)).any()
    assert not Lorentz(Curvature(1.0)).random(3, 2).requires_grad


@pytest.mark.parametrize("kind", [Lorentz, PoincareBall, Sphere])
@pytest.mark.parametrize(
    ("c", "error", "words"),
    [
        (0.0, ValueError, "positive"),
        (-1.0, ValueError, "positive"),
        (math.nan, ValueError, "finite"),
        (math.inf, ValueError, "finite"),
        ("1", TypeError, "float or a tensor"),
        (True, TypeError, "float or a tensor"),
        (torch.ones(2), ValueError, "last dimension must be 1"),
        (torch.ones(1, dtype=torch.long), TypeError, "floating point"),
    ],
)
def test_bad_curvatures(kind: type, c: object, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        kind(c)


def test_stereographic_takes_no_one_signed_curvature() -> None:
    with pytest.raises(TypeError, match="sign"):
        Stereographic(Curvature(1.0))
    with pytest.raises(ValueError, match="kappa"):
        Stereographic(math.nan)


def test_a_frechet_mean_where_there_is_one() -> None:
    x = points(Lorentz(1.0), 3, 5)
    m = Lorentz(1.0).frechet_mean(x)
    pull = Lorentz(1.0).log(m, x).mean(0)
    assert float(pull.abs().max()) < 1e-12
    torch.testing.assert_close(Euclidean().frechet_mean(x), x.mean(0))
    assert not hasattr(Sphere(1.0), "frechet_mean")


def test_geometry_itself_is_learned_through_zero_curvature() -> None:
    """κ starts flat and finds the sign of the space the distances come from."""
    for target in (-0.6, 0.6):
        truth = Stereographic(target)
        v = 0.5 * torch.randn(
            40, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
        )
        distances = truth.pairwise_dist(truth.exp0(v), truth.exp0(v))
        kappa = nn.Parameter(torch.zeros(1, dtype=torch.float64))
        M = Stereographic(kappa)
        optimizer = torch.optim.Adam([kappa], lr=0.05)
        for _ in range(120):
            optimizer.zero_grad()
            x = M.exp0(v)
            (M.pairwise_dist(x, x) - distances).square().mean().backward()
            optimizer.step()
        assert kappa.item() == pytest.approx(target, rel=0.02)


def test_half_precision_never_leaves_the_ball() -> None:
    ball = PoincareBall(1.0)
    x = torch.tensor([0.9, 0.0], dtype=torch.bfloat16)
    assert torch.isfinite(ball.dist0(ball.retract(x, x)))
    assert torch.isfinite(ball.dist0(ball.random(100, 64, std=3.0))).all()
    assert torch.isfinite(Stereographic(-1.0).dist0(Stereographic(-1.0).retract(x, x)))
