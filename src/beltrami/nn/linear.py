r"""Linear layers between points of one manifold.

| form    | formula                                                       | manifolds       | from |
|---------|---------------------------------------------------------------|-----------------|------|
| htc     | `W·s + w_τ·τ(s) + b`                                          | Lorentz         | Hypformer (Yang et al. 2024) |
| hyperplane | coordinates are distances to hyperplanes, through sinh      | Lorentz         | van der Klis et al. 2026 |
| hybonet | direction of `W·s + w_τ·τ(s) + b`, time from a gate           | Lorentz         | Fully Hyperbolic Neural Networks (Chen et al. 2022) |
| tangent | `exp0(W·log0(x) + b)`                                         | Lorentz, ball   | HGCN (Chami et al. 2019) |
| mobius  | `exp0(b)` moved by the translation that takes 0 to `exp0(W·log0(x))` | Lorentz, ball | Hyperbolic Neural Networks (Ganea et al. 2018) |
| hnnpp   | coordinates are signed distances to hyperplanes               | Lorentz, ball   | Hyperbolic Neural Networks++ (Shimizu et al. 2021) |

τ(s) = t(s) − 1/√c is the excess time. `manifold=Euclidean()` gives the c → 0 limit of each form.
"""  # noqa: E501

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from beltrami.checks import check_integer
from beltrami.geometry import (
    Euclidean,
    Lorentz,
    Manifold,
    PoincareBall,
    hyperplane,
    lorentz,
    poincare,
    radial,
)
from beltrami.geometry.chord import dot, root
from beltrami.geometry.plane_frame import scaled_sinh
from beltrami.kernels.launch.dtypes import upcast
from beltrami.kernels.layers.radial_gain import radial_gain
from beltrami.kernels.layers.time_linear import hyperplane_distances, time_linear
from beltrami.nn.borders import ball_of_scores, lift0
from beltrami.nn.layer import Layer, check_form

_FORMS: dict[type[Manifold], tuple[str, ...]] = {
    Lorentz: ("htc", "hyperplane", "hybonet", "tangent", "mobius", "hnnpp"),
    PoincareBall: ("hnnpp", "mobius", "tangent"),
    Euclidean: ("htc", "hyperplane", "hybonet", "tangent", "mobius", "hnnpp"),
}

# Least excess energy of hybonet's output, so that its direction is never lost at the origin.
_HYBONET_MARGIN = 0.5

# Of the form "hyperplane" at the start, the paper's.
_OFFSET = 0.5

# Entries of u below which its direction is not looked for: the gradient is 1/|u|.
_HYBONET_SHORTEST = 1e-30


