"""The fused step of Riemannian Adam against the reference.

It runs in Triton's interpreter where there is no GPU, and compiled where there is.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from beltrami.geometry.checks import Scalar
from beltrami.kernels.rows.adam_rows import adam_rows_
from tests.gpu import no_waiting
from tests.kernels.adam_states import (
    RATES,
    TOLERANCE,
    VARIANTS,
    State,
    check_bad_rows,
    check_float16_moments,
    check_out_of_range,
    check_rows_without_a_gradient,
    check_steps_across_the_ball,
    check_the_border,
    error,
    state,
)
from tests.kernels.row_states import CURVATURES, MANIFOLDS, relative

triton = pytest.importorskip("triton", reason="Triton comes for Linux alone")
from beltrami.kernels.launch import triton_math  # noqa: E402
from beltrami.kernels.rows import adam_rows_triton  # noqa: E402


@pytest.fixture(params=MANIFOLDS)
def model(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("amsgrad", [False, True])
def test_fused_is_the_reference(
    model: str, variant: str, amsgrad: bool, dtype: torch.dtype, device: str
) -> None:
    rates = VARIANTS[variant]
    for c in (0.3, 1.0):
        old = state(MANIFOLDS[model](c), 11, 17, dtype=dtype, amsgrad=amsgrad)
        new = old.step(rates, c, model, True, device)
        new.assert_close(old.step(rates, c, model))


@pytest.mark.parametrize("width", [1, 2, 3, 5, 17, 64, 300, 513, 8192])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_fused_takes_every_width(model: str, width: int, dtype: torch.dtype, device: str) -> None:
    rows = 130 if width < 64 else 5
    old = state(MANIFOLDS[model](1.0), rows, width, dtype=dtype)
    new = old.step(VARIANTS["both"], 1.0, model, True, device)
    new.assert_close(old.step(VARIANTS["both"], 1.0, model))
    assert not torch.equal(new.x, old.x)


@pytest.mark.parametrize("shape", [(5,), (0, 5), (1, 5), (2, 3, 5), (2, 0, 5), (4, 0)])
def test_fused_takes_every_shape(model: str, shape: tuple[int, ...], device: str) -> None:
    old = state(MANIFOLDS[model](1.0), *shape) if shape[-1] else empty(*shape)
    new = old.step(RATES, 1.0, model, True, device)
    new.assert_close(old.step(RATES, 1.0, model))


def empty(*shape: int) -> State:
    rows = (torch.zeros(shape, dtype=torch.float64) for _ in range(3))
    return State(*rows, torch.zeros(*shape[:-1], 1, dtype=torch.float64))


@pytest.mark.parametrize("curvature", ["tensor", "several", "all"])
def test_fused_reads_curvatures_where_they_are(model: str, curvature: str, device: str) -> None:
    c: Scalar = torch.rand(7, 3, 1, dtype=torch.float64) + 0.5
    c = CURVATURES.get(curvature, c)
    for dtype in (torch.float64, torch.float32):
        old = state(MANIFOLDS[model](c), 7, 3, 5, dtype=dtype)
        own = c.to(dtype) if isinstance(c, Tensor) else c
        new = old.step(VARIANTS["both"], own, model, True, device)
        new.assert_close(old.step(VARIANTS["both"], own, model))


def test_fused_steps_columns_of_a_table(model: str, device: str) -> None:
    """A factor of a product, and several factors, step in place and leave their neighbours."""
    c = CURVATURES["several"]
    manifold = MANIFOLDS[model](c)
    inside, columns = state(manifold, 9, 3, 4, amsgrad=True), slice(2, 14)
    wide = [torch.full((9, 17), 7.0, dtype=torch.float64, device=device) for _ in range(3)]
    narrow = [torch.full((9, 5), 7.0, dtype=torch.float64, device=device) for _ in range(2)]
    for part, whole in zip((inside.x, inside.g, inside.p), wide, strict=True):
        whole[:, columns] = part.flatten(1).to(device)
    for number, whole in zip((inside.v, inside.v_max), narrow, strict=True):
        assert number is not None
        whole[:, 1:4] = number.flatten(1).to(device)
    views = [t[:, columns].unflatten(1, (3, 4)) for t in wide]
    numbers = [t[:, 1:4].unsqueeze(-1) for t in narrow]
    here = c.to(device) if isinstance(c, Tensor) else c
    adam_rows_(*views, *numbers, VARIANTS["both"], c=here, model=model, fused=True)
    got = State(*(t.cpu() for t in (*views, *numbers)))
    got.assert_close(inside.step(VARIANTS["both"], c, model))
    for whole in wide:
        assert bool((whole[:, :2] == 7).all())
        assert bool((whole[:, 14:] == 7).all())
    for whole in narrow:
        assert bool((whole[:, [0, 4]] == 7).all())

    one = state(MANIFOLDS[model](1.0), 9, 4)
    x = torch.full((9, 17), 7.0, dtype=torch.float64, device=device)
    x[:, 3:7] = one.x.to(device)
    expected = one.step(RATES, 1.0, model).x
    rest = [t.to(device) for t in (one.g, one.p, one.v)]
    adam_rows_(x[:, 3:7], *rest, None, RATES, c=1.0, model=model, fused=True)
    assert relative(x[:, 3:7].cpu(), expected) < TOLERANCE[torch.float64]
    assert bool((x[:, :3] == 7).all())
    assert bool((x[:, 7:] == 7).all())


# Interpreted, numpy warns of what is not finite, as is the point here.
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_bad_rows_are_left_alone(model: str, device: str) -> None:
    check_bad_rows(model, True, device)


def test_rows_without_a_gradient_stay_in_place(model: str, device: str) -> None:
    check_rows_without_a_gradient(model, True, device)


def test_a_long_step_stays_in_the_ball(device: str) -> None:
    check_the_border(True, device)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_steps_across_the_ball_end_inside(device: str) -> None:
    check_steps_across_the_ball(True, device)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_moments_beyond_float16_are_not_stored(model: str, device: str) -> None:
    check_float16_moments(model, True, device)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_rows_beyond_the_range_of_the_dtype_are_left_alone(device: str) -> None:
    check_out_of_range(True, device)


def test_fused_takes_rates_that_are_tensors(model: str, device: str) -> None:
    old = state(MANIFOLDS[model](1.0), 4, 5)
    rates = VARIANTS["both"]
    step_size, correction, keep = (torch.tensor(n, dtype=torch.float64) for n in (0.3, 0.5, 0.9))
    tensors = rates._replace(step_size=step_size, correction=correction, keep=keep)
    new = old.step(tensors, 1.0, model, True, device)
    new.assert_close(old.step(rates, 1.0, model))


def test_autograd_sees_what_the_fused_kernel_writes(device: str) -> None:
    now = state(MANIFOLDS["lorentz"](1.0), 4, 5).to(device=device)
    before = [t._version for t in (now.x, now.p, now.v)]
    adam_rows_(now.x, now.g, now.p, now.v, None, RATES, c=1.0, model="lorentz", fused=True)
    assert all(t._version > n for t, n in zip((now.x, now.p, now.v), before, strict=True))
    y = now.x.requires_grad_().square().sum()
    now.x.requires_grad_(False)
    adam_rows_(now.x, now.g, now.p, now.v, None, RATES, c=1.0, model="lorentz", fused=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


# --- which of the two runs ------------------------------------------------------------------------


def count_fused(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows with every call of the fused kernel."""
    calls: list[int] = []
    kernel = adam_rows_triton.adam_rows_triton_

    def counting(*args: object, **options: object) -> None:
        calls.append(1)
        kernel(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(adam_rows_triton, "adam_rows_triton_", counting)
    return calls


def test_the_kernel_is_chosen_by_the_device(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = count_fused(monkeypatch)
    old = state(MANIFOLDS["lorentz"](1.0), 4, 5)
    for fused, on_gpu, on_cpu in ((None, 1, 0), (False, 0, 0), (True, 1, 1)):
        calls.clear()
        old.step(RATES, 1.0, "lorentz", fused, device)
        assert len(calls) == (on_gpu if device == "cuda" else on_cpu)


def test_what_the_fused_kernel_cannot_do_is_left_to_the_reference(
    model: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = count_fused(monkeypatch)
    good = state(MANIFOLDS[model](1.0), 4, 5, dtype=torch.float32).to(device=device)
    wide_row = state(MANIFOLDS[model](1.0), 2, adam_rows_triton.MAX_WIDTH + 1)
    transposed = replace(good, g=good.g.t().contiguous().t())
    expanded = replace(good, g=good.g[:1].expand(4, 5))
    mixed = replace(good, p=good.p.double())
    skewed = state(MANIFOLDS[model](1.0), 2, 3, 5)
    c = torch.tensor([[[0.5]], [[1.0]]], dtype=torch.float64)  # of the first dimension
    for bad, own_c, why in (
        (wide_row, 1.0, "at most 8192 coordinates, got 8193"),
        (transposed, 1.0, "regular distances"),
        (expanded, 1.0, "regular distances"),
        (mixed, 1.0, "cannot mix"),
        (replace(good, v=good.v.double()), 1.0, "cannot mix"),
        (skewed, c, "curvatures of shape"),
    ):
        expected = bad.step(RATES, own_c, model) if "mix" not in why else None
        # As it stands: a copy would lay it out anew.
        args = [None if t is None else t.to(device) for t in bad.tensors()]
        curvature = own_c.to(device) if isinstance(own_c, Tensor) else own_c
        with pytest.raises(ValueError, match=why):
            adam_rows_(*args, RATES, c=curvature, model=model, fused=True)  # type: ignore[arg-type]
        if expected is not None:  # torch does not mix them either
            adam_rows_(*args, RATES, c=curvature, model=model)  # type: ignore[arg-type]
            assert args[0] is not None
            assert error(args[0].cpu(), expected.x) < 1e-5
    assert not calls


def test_on_a_cpu_the_fused_kernel_needs_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_math, "interpreted", lambda: False)
    old = state(MANIFOLDS["lorentz"](1.0), 4, 5)
    with pytest.raises(ValueError, match="it runs on a CUDA device, and x is on cpu"):
        old.step(RATES, 1.0, "lorentz", True)
    old.step(RATES, 1.0, "lorentz", None)


# --- on a GPU -------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("fused", [None, False])
@pytest.mark.parametrize("curvature", ["1", "several"])
def test_waits_for_no_device(model: str, curvature: str, fused: bool | None) -> None:
    c = CURVATURES[curvature]
    old = state(MANIFOLDS[model](c), 20, 3, 5, dtype=torch.float32, amsgrad=True)
    new = old.to(device="cuda")
    c = c.float().cuda() if isinstance(c, Tensor) else c
    for _ in range(2):  # the first loads and compiles
        with no_waiting():
            adam_rows_(*new.tensors(), VARIANTS["both"], c=c, model=model, fused=fused)  # type: ignore[arg-type]
    expected = old.step(VARIANTS["both"], c, model).step(VARIANTS["both"], c, model)
    new.to(device="cpu").assert_close(expected, 1e-5)


@pytest.mark.gpu
def test_a_large_table_in_place(model: str) -> None:
    """Every element of every row is written, and no other."""
    old = state(MANIFOLDS[model](1.0), 4099, 512, dtype=torch.float32)
    padded = [torch.full((4103, 512), 7.0, device="cuda") for _ in range(2)]
    for whole, part in zip(padded, (old.x, old.p), strict=True):
        whole[2:-2] = part.cuda()
    x, p = (t[2:-2] for t in padded)
    v = old.v.cuda()
    adam_rows_(x, old.g.cuda(), p, v, None, RATES, c=1.0, model=model)
    State(x.cpu(), old.g, p.cpu(), v.cpu()).assert_close(old.step(RATES, 1.0, model))
    for whole in padded:
        assert bool((whole[[0, 1, -2, -1]] == 7).all())
