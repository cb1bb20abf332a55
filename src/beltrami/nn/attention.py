"""Multi-head attention between points."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from beltrami.checks import check_choice, check_integer
from beltrami.geometry import Euclidean, Lorentz, Manifold
from beltrami.kernels.layers.centroid_attention import centroid_attention
from beltrami.nn.cache import KVCache
from beltrami.nn.layer import Layer
from beltrami.nn.linear import Linear
from beltrami.nn.positions import Rotary, rotate

_ROTARY_BASE = 10000.0


class Attention(Layer):
    r"""Multi-head attention whose scores are distances and whose outputs are centroids.

        scores = −|q − k|²_L/σ,      head = Σ a·v/(√c·|Σ a·v|_L),      a = softmax(scores)

    Queries, keys and values come from HTC `Linear` layers; each head is a point of the manifold by
    its own space part, and the heads side by side are the point that the output layer takes.
    (Hypformer, Yang et al. 2024; HELM, He et al. 2025. Their additive score bias is left out: the
    softmax does not see it.) `log_scale`, (heads,), is log σ, one a head; σ starts at 2√head_size,
    where q·k has the weight it has in a Transformer.

    Scores come from one matrix product, `2(q·k − t_q·τ_k)/σ`, with an absolute error of a few
    eps·|q||k|·2/σ: keep queries and keys in natural units or behind a norm (see `docs/layers.md`).

    As c → 0, and with `manifold=Euclidean()`, this is attention by Euclidean *distance* with the
    mean as output: `softmax(−|q − k|²/σ)·v`, not the dot-product attention of Transformers. That is
    `score="dot", aggregate="mean"`, on either manifold.

    Args:
        size: coordinates of the points.
        heads: query heads.
        manifold: Lorentz or Euclidean.
        kv_heads: key and value heads, a divisor of `heads` (grouped queries); `heads` if None.
        head_size: coordinates of a head; size/heads if None.
        causal: whether a token sees only itself and earlier ones.
        cross: whether keys and values come from a second sequence, `memory`.
        rotary: whether queries and keys are rotated by their position (RoPE; HoPE in HELM, where
            rotations of space parts are isometries).
        rotary_base: base of the rotation frequencies, with rotary; 10000 if None.
        score: "distance", or "dot" for q·k/√head_size.
        aggregate: "centroid", or "mean" of space parts.
        bias: whether the linear layers have biases.
        time: whether they have time columns.
    """

    accepts: ClassVar[tuple[type[Manifold], ...]] = (Lorentz, Euclidean)

    def __init__(
        self,
        size: int,
        heads: int,
        *,
        manifold: Manifold,
        kv_heads: int | None = None,
        head_size: int | None = None,
        causal: bool = False,
        cross: bool = False,
        rotary: bool = False,
        rotary_base: float | None = None,
        score: str = "distance",
        aggregate: str = "centroid",
        bias: bool = True,
        time: bool = True,
    ) -> None:
        super().__init__(manifold)
        self.size = check_integer("Attention: size", size)
        self.heads = check_integer("Attention: heads", heads)
        self.kv_heads = check_integer(
            "Attention: kv_heads", heads if kv_heads is None else kv_heads
        )
        if heads % self.kv_heads:
            raise ValueError(f"Attention: kv_heads={kv_heads} must divide heads={heads}")
        if head_size is None and size % heads:
            raise ValueError(
                f"Attention: heads={heads} must divide size={size}, unless head_size is given"
            )
        self.head_size = check_integer(
            "Attention: head_size", size // heads if head_size is None else head_size
        )
        if cross and (causal or rotary):
            raise ValueError(
                "Attention: cross attention has no common order of tokens, so causal and rotary "
                "must be False"
            )
        self.causal, self.cross = causal, cross
        self.score = check_choice("Attention: score", score, ("distance", "dot"))
        self.aggregate = check_choice("Attention: aggregate", aggregate, ("centroid", "mean"))
        if rotary_base is not None and not rotary:
            raise ValueError(f"Attention: rotary_base={rotary_base} was given with rotary=False")
        base = _ROTARY_BASE if rotary_base is None else rotary_base
        self.rotary = Rotary(self.head_size, base=base) if rotary else None
        queries, keys = self.heads * self.head_size, self.kv_heads * self.head_size
        if cross:
            self.query = Linear(size, queries, manifold=manifold, bias=bias, time=time)
            self.key_value = Linear(size, 2 * keys, manifold=manifold, bias=bias, time=time)
        else:
            self.query_key_value = Linear(
                size, queries + 2 * keys, manifold=manifold, bias=bias, time=time
            )
        self.out = Linear(queries, size, manifold=manifold, bias=bias, time=time)
        self.log_scale = nn.Parameter(torch.empty(heads)) if score == "distance" else None
        if self.log_scale is not None:
            self.log_scales.add("log_scale")
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """σ = 2√head_size; the linear layers have their own start."""
        if self.log_scale is not None:
            nn.init.constant_(self.log_scale, math.log(2 * math.sqrt(self.head_size)))

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        key_mask: Tensor | None = None,
        positions: Tensor | None = None,
        rotation: tuple[Tensor, Tensor] | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        """Attention of x over itself, or over `memory` if `cross`.

        Args:
            x: (B, T, size). With a cache, the new tokens only.
            memory: (B, S, size), for cross attention.
            mask: bool, broadcasting to (B, heads, T, S); True where a query may look at a key.
            key_mask: bool, (B, S); False for padding. S counts the cached tokens too.
            positions: int, (T,) or (B, T), for rotary; by default 0, 1, ... after the cached ones.
            rotation: cosines and sines of `Rotary.cos_sin`, in the place of positions, from a model
                that makes them once for all its layers; also for layers built without rotary.
            cache: keys and values of the tokens before x.

        Returns: (B, T, size). A token that may look nowhere attends to the origin.
        """
        self._check_inputs(x, memory, cache, positions, rotation)
        batch, length = x.shape[:2]
        if self.rotary is not None and rotation is None:
            if positions is None:
                start = 0 if cache is None else cache.length
                positions = torch.arange(start, start + length, device=x.device)
            rotation = self.rotary.cos_sin(positions, x.dtype)
        q, k, v = self._heads(x, memory, rotation)
        if cache is not None:
            k, v = cache.update(k, v)
        out = centroid_attention(
            q,
            k,
            v,
            radius=self.manifold.radius_like(q),
            scale=self._scale(),
            score=self.score,
            aggregate=self.aggregate,
            causal=self.causal,
            mask=self._mask(mask, key_mask, (batch, self.heads, length, k.shape[1])),
        )
        projected: Tensor = self.out(out.flatten(2))
        return projected

    def _scale(self) -> Tensor | float:
        if self.log_scale is None:
            return 1 / math.sqrt(self.head_size)
        return torch.exp(math.log(2) - self.log_scale).unsqueeze(-1)  # (heads, 1)

    def _heads(
        self, x: Tensor, memory: Tensor | None, rotation: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (B, T, heads, head_size), keys and values (B, S, kv_heads, head_size)."""
        heads, kv_heads = self.heads, self.kv_heads
        if self.cross:
            assert memory is not None
            q = self.query(x).unflatten(-1, (heads, self.head_size))
            kv = self.key_value(memory).unflatten(-1, (2 * kv_heads, self.head_size))
            k, v = kv.chunk(2, dim=-2)
            return q, k, v
        qkv = self.query_key_value(x).unflatten(-1, (heads + 2 * kv_heads, self.head_size))
        if rotation is not None:  # queries and keys at once
            qk, v = qkv.split([heads + kv_heads, kv_heads], dim=-2)
            q, k = rotate(qk, *rotation).split([heads, kv_heads], dim=-2)
        else:
            q, k, v = qkv.split([heads, kv_heads, kv_heads], dim=-2)
        return q, k, v

    def _check_inputs(
        self,
        x: Tensor,
        memory: Tensor | None,
        cache: KVCache | None,
        positions: Tensor | None,
        rotation: tuple[Tensor, Tensor] | None,
    ) -> None:
        self.check_size(x, self.size)
        if x.ndim != 3:
            raise ValueError(f"Attention takes x of shape (B, T, size), got {tuple(x.shape)}")
        if self.cross != (memory is not None):
            raise ValueError(
                "Attention: memory is needed with cross=True"
                if self.cross
                else "Attention: memory was given, but the layer was built with cross=False"
            )
        if memory is not None:
            self.check_size(memory, self.size, "memory")
            if memory.ndim != 3 or memory.shape[0] != x.shape[0]:
                raise ValueError(
                    f"Attention: memory must have shape (B, S, size) with the batch of x, got "
                    f"{tuple(memory.shape)} for x of shape {tuple(x.shape)}"
                )
        if self.cross and cache is not None:
            raise ValueError("Attention: cross attention takes no cache; memory does not grow")
        if positions is not None and self.rotary is None:
            raise ValueError("Attention: positions were given, but the layer has rotary=False")
        if rotation is not None and (self.cross or positions is not None):
            raise ValueError(
                "Attention: rotation was given together with "
                + ("cross attention" if self.cross else "positions, which it replaces")
            )
        batch, length = x.shape[:2]
        fitting = ((length,), (1, length), (batch, length))
        if positions is not None and tuple(positions.shape) not in fitting:
            raise ValueError(
                f"Attention: positions must have shape (T,) = {(length,)} or (B, T) = "
                f"{(batch, length)}, got {tuple(positions.shape)}"
            )
        for table in rotation or ():
            if tuple(table.shape[:-1]) not in fitting or 2 * table.shape[-1] != self.head_size:
                raise ValueError(
                    f"Attention: rotation must be cosines and sines of shape (T, head_size/2) or "
                    f"(B, T, head_size/2) with B={batch}, T={length}, head_size={self.head_size}, "
                    f"got {tuple(table.shape)}"
                )

    def _mask(
        self, mask: Tensor | None, key_mask: Tensor | None, shape: tuple[int, int, int, int]
    ) -> Tensor | None:
        for name, given in (("mask", mask), ("key_mask", key_mask)):
            if given is not None and given.dtype != torch.bool:
                raise TypeError(
                    f"Attention: {name} must be a bool tensor, True where a key may be looked at, "
                    f"got {given.dtype}: use {name}.bool()"
                )
        if mask is not None and not _broadcasts(mask.shape, shape):
            raise ValueError(
                f"Attention: mask must broadcast to (B, heads, T, S) = {shape}, got "
                f"{tuple(mask.shape)}"
            )
        if key_mask is None:
            return mask
        if key_mask.shape != (shape[0], shape[3]):
            raise ValueError(
                f"Attention: key_mask must have shape (B, S) = {(shape[0], shape[3])}, got "
                f"{tuple(key_mask.shape)}"
            )
        keys = key_mask[:, None, None, :]
        return keys if mask is None else mask & keys

    def extra_repr(self) -> str:
        """Sizes, switches and manifold."""
        return (
            f"{self.size}, heads={self.heads}, kv_heads={self.kv_heads}, "
            f"head_size={self.head_size}, causal={self.causal}, cross={self.cross}, "
            f"score={self.score}, aggregate={self.aggregate}, manifold={self.manifold!r}"
        )


def _broadcasts(shape: torch.Size, to: tuple[int, ...]) -> bool:
    fits = len(shape) <= len(to)
    for i in range(-len(shape), 0):
        fits = fits and shape[i] in (1, to[i])
    return fits
