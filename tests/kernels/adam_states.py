"""The arguments of a step of Riemannian Adam, and what it makes of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from beltrami.geometry import Manifold, lorentz
from beltrami.geometry.checks import Scalar
from beltrami.kernels.launch.dtypes import accumulation_dtype
from beltrami.kernels.rows.adam_rows import AdamRates, adam_rows_
from tests.kernels.row_states import MANIFOLDS, covector, random_covectors, table

RATES = AdamRates(0.3, 0.5, 0.9, 0.99, 1e-8)
VARIANTS = {
    "plain": RATES,
    "decay": RATES._replace(decay=0.1),
    "decoupled decay": RATES._replace(keep=0.9),
    "both": RATES._replace(decay=0.1, keep=0.9),
}

# The products of float32 rows are summed in another order, and the ball multiplies that by its
# conformal factor. The interpreter cuts bfloat16 off instead of rounding.
TOLERANCE = {
    torch.float64: 1e-12,
    torch.float32: 1e-5,
    torch.bfloat16: 2**-6,
    torch.float16: 2**-10,
}


@dataclass
class State:
    """The arguments of a step."""

    x: Tensor
    g: Tensor
    p: Tensor
    v: Tensor
    v_max: Tensor | None = None

    def step(
        self,
        rates: AdamRates,
        c: Scalar,
        model: str,
        fused: bool | None = False,
        device: str = "cpu",
    ) -> State:
        """The state after a step, that of this one being left as it is."""
        new = self.to(device=device)
        c = c.to(device) if isinstance(c, Tensor) else c
        adam_rows_(new.x, new.g, new.p, new.v, new.v_max, rates, c=c, model=model, fused=fused)
        return new.to(device="cpu")

    def to(self, **to: object) -> State:
        """A copy."""
        tensors = [None if t is None else t.to(copy=True, **to) for t in self.tensors()]
        return State(*tensors)  # type: ignore[arg-type]

    def tensors(self) -> list[Tensor | None]:
        return [self.x, self.g, self.p, self.v, self.v_max]

    def assert_close(self, other: State, tolerance: float | None = None) -> None:
        """Within the tolerance given, or that of each dtype."""
        for got, expected in zip(self.tensors(), other.tensors(), strict=True):
            if got is not None and expected is not None:
                assert got.dtype == expected.dtype
                assert error(got, expected) <= (
                    TOLERANCE[got.dtype] if tolerance is None else tolerance
                )
            else:
                assert got is None
                assert expected is None


def error(got: Tensor, expected: Tensor) -> float:
    """The largest error of a row over its length and the mean one: short rows are differences."""
    if got.numel() == 0:
        return 0.0
    lengths = expected.double().norm(dim=-1)
    off = (got.double() - expected.double()).norm(dim=-1)
    return float((off / (lengths + lengths.mean()).where(off != 0, 1.0)).max())


def state(
    manifold: Manifold,
    *shape: int,
    dtype: torch.dtype = torch.float64,
    amsgrad: bool = False,
    radius: float = 1.5,
) -> State:
    """A table in the middle of a training.

    In half precision away from the border of a ball, where the last digit of a coordinate decides
    how long a covector is.
    """
    radius = min(radius, 0.5) if dtype.itemsize == 2 else radius
    x = table(manifold, *shape, radius=radius)
    g, p = (random_covectors(manifold, x) for _ in range(2))
    row = *shape[:-1], 1
    v, v_max = (torch.rand(row, dtype=accumulation_dtype(dtype)).add_(0.1) for _ in range(2))
    return State(x.to(dtype), g.to(dtype), p.to(dtype), v, v_max if amsgrad else None)


# --- what the reference and the fused kernel must both do -----------------------------------------


def check_bad_rows(model: str, fused: bool, device: str = "cpu") -> None:
    """Rows that a step would make non-finite stay as they are, and the others do not notice."""
    for variant in ("plain", "both"):
        old = state(MANIFOLDS[model](1.0), 9, 5, dtype=torch.float32, amsgrad=True)
        clean = old.step(VARIANTS[variant], 1.0, model)
        bad, good = [1, 3, 4, 6, 8], [0, 2, 5, 7]
        # 3e19: its square overflows, that of a tenth of it does not
        values = (torch.nan, torch.inf, -torch.inf, 3e19, 1e30)
        for row, value in zip(bad, values, strict=True):
            old.g[row, row % 5] = value
        new = old.step(VARIANTS[variant], 1.0, model, fused, device)
        for before, after, expected in zip(
            old.tensors(), new.tensors(), clean.tensors(), strict=True
        ):
            assert before is not None
            assert after is not None
            assert expected is not None
            if before is not old.g:
                assert torch.equal(after[bad], before[bad])
                assert error(after[good], expected[good]) < TOLERANCE[torch.float32]


def check_rows_without_a_gradient(model: str, fused: bool, device: str = "cpu") -> None:
    """They stay in place bit by bit, so however many steps are taken."""
    x = table(MANIFOLDS[model](1.0), 300, 5, radius=3.0).float()
    zero = torch.zeros_like(x)
    new = State(x, zero, zero, torch.zeros(300, 1)).step(RATES, 1.0, model, fused, device)
    assert torch.equal(new.x, x)
    assert not new.p.any()


def check_the_border(fused: bool, device: str = "cpu") -> None:
    """A step of length 25 straight out ends at the last points of the dtype.

    How long p is there is a matter of the last digit of a coordinate; it is not to grow.
    """
    manifold = MANIFOLDS["poincare"](1.0)
    rates = RATES._replace(step_size=25.0, correction=1.0)
    for dtype, low, high in ((torch.float32, 15.0, 16.0), (torch.bfloat16, 3.8, 4.4)):
        x = table(manifold, 20, 3).to(dtype)
        start = x.double()
        out = covector(manifold, start, -start / manifold.norm(start, start, keepdim=True))
        old = State(x, out.to(dtype), out.to(dtype), torch.ones(20, 1))
        new = old.step(rates, 1.0, "poincare", fused, device)
        end, p = new.x.double(), new.p.double()
        radius = manifold.dist0(end)
        assert low < float(radius.min()) <= float(radius.max()) < high
        length = manifold.norm(end, manifold.riemannian_grad(end, p))
        assert 0.2 < float(length.min()) <= float(length.max()) < 1


def check_steps_across_the_ball(fused: bool, device: str = "cpu") -> None:
    """Whatever the length and the direction of a step from near the border, it ends inside."""
    for c, length in ((1.0, 10.0), (3.7, 10.0), (100.0, 1.0)):
        manifold = MANIFOLDS["poincare"](c)
        x = manifold.project(table(manifold, 2000, 3, radius=12 / c**0.5).float())
        g = torch.randn(2000, 3)
        old = State(x, g, g.clone(), torch.zeros(2000, 1))
        rates = RATES._replace(step_size=length, correction=1.0)
        new = old.step(rates, c, "poincare", fused, device)
        manifold.check_point(new.x)
        assert torch.isfinite(new.p).all()
        assert torch.isfinite(new.v).all()


def check_float16_moments(model: str, fused: bool, device: str = "cpu") -> None:
    """A moment beyond 65504 would be infinite when stored: its row stays."""
    old = state(MANIFOLDS[model](1.0), 6, 5, dtype=torch.float16)
    old.p[2], old.g[2] = 60000.0, 60000.0
    new = old.step(RATES._replace(beta1=0.0, step_size=1e-9), 1.0, model, fused, device)
    assert torch.isfinite(new.p).all()


def check_out_of_range(fused: bool, device: str = "cpu") -> None:
    """A row stays where a distance from its end would overflow, at radius 44 in float32."""
    unit = torch.nn.functional.normalize(torch.randn(20, 4, dtype=torch.float64), dim=-1)
    radius = torch.tensor([30.0, 42.0], dtype=torch.float64).repeat(10)
    x = lorentz.exp0(radius[:, None] * unit, 1.0)
    out = (-unit / lorentz.time(x, 1.0, keepdim=True)).float()  # of length 1
    old = State(x.float(), out, out, torch.ones(20, 1))
    new = old.step(RATES._replace(step_size=5.0, correction=1.0), 1.0, "lorentz", fused, device)
    for before, after in ((old.x, new.x), (old.p, new.p), (old.v, new.v)):
        assert torch.equal(after[1::2], before[1::2])
    travelled = lorentz.dist0(new.x[::2].double(), 1.0) - 30
    torch.testing.assert_close(travelled, torch.full_like(travelled, 5.0), rtol=0.05, atol=0)
