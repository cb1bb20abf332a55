"""Convolutions against the linear layer on receptive fields cut out one by one."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from beltrami.geometry import Curvature, Euclidean, Lorentz, Manifold, PoincareBall
from beltrami.nn.conv import Conv1d, Conv2d, beta_ratio
from beltrami.nn.linear import Linear
from tests.kernels.checks import saved_bytes

IN, OUT = 3, 4
MANIFOLDS = [Lorentz(0.7), PoincareBall(0.7), Euclidean()]
OPTIONS_1D: list[dict[str, Any]] = [
    {"kernel_size": 3},
    {"kernel_size": 3, "stride": 2, "padding": 2, "dilation": 2},
    {"kernel_size": 4, "padding": "same", "dilation": 3},
    {"kernel_size": 1, "bias": False},
]
OPTIONS_2D: list[dict[str, Any]] = [
    {"kernel_size": 3, "padding": 1},
    {"kernel_size": (2, 3), "stride": (1, 2), "padding": (0, 2), "dilation": (2, 1)},
    {"kernel_size": (2, 3), "padding": "same"},
    {"kernel_size": 2, "stride": 3, "bias": False},
]
CASES = [(Conv1d, o, (2, 9)) for o in OPTIONS_1D] + [(Conv2d, o, (2, 7, 6)) for o in OPTIONS_2D]


def _randomised(layer: Any, std: float = 0.4) -> Any:
    with torch.no_grad():
        for p in layer.parameters():
            p.normal_(std=std)
    return layer


def _fields(layer: Conv1d | Conv2d, x: Tensor) -> Tensor:
    """Receptive fields (N, places..., C·K) in the order of the flattened weight, by slicing."""
    pads = layer._pads
    x = F.pad(x, [0, 0, *(n for pair in reversed(pads) for n in pair)])
    places = x.shape[1:-1]
    starts = [
        range(0, n - (k - 1) * d, s)
        for n, k, d, s in zip(places, layer.kernel_size, layer.dilation, layer.stride, strict=True)
    ]
    steps = [range(0, k * d, d) for k, d in zip(layer.kernel_size, layer.dilation, strict=True)]
    fields = []
    for start in itertools.product(*starts):
        cells = [
            x[(slice(None), *(a + b for a, b in zip(start, step, strict=True)))]
            for step in itertools.product(*steps)
        ]
        fields.append(torch.stack(cells, dim=-1).flatten(1))  # (N, C·K)
    return torch.stack(fields, dim=1).unflatten(1, tuple(len(s) for s in starts))


def _as_linear(layer: Conv1d | Conv2d) -> Linear:
    linear = Linear(
        layer.weight[0].numel(),
        OUT,
        manifold=layer.manifold,
        form=layer.form,
        bias=layer.bias is not None,
        time=layer.time,
    ).double()
    state = dict(layer.state_dict())
    state["weight"] = state["weight"].flatten(1)
    linear.load_state_dict(state)
    return linear


@pytest.mark.parametrize("manifold", MANIFOLDS)
@pytest.mark.parametrize(("kind", "options", "shape"), CASES)
def test_is_linear_on_the_receptive_field(
    manifold: Manifold, kind: type, options: dict[str, Any], shape: tuple[int, ...]
) -> None:
    layer = _randomised(kind(IN, OUT, manifold=manifold, **options).double())
    x = manifold.random(*shape, IN, dtype=torch.float64)
    if isinstance(manifold, PoincareBall):  # β-concatenation
        ratio = beta_ratio(layer.weight[0].numel(), IN)
        field = manifold.exp0(_fields(layer, ratio * manifold.log0(x)))
    else:
        field = _fields(layer, x)
    expected = _as_linear(layer)(field)
    out = layer(x)
    assert out.shape == expected.shape
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize(("kind", "options", "shape"), CASES)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.filterwarnings("ignore:Using padding='same'")  # torch pads even kernels by a copy, too
def test_flat_is_the_convolution_of_torch(
    kind: type, options: dict[str, Any], shape: tuple[int, ...], bias: bool
) -> None:
    options = {**options, "bias": bias}
    layer = kind(IN, OUT, manifold=Euclidean(), **options)
    torch_kind = torch.nn.Conv1d if kind is Conv1d else torch.nn.Conv2d
    twin = torch_kind(IN, OUT, **options)
    twin.load_state_dict(layer.state_dict())
    x = torch.randn(*shape, IN)
    torch.testing.assert_close(layer(x), twin(x.movedim(-1, 1)).movedim(1, -1))


def test_time_of_the_receptive_field() -> None:
    """With the time column alone, out = τ of the concatenated point, √(Σtᵢ² − (K−1)/c) − 1/√c."""
    c = 0.6
    layer = Conv1d(IN, 1, 3, manifold=Lorentz(c), padding=1, bias=False).double()
    with torch.no_grad():
        layer.weight.zero_()
        layer.time_weight.fill_(1)
    x = torch.randn(1, 5, IN, dtype=torch.float64)
    t2 = 1 / c + F.pad(x, (0, 0, 1, 1)).square().sum(-1)[0]  # origins outside
    for i in range(5):
        time = math.sqrt(t2[i : i + 3].sum() - 2 / c)
        assert layer(x)[0, i, 0].item() == pytest.approx(time - c**-0.5)


def test_time_starts_at_zero_and_can_be_left_out() -> None:
    layer = Conv2d(IN, OUT, 3, manifold=Lorentz())
    assert (layer.time_weight == 0).all()
    x = torch.randn(2, 5, 5, IN)
    plain = Conv2d(IN, OUT, 3, manifold=Lorentz(), time=False)
    assert plain.time_weight is None
    plain.load_state_dict(layer.state_dict(), strict=False)
    torch.testing.assert_close(layer(x), plain(x))
    layer(x).square().sum().backward()
    assert (layer.time_weight.grad != 0).all()


@pytest.mark.parametrize(("kind", "form"), [(Lorentz, "htc"), (PoincareBall, "hnnpp")])
@pytest.mark.parametrize("layer_kind", [Conv1d, Conv2d])
def test_flat_limit(kind: type, form: str, layer_kind: type) -> None:
    options = {"kernel_size": 3, "padding": 1, "stride": 2}
    twin = _randomised(layer_kind(IN, OUT, manifold=Euclidean(), form=form, **options).double())
    v = torch.randn(2, *[6] * twin._dims, IN, dtype=torch.float64)
    errors = []
    for c in (1e-2, 1e-4, 1e-6):
        layer = layer_kind(IN, OUT, manifold=kind(c), form=form, **options).double()
        layer.load_state_dict(twin.state_dict(), strict=False)
        if layer.time_weight is not None:
            torch.nn.init.constant_(layer.time_weight, 0.4)
        out = layer.manifold.log0(layer(layer.manifold.exp0(v)))
        errors.append((out - twin(v)).abs().max().item())
    rate = 0.15 if form == "htc" else 0.02  # the time column's √c, or c
    assert errors[1] < rate * errors[0]
    assert errors[2] < rate * errors[1]


def test_beta_ratio() -> None:
    def beta(n: int) -> float:
        return math.gamma(n / 2) * math.gamma(0.5) / math.gamma((n + 1) / 2)

    assert beta_ratio(27, 3) == pytest.approx(beta(27) / beta(3))
    assert beta_ratio(5, 5) == 1.0
    assert beta_ratio(9 * 4096, 4096) == pytest.approx(1 / 3, rel=1e-3)


@pytest.mark.parametrize(("kind", "form"), [(Lorentz, "htc"), (PoincareBall, "hnnpp")])
def test_gradients(kind: type, form: str) -> None:
    curvature = Curvature(0.8).double()
    layer = _randomised(
        Conv1d(2, 2, 2, manifold=kind(curvature), form=form, padding=1, stride=2).double()
    )
    x = kind(0.8).random(1, 3, 2, dtype=torch.float64)
    x[0, 0] = 0
    names = [n for n, _ in layer.named_parameters()]
    module = torch.nn.ModuleDict({"layer": layer, "curvature": curvature})
    module.forward = layer.forward  # type: ignore[method-assign]

    def call(x: Tensor, raw: Tensor, *parameters: Tensor) -> Tensor:
        state = {f"layer.{n}": p for n, p in zip(names, parameters, strict=True)}
        return torch.func.functional_call(module, {**state, "curvature.raw": raw}, (x,))

    inputs = [x, torch.tensor([0.1], dtype=torch.float64), *layer.parameters()]
    inputs = [t.detach().requires_grad_() for t in inputs]
    assert torch.autograd.gradcheck(call, inputs)
    assert torch.autograd.gradgradcheck(call, inputs)


def test_ball_keeps_few_copies_of_its_output() -> None:
    layer = Conv1d(2, 200, 3, manifold=PoincareBall())
    x = PoincareBall().random(10, 50, 2).requires_grad_()
    assert saved_bytes(lambda: layer(x)) < 3.5 * layer(x).nbytes


@pytest.mark.parametrize("manifold", MANIFOLDS)
def test_any_leading_dimensions(manifold: Manifold) -> None:
    layer = _randomised(Conv2d(IN, OUT, 3, manifold=manifold))
    x = manifold.random(2, 3, 5, 5, IN)
    out = layer(x)
    assert out.shape == (2, 3, 3, 3, OUT)
    torch.testing.assert_close(out[1, 2], layer(x[1, 2]))
    assert layer(x[:0]).shape == (0, 3, 3, 3, OUT)
    manifold.check_point(out)


@pytest.mark.parametrize("std", [3.0, 100.0])
def test_ball_outputs_stay_inside(std: float) -> None:
    ball = PoincareBall(1.0)
    layer = _randomised(Conv1d(IN, OUT, 3, manifold=ball, bias=False), std=std)
    out = layer(ball.random(20, 9, IN, std=1.0))
    assert ball.dist0(out).isfinite().all()
    assert ball.dist0(out).median() > 7  # the case is there
    out.sum().backward()
    assert layer.weight.grad.isfinite().all()


@pytest.mark.parametrize("manifold", MANIFOLDS)
def test_autocast(manifold: Manifold) -> None:
    layer = _randomised(Conv1d(IN, OUT, 3, manifold=manifold), std=0.2)
    x = manifold.random(4, 9, IN, std=0.5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = layer(x)
    # Points of the ball keep their float32: a ball of bfloat16 ends at a radius of 4.
    ball = isinstance(manifold, PoincareBall)
    assert out.dtype == (torch.float32 if ball else torch.bfloat16)
    torch.testing.assert_close(out.float(), layer(x), rtol=0.02, atol=0.02)


def test_repr_names_the_time_column() -> None:
    assert "time=True" in repr(Conv1d(IN, OUT, 3, manifold=Lorentz()))
    assert "time=False" in repr(Conv1d(IN, OUT, 3, manifold=Lorentz(), time=False))


def test_errors() -> None:
    with pytest.raises(ValueError, match=r"Conv1d: form must be one of 'hnnpp'; got 'htc'"):
        Conv1d(IN, OUT, 3, manifold=PoincareBall(), form="htc")
    with pytest.raises(ValueError, match=r"padding='same' needs stride 1, got \(2,\)"):
        Conv1d(IN, OUT, 3, manifold=Lorentz(), padding="same", stride=2)
    with pytest.raises(ValueError, match=r"padding must be one of 'same', 'valid'; got 'full'"):
        Conv1d(IN, OUT, 3, manifold=Lorentz(), padding="full")
    with pytest.raises(ValueError, match=r"padding must be at least 0, got -1"):
        Conv1d(IN, OUT, 3, manifold=Lorentz(), padding=-1)
    with pytest.raises(ValueError, match=r"kernel_size must be one integer or 2 of them"):
        Conv2d(IN, OUT, (3, 3, 3), manifold=Lorentz())
    layer = Conv2d(IN, OUT, 3, manifold=Lorentz(), dilation=2)
    with pytest.raises(ValueError, match=r"\(\.\.\., H, W, 3\), channels last, got \(4, 3\)"):
        layer(torch.zeros(4, IN))
    with pytest.raises(ValueError, match=r"needs 5 positions.*x has shape \(1, 6, 4, 3\)"):
        layer(torch.zeros(1, 6, 4, IN))
    with pytest.raises(ValueError, match=r"takes x of shape \(\.\.\., 3\), got \(1, 3, 6, 6\)"):
        layer(torch.zeros(1, IN, 6, 6))
