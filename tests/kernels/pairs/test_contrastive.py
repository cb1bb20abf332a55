from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from beltrami.geometry import lorentz
from beltrami.kernels.layers.scores import pairs_of
from beltrami.kernels.pairs import contrastive
from beltrami.kernels.pairs.contrastive import contrastive_loss
from tests.kernels.checks import saved_bytes
from tests.kernels.memory import LargestTensor

F64 = torch.float64


def points(*shape: int, dtype: torch.dtype = F64, radius: float = 2.0, seed: int = 0) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    v = torch.randn(*shape, dtype=F64, generator=g)
    v = v / v.norm(dim=-1, keepdim=True) * radius * torch.rand(*shape[:-1], 1, generator=g)
    return lorentz.exp0(v).to(dtype)


def plain(x, y, *, scale, c=None, metric="lorentz", symmetric=True, offset=0):
    """The definition, with the matrix of all pairs and the elementwise distance."""
    if metric == "dot":
        logits = scale * (x.flatten(1) @ y.flatten(1).T)
    else:
        a, b = x.unsqueeze(1), y.unsqueeze(0)
        if metric == "lorentz":
            d = lorentz.dist(a, b, c)
        else:
            d = torch.linalg.vector_norm(a - b, dim=-1)
        logits = -scale * (d.sum(-1) if x.ndim == 3 else d)
    targets = torch.arange(x.shape[0]) + offset
    loss = F.cross_entropy(logits, targets)
    return (loss + F.cross_entropy(logits.T, targets)) / 2 if symmetric else loss


def plain_distances(x: Tensor, y: Tensor, metric: str) -> Tensor:
    a, b = x.unsqueeze(1), y.unsqueeze(0)
    d = lorentz.dist(a, b) if metric == "lorentz" else torch.linalg.vector_norm(a - b, dim=-1)
    return d.sum(-1)


def inputs(metric: str, k: int | None, dtype: torch.dtype = F64, n: int = 7, m: int = 7):
    """x, y, scale and, for lorentz, a curvature for each factor; all to be differentiated."""
    shape = (5,) if k is None else (k, 4)
    arguments = {
        "x": points(n, *shape, dtype=dtype),
        "y": points(m, *shape, dtype=dtype, seed=1),
        "scale": torch.tensor([1.7], dtype=dtype),
    }
    if metric == "lorentz":
        arguments["c"] = torch.linspace(0.4, 1.6, k or 1, dtype=dtype).unsqueeze(-1)
        if k is None:
            arguments["c"] = arguments["c"][0]
    return {name: t.requires_grad_() for name, t in arguments.items()}


def grads(loss: Tensor, arguments: dict[str, Tensor]) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss, tuple(arguments.values()))


METRICS = pytest.mark.parametrize("metric", ["lorentz", "euclidean", "dot"])
FACTORS = pytest.mark.parametrize("k", [None, 3])


# --- the formula ----------------------------------------------------------------------------------


@METRICS
@FACTORS
@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("block", [1, 3, 7, 100, None])
def test_equals_the_plain_formula(metric, k, dtype, block):
    given = inputs(metric, k, dtype)
    loss = contrastive_loss(**given, metric=metric, block=block)
    expected = plain(**given, metric=metric)
    assert loss.shape == ()
    assert loss.dtype == dtype
    torch.testing.assert_close(loss, expected)
    for name, ours, theirs in zip(given, grads(loss, given), grads(expected, given), strict=True):
        torch.testing.assert_close(
            ours, theirs, msg=lambda text, name=name: f"gradient of {name}: {text}"
        )


@METRICS
@FACTORS
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_rows_alone_against_more_columns(metric, k, dtype):
    given = inputs(metric, k, dtype, n=5, m=11)
    options = {"metric": metric, "symmetric": False, "offset": 4}
    loss = contrastive_loss(**given, **options, block=2)
    expected = plain(**given, **options)
    torch.testing.assert_close(loss, expected)
    for ours, theirs in zip(grads(loss, given), grads(expected, given), strict=True):
        torch.testing.assert_close(ours, theirs)


