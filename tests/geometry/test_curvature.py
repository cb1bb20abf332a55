"""Curvature: exact at the start, bounded for ever, one key in a state dict, and portable."""

import copy
import math
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import nn

from beltrami.geometry import Curvature, Lorentz, shared_curvatures

INITS = [0.011, 0.1, 0.3, 1 / 3, 1.0, math.pi, 10.0, 99.0]


@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("learnable", [True, False])
def test_the_start_is_exact_in_every_dtype(init: float, learnable: bool) -> None:
    curvature = Curvature(init, learnable=learnable)
    assert curvature.value.item() == torch.tensor(init).item()
    assert curvature.bfloat16().value.item() == torch.tensor(init).item()
    assert curvature.half().value.dtype == torch.float32
    assert curvature.double().value.item() == init


@given(st.integers(1, 10_000), st.floats(0.05, 20.0))
def test_natural_units(width: int, kappa: float) -> None:
    """c = κ/width, with the bounds of κ; fixed or learned, the same number."""
    curvature = Curvature.natural(width, kappa)
    assert curvature.init == kappa / width
    assert curvature.bounds == (0.01 / width, 100.0 / width)
    assert curvature.learnable
    assert Lorentz.natural(width, kappa) == Lorentz(kappa / width)


def test_natural_takes_the_arguments_of_a_curvature() -> None:
    curvature = Curvature.natural(64, 2.0, size=3, bounds=(0.5, 4.0), learnable=False)
    assert (curvature.size, curvature.learnable, curvature.bounds) == (3, False, (0.5 / 64, 4 / 64))
    torch.testing.assert_close(curvature.value, torch.full((3, 1), 2 / 64))


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((0,), ValueError, "width must be at least 1, got 0"),
        ((64.0,), TypeError, "width must be an integer, got float"),
        ((64, -1.0), ValueError, "kappa must be positive and finite, got -1.0"),
        ((64, math.nan), ValueError, "kappa must be positive and finite, got nan"),
    ],
)
def test_bad_natural_units(arguments: tuple, error: type[Exception], words: str) -> None:
    for make in (Curvature.natural, Lorentz.natural):
        with pytest.raises(error, match=words):
            make(*arguments)
    with pytest.raises(ValueError, match=r"bounds must be a pair \(lo, hi\) of κ"):
        Curvature.natural(64, bounds=(1.0,))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="kappa must lie strictly between the bounds"):
        Curvature.natural(64, 200.0)


def test_shapes_broadcast_against_points() -> None:
    x = torch.randn(5, 3, 4)
    assert Curvature(1.0).value.shape == (1,)
    assert Curvature(1.0, size=3).value.shape == (3, 1)
    assert Curvature(1.0, size=3).raw.shape == (3,)
    assert (x * Curvature(1.0, size=3).value).shape == x.shape
    torch.testing.assert_close(Curvature(2.0)(), torch.tensor([2.0]), rtol=0, atol=0)


@given(
    raw=st.floats(-(2.0**50), 2.0**50, width=32),
    init=st.floats(1e-3, 1e3),
    below=st.floats(1e-3, 20),
    above=st.floats(1e-3, 20),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
)
def test_never_leaves_its_bounds(
    raw: float, init: float, below: float, above: float, dtype: torch.dtype
) -> None:
    lo, hi = init * math.exp(-below), init * math.exp(above)
    curvature = Curvature(init, bounds=(lo, hi)).to(dtype)
    with torch.no_grad():
        curvature.raw.fill_(raw)
    value = curvature.value.item()
    assert lo <= value <= hi
    assert (value >= init * (1 - 1e-6)) if raw > 0 else (value <= init * (1 + 1e-6))


def test_is_monotonic_and_logarithmic_near_the_start() -> None:
    curvature = Curvature(2.0, size=2001).double()
    with torch.no_grad():
        curvature.raw.copy_(torch.linspace(-50, 50, 2001))
    value = curvature.value.squeeze(-1)
    assert bool((value.diff() > 0).all())
    near = curvature.raw.abs() < 0.3
    torch.testing.assert_close(
        value[near].log(), math.log(2) + curvature.raw[near], rtol=1e-4, atol=1e-4
    )


