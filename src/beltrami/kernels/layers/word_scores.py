r"""Scores of the words of a vocabulary for Lorentz points, as functions of one matrix product.

With p = x·Wᵀ, one number r a point and up to four numbers a word, a score is

    s = G·f(A·p + B·r + C),

| kind         | score              | f          | r   | A           | B         | C   | G      |
|--------------|--------------------|------------|-----|-------------|-----------|-----|--------|
| "linear"     | w·x + b·τ(x)       | u          | τ   | 1           | b         | 0   | 1      |
| "hyperplane" | abs(w)·d(x, plane) | asinh(u)   | t/R | cosh α/(Rn) | −sinh α   | 0   | R·n    |
| "distance"   | −d(x, w)²/T        | asinh²(√u) | τ/R | −1/(2R²)    | (1 + e)/2 | e/2 | −4R²/T |

where R = 1/√c is the radius of curvature, t = √(R² + |x|²) time, τ = t − R its excess, n = |w|,
α = a/R of the offset a of a plane, and e = τ(w)/R. The argument of "distance" is sinh²(√c·d/2),
of which no part cancels but the product itself. As c → 0 the scores tend to w·x, w·x − a|w| and
−|x − w|²/T. Times are taken of the numbers that are multiplied, in the dtype that they have there.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.linalg import vector_norm

from beltrami.geometry.checks import Scalar
from beltrami.geometry.chord import over, root
from beltrami.geometry.plane_frame import over_or_same
from beltrami.kernels.launch.dtypes import accumulation_dtype, matmul_dtype, no_autocast, upcast
from beltrami.kernels.launch.shapes import as_matrix

Kind = Literal["linear", "hyperplane", "distance"]
Columns = tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]


class ScoreTerms(NamedTuple):
    """What a score is made of beside the product; the names of the formula above.

    `row` is (..., 1); the others are (V,), or (1,) where all words have the same number. Those that
    are None are 1 if they multiply and 0 if they are added.
    """

    kind: Kind
    row: Tensor | None = None  # r
    scale: Tensor | None = None  # A
    slope: Tensor | None = None  # B
    shift: Tensor | None = None  # C
    gain: Tensor | None = None  # G

    @property
    def columns(self) -> Columns:
        """A, B, C and G."""
        return self[2:]


def linear_terms(x: Tensor, time_weight: Tensor, radius: Scalar = 1.0) -> ScoreTerms:
    """`w·x + b·τ(x)`. Without time the terms are `ScoreTerms("linear")`.

    Args:
        x: points, (..., d).
        time_weight: b, (V,).
        radius: R = 1/√c, a number or a tensor (1,).
    """
    return ScoreTerms("linear", row=_times(x, radius)[1], slope=time_weight)


def hyperplane_terms(x: Tensor, weight: Tensor, offset: Tensor, radius: Scalar = 1.0) -> ScoreTerms:
    """`|w|·d(x, plane)`, as `beltrami.nn.MLR(form="lorentz")`; a word with w = 0 has score 0.

    Args:
        x: points, (..., d).
        weight: normals w, (V, d), whose lengths scale the scores.
        offset: a, (V,), distances of the planes from the origin.
        radius: R = 1/√c, a number or a tensor (1,).

    In bfloat16, with the float32 results of `word_products`, nothing but x and w is rounded: scores
    are off by 2e-6 of their standard deviation from those of the rounded x and w (measured for
    d ≤ 2048, √c·|x| ≤ 64), where a product rounded to bfloat16 costs 1e-2. Rounding x moves a point
    by a distance of up to 2⁻⁹·|x|, and its scores by up to 2⁻⁹·|w||x|, as in a linear layer. But
    scores grow like log |x|: relative to them this is √c·|x|/asinh(√c·|x|) times what a linear
    layer has, 2 at √c·|x| = 4, 5 at 16 and 13 at 64. Farther out, run the product in float32.
    """
    alpha = upcast(offset) / radius
    n = _times(weight, radius)[2].squeeze(-1)
    return ScoreTerms(
        "hyperplane",
        row=_times(x, radius)[0] / radius,
        scale=over_or_same(torch.cosh(alpha), radius * n),
        slope=-torch.sinh(alpha),
        gain=radius * n,
    )


def distance_terms(
    x: Tensor, weight: Tensor, temperature: Scalar = 1.0, radius: Scalar = 1.0
) -> ScoreTerms:
    """`−d(x, w)²/T`, as `beltrami.nn.DistanceClassifier`, with one point a word.

    Args:
        x: points, (..., d).
        weight: points, (V, d).
        temperature: T, a number or a tensor (1,).
        radius: R = 1/√c, a number or a tensor (1,).
    """
    excess = _times(weight, radius)[1].squeeze(-1) / radius
    unit = torch.ones_like(excess[:1])
    return ScoreTerms(
        "distance",
        row=_times(x, radius)[1] / radius,
        scale=-0.5 * unit / (radius * radius),
        slope=0.5 + 0.5 * excess,
        shift=0.5 * excess,
        gain=-4.0 * unit * (radius * radius) / temperature,
    )


def word_products(x: Tensor, weight: Tensor) -> Tensor:
    """`x·Wᵀ` of (..., d) and (V, d), of autocast's dtype but in float32: not rounded any more.

    `F.linear` rounds its result to bfloat16, by up to 0.2 percent. Scores of "hyperplane" and
    "distance" are made of small differences of products, which do not survive it.
    """
    dtype = matmul_dtype(x)
    x, weight = x.to(dtype), weight.to(dtype)
    with no_autocast(x):
        if torch.is_grad_enabled():  # `product` has no gradient
            return upcast(x) @ upcast(weight).mT
        return product(as_matrix(x), weight.mT).view(*x.shape[:-1], weight.shape[0])


def word_scores(products: Tensor, terms: ScoreTerms) -> Tensor:
    """Scores of the words, (..., V), from the products `x·Wᵀ`; in float32 at least."""
    value = value_of(argument_of(upcast(products), terms.row, terms.columns), terms.kind)
    return value if terms.gain is None else terms.gain * value


def argument_of(p: Tensor, row: Tensor | None, columns: Columns) -> Tensor:
    """A·p + B·r + C."""
    scale, slope, shift, _ = columns
    u = p if scale is None else scale * p
    if row is not None and slope is not None:
        u = torch.addcmul(u, row, slope)
    return u if shift is None else u + shift


def value_of(u: Tensor, kind: Kind) -> Tensor:
    """The function f of the formula above; an u below 0 is 0 for "distance"."""
    if kind == "linear":
        return u
    if kind == "hyperplane":
        return torch.asinh(u)
    q = torch.where(u <= 0, 0.0, u)
    # asinh(√q), through the logarithm that CPUs vectorise
    return torch.log1p(root(q) + q / (1 + torch.sqrt(1 + q))).square()


def slope_of(u: Tensor, value: Tensor, kind: Kind) -> Tensor:
    """The derivative of f where its value is known; 0 where "distance" has an u of at most 0."""
    if kind == "linear":
        return torch.ones_like(u)
    if kind == "hyperplane":
        return 1 / torch.hypot(u, torch.ones_like(u))
    q = torch.where(u <= 0, 0.0, u)
    return torch.sqrt(over(value, q) / (1 + q))


def product(a: Tensor, b: Tensor) -> Tensor:
    """The product of two matrices of one dtype, in float32 at least; without a gradient."""
    if a.dtype == accumulation_dtype(a.dtype):
        return torch.mm(a, b)
    if a.is_cuda:
        return torch.mm(a, b, out_dtype=torch.float32)
    return torch.mm(upcast(a), upcast(b))


def _times(x: Tensor, radius: Scalar) -> tuple[Tensor, Tensor, Tensor]:
    """t, τ and |x|, (..., 1) each, of points in the dtype in which they are multiplied."""
    x = x.to(matmul_dtype(x))
    n = vector_norm(x, dim=-1, keepdim=True, dtype=accumulation_dtype(x.dtype))
    t = torch.hypot(n, radius if isinstance(radius, Tensor) else n.new_full((1,), radius))
    return t, n * (n / (t + radius)), n
