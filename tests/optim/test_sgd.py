"""Riemannian SGD: against geoopt, torch, flat space, and itself written in other ways."""

from __future__ import annotations

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
)
from beltrami.kernels.rows import row_blocks
from beltrami.optim import RiemannianSGD
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
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "momentum": {"momentum": 0.9},
    "dampening": {"momentum": 0.9, "dampening": 0.3},
    "nesterov": {"momentum": 0.9, "nesterov": True},
    "decay": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.3},
    "maximize": {"momentum": 0.5, "weight_decay": 0.1, "maximize": True},
}
every_option = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)


# --- geoopt ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("c", [1.0, 0.4, 2.0])
@pytest.mark.parametrize("model", [Lorentz, PoincareBall])
@pytest.mark.parametrize("name", ["plain", "momentum", "nesterov"])
def test_steps_are_those_of_geoopt(name: str, model: Any, c: float) -> None:
    """With its momentum started at 0: it starts with the Euclidean gradient, no tangent vector."""
    manifold, loss, options = model(c), waves(SIZE), OPTIONS[name]
    start = points(manifold, ROWS, SIZE)
    number = torch.tensor(c, dtype=torch.float64)
    if model is Lorentz:
        there = torch.cat([lorentz.time(start, c, keepdim=True), start], -1)
        theirs = geoopt.ManifoldParameter(there, manifold=geoopt.Lorentz(k=1 / number))
    else:
        theirs = geoopt.ManifoldParameter(
            start.clone(), manifold=geoopt.PoincareBallExact(c=number)
        )
    first = 1 if model is Lorentz else 0  # geoopt's time coordinate
    reference = geoopt.optim.RiemannianSGD([theirs], lr=0.01, **options)
    if options:
        reference.state[theirs]["momentum_buffer"] = torch.zeros_like(theirs)
    ours = nn.Parameter(start.clone())
    optimizer = RiemannianSGD([ours], lr=0.01, manifold=manifold, **options)
    path = steps(optimizer, [(ours, loss)], 25)
    expected = steps(reference, [(theirs, lambda x: loss(x[..., first:]))], 25)
    for (mine,), (other,) in zip(path, expected, strict=True):
        close(mine, other[..., first:], 1e-12)


# --- torch ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("foreach", [None, True, False])
@every_option
def test_plain_parameters_are_stepped_by_torch_to_the_last_bit(
    options: dict[str, Any], foreach: bool | None
) -> None:
    """In one optimiser with points."""
    shapes = [(3, 4), (5,), (2, 3, 2), (1,)]
    ours = [nn.Parameter(torch.randn(shape, generator=generator(1))) for shape in shapes]
    theirs = [nn.Parameter(p.detach().clone()) for p in ours]
    table = nn.Parameter(points(Lorentz(), ROWS, SIZE, dtype=torch.float32))
    groups = [
        {"params": [table], "manifold": Lorentz()},
        {"params": ours, "manifold": Euclidean()},
    ]
    optimizer = RiemannianSGD(groups, lr=0.01, foreach=foreach, **options)
    torchs = torch.optim.SGD(theirs, lr=0.01, foreach=foreach, **options)
    for _ in range(5):
        for p, q in zip(ours, theirs, strict=True):
            p.grad = torch.randn_like(p)
            q.grad = p.grad.clone()
        table.grad = torch.randn_like(table)
        optimizer.step()
        torchs.step()
    assert same([p.detach() for p in ours], [p.detach() for p in theirs])
    if "momentum" in options:
        for p, q in zip(ours, theirs, strict=True):
            assert same(optimizer.state[p], torchs.state[q])


def test_sparse_gradients_of_plain_parameters_are_torchs() -> None:
    start = torch.randn(7, 3, dtype=torch.float64)
    gradients = [sparse(rows, 7, 3) for rows in ([0, 3], [3, 5, 3], [1])]
    ours, _ = forced(lambda p: RiemannianSGD(p, lr=0.1, manifold=Euclidean()), start, gradients)
    theirs, _ = forced(lambda p: torch.optim.SGD(p, lr=0.1), start, gradients)
    assert torch.equal(ours, theirs)


# --- flat space -----------------------------------------------------------------------------------


