r"""Convolutions over points, channels last: a linear layer on the concatenated receptive field.

A receptive field of K points of C coordinates is one point of K·C coordinates, and the layer is
that of `Linear` on it. Neither is formed: the product is torch's convolution, and what is left of
the point is a number an output, made of the squared norms summed over the field.

- htc (Lorentz): space parts s side by side, |S|² = Σ|s|², then `W·S + w_τ·τ(S) + b`
- hnnpp (ball): v = β_{KC}/β_C·log0(x) side by side and exp0, then signed distances to hyperplanes

`manifold=Euclidean()` gives the c → 0 limit of each form.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from beltrami.checks import check_choice, check_integer
from beltrami.geometry import Euclidean, Lorentz, Manifold, PoincareBall, hyperplane, radial
from beltrami.geometry.chord import dot, root, times_of
from beltrami.kernels.launch.dtypes import no_autocast, upcast
from beltrami.nn.borders import ball_of_scores
from beltrami.nn.layer import Layer, check_form
from beltrami.nn.patch import check_sizes

_FORMS: dict[type[Manifold], tuple[str, ...]] = {
    Lorentz: ("htc",),
    PoincareBall: ("hnnpp",),
    Euclidean: ("htc", "hnnpp"),
}

Sizes = int | tuple[int, ...]


class _Conv(Layer):
    _dims: ClassVar[int]
    _function: ClassVar[Callable[..., Tensor]]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        *,
        manifold: Manifold,
        form: str | None = None,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        bias: bool = True,
        time: bool = True,
    ) -> None:
        super().__init__(manifold)
        name, dims = type(self).__name__, self._dims
        self.form = check_form(form, _FORMS, manifold, name)
        self.in_channels = check_integer(f"{name}: in_channels", in_channels)
        self.out_channels = check_integer(f"{name}: out_channels", out_channels)
        self.kernel_size = check_sizes(kernel_size, dims, "kernel_size", name)
        self.stride = check_sizes(stride, dims, "stride", name)
        self.dilation = check_sizes(dilation, dims, "dilation", name)
        self.padding = padding
        self._pads = self._check_padding(padding)
        self.time = time and isinstance(manifold, Lorentz)
        self.weight = nn.Parameter(torch.empty(out_channels, in_channels, *self.kernel_size))
        self.bias = nn.Parameter(torch.empty(out_channels)) if bias else None
        self.time_weight = nn.Parameter(torch.empty(out_channels)) if self.time else None
        self.reset_parameters()

    def _check_padding(self, padding: Sizes | str) -> tuple[tuple[int, int], ...]:
        """Origins to add before and after, in each dimension."""
        name = type(self).__name__
        if not isinstance(padding, str):
            return tuple((p, p) for p in check_sizes(padding, self._dims, "padding", name, least=0))
        check_choice(f"{name}: padding", padding, ("same", "valid"))
        if padding == "valid":
            return ((0, 0),) * self._dims
        if any(s != 1 for s in self.stride):
            raise ValueError(f"{name}: padding='same' needs stride 1, got {self.stride}")
        extra = [span - 1 for span in self._spans]
        return tuple((n // 2, n - n // 2) for n in extra)

    @property
    def _spans(self) -> tuple[int, ...]:
        """Positions from the first to the last of a receptive field."""
        pairs = zip(self.kernel_size, self.dilation, strict=True)
        return tuple(1 + d * (k - 1) for k, d in pairs)

    @property
    def _field(self) -> int:
        return self.in_channels * math.prod(self.kernel_size)

    def reset_parameters(self) -> None:
        """As in `Linear` on the receptive field: uniform in ±1/√(K·C); the rest 0."""
        bound = 1 / math.sqrt(self._field)
        nn.init.uniform_(self.weight, -bound, bound)
        for p in (self.bias, self.time_weight):
            if p is not None:
                nn.init.zeros_(p)

    def forward(self, x: Tensor) -> Tensor:
        """Points, channels last, to points, channels last."""
        self._check(x)
        lead, dims = x.shape[: -1 - self._dims], self._dims
        x = x.reshape(lead.numel(), *x.shape[-1 - dims :])  # (N, ..., C)
        y = self._htc(x) if self.form == "htc" else self._hnnpp(x)
        return y.reshape(*lead, *y.shape[1:])

    def _htc(self, x: Tensor) -> Tensor:
        y = self._convolve(x, self.weight, self.bias)
        if self.time_weight is None:
            return y
        s = upcast(x)
        _, tau = times_of(self._sum_field(dot(s, s).squeeze(-1)), self.manifold.c_like(x))
        return (y + tau * self.time_weight).to(y.dtype)

    def _hnnpp(self, x: Tensor) -> Tensor:
        dtype, c = x.dtype, self.manifold.c_like(x)
        x = upcast(x)
        weight = self.weight.to(x.dtype)
        length = root(weight.square().flatten(1).sum(-1))  # (out,)
        offset = torch.zeros_like(length) if self.bias is None else self.bias.to(x.dtype)
        v = self.manifold.log0(x) * beta_ratio(self._field, self.in_channels)
        with no_autocast(x):
            if isinstance(self.manifold, Euclidean):
                return self._convolve(v, weight, -offset * length).to(dtype)
            y = self._convolve(v, weight, None)
        # The receptive field as a Lorentz point has space sinhc·v and time cosh/√c.
        q = c * self._sum_field(dot(v, v).squeeze(-1))
        score = hyperplane.scores_of_products(
            y, radial.cosh_sq(q), length, offset, c, x.dtype, stretch=radial.sinhc_sq(q)
        )
        assert isinstance(self.manifold, PoincareBall)
        return ball_of_scores(score, self.manifold, dtype)

    def _convolve(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """torch's convolution of (N, ..., C), channels last."""
        if all(before == after for before, after in self._pads):
            padding = [before for before, _ in self._pads]
        else:
            x = F.pad(x, [0, 0, *(n for pair in reversed(self._pads) for n in pair)])
            padding = [0] * self._dims
        function = type(self)._function
        y = function(x.movedim(-1, 1), weight, bias, self.stride, padding, self.dilation)
        return y.movedim(1, -1)

    def _sum_field(self, values: Tensor) -> Tensor:
        """The sum over each receptive field of (N, ...), as (N, ..., 1).

        By additions in the dtype of the values, which a convolution with ones may round to less.
        """
        values = F.pad(values, [n for pair in reversed(self._pads) for n in pair])
        for i, (span, stride, step) in enumerate(
            zip(self._spans, self.stride, self.dilation, strict=True)
        ):
            values = values.unfold(1 + i, span, stride)[..., ::step].sum(-1)
        return values.unsqueeze(-1)

    def _check(self, x: Tensor) -> None:
        self.check_size(x, self.in_channels)
        name, names = type(self).__name__, ", ".join(["L"] if self._dims == 1 else ["H", "W"])
        if x.ndim < 1 + self._dims:
            raise ValueError(
                f"{name} takes x of shape (..., {names}, {self.in_channels}), channels last, got "
                f"{tuple(x.shape)}"
            )
        places = x.shape[-1 - self._dims : -1]
        for n, span, pads in zip(places, self._spans, self._pads, strict=True):
            if n + sum(pads) < span:
                raise ValueError(
                    f"{name}: kernel_size={self.kernel_size} with dilation={self.dilation} needs "
                    f"{span} positions, padding included; x has shape {tuple(x.shape)} and "
                    f"padding={self.padding}"
                )

    def extra_repr(self) -> str:
        """The arguments."""
        return (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}, padding={self.padding!r}, dilation={self.dilation}, "
            f"bias={self.bias is not None}, time={self.time}, form={self.form!r}, "
            f"manifold={self.manifold!r}"
        )


