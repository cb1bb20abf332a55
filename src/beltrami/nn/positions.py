"""Positions of tokens: rotations of the space part, and a learned table of points."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from beltrami.checks import check_integer, check_positive
from beltrami.geometry import Manifold
from beltrami.kernels.launch.dtypes import accumulation_dtype
from beltrami.kernels.layers.rotary import rotate as rotate
from beltrami.nn.embedding import check_radius, init_points
from beltrami.nn.layer import Layer
from beltrami.nn.residual import Residual


@torch.library.custom_op("beltrami::rotary_table", mutates_args=())
def rotary_table(positions: Tensor, size: int, base: float, dtype: torch.dtype) -> Tensor:
    """Cosines and sines of the angles, side by side: (..., T) to (..., T, size).

    An operator of its own, so that a compiler makes the table once and does not put its powers and
    sines into every kernel that reads it, once for each head of each sequence.
    """
    half = torch.arange(0, size, 2, dtype=torch.float64, device=positions.device)
    angles = positions.unsqueeze(-1).to(torch.float64) * base ** (-half / size)
    return torch.cat((angles.cos(), angles.sin()), dim=-1).to(dtype)


@rotary_table.register_fake
def _(positions: Tensor, size: int, base: float, dtype: torch.dtype) -> Tensor:
    return positions.new_empty(*positions.shape, size, dtype=dtype)


class Rotary(nn.Module):
    r"""Rotary positions (RoPE, Su et al. 2021; HoPE of HELM): turns pairs of coordinates.

    The pair (x_i, x_{i+size/2}) is turned by the angle `position·base^(−2i/size)`, the halves split
    as in Llama. A rotation about the origin is an isometry of every model, so time, norm and
    distance from the origin stay, and there is no manifold to name. The scores ⟨R_i q, R_j k⟩, and
    so Lorentzian products and distances of queries and keys, depend on i − j alone.

    Angles are made in float64 and their sines kept in float32 at least, whatever the dtype of x,
    from the positions of the call: nothing is cached, cast or saved with the model. With a
    key-value cache, positions start at the number of tokens seen. A model makes the table once a
    forward pass and hands it down:

    >>> rotation = self.rotary.cos_sin(torch.arange(length, device=x.device))
    >>> for block in self.blocks:
    ...     x = block(x, rotation=rotation)

    Args:
        size: the last dimension, that of a head; even.
        base: ratio of the longest to the shortest wavelength, about.

    Shapes: x (..., T, heads, size) and integer positions (T,) or (..., T), to the shape and dtype
    of x.
    """

    def __init__(self, size: int, *, base: float = 10000.0) -> None:
        super().__init__()
        self.size = check_integer("Rotary: size", size)
        if size % 2:
            raise ValueError(f"Rotary: size must be even, since coordinates turn in pairs: {size}")
        self.base = check_positive("Rotary: base", base)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """Turn the coordinates of x by their positions."""
        if x.ndim < 3 or x.shape[-1] != self.size:
            raise ValueError(
                f"Rotary takes x of shape (..., T, heads, {self.size}), got {tuple(x.shape)}"
            )
        _check_positions(positions, x, x.shape[:-2], "Rotary")
        return rotate(x, *self.cos_sin(positions, x.dtype))

    def cos_sin(
        self, positions: Tensor, dtype: torch.dtype = torch.float32
    ) -> tuple[Tensor, Tensor]:
        """Cosines and sines of the angles for x of that dtype, (..., T, size/2) each.

        They are float32 at least. What `rotate` and the `rotation` of attention layers take.
        """
        _check_integers(positions, "Rotary")
        table = rotary_table(positions, self.size, self.base, accumulation_dtype(dtype))
        cos, sin = table.chunk(2, dim=-1)
        return cos, sin

    def extra_repr(self) -> str:
        """The arguments that print(module) shows."""
        return f"{self.size}, base={self.base:g}"


class LearnedPositions(Layer):
    """Tokens combined with a learned point a position: `Residual(x_i, weight_i)`.

    On the Lorentz model that is `x + w·p` as ambient vectors, scaled back to a point (LTransformer
    and LViT of HyperCore); as c → 0, and with `manifold=Euclidean()`, it is `x + w·p`, the learned
    positions of any Transformer. The weight w is that of `Residual`, learned and positive.

    Args:
        length: rows of the table, the longest sequence.
        size: the last dimension.
        manifold: of the tokens and of the table.
        radius: root mean square distance of the rows from the origin at the start. 1 is small
            beside tokens whose coordinates have variance 1, the start of `Embedding` and
            `PatchEmbedding` (|x| near √size): positions begin as a hint, and grow as they are used.

    Shapes: x (..., T, size) with T ≤ length, positions (T,) or (..., T), 0 to T − 1 if None.
    """

    def __init__(self, length: int, size: int, *, manifold: Manifold, radius: float = 1.0) -> None:
        super().__init__(manifold)
        self.length = check_integer("LearnedPositions: length", length)
        self.size = check_integer("LearnedPositions: size", size)
        self.radius = check_radius(radius, manifold, "LearnedPositions")
        self.weight = nn.Parameter(torch.empty(length, size))
        self.manifold_of["weight"] = manifold
        self.residual = Residual(manifold=manifold)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the table anew."""
        init_points(self.weight, self.manifold, self.radius)

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """Tokens (..., T, size) to tokens that know their position."""
        self.check_size(x, self.size)
        if x.ndim < 2:
            raise ValueError(
                f"LearnedPositions takes x of shape (..., T, {self.size}), got {tuple(x.shape)}"
            )
        steps = x.shape[-2]
        if positions is not None:
            _check_positions(positions, x, x.shape[:-1], "LearnedPositions")
            rows = self._rows(positions)
        elif steps <= self.length:
            rows = self.weight[:steps]
        else:
            raise ValueError(
                f"LearnedPositions has length={self.length}, got a sequence of {steps} tokens"
            )
        out: Tensor = self.residual(x, rows)
        return out

    def _rows(self, positions: Tensor) -> Tensor:
        if positions.dtype not in (torch.int32, torch.int64):
            raise TypeError(
                f"LearnedPositions takes positions of dtype int32 or int64, got {positions.dtype}"
            )
        if torch.compiler.is_compiling():
            return F.embedding(positions, self.weight)
        try:
            return F.embedding(positions, self.weight)
        except IndexError:  # on the CPU; a GPU stops with an assertion of its own
            low, high = int(positions.min()), int(positions.max())
            raise IndexError(
                f"LearnedPositions has positions 0 to {self.length - 1}, got {low} to {high}"
            ) from None

    def no_weight_decay(self) -> set[str]:
        """The table: decay would pull the positions together."""
        return {"weight"}

    def extra_repr(self) -> str:
        """The arguments that print(module) shows."""
        return f"{self.length}, {self.size}, manifold={self.manifold!r}, radius={self.radius:g}"


def _check_integers(positions: Tensor, layer: str) -> None:
    if positions.is_floating_point() or positions.dtype == torch.bool:
        raise TypeError(f"{layer} takes integer positions, got {positions.dtype}")


def _check_positions(positions: Tensor, x: Tensor, tokens: torch.Size, layer: str) -> None:
    """Integers of shape (T,) or (..., T) for x, whose tokens have the shape (..., T)."""
    _check_integers(positions, layer)
    fits = 0 < positions.ndim <= len(tokens) and positions.shape[-1] == tokens[-1]
    for i in range(-positions.ndim, -1):
        fits = fits and positions.shape[i] in (1, tokens[i])
    if not fits:
        raise ValueError(
            f"{layer} takes positions of shape (T,) or (..., T) with T = {tokens[-1]} for x of "
            f"shape {tuple(x.shape)}, got {tuple(positions.shape)}"
        )
