"""MLR and DistanceClassifier against the geometry of one pair, far out, and as c → 0."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from beltrami.geometry import Curvature, Euclidean, Lorentz, Manifold, PoincareBall, lorentz
from beltrami.geometry import hyperplane as hp
from beltrami.nn.classifiers import MLR, DistanceClassifier
from tests.kernels.checks import saved_bytes

SIZE, CLASSES = 5, 7
CURVED = [
    (Lorentz, "lorentz"),
    (Lorentz, "busemann"),
    (PoincareBall, "hnnpp"),
    (PoincareBall, "poincare"),
    (PoincareBall, "busemann"),
]


def _randomised(layer: MLR, std: float = 0.7) -> MLR:
    """Random parameters; what lives on the manifold is drawn there."""
    with torch.no_grad():
        for name, p in layer.named_parameters():
            p.copy_(torch.randn_like(p) * std)
            if name in layer.manifold_of:
                p.copy_(layer.manifold.exp0(p))
    return layer


def _one_by_one(layer: MLR, x: Tensor) -> Tensor:
    """The score of each pair by the functions of one hyperplane, horosphere, or in flat space."""
    c, z, x = layer.manifold.c, layer.weight, x.unsqueeze(-2)
    length = z.norm(dim=-1)
    if layer.form == "lorentz":
        return hp.logit(x, z, layer.offset.unsqueeze(-1), c)
    if layer.form == "hnnpp":
        return hp.poincare_logit(x, z, layer.offset.unsqueeze(-1), c)
    if layer.form == "poincare":
        return length * hp.poincare_signed_dist(x, layer.point, z, c)
    busemann = hp.busemann if isinstance(layer.manifold, Lorentz) else hp.poincare_busemann
    return -length * busemann(x, z, c) + layer.bias


@pytest.mark.parametrize(("kind", "form"), CURVED)
@pytest.mark.parametrize("c", [0.3, 2.0])
def test_scores_of_single_pairs(kind: type, form: str, c: float) -> None:
    manifold = kind(c)
    layer = _randomised(MLR(SIZE, CLASSES, manifold=manifold, form=form).double())
    x = manifold.random(4, 3, SIZE, std=1.0, dtype=torch.float64)
    x[0, 0] = 0
    out = layer(x)
    assert out.shape == (4, 3, CLASSES)
    torch.testing.assert_close(out, _one_by_one(layer, x), rtol=1e-9, atol=1e-9)
    assert layer.manifold_out == Euclidean()


@pytest.mark.parametrize(("kind", "form"), CURVED)
def test_gradients(kind: type, form: str) -> None:
    curvature = Curvature(0.8).double()
    manifold = kind(curvature)
    layer = _randomised(MLR(3, 4, manifold=manifold, form=form).double())
    x = kind(0.8).random(3, 3, std=1.0, dtype=torch.float64)
    x[0] = 0
    names = [n for n, _ in layer.named_parameters()]
    module = torch.nn.ModuleDict({"layer": layer, "curvature": curvature})
    module.forward = layer.forward  # type: ignore[method-assign]

    def call(x: Tensor, raw: Tensor, *parameters: Tensor) -> Tensor:
        state = {f"layer.{n}": p for n, p in zip(names, parameters, strict=True)}
        return torch.func.functional_call(module, {**state, "curvature.raw": raw}, (x,))

    inputs = [x, torch.tensor([0.1], dtype=torch.float64), *layer.parameters()]
    assert torch.autograd.gradcheck(call, [t.detach().requires_grad_() for t in inputs])


@pytest.mark.parametrize(("kind", "form"), CURVED)
def test_few_copies_of_the_scores_are_kept(kind: type, form: str) -> None:
    layer = MLR(4, 500, manifold=kind(0.7), form=form)
    x = kind(0.7).random(400, 4).requires_grad_()
    assert saved_bytes(lambda: layer(x)) < (2.6 if form == "busemann" else 1.3) * layer(x).nbytes


@pytest.mark.parametrize("form", ["lorentz", "hnnpp", "poincare", "busemann"])
def test_flat_limit(form: str) -> None:
    kind = PoincareBall if form in ("hnnpp", "poincare") else Lorentz
    twin = _randomised(MLR(SIZE, CLASSES, manifold=Euclidean(), form=form).double())
    v = torch.randn(20, SIZE, dtype=torch.float64)
    errors = []
    for c in (1e-2, 1e-4, 1e-6):
        layer = MLR(SIZE, CLASSES, manifold=kind(c), form=form).double()
        layer.load_state_dict(twin.state_dict())
        if form == "poincare":
            with torch.no_grad():
                layer.point.copy_(layer.manifold.exp0(twin.point))
        errors.append((layer(layer.manifold.exp0(v)) - twin(v)).abs().max().item())
    rate = 0.15 if form == "busemann" else 0.02  # √c or c
    assert errors[1] < rate * errors[0]
    assert errors[2] < rate * errors[1]


@pytest.mark.parametrize("form", ["lorentz", "hnnpp", "poincare", "busemann"])
def test_flat_forms_are_affine(form: str) -> None:
    layer = _randomised(MLR(SIZE, CLASSES, manifold=Euclidean(), form=form).double())
    x, z = torch.randn(9, SIZE, dtype=torch.float64), layer.weight
    length = z.norm(dim=-1)
    expected = {
        "lorentz": lambda: x @ z.mT - layer.offset * length,
        "hnnpp": lambda: 2 * x @ z.mT - 4 * layer.offset * length,
        "poincare": lambda: ((x[:, None] - layer.point) * z).sum(-1),
        "busemann": lambda: x @ z.mT + layer.bias,
    }[form]()
    torch.testing.assert_close(layer(x), expected)


@pytest.mark.parametrize("radius", [0.01, 1.0, 5.0, 10.0])
def test_busemann_keeps_its_digits_towards_the_ideal_point(radius: float) -> None:
    """Where the light-cone coordinate t − x·p is a small difference of large numbers."""
    layer = _randomised(MLR(SIZE, CLASSES, manifold=Lorentz(1.3), form="busemann"))
    with torch.no_grad():
        layer.bias.zero_()
    ray = torch.nn.functional.normalize(layer.weight.detach(), dim=-1) * radius
    x = lorentz.exp0(ray + 1e-3 * torch.randn_like(ray), 1.3)
    exact = _one_by_one(layer.double(), x.double())
    out = layer.float()(x)
    torch.testing.assert_close(out.double(), exact, rtol=1e-5, atol=1e-6)
    on_ray = layer(lorentz.exp0(ray, 1.3)).diagonal() / layer.weight.norm(dim=-1)
    torch.testing.assert_close(on_ray, torch.full_like(on_ray, radius), rtol=1e-3, atol=0)


def test_busemann_is_finite_as_far_as_points_are() -> None:
    """Also in float32, where 1 − cosine rounds to less than 0."""
    for dtype in (torch.float32, torch.float64, None):
        layer = MLR(SIZE, CLASSES, manifold=Lorentz(1.0), form="busemann", product_dtype=dtype)
        ray = torch.nn.functional.normalize(layer.weight.detach(), dim=-1)
        x = lorentz.exp0(40 * torch.cat((ray, -ray)), 1.0).requires_grad_()
        out = layer(x)
        assert out.isfinite().all()
        out.sum().backward()
        assert x.grad is not None
        assert x.grad.isfinite().all()
        assert layer.weight.grad is not None
        assert layer.weight.grad.isfinite().all()


@pytest.mark.parametrize("form", ["lorentz", "hnnpp", "poincare"])
def test_wide_products_help_far_out(form: str) -> None:
    kind = Lorentz if form == "lorentz" else PoincareBall
    narrow = _randomised(MLR(SIZE, CLASSES, manifold=kind(1.0), form=form), std=1.5)
    wide = MLR(SIZE, CLASSES, manifold=kind(1.0), form=form, product_dtype=torch.float64)
    wide.load_state_dict(narrow.state_dict())
    v = 7 * torch.nn.functional.normalize(torch.randn(200, SIZE), dim=-1)
    x = kind(1.0).exp0(v)
    exact = _one_by_one(narrow.double(), x.double())
    error = [(m.float()(x).double() - exact).abs().max().item() for m in (narrow, wide)]
    assert error[1] < 0.1 * error[0]
    assert error[1] < 1e-4


def test_poincare_score_is_zero_at_its_point_and_grows_along_the_normal() -> None:
    ball = PoincareBall(1.3)
    layer = _randomised(MLR(SIZE, CLASSES, manifold=ball, form="poincare").double(), 0.5)
    point = layer.point.detach()
    torch.testing.assert_close(
        layer(point).diagonal(), torch.zeros(CLASSES, dtype=torch.float64), rtol=0, atol=1e-12
    )
    # One unit of distance along the normal at p raises the score by |z|.
    step = torch.nn.functional.normalize(layer.weight.detach(), dim=-1)
    moved = ball.exp(point, ball.transport_from0(point, step))
    torch.testing.assert_close(layer(moved).diagonal(), layer.weight.norm(dim=-1))


@pytest.mark.parametrize(("kind", "form"), [*CURVED, (Euclidean, "lorentz")])
def test_every_parameter_moves_from_the_start(kind: type, form: str) -> None:
    manifold = kind() if kind is Euclidean else kind(0.7)
    layer = MLR(SIZE, CLASSES, manifold=manifold, form=form)
    x = manifold.random(30, SIZE)
    loss = torch.nn.functional.cross_entropy(layer(x), torch.randint(CLASSES, (30,)))
    loss.backward()
    for name, p in layer.named_parameters():
        assert p.grad is not None, name
        assert (p.grad.reshape(CLASSES, -1) != 0).any(-1).all(), name
    assert layer.no_weight_decay() == {n for n, _ in layer.named_parameters()} - {"weight"}
    assert set(layer.manifold_of) == ({"point"} if form == "poincare" else set())


def test_half_precision_points_are_scored_in_float32() -> None:
    for manifold in (Lorentz(1.0), PoincareBall(1.0), Euclidean()):
        layer = MLR(SIZE, CLASSES, manifold=manifold)
        x = manifold.random(4, SIZE).bfloat16()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = layer(x)
        assert out.dtype == torch.float32
        torch.testing.assert_close(out, layer(x.float()), rtol=1e-5, atol=1e-5)


def test_forms_and_their_manifolds() -> None:
    defaults = {Lorentz(): "lorentz", PoincareBall(): "hnnpp", Euclidean(): "lorentz"}
    for manifold, form in defaults.items():
        assert MLR(SIZE, CLASSES, manifold=manifold).form == form
    with pytest.raises(ValueError, match=r"one of 'lorentz', 'busemann'; got 'hnnpp'"):
        MLR(SIZE, CLASSES, manifold=Lorentz(), form="hnnpp")
    with pytest.raises(ValueError, match=r"product_dtype must be.*got torch.bfloat16"):
        MLR(SIZE, CLASSES, manifold=Lorentz(), product_dtype=torch.bfloat16)
    with pytest.raises(ValueError, match=r"product_dtype.*Euclidean.*None, got torch.float64"):
        MLR(SIZE, CLASSES, manifold=Euclidean(), product_dtype=torch.float64)
    wide = MLR(SIZE, CLASSES, manifold=Lorentz(), product_dtype=torch.float64)
    assert "product_dtype=torch.float64" in repr(wide)
    assert "product_dtype" not in repr(MLR(SIZE, CLASSES, manifold=Lorentz()))
    with pytest.raises(ValueError, match=r"drop it with"):
        MLR(SIZE, CLASSES, manifold=Lorentz())(torch.zeros(2, SIZE + 1))


# --- prototypes -----------------------------------------------------------------------------------

MANIFOLDS = [Lorentz(0.7), PoincareBall(0.7), Euclidean()]


@pytest.mark.parametrize("manifold", MANIFOLDS)
@pytest.mark.parametrize("form", ["geodesic", "chord"])
def test_distance_scores(manifold: Manifold, form: str) -> None:
    layer = DistanceClassifier(
        SIZE, CLASSES, manifold=manifold, form=form, temperature=0.4, radius=1.5
    ).double()
    x = manifold.random(4, 3, SIZE, dtype=torch.float64)
    square = manifold.dist_sq(x.unsqueeze(-2), layer.weight)
    if form == "chord" and not isinstance(manifold, Euclidean):
        c = manifold.c
        square = 4 / c * torch.sinh(c**0.5 * square.sqrt() / 2) ** 2
    torch.testing.assert_close(layer(x), -square / 0.4, rtol=1e-6, atol=1e-9)
    if form == "chord" and isinstance(manifold, Lorentz):
        chord = lorentz.chord_sq(x.unsqueeze(-2), layer.weight, manifold.c)
        torch.testing.assert_close(layer(x), -chord / 0.4, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("manifold", MANIFOLDS)
@pytest.mark.parametrize("form", ["geodesic", "chord"])
def test_prototypes_score_best_on_themselves(manifold: Manifold, form: str) -> None:
    layer = DistanceClassifier(SIZE, CLASSES, manifold=manifold, form=form)
    x = layer.weight.detach().clone().requires_grad_()
    out = layer(x)
    assert out.argmax(-1).tolist() == list(range(CLASSES))
    torch.testing.assert_close(out.diagonal(), torch.zeros(CLASSES), rtol=0, atol=1e-10)
    out.sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    for p in layer.parameters():
        assert p.grad is not None
        assert (p.grad != 0).all()
    assert layer.manifold_of == {"weight": manifold}
    assert layer.log_temperature.shape == (1,)


@pytest.mark.parametrize("form", ["geodesic", "chord"])
@pytest.mark.parametrize("kind", [Lorentz, PoincareBall])
def test_distance_flat_limit(form: str, kind: type) -> None:
    twin = DistanceClassifier(SIZE, CLASSES, manifold=Euclidean(), form=form).double()
    v = torch.randn(20, SIZE, dtype=torch.float64)
    errors = []
    for c in (1e-2, 1e-4, 1e-6):
        layer = DistanceClassifier(SIZE, CLASSES, manifold=kind(c), form=form).double()
        layer.load_state_dict(twin.state_dict())
        with torch.no_grad():
            layer.weight.copy_(layer.manifold.exp0(twin.weight))
        errors.append((layer(layer.manifold.exp0(v)) - twin(v)).abs().max().item())
    assert errors[1] < 0.02 * errors[0]
    assert errors[2] < 0.02 * errors[1]


@pytest.mark.parametrize(("form", "copies"), [("geodesic", 2), ("chord", 3)])
def test_few_copies_of_the_distances_are_kept(form: str, copies: int) -> None:
    layer = DistanceClassifier(4, 500, manifold=Lorentz(), form=form)
    x = Lorentz().random(400, 4).requires_grad_()
    assert saved_bytes(lambda: layer(x)) < (copies + 0.1) * layer(x).nbytes


def test_distance_start() -> None:
    layer = DistanceClassifier(16, 5000, manifold=PoincareBall(2.0), radius=0.6, temperature=math.e)
    distance = layer.manifold.dist0(layer.weight.detach()).square().mean().sqrt()
    torch.testing.assert_close(distance, torch.tensor(0.6), rtol=0.02, atol=0)
    torch.testing.assert_close(layer.log_temperature.detach(), torch.ones(1))
    with pytest.raises(ValueError, match=r"temperature must be positive"):
        DistanceClassifier(SIZE, CLASSES, manifold=Lorentz(), temperature=0.0)