class Conv1d(_Conv):
    r"""Convolution of sequences of points, (..., L, C) to (..., L', C').

    - **htc** (Lorentz; Bdeir et al. 2024): the space parts of a receptive field side by side are
      the space part S of one point, and `y = W·S + w_τ·τ(S) + b`, with τ(S) = t(S) − 1/√c. w_τ
      starts at 0, `time=False` leaves it out. Tends to torch's convolution at the rate √c.
    - **hnnpp** (ball; Shimizu et al. 2021): the tangent vectors log0(x) of a field side by side,
      times β_{KC}/β_C with β_n = B(n/2, 1/2), which keeps their mean length, are that of one point;
      the output has the Lorentz coordinates `sinh(√c·v_k)/√c`, v_k = |W_k| times the signed
      distance from it to the hyperplane with normal W_k at distance b_k from the origin. Tends to
      `β_{KC}/β_C·W*x − b|W|`. The product runs in float32, also under
      autocast; on a GPU in TF32 if `torch.backends.cudnn` allows it, as it does by default.

    Limits are in normal coordinates (log0) on the ball, also directly on the Lorentz model.
    Positions added by padding are origins. There are no groups: a point is not a product of parts.

    Args:
        in_channels, out_channels: coordinates of the points.
        kernel_size, stride, padding, dilation: as in torch, `padding` also "same" or "valid".
        manifold: Lorentz, PoincareBall or Euclidean.
        form: as above; on Euclidean, which limit, "htc" if None.
        bias: whether there is b. time: whether there is w_τ (htc on Lorentz).

    Parameters: `weight` (out, in, kernel_size), `bias` (out,), `time_weight` (out,).
    """

    _dims = 1
    _function = F.conv1d


class Conv2d(_Conv):
    """Convolution of feature maps of points, (..., H, W, C) to (..., H', W', C').

    All as in `Conv1d`. `weight` is (out, in, kernel height, kernel width).
    """

    _dims = 2
    _function = F.conv2d


def beta_ratio(n: int, m: int) -> float:
    """`β_n/β_m` with β_n = B(n/2, 1/2): about √(m/n)."""
    return math.exp(
        math.lgamma(n / 2)
        - math.lgamma((n + 1) / 2)
        - math.lgamma(m / 2)
        + math.lgamma((m + 1) / 2)
    )
