"""Class scores of points: hyperplanes, horospheres, and distances to prototypes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from beltrami.checks import check_choice, check_integer, check_positive
from beltrami.geometry import (
    Euclidean,
    Lorentz,
    Manifold,
    PoincareBall,
    hyperplane,
    lorentz,
    poincare,
)
from beltrami.geometry.checks import Scalar
from beltrami.geometry.chord import dot, root
from beltrami.geometry.plane_frame import scaled_sinh
from beltrami.geometry.radial_map import sum_to
from beltrami.kernels.launch.dtypes import accumulation_dtype, no_autocast
from beltrami.nn.embedding import check_radius, init_points
from beltrami.nn.layer import Layer, check_form

_FORMS: dict[type[Manifold], tuple[str, ...]] = {
    Lorentz: ("lorentz", "busemann"),
    PoincareBall: ("hnnpp", "poincare", "busemann"),
    Euclidean: ("lorentz", "hnnpp", "poincare", "busemann"),
}

# What each form has next to its `weight`.
_SECOND = {"lorentz": "offset", "hnnpp": "offset", "poincare": "point", "busemann": "bias"}


class MLR(Layer):
    r"""Multinomial logistic regression: a score a class, for a softmax.

    z_k are the rows of `weight` (classes, size), d is the signed distance to a hyperplane, and
    v = log0(x), in which the limits c → 0 are told.

    - **lorentz** (Lorentz; Bdeir et al. 2024): `|z|·d` to the hyperplane with normal z at distance
      a from the origin, a the `offset` (classes,). Limit `z·v − a|z|`.
    - **hnnpp** (ball; Shimizu et al. 2021): `2|z|·d` to the one at distance 2r, r the `offset`
      (classes,). Limit `2z·v − 4r|z|`.
    - **poincare** (ball; Ganea et al. 2018): `|z|·d` to the one through p with normal z, p the
      `point` (classes, size). Limit `z·(v − log0(p))`.
    - **busemann** (both; Chen et al. 2026): `−|z|·B(x) + b` with the Busemann function B of the
      ideal point in the direction of z, b the `bias` (classes,). Limit `z·v + b`.

    In "poincare", p is a parameter on the ball and the normal is z carried to it from the origin;
    in the paper's notation |z| is λ(p)|a|. The level sets of "busemann" are horospheres, not
    hyperplanes, and its limit is reached at the rate √c, those of the others at c. With
    `manifold=Euclidean()` a form is its own limit, an affine map of v; "lorentz" is the default
    there and on the Lorentz model, "hnnpp" on the ball.

    Every form is one matrix product, which is also all of the size of its result that is kept for
    the backward pass. It runs in float32 at least, also under autocast, since scores come from
    small differences of large products. In float32 the hyperplane forms have an absolute error of
    about eps·e^{√c(r + |a|)}/4 in α = sinh(√c·d)/√c; where points lie far out, let the product run
    in float64. Busemann functions would have one of 2 eps·e^{2√c·r} in √c·B for points in the
    direction of their ideal point, where the best scores are, so "busemann" runs in float64 unless
    told otherwise (1e-6 up to √c·r = 10).

    Args:
        size: of the points. classes: number of scores.
        manifold: of the points.
        form: see above; the first of the manifold's if None.
        product_dtype: of the matrix product; None for the form's default, and on Euclidean.

    Shapes: (..., size) to (..., classes), float32 or float64; they are scores, not points.
    """

    def __init__(
        self,
        size: int,
        classes: int,
        *,
        manifold: Manifold,
        form: str | None = None,
        product_dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(manifold)
        self.size = check_integer("MLR: size", size)
        self.classes = check_integer("MLR: classes", classes)
        self.form = check_form(form, _FORMS, manifold, "MLR")
        if product_dtype not in (None, torch.float32, torch.float64):
            raise ValueError(
                f"MLR: product_dtype must be torch.float32, torch.float64 or None; "
                f"got {product_dtype}"
            )
        if product_dtype is not None and isinstance(manifold, Euclidean):
            raise ValueError(
                f"MLR: product_dtype is for hyperbolic scores, which lose digits far out; on "
                f"{manifold!r} leave it None, got {product_dtype}"
            )
        self.product_dtype = product_dtype
        self.weight = nn.Parameter(torch.empty(classes, size))
        self.offset = nn.Parameter(torch.empty(classes)) if self._second == "offset" else None
        self.bias = nn.Parameter(torch.empty(classes)) if self._second == "bias" else None
        self.point = nn.Parameter(torch.empty(classes, size)) if self._second == "point" else None
        if self.point is not None:
            self.manifold_of["point"] = manifold
        self.reset_parameters()

    @property
    def _second(self) -> str:
        return _SECOND[self.form]

    @property
    def manifold_out(self) -> Manifold:
        """`Euclidean()`: scores are numbers."""
        return Euclidean()

    def reset_parameters(self) -> None:
        """Normals of length 1 on average, hyperplanes and horospheres through the origin."""
        nn.init.normal_(self.weight, std=self.size**-0.5)
        nn.init.zeros_(getattr(self, self._second))

    def forward(self, x: Tensor) -> Tensor:
        """Points (..., size) to scores (..., classes)."""
        self.check_size(x, self.size)
        second: Tensor = getattr(self, self._second)
        if isinstance(self.manifold, Euclidean):
            return _AFFINE[self.form](x, self.weight, second)
        c, dtype = self.manifold.c_like(x), accumulation_dtype(x.dtype)
        product = self._product_dtype(x)
        if isinstance(self.manifold, PoincareBall):
            # Lorentz coordinates rounded to float32 would leave a float64 product nothing to save.
            x = poincare.to_lorentz(x.to(torch.promote_types(dtype, product)), c)
        x = x.to(torch.promote_types(x.dtype, dtype))
        normals, offsets = self.weight.to(x.dtype), second.to(x.dtype)
        if self.form == "busemann":
            return (busemann_logits(x, normals, c, product) + offsets).to(dtype)
        factor = 1.0
        if self.form == "hnnpp":
            offsets, factor = 2 * offsets, 2.0
        elif self.form == "poincare":
            normals, offsets = _through_point(poincare.to_lorentz(offsets, c), normals, c)
        out = hyperplane.hyperplane_logits(x, normals, offsets, c, product_dtype=product)
        return (factor * out).to(dtype)

    def _product_dtype(self, x: Tensor) -> torch.dtype:
        if self.product_dtype is not None:
            return self.product_dtype
        if self.form == "busemann" and x.device.type != "mps":  # which has no float64
            return torch.float64
        return accumulation_dtype(x.dtype)

    def no_weight_decay(self) -> set[str]:
        """All but the normals."""
        return {self._second}

    def extra_repr(self) -> str:
        """The arguments that print(module) shows."""
        extra = "" if self.product_dtype is None else f", product_dtype={self.product_dtype}"
        return f"{self.size}, {self.classes}, manifold={self.manifold!r}, form={self.form!r}{extra}"


def _through_point(p: Tensor, z: Tensor, c: Scalar) -> tuple[Tensor, Tensor]:
    """Normals (k, d) and offsets (k,) of the hyperplanes through p with normal z carried to p.

    The carried normal is the ambient vector n = z + c(p·z)/(1 + T)·p with time √c(p·z), and a point
    x has α = (n·x − √c(p·z)·t)/|z|: so the hyperplane is that of the direction n̂, at
    sinh(√c a) = √c·p·ẑ from the origin, and the score's scale |z| moves to n̂.
    """
    length = root(dot(z, z))
    carried = lorentz.transport_from0(p, z, c)
    normals = carried * (length / _or_one(root(dot(carried, carried))))
    offsets = hyperplane.signed_dist(p, z, 0.0, c)
    return normals, offsets


def busemann_logits(x: Tensor, z: Tensor, c: Scalar, product: torch.dtype) -> Tensor:
    r"""`−|z|·B(x)` for the ideal points in the directions z of all pairs, (..., k).

    The light-cone coordinate `√c(t − x·ẑ)`, whose log is √c·B, is taken as it stands near the
    origin, and farther out as a sum of two terms that are not negative,
    `1/(T + √c|x|) + √c|x|·(1 − x̂·ẑ)`. Directions and their product are made in `product`.
    """
    xw, zw = x.to(product), z.to(product)
    n2, length = dot(xw, xw), root(dot(zw, zw))  # (..., 1), (k, 1)
    near = c * n2 < 1
    n = torch.where(near, 1.0, n2).sqrt()
    with no_autocast(x):
        along = (xw / n) @ (zw / _or_one(length)).mT  # x·ẑ where near, else the cosine
    n2, n, length = (t.to(x.dtype) for t in (n2, n, length))
    t, root_c = torch.sqrt(1 + c * n2), c**0.5
    base = torch.where(near, c * n2 / (1 + t), 1 / (t + root_c * n))
    scale = -length.squeeze(-1) / root_c
    out: Tensor = _LogLight.apply(along, base, root_c * n, scale, near)
    return out


class _LogLight(torch.autograd.Function):
    """`scale·log1p(base − slope·along)` where near, else `scale·log(base + slope·(1 − along))`.

    along (..., k) has a dtype of its own and is all that is saved of its size; base, slope and near
    are (..., 1), scale is (k,).
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(along: Tensor, base: Tensor, slope: Tensor, scale: Tensor, near: Tensor) -> Tensor:
        by_slope = _by_slope(along, near, base.dtype)
        rest = base + slope * by_slope
        return scale * torch.where(near, torch.log1p(rest), torch.log(torch.where(near, 1.0, rest)))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        along, base, slope, scale, near = ctx.saved_tensors
        by_slope = _by_slope(along, near, base.dtype)
        rest = base + slope * by_slope
        light = torch.where(near, 1 + rest, rest)
        h = g * scale / light
        moves = near | (along < 1)
        ga = torch.where(moves, -h * slope, 0.0).to(along.dtype)
        log = torch.where(near, torch.log1p(torch.where(near, rest, 0.0)), torch.log(light))
        return ga, sum_to(h, base), sum_to(h * by_slope, slope), sum_to(g * log, scale), None