@METRICS
@FACTORS
@pytest.mark.parametrize("symmetric", [True, False])
def test_gradients(metric, k, symmetric):
    given = inputs(metric, k, n=4, m=4 if symmetric else 6)

    def loss(*values: Tensor) -> Tensor:
        named = dict(zip(given, values, strict=True))
        return contrastive_loss(**named, metric=metric, symmetric=symmetric, block=3)

    assert torch.autograd.gradcheck(loss, tuple(given.values()))


@METRICS
def test_second_derivatives(metric):
    """Of the backward pass, which uses the saved sums: they have gradients of their own."""
    given = inputs(metric, 2, n=3, m=3)

    def loss(*values: Tensor) -> Tensor:
        named = dict(zip(given, values, strict=True))
        return contrastive_loss(**named, metric=metric, block=2)

    assert torch.autograd.gradgradcheck(loss, tuple(given.values()), atol=1e-4)


@pytest.mark.parametrize("metric", ["lorentz", "euclidean"])
def test_second_derivatives_of_the_float32_product(metric):
    """The float32 path is made of other formulas; compared with the plain one in float64."""
    given = inputs(metric, 2, torch.float32, n=4, m=4)
    wide = {name: t.detach().double().requires_grad_() for name, t in given.items()}

    def penalty(loss: Tensor, named: dict[str, Tensor]) -> tuple[Tensor, ...]:
        first = torch.autograd.grad(loss, (named["x"], named["y"]), create_graph=True)
        return grads(sum(g.square().sum() for g in first), named)

    ours = penalty(contrastive_loss(**given, metric=metric, block=3), given)
    theirs = penalty(plain(**wide, metric=metric), wide)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("frozen", ["x", "y", "scale", "c"])
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_gradients_of_some_inputs_only(frozen, dtype):
    given = inputs("lorentz", 3, dtype)
    every = dict(zip(given, grads(contrastive_loss(**given), given), strict=True))
    given[frozen] = given[frozen].detach()
    rest = {name: t for name, t in given.items() if name != frozen}
    for name, g in zip(rest, grads(contrastive_loss(**given), rest), strict=True):
        torch.testing.assert_close(g, every[name])
    alone = {frozen: inputs("lorentz", 3, dtype)[frozen]}
    given = {name: t.detach() for name, t in given.items()} | alone
    torch.testing.assert_close(grads(contrastive_loss(**given), alone)[0], every[frozen])


@METRICS
def test_scale_and_curvature_may_be_numbers(metric):
    given = inputs(metric, None)
    numbers = given | {"scale": 1.7} | ({"c": 0.4} if metric == "lorentz" else {})
    a, b = contrastive_loss(**given, metric=metric), contrastive_loss(**numbers, metric=metric)
    torch.testing.assert_close(a, b)
    scalar = given | {"scale": torch.tensor(1.7, dtype=F64, requires_grad=True)}
    contrastive_loss(**scalar, metric=metric).backward()
    assert scalar["scale"].grad.shape == ()


def test_one_curvature_for_all_factors():
    given = inputs("lorentz", 3)
    given["c"] = torch.tensor([0.7], dtype=F64, requires_grad=True)
    loss = contrastive_loss(**given, block=2)
    expected = plain(**given)
    for a, b in zip(grads(loss, given), grads(expected, given), strict=True):
        torch.testing.assert_close(a, b)


def test_non_contiguous_inputs():
    x, y = points(9, 3, 8)[::2, :, 1::2], points(3, 5, 4, seed=1).transpose(0, 1)
    for dtype in (torch.float32, F64):
        a, b = x.to(dtype), y.to(dtype)
        torch.testing.assert_close(
            contrastive_loss(a, b, c=1.0, scale=2.0),
            contrastive_loss(a.contiguous(), b.contiguous(), c=1.0, scale=2.0),
        )


# --- meaning --------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [None, 3])
def test_does_not_change_under_isometries(k):
    given = {name: t.detach() for name, t in inputs("lorentz", k).items()}
    to = points(*given["x"].shape[1:], seed=5, radius=1.0)
    moved = {n: lorentz.boost(given[n], to.expand_as(given[n]), given["c"]) for n in ("x", "y")}
    torch.testing.assert_close(contrastive_loss(**given), contrastive_loss(**(given | moved)))
    # as the twin's loss of the same numbers does
    before, after = ({n: a[n] for n in ("x", "y", "scale")} for a in (given, given | moved))
    twins = [contrastive_loss(**a, metric="euclidean") for a in (before, after)]
    assert abs(twins[0] - twins[1]) > 1e-3


