"""The transformer block, encoder and decoder."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from beltrami.geometry import Euclidean, Lorentz, Manifold
from beltrami.nn.attention import Attention
from beltrami.nn.cache import KVCache
from beltrami.nn.layer import Layer, check_choice, check_count
from beltrami.nn.mlp import MLP
from beltrami.nn.norm import LayerNorm, RMSNorm
from beltrami.nn.pointwise import Dropout
from beltrami.nn.residual import Residual

_NORMS = {"rms": RMSNorm, "layer": LayerNorm}

# Hidden width of the MLP over the block's: the gated one has three matrices, not two.
_HIDDEN = {True: 8 / 3, False: 4}


class TransformerBlock(Layer):
    r"""A pre-norm transformer block between points.

        x ← residual(x, attention(norm(x)))
        x ← residual(x, cross_attention(norm(x), memory))        if cross
        x ← residual(x, mlp(norm(x)))

    Three things make it more than a Transformer on space parts, and each has its switch: the time
    columns of the linear layers (`time`), the residual (`residual`) and attention by distance with
    centroids (`score`, `aggregate`). With all of them off, `time=False, residual="euclidean",
    score="dot", aggregate="mean"`, and the branches added as they are, `residual_weight=1.0,
    learn_residual=False`, it is the plain Transformer block to the last bit. As c → 0 it is the
    block on `Euclidean()` with the same switches.

    Args:
        size: coordinates of the points.
        heads: attention heads.
        manifold: Lorentz or Euclidean.
        kv_heads: key and value heads, for grouped queries.
        hidden: hidden width of the MLP; 4·size, or 8/3·size rounded up to a multiple of 8 if gated.
        causal: decoder (True) or encoder (False).
        cross: whether there is cross attention to a `memory`.
        rotary: whether self attention has rotary positions.
        norm: "rms" or "layer".
        activation: of the MLP.
        dropout: on the output of each branch.
        residual: "manifold", or "euclidean" for x + w·y on space parts.
        residual_weight: w of each residual at the start; about 1/√(2·depth), which is 0.3 for six
            layers, keeps the tokens of a stack apart.
        learn_residual: whether w is learned.
        time, score, aggregate, bias: see `Attention` and `Linear`.
    """

    accepts: ClassVar[tuple[type[Manifold], ...]] = (Lorentz, Euclidean)

    def __init__(
        self,
        size: int,
        heads: int,
        *,
        manifold: Manifold,
        kv_heads: int | None = None,
        hidden: int | None = None,
        causal: bool = False,
        cross: bool = False,
        rotary: bool = False,
        norm: str = "rms",
        activation: str = "swiglu",
        dropout: float = 0.0,
        residual: str = "manifold",
        residual_weight: float = 0.3,
        learn_residual: bool = True,
        time: bool = True,
        score: str = "distance",
        aggregate: str = "centroid",
        bias: bool = True,
    ) -> None:
        super().__init__(manifold)
        self.size = check_count(size, "size", "TransformerBlock")
        check_choice(norm, "norm", tuple(_NORMS), "TransformerBlock")
        if hidden is None:
            hidden = -(-int(_HIDDEN[activation == "swiglu"] * size) // 8) * 8

        def attention(cross: bool) -> Attention:
            return Attention(
                size,
                heads,
                manifold=manifold,
                kv_heads=kv_heads,
                causal=causal and not cross,
                cross=cross,
                rotary=rotary and not cross,
                score=score,
                aggregate=aggregate,
                bias=bias,
                time=time,
            )

        def add() -> Residual:
            return Residual(
                manifold=manifold,
                weight=residual_weight,
                learnable=learn_residual,
                form=residual,
            )

        make_norm = _NORMS[norm]
        self.attention_norm: nn.Module = make_norm(size, manifold=manifold)
        self.attention = attention(cross=False)
        self.attention_residual = add()
        self.cross = cross
        if cross:
            self.cross_norm: nn.Module = make_norm(size, manifold=manifold)
            self.cross_attention = attention(cross=True)
            self.cross_residual = add()
        self.mlp_norm: nn.Module = make_norm(size, manifold=manifold)
        self.mlp = MLP(size, hidden, manifold=manifold, activation=activation, bias=bias, time=time)
        self.mlp_residual = add()
        self.dropout = Dropout(dropout, manifold=manifold)

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        key_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        positions: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        """(B, T, size) to (B, T, size); arguments as in `Attention`.

        `memory_mask`, (B, S) bool, says which tokens of the memory are not padding.
        """
        self.check_size(x, self.size)
        branch = self.attention(
            self.attention_norm(x), mask=mask, key_mask=key_mask, positions=positions, cache=cache
        )
        x = self.attention_residual(x, self.dropout(branch))
        if self.cross:
            if memory is None:
                raise ValueError("TransformerBlock: memory is needed with cross=True")
            branch = self.cross_attention(self.cross_norm(x), memory, key_mask=memory_mask)
            x = self.cross_residual(x, self.dropout(branch))
        elif memory is not None or memory_mask is not None:
            raise ValueError(
                "TransformerBlock: memory was given, but the block was built with cross=False"
            )
        out: Tensor = self.mlp_residual(x, self.dropout(self.mlp(self.mlp_norm(x))))
        return out

    def extra_repr(self) -> str:
        """Size and manifold; the parts print themselves."""
        return f"{self.size}, manifold={self.manifold!r}"