def _by_slope(along: Tensor, near: Tensor, dtype: torch.dtype) -> Tensor:
    """−along where near, else 1 − along, which rounding may carry past 0."""
    turn = torch.where(near, -along, torch.where(along < 1, 1 - along, 0.0))
    return turn if turn.dtype == dtype else turn.to(dtype)


def _or_one(length: Tensor) -> Tensor:
    return torch.where(length > 0, length, 1.0)


# --- the limits c → 0 -----------------------------------------------------------------------------


def _affine(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    wide = accumulation_dtype(x.dtype)
    with no_autocast(x):
        return x.to(wide) @ weight.to(wide).mT + bias


def _length(weight: Tensor) -> Tensor:
    return root(dot(weight, weight)).squeeze(-1)


_AFFINE: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "lorentz": lambda x, z, a: _affine(x, z, -a * _length(z)),
    "hnnpp": lambda x, z, r: _affine(x, 2 * z, -4 * r * _length(z)),
    "poincare": lambda x, z, p: _affine(x, z, -dot(z, p).squeeze(-1)),
    "busemann": _affine,
}


# --- prototypes -----------------------------------------------------------------------------------


class DistanceClassifier(Layer):
    """Scores from distances to one learnable point a class: `−d(x, p_k)²/T`.

    d is the geodesic distance with `form="geodesic"` (prototypical networks, Snell et al. 2017), or
    the Lorentzian one with `form="chord"`: `|x − p|²_L = (4/c)·sinh²(√c·d/2)`, which grows like
    e^{√c·d} (Law et al. 2019). Both become `−|x − p_k|²/T` as c → 0 and with
    `manifold=Euclidean()`. The temperature T is learned as its logarithm.

    Distances come from all pairs at once, in memory of a few times the size of the result.

    Args:
        size: of the points. classes: number of prototypes.
        manifold: of the points and the prototypes.
        form: "geodesic" or "chord".
        radius: root mean square distance of the prototypes from the origin at the start.
        temperature: T at the start.

    Shapes: (..., size) to (..., classes), float32 or float64. Parameters: `weight` (classes, size),
    points; `log_temperature` (1,).
    """

    def __init__(
        self,
        size: int,
        classes: int,
        *,
        manifold: Manifold,
        form: str = "geodesic",
        radius: float = 1.0,
        temperature: float = 1.0,
    ) -> None:
        super().__init__(manifold)
        self.size = check_integer("DistanceClassifier: size", size)
        self.classes = check_integer("DistanceClassifier: classes", classes)
        self.form = check_choice("DistanceClassifier: form", form, ("geodesic", "chord"))
        self.radius = check_radius(radius, manifold, "DistanceClassifier")
        self.temperature = check_positive("DistanceClassifier: temperature", temperature)
        self.weight = nn.Parameter(torch.empty(classes, size))
        self.log_temperature = nn.Parameter(torch.empty(1))
        self.manifold_of["weight"] = manifold
        self.log_scales.add("log_temperature")
        self.reset_parameters()

    @property
    def manifold_out(self) -> Manifold:
        """`Euclidean()`: scores are numbers."""
        return Euclidean()

    def reset_parameters(self) -> None:
        """Draw the prototypes anew and set the temperature back."""
        init_points(self.weight, self.manifold, self.radius)
        with torch.no_grad():
            self.log_temperature.fill_(self.temperature).log_()

    def forward(self, x: Tensor) -> Tensor:
        """Points (..., size) to scores (..., classes)."""
        self.check_size(x, self.size)
        dist = self.manifold.pairwise_dist(x.reshape(-1, self.size), self.weight)
        dist = dist.view(*x.shape[:-1], self.classes)
        if self.form == "chord" and not isinstance(self.manifold, Euclidean):
            dist = 2 * scaled_sinh(dist / 2, self.manifold.c_like(x))
        return dist * dist * -torch.exp(-self.log_temperature)

    def no_weight_decay(self) -> set[str]:
        """Both: decay would pull the prototypes to the origin and T to 1."""
        return {"weight", "log_temperature"}

    def extra_repr(self) -> str:
        """The arguments that print(module) shows."""
        return (
            f"{self.size}, {self.classes}, manifold={self.manifold!r}, form={self.form!r}, "
            f"radius={self.radius:g}, temperature={self.temperature:g}"
        )