@every_option
def test_as_the_curvature_vanishes_it_is_torchs(options: dict[str, Any]) -> None:
    start, loss = torch.randn(ROWS, SIZE, dtype=torch.float64), waves(SIZE)
    flat, _ = walk(lambda p: torch.optim.SGD(p, lr=0.02, **options), start, loss)

    def error(c: float) -> float:
        end, _ = walk(
            lambda p: RiemannianSGD(p, lr=0.02, manifold=Lorentz(c), **options), start, loss
        )
        return float((end - flat).abs().max())

    assert error(1e-10) < 1e-8
    assert error(1e-5) < 0.2 * error(1e-4) < 0.04 * error(1e-3)  # O(c)


@every_option
def test_the_ball_and_the_hyperboloid_are_one_space(options: dict[str, Any]) -> None:
    H, ball, loss = Lorentz(0.7), PoincareBall(0.7), waves(SIZE)
    start = points(H, ROWS, SIZE)
    end, _ = walk(lambda p: RiemannianSGD(p, lr=0.02, manifold=H, **options), start, loss)
    in_ball, _ = walk(
        lambda p: RiemannianSGD(p, lr=0.02, manifold=ball, **options),
        poincare.from_lorentz(start, 0.7),
        lambda b: loss(poincare.to_lorentz(b, 0.7)),
    )
    close(poincare.to_lorentz(in_ball, 0.7), end, 1e-11)


@every_option
@pytest.mark.parametrize(
    "manifold", [Lorentz(1.7), PoincareBall(0.6), Stereographic(0.8), MyLorentz(3.0)], ids=repr
)
def test_on_a_line_it_is_torchs_whatever_the_curvature(
    manifold: Manifold, options: dict[str, Any]
) -> None:
    """One dimension has no curvature: the signed distance from the origin is a flat coordinate."""
    start = points(manifold, ROWS, 1)

    def loss(r: Tensor) -> Tensor:
        return (torch.sin(3 * r) + r**2).sum()

    end, _ = walk(
        lambda p: RiemannianSGD(p, lr=0.02, manifold=manifold, **options),
        start,
        lambda x: loss(manifold.log0(x)),
    )
    flat, _ = walk(lambda p: torch.optim.SGD(p, lr=0.02, **options), manifold.log0(start), loss)
    close(manifold.log0(end), flat, 1e-12)


# --- isometries -----------------------------------------------------------------------------------


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.floats(0.2, 3.0), st.sampled_from(sorted(OPTIONS)))
def test_rotating_the_problem_rotates_the_path(seed: int, c: float, name: str) -> None:
    rotation, _ = torch.linalg.qr(
        torch.randn(SIZE, SIZE, dtype=torch.float64, generator=generator(seed))
    )
    for H in (Lorentz(c), PoincareBall(c)):
        start, target = points(H, ROWS, SIZE, seed=seed), points(H, ROWS, SIZE, seed=seed + 1)

        def end(start: Tensor, target: Tensor, H: Manifold = H) -> Tensor:
            return walk(
                lambda p: RiemannianSGD(p, lr=0.02, manifold=H, **OPTIONS[name]),
                start,
                lambda x: H.dist_sq(x, target).sum(),
            )[0]

        close(end(start @ rotation, target @ rotation), end(start, target) @ rotation, 1e-11)


@settings(max_examples=15)
@given(
    st.integers(0, 10**6),
    st.floats(0.2, 3.0),
    st.floats(0.0, 2.0),
    st.sampled_from(["plain", "momentum", "dampening", "nesterov"]),
)
def test_boosting_the_problem_boosts_the_path(
    seed: int, c: float, length: float, name: str
) -> None:
    """No point is special, unless weight decay makes the origin so."""
    H = Lorentz(c)
    start, target = points(H, ROWS, SIZE, seed=seed), points(H, ROWS, SIZE, seed=seed + 1)
    direction = torch.randn(SIZE, dtype=torch.float64, generator=generator(seed))
    shift = H.exp0(length * direction / direction.norm())

    def end(start: Tensor, target: Tensor) -> Tensor:
        return walk(
            lambda p: RiemannianSGD(p, lr=0.02, manifold=H, **OPTIONS[name]),
            start,
            lambda x: H.dist_sq(x, target).sum(),
        )[0]

    boosted = end(lorentz.boost(start, shift, c), lorentz.boost(target, shift, c))
    close(boosted, lorentz.boost(end(start, target), shift, c), 1e-9)


# --- momentum and decay ---------------------------------------------------------------------------


