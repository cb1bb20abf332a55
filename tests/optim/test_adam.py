"""Riemannian Adam: against geoopt, torch, flat space, and itself written in other ways."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from beltrami.geometry import (
    Curvature,
    Euclidean,
    Lorentz,
    Manifold,
    PoincareBall,
    Product,
    Sphere,
    Stereographic,
    lorentz,
    poincare,
    stereographic,
)
from beltrami.kernels.rows import row_blocks
from beltrami.optim import RiemannianAdam, RiemannianAdamW
from tests.optim.peer import geoopt
from tests.optim.problems import (
    MyLorentz,
    close,
    forced,
    generator,
    points,
    same,
    sparse,
    steps,
    walk,
    waves,
)

ROWS, SIZE = 6, 4
CURVED = [Lorentz(1.0), Lorentz(0.3), PoincareBall(1.0), PoincareBall(2.5)]
BOTH = [RiemannianAdam, RiemannianAdamW]


# --- geoopt ---------------------------------------------------------------------------------------


def ambient(x: Tensor, c: float) -> Tensor:
    """Points as geoopt stores them, time first."""
    return torch.cat([lorentz.time(x, c, keepdim=True), x], dim=-1)


def as_of_geoopt(lr: float, eps: float = 1e-8) -> dict[str, float]:
    """geoopt's rate is the length of a row's step, ours the mean of a coordinate."""
    return {"lr": lr / SIZE**0.5, "eps": eps / SIZE**0.5}


@pytest.mark.parametrize("c", [1.0, 0.4, 2.0])
@pytest.mark.parametrize("amsgrad", [False, True])
def test_steps_are_those_of_geoopt_on_the_hyperboloid(c: float, amsgrad: bool) -> None:
    H, loss = Lorentz(c), waves(SIZE)
    start = points(H, ROWS, SIZE)
    theirs = geoopt.ManifoldParameter(
        ambient(start, c), manifold=geoopt.Lorentz(k=torch.tensor(1 / c, dtype=torch.float64))
    )
    ours = nn.Parameter(start.clone())
    reference = geoopt.optim.RiemannianAdam([theirs], lr=0.05, amsgrad=amsgrad)
    optimizer = RiemannianAdam([ours], amsgrad=amsgrad, manifold=H, **as_of_geoopt(lr=0.05))
    path = steps(optimizer, [(ours, loss)], 25)
    expected = steps(reference, [(theirs, lambda x: loss(x[..., 1:]))], 25)
    for (mine,), (other,) in zip(path, expected, strict=True):
        close(mine, other[..., 1:], 1e-12)
    state, other = optimizer.state[ours], reference.state[theirs]
    close(SIZE * state["exp_avg_sq"], other["exp_avg_sq"][..., :1], 1e-12)
    # ours is a covector: its tangent vector is theirs
    close(H.riemannian_grad(path[-1][0], state["exp_avg"]), other["exp_avg"][..., 1:], 1e-11)


@pytest.mark.parametrize("c", [1.0, 0.4, 2.0])
@pytest.mark.parametrize("amsgrad", [False, True])
def test_steps_are_those_of_geoopt_in_the_ball(c: float, amsgrad: bool) -> None:
    H, loss = PoincareBall(c), waves(SIZE)
    start = points(H, ROWS, SIZE)
    theirs = geoopt.ManifoldParameter(
        start.clone(), manifold=geoopt.PoincareBallExact(c=torch.tensor(c, dtype=torch.float64))
    )
    ours = nn.Parameter(start.clone())
    reference = geoopt.optim.RiemannianAdam([theirs], lr=0.05, amsgrad=amsgrad)
    optimizer = RiemannianAdam([ours], amsgrad=amsgrad, manifold=H, **as_of_geoopt(lr=0.05))
    path = steps(optimizer, [(ours, loss)], 25)
    expected = steps(reference, [(theirs, loss)], 25)
    for (mine,), (other,) in zip(path, expected, strict=True):
        close(mine, other, 1e-12)


# --- torch ----------------------------------------------------------------------------------------

OPTIONS: list[dict[str, Any]] = [
    {},
    {"amsgrad": True},
    {"maximize": True},
    {"weight_decay": 0.1},
    {"weight_decay": 0.1, "amsgrad": True, "maximize": True},
    {"foreach": True},
    {"foreach": False},
    {"fused": True},
    {"fused": True, "weight_decay": 0.1, "amsgrad": True},
    {"betas": (0.5, 0.7), "eps": 1e-3},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(
    ("make", "reference"),
    [(RiemannianAdam, torch.optim.Adam), (RiemannianAdamW, torch.optim.AdamW)],
)
def test_plain_parameters_are_stepped_by_torch_to_the_last_bit(
    make: Any, reference: Any, options: dict[str, Any]
) -> None:
    """In one optimiser with points."""
    shapes = [(3, 4), (5,), (2, 3, 2), (1,)]
    ours = [nn.Parameter(torch.randn(shape, generator=generator(1))) for shape in shapes]
    theirs = [nn.Parameter(p.detach().clone()) for p in ours]
    table = nn.Parameter(points(Lorentz(), ROWS, SIZE, dtype=torch.float32))
    fused = options.get("fused")
    groups: list[dict[str, Any]] = [
        {"params": [table], "manifold": Lorentz(), "fused": None if fused else fused},
        {"params": ours, "manifold": Euclidean()},
    ]
    optimizer, torchs = make(groups, lr=0.01, **options), reference(theirs, lr=0.01, **options)
    for _ in range(5):
        for p, q in zip(ours, theirs, strict=True):
            p.grad = torch.randn_like(p)
            q.grad = p.grad.clone()
        table.grad = torch.randn_like(table)
        optimizer.step()
        torchs.step()
    assert same([p.detach() for p in ours], [p.detach() for p in theirs])
    for p, q in zip(ours, theirs, strict=True):
        assert same(optimizer.state[p], torchs.state[q])


def test_sparse_gradients_of_plain_parameters_are_stepped_as_by_sparse_adam() -> None:
    """Up to eps, which torch adds at another place in the two: here it is too small to count."""
    start = torch.randn(7, 3, dtype=torch.float64)
    indices = [[0, 3], [3, 5, 3], [1], [0, 6]]
    gradients = [sparse(i, 7, 3, seed=k) for k, i in enumerate(indices)]
    options: dict[str, Any] = {"lr": 0.1, "eps": 1e-30}
    ours, state = forced(
        lambda p: RiemannianAdam(p, manifold=Euclidean(), **options), start, gradients
    )
    theirs, expected = forced(lambda p: torch.optim.SparseAdam(p, **options), start, gradients)
    torch.testing.assert_close(ours, theirs, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(state["exp_avg"], expected["exp_avg"])
    torch.testing.assert_close(state["exp_avg_sq"], expected["exp_avg_sq"])
    assert torch.equal(ours[[2, 4]], start[[2, 4]])  # never named


# --- flat space -----------------------------------------------------------------------------------


def flat_adam(
    start: Tensor,
    loss: Callable[[Tensor], Tensor],
    count: int,
    *,
    lr: float,
    coupled: float = 0.0,
    decoupled: float = 0.0,
) -> Tensor:
    """Adam in flat space with one second moment a row, the mean over its coordinates."""
    x, m, v = start.clone(), torch.zeros_like(start), torch.zeros_like(start[..., :1])
    for t in range(1, count + 1):
        leaf = x.clone().requires_grad_()
        (g,) = torch.autograd.grad(loss(leaf), leaf)
        g = g + coupled * x
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * (g * g).mean(-1, keepdim=True)
        x = x * (1 - lr * decoupled)
        x = x - lr * (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-8)
    return x


@pytest.mark.parametrize("decay", [0.0, 0.3])
@pytest.mark.parametrize("make", BOTH)
def test_as_the_curvature_vanishes_space_is_flat(make: Any, decay: float) -> None:
    start, loss = torch.randn(ROWS, SIZE, dtype=torch.float64), waves(SIZE)
    kind = "decoupled" if make is RiemannianAdamW else "coupled"
    flat = flat_adam(start, loss, 20, lr=0.05, **{kind: decay})  # type: ignore[arg-type]

    def error(c: float) -> float:
        end, _ = walk(
            lambda p: make(p, lr=0.05, weight_decay=decay, manifold=Lorentz(c)), start, loss, 20
        )
        return float((end - flat).abs().max())

    assert error(1e-10) < 1e-8
    assert error(1e-5) < 0.2 * error(1e-4) < 0.04 * error(1e-3)  # O(c)


@pytest.mark.parametrize(
    "manifold", [Lorentz(1.7), PoincareBall(0.6), Stereographic(0.8), MyLorentz(3.0)], ids=repr
)
@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize(
    ("make", "reference"),
    [(RiemannianAdam, torch.optim.Adam), (RiemannianAdamW, torch.optim.AdamW)],
)
def test_on_a_line_it_is_torchs_whatever_the_curvature(
    make: Any, reference: Any, amsgrad: bool, manifold: Manifold
) -> None:
    """One dimension has no curvature: the signed distance from the origin is a flat coordinate."""
    start = points(manifold, ROWS, 1)
    options: dict[str, Any] = {"lr": 0.05, "weight_decay": 0.3, "amsgrad": amsgrad}

    def loss(r: Tensor) -> Tensor:
        return (torch.sin(3 * r) + r**2).sum()

    end, state = walk(
        lambda p: make(p, manifold=manifold, **options),
        start,
        lambda x: loss(manifold.log0(x)),
        20,
    )
    flat, expected = walk(lambda p: reference(p, **options), manifold.log0(start), loss, 20)
    close(manifold.log0(end), flat, 1e-11)
    close(state["exp_avg_sq"], expected["exp_avg_sq"], 1e-11)


@pytest.mark.parametrize("make", BOTH)
def test_the_ball_and_the_hyperboloid_are_one_space(make: Any) -> None:
    """The same loss in two charts: the same path, and the same second moment."""
    H, ball, loss = Lorentz(0.7), PoincareBall(0.7), waves(SIZE)
    start = points(H, ROWS, SIZE)
    options: dict[str, Any] = {"lr": 0.05, "weight_decay": 0.4, "amsgrad": True}
    end, state = walk(lambda p: make(p, manifold=H, **options), start, loss)
    in_ball, other = walk(
        lambda p: make(p, manifold=ball, **options),
        poincare.from_lorentz(start, 0.7),
        lambda b: loss(poincare.to_lorentz(b, 0.7)),
    )
    close(poincare.to_lorentz(in_ball, 0.7), end, 1e-12)
    close(other["max_exp_avg_sq"], state["max_exp_avg_sq"], 1e-12)


# --- isometries -----------------------------------------------------------------------------------


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.floats(0.2, 3.0), st.sampled_from(BOTH))
def test_rotating_the_problem_rotates_the_path(seed: int, c: float, make: Any) -> None:
    rotation, _ = torch.linalg.qr(
        torch.randn(SIZE, SIZE, dtype=torch.float64, generator=generator(seed))
    )
    for H in (Lorentz(c), PoincareBall(c)):
        start, target = points(H, ROWS, SIZE, seed=seed), points(H, ROWS, SIZE, seed=seed + 1)

        def end(start: Tensor, target: Tensor, H: Manifold = H) -> Tensor:
            return walk(
                lambda p: make(p, lr=0.1, weight_decay=0.2, manifold=H),
                start,
                lambda x: H.dist_sq(x, target).sum(),
            )[0]

        close(end(start @ rotation, target @ rotation), end(start, target) @ rotation, 1e-11)


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.floats(0.2, 3.0), st.floats(0.0, 2.0))
def test_boosting_the_problem_boosts_the_path(seed: int, c: float, length: float) -> None:
    """No point is special, unless weight decay makes the origin so."""
    H = Lorentz(c)
    start, target = points(H, ROWS, SIZE, seed=seed), points(H, ROWS, SIZE, seed=seed + 1)
    direction = torch.randn(SIZE, dtype=torch.float64, generator=generator(seed))
    shift = H.exp0(length * direction / direction.norm())

    def end(start: Tensor, target: Tensor) -> Tensor:
        return walk(
            lambda p: RiemannianAdam(p, lr=0.1, manifold=H),
            start,
            lambda x: H.dist_sq(x, target).sum(),
        )[0]

    boosted = end(lorentz.boost(start, shift, c), lorentz.boost(target, shift, c))
    close(boosted, lorentz.boost(end(start, target), shift, c), 1e-9)


# --- weight decay ---------------------------------------------------------------------------------


@pytest.mark.parametrize("manifold", [*CURVED, Sphere(0.5), Stereographic(0.7)], ids=repr)
def test_decoupled_decay_multiplies_the_distance_from_the_origin(manifold: Manifold) -> None:
    start = points(manifold, ROWS, SIZE)
    optimizer = RiemannianAdamW(
        [parameter := nn.Parameter(start.clone())], lr=0.1, weight_decay=0.5, manifold=manifold
    )
    parameter.grad = torch.zeros_like(start)
    optimizer.step()
    expected = 0.95 * manifold.log0(start)
    torch.testing.assert_close(manifold.log0(parameter.detach()), expected, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("manifold", CURVED, ids=repr)
def test_decoupled_decay_carries_the_moment_along(manifold: Manifold) -> None:
    """Its length is kept; one step with a gradient, then decay alone at learning rate 0 + decay."""
    start = points(manifold, ROWS, SIZE)
    parameter = nn.Parameter(start.clone())
    # betas of 1 − ε: the moment is kept as it is; eps so large that nothing but decay moves points
    optimizer = RiemannianAdamW(
        [parameter],
        lr=0.1,
        betas=(1 - 1e-15, 0.999),
        eps=1e30,
        weight_decay=5.0,
        manifold=manifold,
    )
    parameter.grad = torch.zeros_like(start)
    optimizer.step()
    moment = torch.randn(ROWS, SIZE, dtype=torch.float64)
    optimizer.state[parameter]["exp_avg"].copy_(moment)
    before, vector = (
        parameter.detach().clone(),
        manifold.riemannian_grad(parameter.detach(), moment),
    )
    optimizer.step()
    after = parameter.detach()
    torch.testing.assert_close(manifold.dist0(after), 0.5 * manifold.dist0(before))
    carried = manifold.riemannian_grad(after, optimizer.state[parameter]["exp_avg"])
    torch.testing.assert_close(carried, manifold.transport(before, after, vector))
    torch.testing.assert_close(manifold.norm(after, carried), manifold.norm(before, vector))


@pytest.mark.parametrize("manifold", [*CURVED, Stereographic(-0.5), Sphere(0.5)], ids=repr)
def test_coupled_decay_is_a_term_of_the_loss(manifold: Manifold) -> None:
    start, loss = points(manifold, ROWS, SIZE), waves(SIZE)

    def decayed(x: Tensor) -> Tensor:
        return loss(x) + 0.3 / 2 * manifold.dist0(x).square().sum()

    end, state = walk(
        lambda p: RiemannianAdam(p, lr=0.05, weight_decay=0.3, manifold=manifold), start, loss
    )
    other, expected = walk(lambda p: RiemannianAdam(p, lr=0.05, manifold=manifold), start, decayed)
    close(end, other, 1e-12)
    close(state["exp_avg_sq"], expected["exp_avg_sq"], 1e-11)


# --- sparse gradients -----------------------------------------------------------------------------


@pytest.mark.parametrize("manifold", [*CURVED, Sphere(0.5)], ids=repr)
@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("make", BOTH)
def test_sparse_equals_dense_if_all_rows_have_gradients(
    make: Any, amsgrad: bool, manifold: Manifold
) -> None:
    start = points(manifold, ROWS, SIZE)
    gradients = [sparse([*range(ROWS), 2, 2], ROWS, SIZE, seed=k) for k in range(4)]

    def run(gradients: list[Tensor]) -> Any:
        return forced(
            lambda p: make(p, lr=0.05, weight_decay=0.3, amsgrad=amsgrad, manifold=manifold),
            start,
            gradients,
        )

    assert same(run(gradients), run([g.to_dense() for g in gradients]))


@pytest.mark.parametrize("manifold", [Lorentz(0.7), PoincareBall(), Sphere(0.5)], ids=repr)
def test_rows_without_gradient_are_not_touched(manifold: Manifold) -> None:
    """Neither by their old moment nor by decay; the others move as if they were alone."""
    start = points(manifold, ROWS, SIZE)
    parameter = nn.Parameter(start.clone())
    optimizer = RiemannianAdamW([parameter], lr=0.05, weight_decay=0.3, manifold=manifold)
    parameter.grad = sparse([*range(ROWS)], ROWS, SIZE)
    optimizer.step()
    state = optimizer.state[parameter]
    before = {name: value.clone() for name, value in state.items()}
    old = parameter.detach().clone()
    parameter.grad = sparse([1, 4, 1], ROWS, SIZE, seed=1)
    optimizer.step()
    named, others = [1, 4], [0, 2, 3, 5]
    assert torch.equal(parameter.detach()[others], old[others])
    assert (parameter.detach()[named] != old[named]).all()
    for name in ("exp_avg", "exp_avg_sq"):
        assert torch.equal(state[name][others], before[name][others])
        assert (state[name][named] != before[name][named]).all()
    assert state["step"] == 2


def test_a_sparse_gradient_without_rows_and_one_of_three_dimensions() -> None:
    H = Lorentz(Curvature(1.0, size=2))
    start = points(H, 5, 2, 3)
    end, _ = forced(
        lambda p: RiemannianAdam(p, manifold=H),
        start,
        [sparse([], 5, 2, 3), sparse([3, 0, 3], 5, 2, 3)],
    )
    moved = (end != start).flatten(1).any(-1)
    assert moved.tolist() == [True, False, False, True, False]


# --- products and other manifolds -----------------------------------------------------------------


@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("make", BOTH)
def test_a_product_is_its_factors_side_by_side(make: Any, amsgrad: bool) -> None:
    inner = Product([(Lorentz(2.0), 2), (Stereographic(-0.5), 2)])
    parts: list[tuple[Manifold, int, int]] = [
        (Lorentz(1.0), 3, 1),
        (Lorentz(0.4), 2, 3),
        (PoincareBall(1.5), 3, 1),
        (Sphere(1.0), 3, 2),
        (inner, 4, 2),
    ]
    product = Product(parts)
    start = points(product, ROWS, product.size)
    gradients = [torch.randn(ROWS, product.size, dtype=torch.float64) for _ in range(6)]
    options: dict[str, Any] = {"lr": 0.1, "weight_decay": 0.2, "amsgrad": amsgrad}
    end, state = forced(lambda p: make(p, manifold=product, **options), start, gradients)
    assert state["exp_avg_sq"].shape == (ROWS, 1 + 3 + 1 + 2 + 4)

    column = number = 0
    for manifold, size, count in parts:
        for _ in range(count):
            columns = slice(column, column + size)
            alone, other = forced(
                lambda p, m=manifold: make(p, manifold=m, **options),  # type: ignore[misc]
                start[:, columns],
                [g[:, columns] for g in gradients],
            )
            torch.testing.assert_close(end[:, columns], alone, rtol=1e-13, atol=1e-13)
            width = other["exp_avg_sq"].shape[-1]
            for name in ("exp_avg_sq", *(["max_exp_avg_sq"] if amsgrad else [])):
                mine = state[name][:, number : number + width]
                torch.testing.assert_close(mine, other[name], rtol=1e-13, atol=0)
            column, number = column + size, number + width
    assert column == product.size


def test_a_flat_factor_has_one_second_moment_a_row_too() -> None:
    product = Product([(Lorentz(), 2), (Euclidean(), SIZE)])
    loss = waves(SIZE)
    start = torch.randn(ROWS, product.size, dtype=torch.float64)
    end, _ = walk(
        lambda p: RiemannianAdamW(p, lr=0.05, weight_decay=0.3, manifold=product),
        start,
        lambda x: loss(x[:, 2:]),
        20,
    )
    flat = flat_adam(start[:, 2:], loss, 20, lr=0.05, decoupled=0.3)
    close(end[:, 2:], flat, 1e-12)


@pytest.mark.parametrize("model", [Lorentz, PoincareBall])
@pytest.mark.parametrize("make", BOTH)
def test_several_curvatures_are_each_their_own(make: Any, model: Any) -> None:
    curvature = Curvature(1.0, size=3).double()
    with torch.no_grad():
        curvature.raw.copy_(torch.tensor([-0.5, 0.0, 0.9]))
    manifold = model(curvature)
    start = points(model(2.5), 5, 3, SIZE, std=0.2)  # inside the ball of each
    gradients = [torch.randn(5, 3, SIZE, dtype=torch.float64) for _ in range(6)]
    options: dict[str, Any] = {"lr": 0.1, "weight_decay": 0.2}
    end, state = forced(lambda p: make(p, manifold=manifold, **options), start, gradients)
    assert state["exp_avg_sq"].shape == (5, 3, 1)
    product = Product([(manifold, SIZE, 3)])
    flat, _ = forced(
        lambda p: make(p, manifold=product, **options),
        start.flatten(1),
        [g.flatten(1) for g in gradients],
    )
    assert torch.equal(flat.view_as(end), end)
    for i, c in enumerate(curvature.value.flatten().tolist()):
        alone, _ = forced(
            lambda p, c=c: make(p, manifold=model(c), **options),  # type: ignore[misc]
            start[:, i],
            [g[:, i] for g in gradients],
        )
        close(end[:, i], alone, 1e-13)


@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("decay", [0.0, 0.3])
@pytest.mark.parametrize("make", BOTH)
def test_a_manifold_of_ones_own_is_stepped_by_its_methods(
    make: Any, decay: float, amsgrad: bool
) -> None:
    options: dict[str, Any] = {"lr": 0.05, "weight_decay": decay, "amsgrad": amsgrad}
    loss = waves(SIZE)
    pairs: list[tuple[Manifold, Manifold]] = [
        (MyLorentz(0.7), Lorentz(0.7)),
        (Stereographic(-0.7), PoincareBall(0.7)),
    ]
    for own, known in pairs:
        start = points(known, ROWS, SIZE)
        end, state = walk(lambda p, m=own: make(p, manifold=m, **options), start, loss, 20)  # type: ignore[misc]
        other, expected = walk(
            lambda p, m=known: make(p, manifold=m, **options),  # type: ignore[misc]
            start,
            loss,
            20,
        )
        close(end, other, 1e-12)
        close(state["exp_avg_sq"], expected["exp_avg_sq"], 1e-12)
        # tangent vectors there, covectors here
        close(state["exp_avg"], known.riemannian_grad(other, expected["exp_avg"]), 1e-10)


@pytest.mark.parametrize("make", BOTH)
def test_a_sphere_and_its_stereographic_picture_are_one_space(make: Any) -> None:
    sphere, plane, loss = Sphere(0.7), Stereographic(0.7), waves(SIZE)
    start = points(plane, ROWS, SIZE)
    options: dict[str, Any] = {"lr": 0.05, "weight_decay": 0.2}
    end, _ = walk(lambda p: make(p, manifold=plane, **options), start, loss, 20)
    other, _ = walk(
        lambda p: make(p, manifold=sphere, **options),
        stereographic.to_sphere(start, 0.7),
        lambda x: loss(stereographic.from_sphere(x, 0.7)),
        20,
    )
    close(stereographic.from_sphere(other, 0.7), end, 1e-11)
    torch.testing.assert_close(other.norm(dim=-1), torch.full((ROWS,), 0.7**-0.5).double())


# --- many parameters, shapes, dtypes --------------------------------------------------------------


@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("make", BOTH)
def test_parameters_stepped_together_move_as_each_alone(make: Any, amsgrad: bool) -> None:
    """Of several widths and dtypes, some joining late, some without gradient now and then."""
    product = Product([(Lorentz(), 3), (PoincareBall(), 2)])
    shapes = [(4, 3), (5,), (2, 3, 3), (7, 5), (3,), (0, 3), (5, 5), (1, 1, 3)]
    for manifold in (Lorentz(0.7), PoincareBall(0.7), MyLorentz(0.7), product):
        starts = [
            points(PoincareBall(), *shape, seed=i, std=0.2)
            for i, shape in enumerate(shapes)
            if manifold is not product or shape[-1] == 5
        ]
        starts += [start.float() for start in starts]
        forces = [[torch.randn_like(s) for s in starts] for _ in range(5)]
        options: dict[str, Any] = {"lr": 0.1, "weight_decay": 0.2, "amsgrad": amsgrad}

        def run(
            foreach: bool | None,
            manifold: Manifold = manifold,
            starts: list[Tensor] = starts,
            forces: list[list[Tensor]] = forces,
            options: dict[str, Any] = options,
        ) -> Any:
            params = [nn.Parameter(s.clone()) for s in starts]
            optimizer = make(params, manifold=manifold, foreach=foreach, **options)
            for turn, gradients in enumerate(forces):
                for i, (p, g) in enumerate(zip(params, gradients, strict=True)):
                    absent = (turn == 0 and i % 3 == 1) or (turn == 2 and i % 4 == 2)
                    p.grad = None if absent else g.clone()
                optimizer.step()
            return [(p.detach(), optimizer.state[p]) for p in params]

        together = run(None)
        assert same(together, run(True))
        alone = run(False)
        for (x, state), (y, other) in zip(together, alone, strict=True):
            torch.testing.assert_close(
                x, y, rtol=1e-6 if x.dtype == torch.float32 else 1e-14, atol=1e-14
            )
            assert same(state["step"], other["step"])
            torch.testing.assert_close(state["exp_avg_sq"], other["exp_avg_sq"])
        assert {float(state["step"]) for _, state in together} == {4.0, 5.0, 3.0} - (
            {3.0} if len(starts) < 8 else set()
        )


@pytest.mark.parametrize("manifold", [Lorentz(0.7), PoincareBall(0.7)], ids=repr)
def test_large_tables_are_stepped_block_by_block(
    manifold: Manifold, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = points(manifold, 50, 2, SIZE)
    gradients = [torch.randn_like(start) for _ in range(3)]

    def run() -> Any:
        return forced(
            lambda p: RiemannianAdam(p, lr=0.1, amsgrad=True, manifold=manifold), start, gradients
        )

    whole = run()
    monkeypatch.setattr(row_blocks, "_BLOCK_ELEMENTS", 56)  # 7 rows: the last block is shorter
    assert len(list(row_blocks.row_blocks(start, 1.0))) == 8
    assert same(whole, run())


@pytest.mark.parametrize("manifold", [Lorentz(0.7), PoincareBall(0.7), Sphere(1.0)], ids=repr)
def test_parameters_that_are_not_contiguous(manifold: Manifold) -> None:
    start = points(manifold, ROWS, SIZE)
    gradients = [torch.randn_like(start) for _ in range(3)]
    expected, _ = forced(lambda p: RiemannianAdam(p, lr=0.1, manifold=manifold), start, gradients)
    parameter = nn.Parameter(start.t().contiguous().t())
    assert not parameter.is_contiguous()
    optimizer = RiemannianAdam([parameter], lr=0.1, manifold=manifold)
    for gradient in gradients:
        parameter.grad = gradient
        optimizer.step()
    assert torch.equal(parameter.detach(), expected)


@pytest.mark.parametrize("manifold", [*CURVED, Sphere(1.0)], ids=repr)
def test_maximising_is_minimising_the_negative(manifold: Manifold) -> None:
    start, loss = points(manifold, ROWS, SIZE), waves(SIZE)
    up = walk(lambda p: RiemannianAdam(p, maximize=True, manifold=manifold), start, loss)
    down = walk(lambda p: RiemannianAdam(p, manifold=manifold), start, lambda x: -loss(x))
    assert same(up, down)


@pytest.mark.parametrize("make", BOTH)
def test_a_learning_rate_may_be_a_tensor(make: Any) -> None:
    start, loss = points(Lorentz(), ROWS, SIZE), waves(SIZE)
    lr = torch.tensor(0.05, dtype=torch.float64)
    options: dict[str, Any] = {"weight_decay": 0.1, "manifold": Lorentz()}
    end, _ = walk(lambda p: make(p, lr=lr, **options), start, loss)
    other, _ = walk(lambda p: make(p, lr=0.05, **options), start, loss)
    close(end, other, 1e-14)


@pytest.mark.parametrize("manifold", [Lorentz(0.7), PoincareBall(0.7), Sphere(1.0)], ids=repr)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_float32_rounded(manifold: Manifold, dtype: torch.dtype) -> None:
    """One step: computed in float32, the second moment kept there."""
    start = points(manifold, 50, SIZE, dtype=torch.float32).to(dtype)
    gradient = torch.randn(50, SIZE).to(dtype)
    options: dict[str, Any] = {"lr": 0.3, "weight_decay": 0.1, "manifold": manifold}
    end, state = forced(lambda p: RiemannianAdam(p, **options), start, [gradient])
    wide, other = forced(lambda p: RiemannianAdam(p, **options), start.float(), [gradient.float()])
    assert end.dtype == state["exp_avg"].dtype == dtype
    assert state["exp_avg_sq"].dtype == torch.float32
    torch.testing.assert_close(end, wide.to(dtype))
    torch.testing.assert_close(state["exp_avg_sq"], other["exp_avg_sq"])


@pytest.mark.parametrize("manifold", [PoincareBall(0.7), Stereographic(-0.7)], ids=repr)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_no_precision_lets_a_point_out_of_the_ball(manifold: Manifold, dtype: torch.dtype) -> None:
    """Nor its moment grow at the border, where every step is cut short."""
    parameter = nn.Parameter(points(manifold, 50, SIZE, dtype=torch.float32).to(dtype))
    optimizer = RiemannianAdam([parameter], lr=0.5, manifold=manifold)
    for _ in range(60):
        optimizer.zero_grad()
        (-manifold.dist0(parameter).sum()).backward()
        optimizer.step()
        manifold.check_point(parameter.detach())
    state = optimizer.state[parameter]
    moment = state["exp_avg"].float()
    if isinstance(manifold, PoincareBall):
        moment = manifold.riemannian_grad(parameter.detach().float(), moment)
    length = manifold.norm(parameter.detach().float(), moment)
    assert length.isfinite().all()
    assert length.max() < 2  # of a gradient of length 1


def test_a_curvature_of_another_precision_than_the_points() -> None:
    curvature = Curvature(0.7).double()
    start = points(Lorentz(), ROWS, SIZE, dtype=torch.float32)
    gradients = [torch.randn_like(start)]
    end, _ = forced(lambda p: RiemannianAdam(p, manifold=Lorentz(curvature)), start, gradients)
    other, _ = forced(lambda p: RiemannianAdam(p, manifold=Lorentz(0.7)), start, gradients)
    torch.testing.assert_close(end, other)


def test_a_step_that_float32_cannot_hold_is_not_taken() -> None:
    """At radius 44 squares overflow; a point that is driven out for ever stays before that."""
    H = Lorentz(1.0)
    parameter = nn.Parameter(H.exp0(torch.tensor([[39.0, 0.0, 0.0], [1.0, 0.0, 0.0]])))
    optimizer = RiemannianAdam([parameter], lr=1.0, manifold=H)
    for _ in range(12):
        parameter.grad = -parameter.detach() / (1 + parameter.detach().square().sum(-1, True))
        optimizer.step()
        assert H.dist_sq(parameter.detach(), -parameter.detach()).isfinite().all()
    assert 40 < H.dist0(parameter.detach()[0]) < 44.1
    assert H.dist0(parameter.detach()[1]) > 10  # the other row went on


def test_without_a_learning_rate_nothing_moves() -> None:
    """As in the first step of a warm-up: decay times 0 is no reason to round."""
    for manifold in (Lorentz(1.0), PoincareBall(1.0)):
        table = nn.Parameter(points(manifold, 50, 4, std=2.0))
        before = table.detach().clone()
        optimizer = RiemannianAdamW([table], lr=0.0, weight_decay=0.1, manifold=manifold)
        for _ in range(5):
            table.grad = torch.zeros_like(table)
            optimizer.step()
        assert torch.equal(table, before)
