"""The fused sums of e^{−distance} against the plain ones.

They run in Triton's interpreter where there is no GPU, and compiled where there is.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from beltrami.geometry import lorentz
from beltrami.kernels.launch import dispatch
from beltrami.kernels.pairs import distance_mass as plain
from beltrami.kernels.pairs.distance_mass import distance_mass

pytest.importorskip("triton", reason="Triton comes for Linux alone")
from beltrami.kernels.pairs import distance_mass_triton

F64 = torch.float64
KERNEL_COLUMNS = distance_mass_triton.COLUMNS * distance_mass_triton.TILES


def points(n: int, d: int, seed: int, *, radius: float = 6.0, c: float = 1.0) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    v = torch.nn.functional.normalize(torch.randn(n, d, generator=g, dtype=F64), dim=-1)
    v = v * radius * torch.rand(n, 1, generator=g, dtype=F64)
    return lorentz.exp0(v / math.sqrt(c), c) if c else v


def both(
    x: Tensor, y: Tensor, weights: Tensor, c: float, *, fused: bool, device: str = "cpu"
) -> list[Tensor]:
    """The masses and the gradients of a weighted sum of them, on the CPU."""
    x, y = (t.detach().to(device).requires_grad_() for t in (x, y))
    mass = distance_mass(x, y, weights.to(device), c, fused=fused)
    scale = torch.linspace(0.5, 2.0, len(mass), dtype=mass.dtype, device=device)
    gradients = torch.autograd.grad((mass * scale).sum(), (x, y))
    return [t.detach().cpu() for t in (mass, *gradients)]


def check(x: Tensor, y: Tensor, weights: Tensor, device: str, c: float = 1.0) -> None:
    found = both(x, y, weights, c, fused=True, device=device)
    expected = both(x, y, weights, c, fused=False)
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("c", [0.0, 0.3, 1.0, 2.5])
@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.float16, F64], ids=str)
def test_fused_is_the_plain_one(c: float, dtype: torch.dtype, device: str) -> None:
    g = torch.Generator().manual_seed(0)
    weights = torch.rand(19, 150, generator=g)
    weights = weights < 0.6 if dtype == torch.bool else (3 * weights).to(dtype)
    check(points(19, 5, 1, c=c), points(150, 5, 2, c=c), weights, device, c)


@pytest.mark.parametrize("width", [1, 2, 10, 33, 64])
def test_every_width(width: int, device: str) -> None:
    check(points(17, width, 1), points(30, width, 2), torch.rand(17, 30) < 0.5, device)


@pytest.mark.parametrize(
    ("n", "m"), [(0, 4), (3, 0), (1, 1), (16, 128), (33, 129), (2, KERNEL_COLUMNS + 1)]
)
def test_every_shape(n: int, m: int, device: str) -> None:
    check(points(n, 3, 1), points(m, 3, 2), torch.ones(n, m, dtype=torch.bool), device)


def test_non_contiguous(device: str) -> None:
    x, y = points(8, 6, 1)[::2, 1::2], points(3, 9, 2).T
    check(x, y, torch.rand(9, 4, dtype=F64).T, device)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_narrow_points_are_computed_in_float64(dtype: torch.dtype, device: str) -> None:
    x, y = points(6, 4, 1).to(dtype), points(7, 4, 2).to(dtype)
    weights = torch.rand(6, 7) < 0.7
    found = both(x, y, weights, 0.7, fused=True, device=device)
    for a, b in zip(found, both(x, y, weights, 0.7, fused=False), strict=True):
        assert a.dtype == b.dtype
        torch.testing.assert_close(a, b, rtol=torch.finfo(a.dtype).eps, atol=0)


@pytest.mark.parametrize("radius", [0.0, 1.0, 6.0, 18.0, 40.0])
@pytest.mark.parametrize("c", [0.0, 1.0, 2.0])
def test_coincident_points_pull_nowhere(radius: float, c: float, device: str) -> None:
    v = torch.nn.functional.normalize(torch.randn(5, 3, dtype=F64), dim=-1)
    x = lorentz.exp0(v * radius / math.sqrt(c), c) if c else v * radius
    eye = torch.eye(5, dtype=torch.bool)
    mass, *gradients = both(x, x.clone(), eye, c, fused=True, device=device)
    assert torch.equal(mass, torch.ones(5, dtype=F64))
    assert not any(g.any() for g in gradients)


@pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered")  # the interpreter's
@pytest.mark.parametrize("radius", [300.0, 350.0])
def test_finite_at_the_ends_of_float64(radius: float, device: str) -> None:
    """Where a product of times overflows the mass is 0, and so is its gradient."""
    x = torch.tensor([[radius, 0.0], [0.0, -radius], [0.0, 0.0]], dtype=F64)
    x = lorentz.exp0(x)
    weights = ~torch.eye(3, dtype=torch.bool)
    mass, *gradients = both(x, x.clone(), weights, 1.0, fused=True, device=device)
    assert mass.isfinite().all()
    assert mass[2] > 0
    assert all(g.isfinite().all() for g in gradients)


def test_the_same_bits_each_time(device: str) -> None:
    x, y, weights = points(40, 5, 1), points(2000, 5, 2), torch.rand(40, 2000) < 0.5
    first, second = (both(x, y, weights, 1.0, fused=True, device=device) for _ in range(2))
    assert all(map(torch.equal, first, second))


@pytest.mark.gpu
def test_is_taken_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without being asked for; the plain one would be called otherwise."""
    monkeypatch.delattr(plain, "_mass_and_slope")
    x = points(5, 3, 1).cuda()
    assert distance_mass(x, x, torch.ones(5, 5, device="cuda")).isfinite().all()


def test_says_what_it_cannot_take(device: str) -> None:
    wide = points(2, distance_mass_triton.MAX_WIDTH + 1, 1).to(device)
    weights = torch.ones(2, 2, device=device)
    with pytest.raises(ValueError, match=r"fused=True.*up to 64 coordinates, got 65"):
        distance_mass(wide, wide, weights, fused=True)
    assert distance_mass(wide, wide, weights).isfinite().all()


def test_needs_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "triton_module", lambda name: None)
    x = points(2, 3, 1)
    with pytest.raises(ValueError, match=r"fused=True.*Triton is not installed"):
        distance_mass(x, x, torch.ones(2, 2), fused=True)