@pytest.mark.parametrize("manifold", CURVED, ids=repr)
def test_without_gradients_momentum_follows_its_geodesic(manifold: Manifold) -> None:
    """μ = 1 − ε: one push, and the point goes on at the same speed in the same direction."""
    start = points(manifold, ROWS, SIZE)
    push = torch.randn(ROWS, SIZE, dtype=torch.float64)
    still = torch.zeros_like(push)
    velocity = -0.05 * manifold.riemannian_grad(start, push)
    for nesterov in (False, True):
        parameter = nn.Parameter(start.clone())
        optimizer = RiemannianSGD(
            [parameter], lr=0.05, momentum=1 - 1e-16, nesterov=nesterov, manifold=manifold
        )
        for turn in range(5):
            parameter.grad = push if turn == 0 else still
            optimizer.step()
            # Nesterov's first step is g + μg
            time = turn + 1 + nesterov
            expected = manifold.exp(start, time * velocity)
            close(parameter.detach(), expected, 1e-12)
        momentum = optimizer.state[parameter]["momentum_buffer"]
        now = manifold.riemannian_grad(parameter.detach(), momentum)
        before = manifold.riemannian_grad(start, push)
        close(now, manifold.transport(start, parameter.detach(), before), 1e-12)


@pytest.mark.parametrize("manifold", [*CURVED, Stereographic(-0.5), Sphere(0.5)], ids=repr)
def test_decay_is_a_term_of_the_loss(manifold: Manifold) -> None:
    start, loss = points(manifold, ROWS, SIZE), waves(SIZE)

    def decayed(x: Tensor) -> Tensor:
        return loss(x) + 0.3 / 2 * manifold.dist0(x).square().sum()

    options: dict[str, Any] = {"lr": 0.02, "momentum": 0.9, "manifold": manifold}
    end, _ = walk(lambda p: RiemannianSGD(p, weight_decay=0.3, **options), start, loss)
    other, _ = walk(lambda p: RiemannianSGD(p, **options), start, decayed)
    close(end, other, 1e-12)


def test_decay_alone_takes_a_constant_part_of_the_way_home() -> None:
    H = Lorentz(0.7)
    start = points(H, ROWS, SIZE)
    still = torch.zeros_like(start)
    end, _ = forced(
        lambda p: RiemannianSGD(p, lr=0.1, weight_decay=0.5, manifold=H), start, [still, still]
    )
    close(H.log0(end), 0.95**2 * H.log0(start), 1e-13)


# --- sparse gradients -----------------------------------------------------------------------------


@pytest.mark.parametrize("manifold", [*CURVED, Sphere(0.5)], ids=repr)
@pytest.mark.parametrize("name", ["plain", "momentum", "nesterov", "decay"])
def test_sparse_equals_dense_if_all_rows_have_gradients(name: str, manifold: Manifold) -> None:
    start = points(manifold, ROWS, SIZE)
    gradients = [sparse([*range(ROWS), 2, 2], ROWS, SIZE, seed=k) for k in range(4)]

    def run(gradients: list[Tensor]) -> Tensor:
        return forced(
            lambda p: RiemannianSGD(p, lr=0.02, manifold=manifold, **OPTIONS[name]),
            start,
            gradients,
        )[0]

    torch.testing.assert_close(
        run(gradients), run([g.to_dense() for g in gradients]), rtol=1e-14, atol=1e-14
    )


@pytest.mark.parametrize("manifold", [Lorentz(0.7), PoincareBall(), Sphere(0.5)], ids=repr)
def test_rows_without_gradient_are_not_touched(manifold: Manifold) -> None:
    start = points(manifold, ROWS, SIZE)
    parameter = nn.Parameter(start.clone())
    optimizer = RiemannianSGD(
        [parameter], lr=0.02, momentum=0.9, weight_decay=0.3, manifold=manifold
    )
    parameter.grad = sparse([*range(ROWS)], ROWS, SIZE)
    optimizer.step()
    momentum = optimizer.state[parameter]["momentum_buffer"]
    old, before = parameter.detach().clone(), momentum.clone()
    parameter.grad = sparse([1, 4, 1], ROWS, SIZE, seed=1)
    optimizer.step()
    named, others = [1, 4], [0, 2, 3, 5]
    assert torch.equal(parameter.detach()[others], old[others])
    assert torch.equal(momentum[others], before[others])
    assert (parameter.detach()[named] != old[named]).all()
    assert (momentum[named] != before[named]).all()


