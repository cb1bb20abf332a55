"""Normalisation over a batch of points."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from beltrami.checks import check_integer, check_positive
from beltrami.geometry import Lorentz, Manifold, PoincareBall, lorentz, poincare
from beltrami.geometry.checks import Scalar
from beltrami.geometry.chord import dot
from beltrami.kernels.launch.dtypes import upcast
from beltrami.nn.borders import lift0
from beltrami.nn.layer import Layer

# √c times the distance up to which a normalised point is left alone, and what is there beyond it.
_REACH, _ROOM = 20.0, 10.0


class BatchNorm(Layer):
    r"""Riemannian batch normalisation (Lou et al. 2020; Lorentz: Bdeir et al. 2024).

    With μ the centroid of the batch and σ² the mean squared distance from it,

        y = boost(exp0(g·v/√(σ² + eps)), β),    v = log0(boost(x, −μ)),

    where boost(·, p) is the isometry that takes the origin to p along their geodesic. So a batch
    with any mean and spread leaves with the centre β and the root mean square distance g from it.
    (Vectors go from μ to β by way of the origin, as in Bdeir et al.; Lou et al. carry them
    straight, which differs by a rotation.)

    The variance is one number for all coordinates, the Fréchet variance: there are no coordinates
    to scale one by one on a manifold. As c → 0, and with `manifold=Euclidean()`, it becomes
    `g·(x − μ)/√(mean|x − μ|² + eps) + β`, so the scale of one coordinate is g/√size, not g as in
    `torch.nn.BatchNorm1d`.

    One outlier among N points leaves at up to g·√N, and on the Lorentz model coordinates grow like
    the exponential of that. So there, beyond √c·r = 20 from the centre, distances are shortened:
    smoothly, in their order, and to less than √c·r = 30, so that the result stays in float32 about
    any β with √c·r < 10. Nearer points are not touched, and the ball has its own border.

    In training, the running mean goes a fraction `momentum` along the geodesic to the batch's, and
    the running variance likewise, without torch's n/(n−1), for which a batch of one has no value.
    In eval mode they replace the batch's. Where a learned border has left the running mean outside,
    it is read as the last point inside. Statistics are those of one process.

    Args:
        size: the last dimension; all others are the batch.
        manifold: of the points.
        eps: added to the variance.
        momentum: as in torch; None for a plain average over all batches.
        affine: whether to have `gain` g (1,), from 1, and `bias` β (size,), from the origin.
        track_running_stats: whether to keep `running_mean` (size,), a point, and `running_var`
            (1,); without, eval mode uses the batch too.
    """

    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(
        self,
        size: int,
        *,
        manifold: Manifold,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
    ) -> None:
        super().__init__(manifold)
        self.size = check_integer("BatchNorm: size", size)
        self.eps = check_positive("BatchNorm: eps", eps)
        if momentum is not None and not 0 <= momentum <= 1:
            raise ValueError(f"BatchNorm: momentum must lie in [0, 1] or be None, got {momentum}")
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        self.gain = nn.Parameter(torch.empty(1)) if affine else None
        self.bias = nn.Parameter(torch.empty(size)) if affine else None
        if affine:
            self.manifold_of["bias"] = manifold
        tracked = track_running_stats
        self.register_buffer("running_mean", torch.zeros(size) if tracked else None)
        self.register_buffer("running_var", torch.ones(1) if tracked else None)
        count = torch.tensor(0, dtype=torch.long) if tracked else None
        self.register_buffer("num_batches_tracked", count)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """The running mean to the origin, the running variance to 1."""
        if self.running_mean is not None:
            self.running_mean.zero_()
        if self.running_var is not None:
            self.running_var.fill_(1)
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """The gain to 1, the centre to the origin, and the running statistics."""
        self.reset_running_stats()
        if self.gain is not None:
            nn.init.ones_(self.gain)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Points (..., size) to points (..., size)."""
        self.check_size(x, self.size)
        points = upcast(x)
        if self.training or self.running_mean is None or self.running_var is None:
            if x.numel() == 0:
                raise ValueError(f"BatchNorm: an empty batch has no mean, got {tuple(x.shape)}")
            # On the ball, rounding can carry the mean of points at the edge over it.
            mean = self.manifold.project(self.manifold.centroid(points.reshape(-1, self.size)))
            v = _vectors_from(mean, points, self.manifold)
            var = dot(v, v).mean().reshape(1)
            if self.training:
                self._track(mean.detach(), var.detach())
        else:
            mean, var = self._running_mean(points.dtype), self.running_var.to(points.dtype)
            v = _vectors_from(mean, points, self.manifold)
        scale = torch.rsqrt(var + self.eps)
        if self.gain is not None:
            scale = self.gain * scale
        v = scale * v
        if isinstance(self.manifold, Lorentz):
            v = _shortened(v, self.manifold.c_like(v))
        y = lift0(v, self.manifold)
        if self.bias is not None:
            y = _boost(y, self.bias.to(y.dtype), self.manifold)
        return self.manifold.project(y.to(x.dtype))

    def _running_mean(self, dtype: torch.dtype) -> Tensor:
        """The running mean; as points among the parameters, it follows a learned border inwards."""
        assert self.running_mean is not None
        return self.manifold.project(self.running_mean.to(dtype))

    @torch.no_grad()
    def _track(self, mean: Tensor, var: Tensor) -> None:
        if self.running_mean is None or self.running_var is None:
            return
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        part: float | Tensor = 1 / self.num_batches_tracked.to(mean.dtype)
        if self.momentum is not None:
            part = self.momentum
        old_mean, old_var = self._running_mean(mean.dtype), self.running_var.to(var.dtype)
        new_mean = self.manifold.geodesic(old_mean, mean, part)
        self.running_mean.copy_(self.manifold.project(new_mean))
        self.running_var.copy_(old_var + part * (var - old_var))

    def no_weight_decay(self) -> set[str]:
        """The gain and the centre."""
        return {"gain", "bias"} if self.affine else set()

    def extra_repr(self) -> str:
        """The arguments that print(module) shows."""
        return (
            f"{self.size}, manifold={self.manifold!r}, eps={self.eps}, momentum={self.momentum}, "
            f"affine={self.affine}, track_running_stats={self.track_running_stats}"
        )


def _shortened(v: Tensor, c: Scalar) -> Tensor:
    """v, or where √c|v| is above _REACH, a shorter one along it, below _REACH + _ROOM."""
    q = c * dot(v, v)
    far = q > _REACH**2
    r = torch.where(far, q, _REACH**2).sqrt()
    length = _REACH + _ROOM * torch.tanh((r - _REACH) / _ROOM)
    return v * torch.where(far, length / r, 1.0)


def _vectors_from(mean: Tensor, x: Tensor, manifold: Manifold) -> Tensor:
    """`log0(boost(x, −mean))`: the vectors from the mean to points, carried to the origin."""
    if isinstance(manifold, Lorentz):
        return manifold.log0(_boost(x, -mean, manifold))
    # On the ball the boost would round points far from the mean onto the border.
    return manifold.transport_to0(mean, manifold.log(mean, x))


def _boost(x: Tensor, p: Tensor, manifold: Manifold) -> Tensor:
    """The isometry that takes the origin to p along their geodesic, applied to x."""
    if isinstance(manifold, Lorentz):
        return lorentz.boost(x, p, manifold.c_like(x))
    if isinstance(manifold, PoincareBall):
        return poincare.boost(x, p, manifold.c_like(x))
    return x + p
