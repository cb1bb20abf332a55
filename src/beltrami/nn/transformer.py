"""The transformer block, encoder and decoder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from torch import Tensor, nn

from beltrami.checks import check_choice, check_integer
from beltrami.geometry import Euclidean, Lorentz, Manifold
from beltrami.geometry.curvature import shares_curvatures
from beltrami.nn.attention import Attention
from beltrami.nn.cache import KVCache
from beltrami.nn.layer import Layer
from beltrami.nn.mlp import MLP
from beltrami.nn.norm import LayerNorm, RMSNorm
from beltrami.nn.pointwise import Dropout
from beltrami.nn.residual import Residual
from beltrami.nn.sequential import check_chain

_NORMS: dict[str, Callable[..., nn.Module]] = {"rms": RMSNorm, "layer": LayerNorm}

# Hidden width of the MLP over the block's: the gated one has three matrices, not two.
_HIDDEN = {True: 8 / 3, False: 4}

# What options of the default parts are unless they are given.
_DEFAULTS = {
    "heads": None,
    "kv_heads": None,
    "causal": False,
    "rotary": False,
    "score": "distance",
    "aggregate": "centroid",
    "hidden": None,
    "activation": "swiglu",
}


class TransformerBlock(Layer):
    r"""A pre-norm transformer block between points.

        x ← residual(x, attention(norm(x)))
        x ← residual(x, cross_attention(norm(x), memory))        if cross
        x ← residual(x, mlp(norm(x)))

    Three things make it more than a Transformer on space parts, and each has its switch: the time
    columns of the linear layers (`time`), the residual (`residual`) and attention by distance with
    centroids (`score`, `aggregate`). With all of them off, `time=False, residual="euclidean",
    score="dot", aggregate="mean"`, and the branches added as they are, `learn_residual=False`, it
    is the plain Transformer block to the last bit. As c → 0 it is the block on `Euclidean()` with
    the same switches.

    Its parts may be modules of your own, from points to points: `attention`, `cross_attention`,
    `mlp` and what `norm` makes. A block of another shape (parallel branches, norms behind them) is
    best written as a module, of `Attention`, `MLP`, `RMSNorm` and `Residual`.

    Args:
        size: coordinates of the points.
        heads: attention heads; needed unless attention is given.
        manifold: Lorentz or Euclidean.
        attention: self attention, `Attention(size, heads, ...)` if None. It is called with the
            points and with those of the keyword arguments of `forward` that were given.
        cross_attention: attention to the memory, called with points, memory and, if it was given,
            `key_mask`; implies `cross`.
        mlp: the feed-forward part, `MLP(size, hidden, ...)` if None.
        norm: "rms", "layer", or a factory that is called as `norm(size, manifold=manifold)` for
            each branch: a class, or a `functools.partial` of one.
        kv_heads: key and value heads, for grouped queries.
        hidden: hidden width of the MLP; 4·size, or 8/3·size rounded up to a multiple of 8 if gated.
        causal: decoder (True) or encoder (False).
        cross: whether there is cross attention to a `memory`.
        rotary: whether self attention has rotary positions.
        activation: of the MLP.
        dropout: on the output of each branch.
        residual: "manifold", or "euclidean" for x + w·y on space parts.
        residual_weight: w of each residual at the start. 1 is right at any depth, as an empty
            branch leaves the stream as it is.
        learn_residual: whether w is learned.
        residual_gain: whether residuals keep a stream as it is beside an empty branch
            (`Residual(scale="keep")`); False for γ = 1 + w.
        time, score, aggregate, bias: see `Attention` and `Linear`.

    Options of a part that is itself given are refused.
    """

    accepts: ClassVar[tuple[type[Manifold], ...]] = (Lorentz, Euclidean)

    def __init__(
        self,
        size: int,
        heads: int | None = None,
        *,
        manifold: Manifold,
        attention: nn.Module | None = None,
        cross_attention: nn.Module | None = None,
        mlp: nn.Module | None = None,
        norm: str | Callable[..., nn.Module] = "rms",
        kv_heads: int | None = None,
        hidden: int | None = None,
        causal: bool = False,
        cross: bool = False,
        rotary: bool = False,
        activation: str = "swiglu",
        dropout: float = 0.0,
        residual: str = "manifold",
        residual_weight: float = 1.0,
        learn_residual: bool = True,
        residual_gain: bool = True,
        time: bool = True,
        score: str = "distance",
        aggregate: str = "centroid",
        bias: bool = True,
    ) -> None:
        super().__init__(manifold)
        self.size = check_integer("TransformerBlock: size", size)
        self.cross = cross or cross_attention is not None
        linear: dict[str, Any] = {"manifold": manifold, "bias": bias, "time": time}
        head: dict[str, Any] = {
            "heads": heads, "kv_heads": kv_heads, "score": score, "aggregate": aggregate
        }  # fmt: skip
        if attention is None:
            attention = Attention(size, **head, **linear, causal=causal, rotary=rotary)
        else:
            default_cross = self.cross and cross_attention is None
            _refuse("attention", causal=causal, rotary=rotary, **({} if default_cross else head))
        if self.cross and cross_attention is None:
            cross_attention = Attention(size, **head, **linear, cross=True)
        if mlp is None:
            if hidden is None:
                hidden = -(-int(_HIDDEN[activation == "swiglu"] * size) // 8) * 8
            mlp = MLP(size, hidden, **linear, activation=activation)
        else:
            _refuse("mlp", hidden=hidden, activation=activation)
        if isinstance(norm, str):
            norm = _NORMS[check_choice("TransformerBlock: norm", norm, tuple(_NORMS))]

        def add() -> Residual:
            return Residual(
                manifold=manifold,
                weight=residual_weight,
                learnable=learn_residual,
                scale="keep" if residual_gain else None,
                form=residual,
            )

        self.attention_norm = norm(size, manifold=manifold)
        self.attention = attention
        self.attention_residual = add()
        check_chain(self.attention_norm, attention, self.attention_residual)
        if cross_attention is not None:
            self.cross_norm = norm(size, manifold=manifold)
            self.cross_attention = cross_attention
            self.cross_residual = add()
            check_chain(self.cross_norm, cross_attention, self.cross_residual)
        self.mlp_norm = norm(size, manifold=manifold)
        self.mlp = mlp
        self.mlp_residual = add()
        check_chain(self.mlp_norm, mlp, self.mlp_residual)
        self.dropout = Dropout(dropout, manifold=manifold)

    @shares_curvatures
    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        key_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        positions: Tensor | None = None,
        rotation: tuple[Tensor, Tensor] | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        """(B, T, size) to (B, T, size); arguments as in `Attention`.

        `memory_mask`, (B, S) bool, says which tokens of the memory are not padding.
        """
        self.check_size(x, self.size)
        options = _given(
            mask=mask, key_mask=key_mask, positions=positions, rotation=rotation, cache=cache
        )
        branch = self.attention(self.attention_norm(x), **options)
        x = self.attention_residual(x, self.dropout(branch))
        if self.cross:
            if memory is None:
                raise ValueError("TransformerBlock: memory is needed with cross=True")
            options = _given(key_mask=memory_mask)
            branch = self.cross_attention(self.cross_norm(x), memory, **options)
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


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _refuse(part: str, **options: Any) -> None:
    given = [name for name, value in options.items() if value != _DEFAULTS[name]]
    if given:
        raise ValueError(
            f"TransformerBlock: {', '.join(given)} cannot be given together with {part}, whose "
            f"default these are options of: build the {part} with them"
        )