@METRICS
def test_is_symmetric_in_its_arguments(metric):
    given = inputs(metric, 3)
    swapped = given | {"x": given["y"], "y": given["x"]}
    torch.testing.assert_close(
        contrastive_loss(**given, metric=metric), contrastive_loss(**swapped, metric=metric)
    )


@pytest.mark.parametrize("k", [None, 3])
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_becomes_the_euclidean_twin_as_c_vanishes(k, dtype):
    given = inputs("euclidean", k, dtype)
    twin = contrastive_loss(**given, metric="euclidean")
    twin_grads = grads(twin, given)
    errors = []
    for c in (1e-1, 1e-2, 1e-3):
        loss = contrastive_loss(**given, c=c)
        parts = zip((loss, *grads(loss, given)), (twin, *twin_grads), strict=True)
        errors.append(max((a - b).abs().max().item() for a, b in parts))
    assert errors[0] > 5 * errors[1] > 25 * errors[2]  # O(c), with room for the first step
    for c in (1e-12, 1e-30):
        loss = contrastive_loss(**given, c=c)
        torch.testing.assert_close(loss, twin)
        for a, b in zip(grads(loss, given), twin_grads, strict=True):
            torch.testing.assert_close(a, b)


def test_matched_pairs_have_no_loss():
    x = points(6, 4, radius=3.0)
    assert contrastive_loss(x, x, c=1.0, scale=1e3) < 1e-12
    assert contrastive_loss(x, x.roll(1, 0), c=1.0, scale=1e3) > 10
    for dtype in (torch.float32, F64):
        one = contrastive_loss(x[:1].to(dtype), 2 * x[1:2].to(dtype), c=1.0, scale=20.0)
        assert one == 0  # the only candidate is the right one, to the last bit


@METRICS
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_two_processes_make_one_batch(metric, dtype):
    """Local rows against gathered columns, both ways, with the offset of each process."""
    given = inputs(metric, 3, dtype, n=8, m=8)
    whole = contrastive_loss(**given, metric=metric)
    rest = {name: t for name, t in given.items() if name not in ("x", "y")}
    parts = []
    for rank in range(2):
        local = slice(4 * rank, 4 * rank + 4)
        for a, b in (("x", "y"), ("y", "x")):
            parts.append(
                contrastive_loss(
                    given[a][local],
                    given[b],
                    **rest,
                    metric=metric,
                    symmetric=False,
                    offset=4 * rank,
                    block=3,
                )
            )
    loss = torch.stack(parts).mean()
    torch.testing.assert_close(loss, whole)
    for a, b in zip(grads(loss, given), grads(whole, given), strict=True):
        torch.testing.assert_close(a, b)


# --- numerics -------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["lorentz", "euclidean"])
@pytest.mark.parametrize("radius", [1e-6, 0.1, 1.0, 5.0, 15.0])
@pytest.mark.parametrize("apart", [1e-4, 1 / 30, 1.0])
def test_float32_has_the_digits_of_its_inputs(metric, radius, apart):
    """Against float64 from the same rounded points, for near pairs and far ones."""
    g = torch.Generator().manual_seed(0)
    v, step = torch.randn(2, 12, 3, 6, dtype=F64, generator=g)
    v = v / v.norm(dim=-1, keepdim=True) * radius
    hyperbolic = metric == "lorentz"
    size = min(radius, 1.0) if hyperbolic else radius
    points_of = lorentz.exp0 if hyperbolic else torch.clone
    y = v + apart * size * step if apart < 1 else size * step
    narrow = {"x": points_of(v).float(), "y": points_of(y).float()}
    # logits that are neither all equal nor a hard choice
    d = plain_distances(narrow["x"].double(), narrow["y"].double(), metric)
    narrow["scale"] = (3 / d.mean()).float().reshape(1)
    if hyperbolic:
        narrow["c"] = torch.ones(3, 1)
    narrow = {name: t.requires_grad_() for name, t in narrow.items()}
    wide = {name: t.detach().double().requires_grad_() for name, t in narrow.items()}
    loss, exact = contrastive_loss(**narrow, metric=metric, block=5), plain(**wide, metric=metric)
    torch.testing.assert_close(loss.double(), exact, rtol=2e-6, atol=0)
    # points close together and far out have coordinates that hide their distance: cosh(r)
    hidden = math.cosh(radius) if apart < 1 and hyperbolic else 1
    bound = 100 * torch.finfo(torch.float32).eps * hidden
    for name, a, b in zip(narrow, grads(loss, narrow), grads(exact, wide), strict=True):
        error = (a.double() - b).norm() / b.norm()
        assert error < bound, f"{name}: {error:.1e} against {bound:.1e}"