def test_the_first_gradient_of_a_sparse_row_is_damped_whenever_it_comes() -> None:
    """A dense one is not, as in torch; but which row had its first is not kept."""
    H = Lorentz(0.7)
    start = torch.zeros(2, 3, dtype=torch.float64)
    gradient = sparse([0], 2, 3).to_dense()[0]
    rows = [
        torch.sparse_coo_tensor(torch.tensor([[i]]), gradient[None], (2, 3), check_invariants=True)
        for i in range(2)
    ]
    end, _ = forced(
        lambda p: RiemannianSGD(p, lr=0.1, momentum=0.9, dampening=0.25, manifold=H), start, rows
    )
    assert torch.equal(end[0], end[1])
    close(H.log0(end[0]), -0.1 * 0.75 * gradient, 1e-13)


# --- products and other manifolds -----------------------------------------------------------------


@every_option
def test_a_product_is_its_factors_side_by_side(options: dict[str, Any]) -> None:
    inner = Product([(Lorentz(2.0), 2), (Euclidean(), 2)])
    parts: list[tuple[Manifold, int, int]] = [
        (Lorentz(1.0), 3, 1),
        (Lorentz(0.4), 2, 3),
        (PoincareBall(1.5), 3, 1),
        (Sphere(1.0), 3, 2),
        (inner, 4, 2),
        (Euclidean(), 3, 1),
    ]
    product = Product(parts)
    start = points(product, ROWS, product.size)
    gradients = [torch.randn(ROWS, product.size, dtype=torch.float64) for _ in range(6)]
    options = {"lr": 0.02, **options}
    end, state = forced(lambda p: RiemannianSGD(p, manifold=product, **options), start, gradients)
    column = 0
    for manifold, size, count in parts:
        for _ in range(count):
            columns = slice(column, column + size)
            alone, other = forced(
                lambda p, m=manifold: RiemannianSGD(p, manifold=m, **options),  # type: ignore[misc]
                start[:, columns],
                [g[:, columns] for g in gradients],
            )
            torch.testing.assert_close(end[:, columns], alone, rtol=1e-13, atol=1e-13)
            if state:
                mine = state["momentum_buffer"][:, columns]
                torch.testing.assert_close(mine, other["momentum_buffer"], rtol=1e-12, atol=1e-13)
            column += size
    assert column == product.size


@pytest.mark.parametrize("model", [Lorentz, PoincareBall])
def test_several_curvatures_are_each_their_own(model: Any) -> None:
    """Alone and together with other parameters, and in the first dimension as in a later one."""
    curvature = Curvature(1.0, size=3).double()
    with torch.no_grad():
        curvature.raw.copy_(torch.tensor([-0.5, 0.0, 0.9]))
    starts = [points(model(2.5), *shape, std=0.2) for shape in ((5, 3, SIZE), (3, SIZE))]
    forces = [[torch.randn_like(s) for s in starts] for _ in range(4)]
    options: dict[str, Any] = {"lr": 0.02, "momentum": 0.9, "nesterov": True}
    params = [nn.Parameter(s.clone()) for s in starts]
    optimizer = RiemannianSGD(params, manifold=model(curvature), **options)
    for gradients in forces:
        for p, g in zip(params, gradients, strict=True):
            p.grad = g
        optimizer.step()
    for n, (parameter, start) in enumerate(zip(params, starts, strict=True)):
        for i, c in enumerate(curvature.value.flatten().tolist()):
            alone, _ = forced(
                lambda p, c=c: RiemannianSGD(p, manifold=model(c), **options),  # type: ignore[misc]
                start[..., i, :],
                [gradients[n][..., i, :] for gradients in forces],
            )
            close(parameter.detach()[..., i, :], alone, 1e-13)


@every_option
def test_a_manifold_of_ones_own_is_stepped_by_its_methods(options: dict[str, Any]) -> None:
    loss = waves(SIZE)
    pairs: list[tuple[Manifold, Manifold]] = [
        (MyLorentz(0.7), Lorentz(0.7)),
        (Stereographic(-0.7), PoincareBall(0.7)),
    ]
    for own, known in pairs:
        start = points(known, ROWS, SIZE)
        ends = [
            walk(
                lambda p, m=m: RiemannianSGD(p, lr=0.02, manifold=m, **options),  # type: ignore[misc]
                start,
                loss,
                20,
            )[0]
            for m in (own, known)
        ]
        close(ends[0], ends[1], 1e-12)


