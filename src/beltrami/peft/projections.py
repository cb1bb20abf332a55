"""The parts of an adapter that own parameters.

Each is a leaf module that touches its parameters only inside its own `forward`. Engines that gather
sharded parameters when a module is called (FSDP, DeepSpeed ZeRO-3) then need to know nothing of us.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from beltrami.geometry import Curvature
from beltrami.kernels.hyplora.norm_linear import norm_linear_beside
from beltrami.kernels.layers.curvature_law import learned_curvature
from beltrami.peft.config import CURVATURE_BOUNDS
from beltrami.peft.gains import AdapterMap, Curvatures

TOKEN_REACH = math.log(4.0)  # a token moves a curvature by up to this factor, both ways


class Seen(NamedTuple):
    """What an adapter sees of tokens: u = A·x, (..., r), n² = |x|², (..., 1), and a time column."""

    u: Tensor
    n2: Tensor
    time_in: Tensor | None = None


class DownProjection(nn.Module):
    """A: tokens to r numbers each, and their squared norms.

    Args:
        in_features, r: sizes.
        time: whether there is a column for the time coordinate (the boost variant).
    """

    def __init__(self, in_features: int, r: int, *, time: bool = False) -> None:
        super().__init__()
        self.in_features, self.r = in_features, r
        self.weight = nn.Parameter(torch.empty(r, in_features))
        self.time_weight = nn.Parameter(torch.empty(r)) if time else None

    def reset_parameters(self) -> None:
        """LoRA's: uniform in ±1/√in, the time column as one feature more."""
        bound = 1 / math.sqrt(self.in_features)
        nn.init.uniform_(self.weight, -bound, bound)
        if self.time_weight is not None:
            nn.init.uniform_(self.time_weight, -bound, bound)

    def forward(self, x: Tensor) -> tuple[Tensor, Seen]:
        """x for all that is made of it after this, as in `norm_linear_beside`, and what is seen."""
        x, u, n2 = norm_linear_beside(x, self.weight)
        # A copy: the parameter itself may be gone when it is used, outside of this module.
        return x, Seen(u, n2, None if self.time_weight is None else self.time_weight.clone())

    def keep(self, indices: Tensor) -> None:
        """Drop the other components."""
        self.weight, self.r = _kept(self.weight, indices, 0), len(indices)
        if self.time_weight is not None:
            self.time_weight = _kept(self.time_weight, indices, 0)

    def extra_repr(self) -> str:
        """Input size, r, and whether there is a time column."""
        return f"{self.in_features}, {self.r}, time={self.time_weight is not None}"


class DownLookup(nn.Module):
    """A of an embedding: a column of it for each token number; that of `padding` learns nothing."""

    time_weight = None

    def __init__(self, count: int, r: int, padding: int | None = None) -> None:
        super().__init__()
        self.count, self.r, self.padding = count, r, padding
        self.weight = nn.Parameter(torch.empty(r, count))

    def reset_parameters(self) -> None:
        """Zeros, as LoRA's: for embeddings it is B that starts at random."""
        nn.init.zeros_(self.weight)

    def forward(self, ids: Tensor) -> Tensor:
        """(...) token numbers to (..., r)."""
        return F.embedding(ids, self.weight.mT, self.padding)

    def keep(self, indices: Tensor) -> None:
        """Drop the other components."""
        self.weight, self.r = _kept(self.weight, indices, 0), len(indices)

    def extra_repr(self) -> str:
        """Number of tokens, and r."""
        return f"{self.count}, {self.r}"


class UpProjection(nn.Module):
    """B, and the gain in front of it.

    Args:
        r, out_features: sizes.
        adapter_map: what the gain is.
    """

    def __init__(self, r: int, out_features: int, adapter_map: AdapterMap) -> None:
        super().__init__()
        self.r, self.out_features = r, out_features
        self.adapter_map = adapter_map
        self.weight = nn.Parameter(torch.empty(out_features, r))
        time = adapter_map.variant == "boost"
        self.time_weight = nn.Parameter(torch.empty(out_features)) if time else None

    def reset_parameters(self, std: float = 0.0) -> None:
        """Normal of that standard deviation; 0 makes the adapter do nothing."""
        for p in self.parameters():
            nn.init.zeros_(p) if std == 0 else nn.init.normal_(p, std=std)

    def forward(
        self,
        u: Tensor,
        n2: Tensor,
        curvatures: Curvatures,
        time_in: Tensor | None = None,
        *,
        scaling: float = 1.0,
        add_to: Tensor | None = None,
    ) -> Tensor:
        """`add_to + scaling·Δ` for tokens given by u = A·x and n² = |x|²."""
        return self.adapter_map(
            u,
            n2,
            curvatures,
            self.weight,
            time_in=time_in,
            time_out=self.time_weight,
            scaling=scaling,
            add_to=add_to,
        )

    def keep(self, indices: Tensor) -> None:
        """Drop the other components."""
        self.weight, self.r = _kept(self.weight, indices, 1), len(indices)

    def extra_repr(self) -> str:
        """Sizes and the map."""
        return f"{self.r}, {self.out_features}, {self.adapter_map}"