@pytest.mark.parametrize(("c", "metric"), [(1.0, "lorentz"), (None, "euclidean")])
@pytest.mark.parametrize("radius", [0.01, 1.0, 5.0, 10.0])
def test_unresolved_pairs_are_not_thrown_apart(c, metric, radius):
    """Rows that differ in the last bit: the gradient of their distance stays one of length 1."""
    n = 500
    v = torch.randn(n, 8, dtype=F64)
    x = lorentz.exp0(v / v.norm(dim=-1, keepdim=True) * radius).float()
    y = torch.where(torch.rand(n, 8) < 0.3, torch.nextafter(x, torch.zeros(())), x)
    pairs = pairs_of(x, y, c, metric, (True, True, False))
    score, kept = pairs.score(slice(0, n))
    pairs.pull(slice(0, n), kept, torch.eye(n))
    assert (score.diagonal() > -1e-6 * math.cosh(radius)).all()
    for g in pairs.gradients()[:2]:
        assert 0.5 < g.norm(dim=-1).median() < g.norm(dim=-1).max() < 1.4


@METRICS
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_coincident_points_have_finite_gradients(metric, dtype):
    x = points(8, 3, 4, dtype=dtype, radius=4.0)
    x[:2] = 0.0  # rows at the origin, as padding is
    x[3] = x[4]
    given = {"x": x.clone().requires_grad_(), "y": x.clone().requires_grad_()}
    given["scale"] = torch.tensor([5.0], dtype=dtype, requires_grad=True)
    if metric == "lorentz":
        given["c"] = torch.ones(3, 1, dtype=dtype, requires_grad=True)
    loss = contrastive_loss(**given, metric=metric)
    assert loss >= 0
    first = torch.autograd.grad(loss, tuple(given.values()), create_graph=True)
    assert all(torch.isfinite(g).all() for g in first)
    if metric != "dot":  # a pair's distance has a gradient of at most 1, and 3 factors
        assert first[0].norm(dim=-1).max() <= 5.0
    second = torch.autograd.grad(sum(g.sum() for g in first), tuple(given.values()))
    assert all(torch.isfinite(g).all() for g in second)