def test_gradient_survives_far_beyond_a_bound_and_is_that_of_the_value() -> None:
    curvature = Curvature(1.0, size=4).double()
    with torch.no_grad():
        curvature.raw.copy_(torch.tensor([-100.0, -1.0, 1e-9, 100.0]))
    curvature.value.sum().backward()
    assert curvature.raw.grad is not None
    assert bool((curvature.raw.grad > 1e-12).all())

    def value(raw: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(curvature, {"raw": raw}, ())

    raw = torch.tensor([-7.0, -1.0, 0.4, 5.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(value, raw)
    assert torch.autograd.gradgradcheck(value, raw)


def test_returns_from_a_bound() -> None:
    """Adam drives c into a bound for a while, then is asked for c = 1 again."""
    curvature = Curvature(1.0, bounds=(0.1, 10.0))
    optimizer = torch.optim.Adam(curvature.parameters(), lr=0.1)
    for target, steps in ((100.0, 100), (1.0, 300)):
        for _ in range(steps):
            optimizer.zero_grad()
            (curvature.value.log() - math.log(target)).square().sum().backward()
            optimizer.step()
        if target == 100.0:
            assert curvature.at_bound()
    assert not curvature.at_bound()
    torch.testing.assert_close(curvature.value, torch.ones(1), rtol=0.01, atol=0)


def test_reports_each_bound() -> None:
    curvature = Curvature(1.0, size=3)
    assert curvature.at_bound().tolist() == [False, False, False]
    with torch.no_grad():
        curvature.raw.copy_(torch.tensor([-50.0, 0.0, 50.0]))
    assert curvature.at_bound().tolist() == [True, False, True]
    assert Curvature(0.01, learnable=False).at_bound()


class Layer(nn.Module):
    def __init__(self, manifold: Lorentz) -> None:
        super().__init__()
        self.manifold = manifold
        self.weight = nn.Parameter(torch.randn(4, 3))
        self.manifold_of = {"weight": manifold}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.manifold.dist(x, self.weight)


class Model(nn.Module):
    def __init__(self, learnable: bool = True) -> None:
        super().__init__()
        self.curvature = Curvature(0.5, learnable=learnable)
        self.layers = nn.ModuleList(Layer(Lorentz(self.curvature)) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return sum(layer(x) for layer in self.layers)  # type: ignore[return-value]


@pytest.mark.parametrize("learnable", [True, False])
def test_one_key_however_many_layers_share_it(learnable: bool) -> None:
    keys = [k for k in Model(learnable).state_dict() if "weight" not in k]
    assert keys == ["curvature.raw"]
    assert sum("raw" in n for n, _ in Model(learnable).named_parameters()) == int(learnable)


def test_safetensors_round_trip(tmp_path) -> None:
    model, other = Model(), Model(learnable=False)
    with torch.no_grad():
        model.curvature.raw.fill_(0.7)
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    other.load_state_dict(load_file(tmp_path / "model.safetensors"))
    assert other.curvature.value.item() == model.curvature.value.item() != 0.5


def test_copies_and_pickles_keep_the_layers_pointing_at_the_copied_curvature() -> None:
    model = Model()
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert twin.curvature is not model.curvature
        for layer in twin.layers:
            assert layer.manifold is layer.manifold_of["weight"]
            assert layer.manifold == Lorentz(twin.curvature) != Lorentz(model.curvature)
        with torch.no_grad():
            twin.curvature.raw.fill_(1.0)
        x = torch.ones(4, 3)
        assert not torch.equal(twin(x), model(x))
        twin(x).sum().backward()
        assert twin.curvature.raw.grad is not None
        assert model.curvature.raw.grad is None


def test_moves_with_its_model() -> None:
    model = Model().to("meta")
    assert model.curvature.value.device.type == "meta"
    assert model.double().curvature.value.dtype == torch.float64


def test_bfloat16_rounds_the_deviation_only() -> None:
    curvature = Curvature(1 / 3)
    with torch.no_grad():
        curvature.raw.fill_(0.0123)
    exact = curvature.value.item()
    rounded = curvature.bfloat16().value
    assert rounded.dtype == torch.float32
    assert abs(rounded.item() / exact - 1) < 0.0123 * 2**-8


def test_names_what_not_to_decay_and_prints_its_arguments() -> None:
    curvature = Curvature(1.0, size=2, bounds=(0.1, 10.0))
    assert curvature.no_weight_decay() == {n for n, _ in curvature.named_parameters()}
    assert repr(curvature) == "Curvature(init=1.0, size=2, bounds=(0.1, 10.0), learnable=True)"


def test_compiles() -> None:
    model = Model()
    x = torch.randn(4, 3)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x), model(x), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"init": 0.001}, ValueError, "strictly between"),
        ({"init": 100.0}, ValueError, "gradient would vanish"),
        ({"init": 200.0, "learnable": False}, ValueError, "within the bounds"),
        ({"init": -1.0}, ValueError, "positive"),
        ({"init": float("nan")}, ValueError, "init"),
        ({"init": "1"}, TypeError, "init"),
        ({"init": True}, TypeError, "init"),
        ({"bounds": (2.0, 0.5)}, ValueError, "lo < hi"),
        ({"bounds": (0.0, 1.5)}, ValueError, "bounds"),
        ({"bounds": (0.5, float("inf"))}, ValueError, "bounds"),
        ({"size": 0}, ValueError, "size"),
        ({"size": 1.5}, TypeError, "size"),
    ],
)
def test_bad_arguments(arguments: dict, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Curvature(**arguments)


@pytest.mark.parametrize("learnable", [True, False])
def test_reset_defines_what_a_meta_device_left_undefined(learnable: bool) -> None:
    with torch.device("meta"):
        curvature = Curvature(0.7, learnable=learnable)
    curvature.to_empty(device="cpu")
    curvature.reset_parameters()
    assert curvature.value.item() == pytest.approx(0.7)


@pytest.mark.parametrize("readers", [1, 2, 8, 9, 30])
def test_shared_readers_get_the_gradients_of_separate_ones(readers: int) -> None:
    curvature = Curvature(0.5)
    x = torch.randn(readers, 4)

    def loss() -> torch.Tensor:
        return sum((row * curvature.radius).square().sum() for row in x) + curvature.value.sum()

    (alone,) = torch.autograd.grad(loss(), curvature.raw)
    with shared_curvatures():
        (shared,) = torch.autograd.grad(loss(), curvature.raw, create_graph=True)
    torch.testing.assert_close(shared, alone)
    (second,) = torch.autograd.grad(shared.sum(), curvature.raw)
    (expected,) = torch.autograd.grad(
        torch.autograd.grad(loss(), curvature.raw, create_graph=True)[0].sum(), curvature.raw
    )
    torch.testing.assert_close(second, expected)


def test_a_change_before_the_backward_pass_is_refused() -> None:
    curvature = Curvature(1.0)
    c = curvature.value
    with torch.no_grad():
        curvature.raw.add_(0.6)
    with pytest.raises(RuntimeError, match="changed in place"):
        c.sum().backward()