class LearnedCurvature(nn.Module):
    """Positive numbers between bounds; `weight` holds how far their logarithms have moved."""

    def __init__(self, start: tuple[float, ...]) -> None:
        super().__init__()
        self.start = start
        self.weight = nn.Parameter(torch.empty(len(start)))
        laws = [Curvature(c, bounds=CURVATURE_BOUNDS, learnable=False) for c in start]
        self._laws = tuple((law.init, *law.reach) for law in laws)

    def reset_parameters(self) -> None:
        """Back to the start."""
        nn.init.zeros_(self.weight)

    def forward(self) -> tuple[Tensor, ...]:
        """The curvatures, (1,) each."""
        if len(self._laws) == 1:
            return (learned_curvature(self.weight, *self._laws[0]),)
        return tuple(
            learned_curvature(self.weight[i : i + 1], *law) for i, law in enumerate(self._laws)
        )

    def no_weight_decay(self) -> set[str]:
        """Decay would pull curvatures back to their start."""
        return {"weight"}

    def extra_repr(self) -> str:
        """Where they start."""
        return f"start={self.start}"


class CurvatureRouter(nn.Module):
    """What a token makes of the curvatures, by a linear map of A·x that starts at 0.

    Args:
        r: of the adapter.
        count: curvatures; one is moved for each token, several are weighed.
    """

    def __init__(self, r: int, count: int) -> None:
        super().__init__()
        self.r, self.count = r, count
        self.weight = nn.Parameter(torch.empty(count, r))

    def reset_parameters(self) -> None:
        """All tokens alike."""
        nn.init.zeros_(self.weight)

    def forward(self, u: Tensor) -> Tensor:
        """Weights that sum to 1, (..., count); or a factor of the one curvature, (..., 1)."""
        scores = F.linear(u.to(self.weight.dtype), self.weight).float()
        if self.count > 1:
            return torch.softmax(scores, -1)
        return torch.exp(TOKEN_REACH * torch.tanh(scores))

    def keep(self, indices: Tensor) -> None:
        """Drop the other components."""
        self.weight, self.r = _kept(self.weight, indices, 1), len(indices)

    def extra_repr(self) -> str:
        """r, and the number of curvatures."""
        return f"{self.r}, {self.count}"


class ResidualUnit(nn.Module):
    """What counts as length 1 of the residual stream: what its tokens have at first sight.

    Streams grow from block to block by orders of magnitude. The first batch in training mode fixes
    the unit for good, so that recomputed activations are the same; it is saved with the adapter.

    It is the geometric mean of their lengths. In language models the first token, to which others
    attend if they attend to nothing, may be a hundred times as long as all others: by their mean
    square the others would have no length, and HypLoRA would be LoRA for them.
    """

    weight: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.zeros(1))

    def _apply(self, fn: Any, recurse: bool = True) -> ResidualUnit:
        """Moved with the model, but never cast: a mean square may be larger than float16 holds."""
        before = self.weight
        super()._apply(fn, recurse)
        if before.device.type != "meta" and self.weight.device.type != "meta":
            self.weight = before.to(self.weight.device)
        return self

    def reset_parameters(self) -> None:
        """Forget the unit, so that the next batch sets it."""
        nn.init.zeros_(self.weight)

    def forward(self, mean_square: Tensor) -> Tensor:
        """Mean squares in that unit."""
        measured = _geometric_mean(mean_square.detach()).reshape(1)
        known = self.weight.to(measured.dtype)
        # Rounded as it is stored: activations that are computed again must be the same.
        unit = torch.where(known > 0, known, measured.to(self.weight.dtype).to(measured.dtype))
        if self.training:
            self.weight.copy_(unit)
        return mean_square / unit


def _geometric_mean(values: Tensor) -> Tensor:
    """Geometric mean of the positive values; 1 without any."""
    there = values > 0
    logs = torch.where(there, values, 1.0).log()
    return (logs.sum() / there.sum().clamp(min=1)).exp()


class Magnitude(nn.Module):
    """The length of each output's row of the adapted weight (DoRA)."""

    def __init__(self, out_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_features))

    def forward(self, lengths: Tensor) -> Tensor:
        """Factor of each output, given the lengths of the rows."""
        return self.weight / torch.where(lengths > 0, lengths, 1.0)


def _kept(parameter: nn.Parameter, indices: Tensor, dim: int) -> nn.Parameter:
    chosen = parameter.detach().index_select(dim, indices.to(parameter.device))
    return nn.Parameter(chosen, requires_grad=parameter.requires_grad)