@pytest.mark.parametrize("metric", ["lorentz", "euclidean"])
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_a_coincident_pair_is_not_pulled(metric, dtype):
    """One pair in one place: its distance has no gradient there and is given none."""
    x = points(2, 4, dtype=dtype, radius=3.0)
    y = torch.stack([x[0], points(1, 4, dtype=dtype, seed=3)[0]])
    c = {"c": 1.0} if metric == "lorentz" else {}
    one = x[:1].clone().requires_grad_()
    loss = contrastive_loss(one, y, scale=2.0, metric=metric, symmetric=False, **c)
    (g,) = torch.autograd.grad(loss, one)
    # what is left is the push of the other point
    z = x[:1].double().requires_grad_()
    far = -2.0 * (
        lorentz.dist(z, y[1:].double())
        if metric == "lorentz"
        else (z - y[1:].double()).norm(dim=-1)
    )
    (expected,) = torch.autograd.grad(F.softplus(far).sum(), z)
    torch.testing.assert_close(g.double(), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_far_out(dtype):
    x, y = (points(6, 4, dtype=dtype, radius=40.0, seed=s).requires_grad_() for s in (0, 1))
    c = torch.ones(1, dtype=dtype, requires_grad=True)
    loss = contrastive_loss(x, y, c=c, scale=0.1)
    wide = [t.detach().double().requires_grad_() for t in (x, y, c)]
    exact = plain(*wide[:2], c=wide[2], scale=0.1)
    torch.testing.assert_close(loss.double(), exact, rtol=1e-6, atol=0)
    ours = torch.autograd.grad(loss, (x, y, c))
    for a, b in zip(ours, torch.autograd.grad(exact, wide), strict=True):
        assert (a.double() - b).norm() < 1e-5 * b.norm()


@METRICS
def test_half_precision_is_computed_in_float32(metric):
    given = inputs(metric, 3, torch.float32)
    half = {n: t.detach().bfloat16().requires_grad_() for n, t in given.items() if n in "xy"}
    rest = {n: t.detach() for n, t in given.items() if n not in half}
    single = {n: t.detach().float().requires_grad_() for n, t in half.items()}
    loss = contrastive_loss(**half, **rest, metric=metric)
    expected = contrastive_loss(**single, **rest, metric=metric)
    assert loss.dtype == torch.float32
    assert torch.equal(loss, expected)
    for a, b in zip(grads(loss, half), grads(expected, single), strict=True):
        assert a.dtype == torch.bfloat16
        torch.testing.assert_close(a, b.bfloat16())


@METRICS
def test_ignores_autocast(metric):
    given = inputs(metric, 3, torch.float32)
    exact = contrastive_loss(**given, metric=metric)
    with torch.autocast("cpu", torch.bfloat16):
        loss = contrastive_loss(**given, metric=metric)
        found = grads(loss, given)
    assert torch.equal(loss, exact)
    for a, b in zip(found, grads(exact, given), strict=True):
        assert torch.equal(a, b)


@METRICS
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_nan_is_not_hidden(metric, dtype):
    given = {name: t.detach() for name, t in inputs(metric, 3, dtype).items()}
    given["y"][2, 1, 0] = torch.nan
    assert contrastive_loss(**given, metric=metric).isnan()


# --- memory ---------------------------------------------------------------------------------------


@METRICS
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, F64])
def test_keeps_the_inputs_and_a_number_a_row(metric, dtype):
    n, k, d = 96, 2, 4
    x, y = (points(n, k, d, dtype=dtype, seed=s).requires_grad_() for s in (0, 1))
    wide = torch.promote_types(dtype, torch.float32)
    scale = torch.ones(1, dtype=wide, requires_grad=True)
    c = {"c": torch.ones(k, 1, dtype=wide, requires_grad=True)} if metric == "lorentz" else {}
    saved = saved_bytes(lambda: contrastive_loss(x, y, scale=scale, metric=metric, block=5, **c))
    sizes = [t.numel() * t.element_size() for t in (x, y, scale, *c.values())]
    assert saved == sum(sizes) + 2 * n * wide.itemsize
    plain_saved = saved_bytes(lambda: plain(x, y, scale=scale, metric=metric, **c))
    assert plain_saved > 4 * saved


@METRICS
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_never_makes_the_matrix(metric, dtype):
    n, k, d, block = 64, 2, 3, 2
    given = {
        "x": points(n, k, d, dtype=dtype).requires_grad_(),
        "y": points(n, k, d, dtype=dtype, seed=1).requires_grad_(),
        "scale": torch.ones(1, dtype=dtype, requires_grad=True),
    }
    if metric == "lorentz":
        given["c"] = torch.ones(k, 1, dtype=dtype, requires_grad=True)
    with LargestTensor() as largest:
        contrastive_loss(**given, metric=metric, block=block).backward()
    # a block of pairs, or the rows with the few scalars that go with each
    allowed = max(block * n * k * (d if dtype == F64 else 1), n * k * (d + 4))
    assert 0 < largest.elements <= allowed < n * n


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_chooses_blocks_by_size(dtype, monkeypatch):
    monkeypatch.setattr(contrastive, "_CPU_ELEMENTS", 2000)
    x = points(50, 2, 3, dtype=dtype).requires_grad_()
    with LargestTensor() as largest:
        loss = contrastive_loss(x, x.detach().flip(0), c=1.0, scale=1.0)
        loss.backward()
    assert largest.elements <= 2000
    torch.testing.assert_close(loss, plain(x, x.detach().flip(0), c=1.0, scale=1.0))


