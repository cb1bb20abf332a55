"""Images to tokens."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from beltrami.checks import check_integer, check_positive
from beltrami.geometry import Euclidean, Manifold, PoincareBall
from beltrami.nn.borders import lift0
from beltrami.nn.embedding import check_radius, unit_variance_radius
from beltrami.nn.layer import Layer, check_manifold


class PatchEmbedding(Layer):
    """Patches of an image as tokens: one linear map a patch, read as a point (Dosovitskiy 2021).

    `y = W·pixels + b`, the space part of a point on the Lorentz model, `exp0(y)` on the ball. With
    `manifold=Euclidean()` it is the patch embedding of a vision Transformer; it is the limit c → 0
    of the Lorentz model, and of the ball in normal coordinates (its points are half of y there).

    Pixels of mean square 1 start as tokens with a root mean square |y| of `radius`: the entries of
    W have standard deviation radius/√(size·pixels of a patch).

    Args:
        image_size: height and width, or one number for both.
        patch_size: height and width of a patch; they divide those of the image.
        channels: of the image.
        size: the last dimension of the tokens.
        manifold: of the tokens; `manifold_out`, since the pixels are Euclidean.
        radius: root mean square |y| at the start: the length of the space part on the Lorentz
            model and in flat space, the distance from the origin on the ball. If None, that of
            coordinates of variance 1, at which a transformer's branches do not swamp its tokens:
            √size, and asinh(√(c·size))/√c on the ball (see `Embedding`).
        bias: whether to have b, which starts at 0.

    Shapes: (B, channels, height, width) to (B, patches, size), row by row. Parameters: `weight`
    (size, channels, patch height, patch width), `bias` (size,).
    """

    def __init__(
        self,
        image_size: int | tuple[int, int],
        patch_size: int | tuple[int, int],
        channels: int,
        size: int,
        *,
        manifold: Manifold,
        radius: float | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__(Euclidean())
        self._target = check_manifold(manifold, self.accepts, "PatchEmbedding")
        self.image_size = check_sizes(image_size, 2, "image_size", "PatchEmbedding")
        self.patch_size = check_sizes(patch_size, 2, "patch_size", "PatchEmbedding")
        if any(n % k for n, k in zip(self.image_size, self.patch_size, strict=True)):
            raise ValueError(
                f"PatchEmbedding: patch_size={patch_size} does not divide image_size={image_size}"
            )
        self.channels = check_integer("PatchEmbedding: channels", channels)
        self.size = check_integer("PatchEmbedding: size", size)
        self.radius = self._check_radius(radius)
        self.weight = nn.Parameter(torch.empty(size, channels, *self.patch_size))
        self.bias = nn.Parameter(torch.empty(size)) if bias else None
        self.reset_parameters()

    def _check_radius(self, radius: float | None) -> float:
        if isinstance(self._target, PoincareBall):
            if radius is None:
                return unit_variance_radius(self.size, self._target)
            return check_radius(radius, self._target, "PatchEmbedding")
        # A length of space parts, which has no bound as a distance has.
        if radius is None:
            return math.sqrt(self.size)
        return check_positive("PatchEmbedding: radius", radius)

    @property
    def manifold_out(self) -> Manifold:
        """The manifold of the tokens."""
        return self._target

    @property
    def patches(self) -> int:
        """Tokens an image."""
        (height, width), (h, w) = self.image_size, self.patch_size
        return (height // h) * (width // w)

    def reset_parameters(self) -> None:
        """Draw the weight anew; the bias is 0."""
        nn.init.normal_(self.weight, std=self.radius * self.weight.numel() ** -0.5)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, images: Tensor) -> Tensor:
        """Images (B, channels, height, width) to tokens (B, patches, size)."""
        expected = (self.channels, *self.image_size)
        if images.ndim != 4 or tuple(images.shape[1:]) != expected:
            raise ValueError(
                f"PatchEmbedding takes images of shape (B, {', '.join(map(str, expected))}), got "
                f"{tuple(images.shape)}"
            )
        y = F.conv2d(images, self.weight, self.bias, stride=self.patch_size)
        y = y.flatten(2).transpose(1, 2)  # (B, patches, size)
        if isinstance(self._target, PoincareBall):
            return lift0(y, self._target, images.dtype)
        return y

    def extra_repr(self) -> str:
        """The arguments that print(module) shows."""
        return (
            f"image_size={self.image_size}, patch_size={self.patch_size}, "
            f"channels={self.channels}, size={self.size}, manifold={self._target!r}, "
            f"radius={self.radius:g}, bias={self.bias is not None}"
        )


def check_sizes(
    value: int | tuple[int, ...], dims: int, name: str, layer: str, *, least: int = 1
) -> tuple[int, ...]:
    """A size for each of the dimensions, given as one for all or as a tuple."""
    values = tuple(value) if isinstance(value, tuple | list) else (value,) * dims
    if len(values) != dims:
        raise ValueError(f"{layer}: {name} must be one integer or {dims} of them, got {value}")
    return tuple(check_integer(f"{layer}: {name}", v, low=least) for v in values)