# --- many parameters, shapes, dtypes --------------------------------------------------------------


@every_option
def test_parameters_stepped_together_move_as_each_alone(options: dict[str, Any]) -> None:
    """Of several widths, some joining late."""
    shapes = [(4, 3), (5,), (2, 3, 3), (7, 5), (3,), (0, 3), (5, 5), (1, 1, 3)]
    for manifold in (Lorentz(0.7), PoincareBall(0.7), MyLorentz(0.7)):
        starts = [points(PoincareBall(), *s, seed=i, std=0.2) for i, s in enumerate(shapes)]
        forces = [[torch.randn_like(s) for s in starts] for _ in range(4)]

        def run(
            foreach: bool | None,
            manifold: Manifold = manifold,
            starts: list[Tensor] = starts,
            forces: list[list[Tensor]] = forces,
        ) -> list[Tensor]:
            params = [nn.Parameter(s.clone()) for s in starts]
            optimizer = RiemannianSGD(params, 0.02, manifold=manifold, foreach=foreach, **options)
            for turn, gradients in enumerate(forces):
                for i, (p, g) in enumerate(zip(params, gradients, strict=True)):
                    p.grad = None if turn == 0 and i % 3 == 1 else g.clone()
                optimizer.step()
            return [p.detach() for p in params]

        together, alone = run(None), run(False)
        assert same(together, run(True))
        for x, y in zip(together, alone, strict=True):
            torch.testing.assert_close(x, y, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("manifold", [Lorentz(0.7), PoincareBall(0.7), Sphere(1.0)], ids=repr)
def test_large_tables_are_stepped_block_by_block(
    manifold: Manifold, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = points(manifold, 50, 2, SIZE)
    gradients = [torch.randn_like(start) for _ in range(3)]

    def run() -> Any:
        return forced(
            lambda p: RiemannianSGD(p, lr=0.1, momentum=0.9, manifold=manifold), start, gradients
        )

    whole = run()
    monkeypatch.setattr(row_blocks, "_BLOCK_ELEMENTS", 56)  # 7 rows: the last block is shorter
    assert same(whole, run())


def test_a_learning_rate_may_be_a_tensor() -> None:
    start, loss = points(Lorentz(), ROWS, SIZE), waves(SIZE)
    lr = torch.tensor(0.05, dtype=torch.float64)
    end, _ = walk(lambda p: RiemannianSGD(p, lr=lr, manifold=Lorentz()), start, loss)
    other, _ = walk(lambda p: RiemannianSGD(p, lr=0.05, manifold=Lorentz()), start, loss)
    close(end, other, 1e-14)


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_momentum_does_not_grow_at_the_border_of_the_ball(
    dtype: torch.dtype, nesterov: bool
) -> None:
    """Where steps outward are cut short: it is at most Σ μⁿ times the gradient, of length 1."""
    ball = PoincareBall(0.7)
    parameter = nn.Parameter(points(ball, 200, SIZE).to(dtype))
    optimizer = RiemannianSGD([parameter], lr=0.5, momentum=0.9, nesterov=nesterov, manifold=ball)
    for _ in range(100):
        optimizer.zero_grad()
        (-ball.dist0(parameter).sum()).backward()
        optimizer.step()
        ball.check_point(parameter.detach())
    momentum = optimizer.state[parameter]["momentum_buffer"].double()
    x = parameter.detach().double()
    assert ball.norm(x, ball.riemannian_grad(x, momentum)).max() < 1.5 / (1 - 0.9)


def test_a_step_that_float32_cannot_hold_is_not_taken() -> None:
    H = Lorentz(1.0)
    start = H.exp0(torch.tensor([[40.0, 0.0, 0.0], [1.0, 0.0, 0.0]]))
    outward = -start / (1 + start.square().sum(-1, keepdim=True)).sqrt()
    for own in (H, MyLorentz(1.0)):
        end, state = forced(
            lambda p, m=own: RiemannianSGD(p, lr=8.0, momentum=0.9, manifold=m),  # type: ignore[misc]
            start,
            [outward],
        )
        assert torch.equal(end[0], start[0])
        assert state["momentum_buffer"].isfinite().all()
        assert H.dist0(end[1]) > 5