class Linear(Layer):
    r"""A linear layer, (..., in_features) to (..., out_features), in the form named by `form`.

    - **htc**: `y = W·s + w_τ·τ(s) + b` on space parts; the time of y is implied. The published
      layer multiplies time itself, which is the same up to a bias but diverges as c → 0. w_τ
      starts at 0: any other start adds one common vector to all tokens. `time=False` leaves the
      time column out, which makes it `nn.Linear` on space parts. Tends to `W·s + b`, with an error
      of order √c, since τ ≈ √c|s|²/2.
    - **hyperplane**: `y_k = |u_k|·sinh(√c·d_k)/√c`, d_k the signed distance to the hyperplane with
      normal u_k, a row of W, at distance a_k/|u_k| from the origin, a the `bias` (½ at the start).
      It is htc with a time column that is tied to W and b. Tends to `u_k·s − a_k`.
    - **hybonet**: `y = ρ·u/|u|` with u = W·s + w_τ·τ(s) + b and `ρ² = 2E + c·E²`, where the energy
      `E = e^λ·σ(v·s + v_τ·τ(s) + b_v) + ½` makes the time √c·E + 1/√c. Tends to √(2E)·u/|u|.
    - **tangent**, **mobius**: linear in the tangent space at the origin, done as a gain on W·x (see
      `kernels.radial_gain`). They differ in the bias: exp0 of a sum, or y ⊕ exp0(b) with
      y = exp0(W·log0(x)), which is exp0(b) moved by the translation that takes 0 to y.
    - **hnnpp**: `y_k = sinh(√c·v_k)/√c` with `v_k = |z_k|·(signed distance of x to the hyperplane
      with normal z_k at distance b_k from the origin)`. Tends to `z_k·s − b_k·|z_k|`. In the
      ball the same, on the Lorentz coordinates of x and y.

    The last three go through sinh, so that outputs stay in float32 while the radius √c·r of what
    they describe is below 44 (15 in the ball).

    Args:
        in_features, out_features: coordinates of the input and output points.
        manifold: Lorentz, PoincareBall or Euclidean.
        form: see above; "htc" if None, "hnnpp" in the ball.
        bias: whether there is b.
        time: whether there is a time column (htc and hybonet on Lorentz).

    Parameters: `weight` (out, in), `bias` (out,), `time_weight` (out,); hybonet's gate has
    `gate_weight` (in,), `gate_time_weight` (1,), `gate_bias` (1,), `log_scale` (1,).
    """

    several = True

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        manifold: Manifold,
        form: str | None = None,
        bias: bool = True,
        time: bool = True,
    ) -> None:
        super().__init__(manifold)
        self.form = check_form(form, _FORMS, manifold, f"Linear on {manifold!r}")
        if self.form == "hnnpp" and manifold.shape.numel() > 1:
            raise ValueError(f"Linear: form 'hnnpp' works with one curvature, got {manifold!r}")
        self.in_features = check_integer("Linear: in_features", in_features)
        self.out_features = check_integer("Linear: out_features", out_features)
        self.time = time and isinstance(manifold, Lorentz) and self.form in ("htc", "hybonet")
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        self.bias = nn.Parameter(torch.empty(out_features)) if bias else None
        self.time_weight = nn.Parameter(torch.empty(out_features)) if self.time else None
        if self.form == "hybonet":
            self.gate_weight = nn.Parameter(torch.empty(in_features))
            self.gate_time_weight = nn.Parameter(torch.empty(1)) if self.time else None
            self.gate_bias = nn.Parameter(torch.empty(1))
            self.log_scale = nn.Parameter(torch.empty(1))
            self.log_scales.add("log_scale")
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weights uniform in ±1/√in as in `nn.Linear`; time columns, biases and log-scales 0."""
        bound = 1 / math.sqrt(self.in_features)
        nn.init.uniform_(self.weight, -bound, bound)
        if self.form == "hybonet":
            nn.init.uniform_(self.gate_weight, -bound, bound)
            for p in (self.gate_time_weight, self.gate_bias, self.log_scale):
                if p is not None:
                    nn.init.zeros_(p)
        for p in (self.bias, self.time_weight):
            if p is not None:
                nn.init.zeros_(p)
        if self.form == "hyperplane" and self.bias is not None:
            nn.init.constant_(self.bias, _OFFSET)

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) to (..., out_features)."""
        self.check_size(x, self.in_features)
        if self.form == "htc":
            return self._affine(x)
        if self.form == "hyperplane":
            return self._hyperplane(x)
        if self.form == "hybonet":
            return self._hybonet(x)
        if self.form == "hnnpp":
            return self._hnnpp(x)
        return self._tangent(x)

    def _affine(self, x: Tensor) -> Tensor:
        if self.time_weight is None:
            return F.linear(x, self.weight, self.bias)
        radius = self.manifold.radius_like(x)
        return time_linear(x, self.weight, self.time_weight, self.bias, radius=radius)

    def _hyperplane(self, x: Tensor) -> Tensor:
        u = F.linear(x, self.weight)
        if self.bias is None:  # hyperplanes through the origin
            return u
        if isinstance(self.manifold, Euclidean):
            return u - self.bias
        return hyperplane_distances(u, x, self.weight, self.bias, self.manifold.radius_like(x))

    def _hybonet(self, x: Tensor) -> Tensor:
        u, c = self._affine(x), self.manifold.c_like(x)
        s = upcast(x)
        gate = dot(s, self.gate_weight) + self.gate_bias
        if self.gate_time_weight is not None:
            tau = lorentz.excess_time(s, c, keepdim=True)
            gate = gate + self.gate_time_weight * tau
        energy = self.log_scale.exp() * torch.sigmoid(gate) + _HYBONET_MARGIN
        rho = torch.sqrt(2 * energy + c * energy * energy)
        wide_u = u.to(s.dtype)
        # u = 0 has no direction and goes to the origin. Squares of short u would leave float32:
        # the direction is taken of u over its largest entry, whose own derivative is 0.
        largest = wide_u.detach().abs().amax(-1, keepdim=True)
        has_direction = largest > _HYBONET_SHORTEST
        unit = torch.where(has_direction, wide_u, 1.0)
        unit = unit / torch.where(has_direction, largest, 1.0)
        unit = unit / torch.linalg.vector_norm(unit, dim=-1, keepdim=True)
        return torch.where(has_direction, rho * unit, 0.0).to(u.dtype)

    def _tangent(self, x: Tensor) -> Tensor:
        manifold, c = self.manifold, self.manifold.c_like(x)
        u = F.linear(x, self.weight)
        if isinstance(manifold, Euclidean):
            return u if self.bias is None else u + self.bias
        if self.bias is None or self.form == "mobius":
            model = "lorentz" if isinstance(manifold, Lorentz) else "poincare"
            # In the ball, rounding may carry a point onto the border; `project` pulls it back.
            y = manifold.project(radial_gain(x, u, c, model))
            if self.bias is None:
                return y
            step = lift0(self.bias, manifold, y.dtype)
            if isinstance(manifold, Lorentz):
                return lorentz.boost(step, y, c)
            return manifold.project(poincare.mobius_add(y, step, c))
        s = upcast(x)
        q = c * dot(s, s)
        f = radial.asinhc_sq(q) if isinstance(manifold, Lorentz) else 2 * radial.atanhc_sq(q)
        return lift0(f * u + self.bias, manifold, u.dtype)

    def _hnnpp(self, x: Tensor) -> Tensor:
        manifold, c = self.manifold, self.manifold.c_like(x)
        offsets = self.weight.new_zeros(self.out_features) if self.bias is None else self.bias
        if isinstance(manifold, Euclidean):
            return F.linear(x, self.weight, -offsets * root(dot(self.weight, self.weight))[:, 0])
        s = poincare.to_lorentz(x, c) if isinstance(manifold, PoincareBall) else x
        v = hyperplane.hyperplane_logits(s, self.weight, offsets, c)
        if isinstance(manifold, PoincareBall):
            return ball_of_scores(v, manifold, x.dtype)
        return scaled_sinh(v, c).to(x.dtype)

    def extra_repr(self) -> str:
        """Sizes, form and manifold."""
        return (
            f"{self.in_features}, {self.out_features}, form={self.form}, "
            f"bias={self.bias is not None}, time={self.time}, manifold={self.manifold!r}"
        )