# --- transforms -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metric", "dtype"), [("lorentz", torch.float32), ("dot", torch.float32), ("euclidean", F64)]
)
def test_compiles_in_one_graph(metric, dtype):
    given = inputs(metric, 2, dtype, n=5, m=5)
    torch._dynamo.reset()
    compiled = torch.compile(contrastive_loss, fullgraph=True, backend="aot_eager")
    loss = compiled(**given, metric=metric, block=3)
    expected = contrastive_loss(**given, metric=metric, block=3)
    torch.testing.assert_close(loss, expected)
    for a, b in zip(grads(loss, given), grads(expected, given), strict=True):
        torch.testing.assert_close(a, b)


def test_compiles_a_batch_against_itself():
    x = points(5, 4, dtype=torch.float32).requires_grad_()
    torch._dynamo.reset()
    compiled = torch.compile(contrastive_loss, fullgraph=True, backend="eager")
    loss, expected = (f(x, x, scale=2.0, c=1.0) for f in (compiled, contrastive_loss))
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(torch.autograd.grad(loss, x), torch.autograd.grad(expected, x))


@METRICS
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_maps_over_batches(metric, dtype):
    c = {"c": 0.7} if metric == "lorentz" else {}
    x, y = points(3, 5, 2, 4, dtype=dtype), points(3, 5, 2, 4, dtype=dtype, seed=1)

    def loss(a: Tensor, b: Tensor) -> Tensor:
        return contrastive_loss(a, b, scale=1.5, metric=metric, block=2, **c)

    torch.testing.assert_close(
        torch.func.vmap(loss)(x, y), torch.stack([loss(a, b) for a, b in zip(x, y, strict=True)])
    )
    mapped = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1)))(x, y)
    single = [torch.func.grad(loss, argnums=(0, 1))(a, b) for a, b in zip(x, y, strict=True)]
    for i in range(2):
        torch.testing.assert_close(mapped[i], torch.stack([g[i] for g in single]))


# --- errors ---------------------------------------------------------------------------------------

X = torch.zeros(4, 3)
P = torch.zeros(4, 2, 3)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"metric": "cosine"}, ValueError, "lorentz, euclidean, dot; got 'cosine'"),
        ({"c": None}, ValueError, "needs a curvature"),
        ({"metric": "dot"}, ValueError, "has no curvature"),
        ({"metric": "euclidean"}, ValueError, "has no curvature"),
        ({"c": -1.0}, ValueError, "c must be a positive"),
        ({"c": torch.ones(2, 1)}, ValueError, r"c must have one element for x of shape \(4, 3\)"),
        ({"x": P, "y": P, "c": torch.ones(3, 1)}, ValueError, r"or shape \(2, 1\)"),
        ({"x": X[0]}, ValueError, "rows of points"),
        ({"x": P}, ValueError, "rows of points"),
        ({"y": torch.zeros(4, 2)}, ValueError, "same last dimension"),
        ({"x": X.long()}, TypeError, "floating point"),
        ({"x": X[:0], "y": X[:0]}, ValueError, "at least one"),
        ({"y": X[:3]}, ValueError, "a row of y for each of x, got 4 and 3"),
        ({"y": X[:3], "symmetric": False}, ValueError, r"at least 4 \+ 0 rows, got 3"),
        ({"symmetric": False, "offset": 1}, ValueError, r"at least 4 \+ 1 rows, got 4"),
        ({"offset": 1}, ValueError, "symmetric=False"),
        ({"offset": -1, "symmetric": False}, ValueError, "offset must be at least 0, got -1"),
        ({"offset": 1.0}, TypeError, "offset must be an integer, got float"),
        ({"block": 0}, ValueError, "block must be at least 1, got 0"),
        ({"block": True}, TypeError, "block must be an integer, got bool"),
        ({"scale": 0.0}, ValueError, "scale must be a positive finite number, got 0.0"),
        ({"scale": math.inf}, ValueError, "scale must be a positive finite number"),
        ({"scale": "1"}, TypeError, "scale must be a float or a tensor, got str"),
        ({"scale": torch.ones(2)}, ValueError, "scale must have one element"),
        ({"scale": torch.ones(1).long()}, TypeError, "scale must be a floating point tensor"),
    ],
)
def test_errors_name_what_is_wrong(arguments, error, text):
    with pytest.raises(error, match=text):
        contrastive_loss(**({"x": X, "y": X, "c": 1.0, "scale": 1.0} | arguments))
