"""Series and parallel adapters: small networks behind a layer, or beside it.

Houlsby et al. 2019 and He et al. 2022; PEFT has neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

ALL_LINEAR = "all-linear"


class Bottleneck(nn.Module):
    """A frozen layer with a small network of one hidden layer.

    In series it is `y + up(tanh(down(y)))` of the layer's output y, in parallel
    `y + scaling·up(tanh(down(x)))` of its input x. Both start as the layer alone.

    Args:
        base: the layer, `nn.Linear` or GPT-2's `Conv1D`.
        size: of the hidden layer.
        series: behind it, else beside it.
        scaling: of a parallel one.
        dropout: of what the network sees.
    """

    def __init__(
        self,
        base: nn.Module,
        size: int,
        *,
        series: bool,
        scaling: float = 1.0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.base, self.series, self.scaling = base, series, scaling
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        inside, outside = layer_sizes(base)
        weight: Any = base.weight
        where = {"device": weight.device, "dtype": torch.float32}
        self.down = nn.Linear(outside if series else inside, size, bias=False, **where)
        self.up = nn.Linear(size, outside, bias=False, **where)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output and what the network adds."""
        y: Tensor = self.base(x)
        seen = self.dropout((y if self.series else x).to(self.down.weight.dtype))
        added: Tensor = self.up(torch.tanh(self.down(seen)))
        return y + (added if self.series else self.scaling * added).to(y.dtype)


def add_bottlenecks(
    model: nn.Module,
    targets: Sequence[str],
    rank: int,
    *,
    series: bool,
    scaling: float,
    dropout: float = 0.0,
) -> nn.Module:
    """Freeze a model and give its target layers bottlenecks, in place.

    A parallel one has `rank` hidden numbers and then as many weights as LoRA's; one in series has
    as many as bring it to the same number of weights.

    Args:
        model: a causal language model.
        targets: ends of the names of linear layers, or "all-linear": all but the output's.
        rank: of the LoRA to compare with.
        series, scaling, dropout: as in `Bottleneck`.
    """
    model.requires_grad_(False)
    for name in target_names(model, targets):
        parent, _, child = name.rpartition(".")
        owner = model.get_submodule(parent)
        base = getattr(owner, child)
        size = rank
        if series:
            inside, outside = layer_sizes(base)
            size = max(1, round(rank * (inside + outside) / (2 * outside)))
        adapter = Bottleneck(base, size, series=series, scaling=scaling, dropout=dropout)
        setattr(owner, child, adapter)
    return model


def target_names(model: nn.Module, targets: Sequence[str]) -> list[str]:
    """The linear layers that are meant; a `ValueError` where there are none."""
    from transformers.pytorch_utils import Conv1D

    output = getattr(model, "get_output_embeddings", lambda: None)()
    kinds = (nn.Linear, Conv1D)
    linear = [n for n, m in model.named_modules() if isinstance(m, kinds) and m is not output]
    if ALL_LINEAR in targets:
        chosen = linear
    else:
        chosen = [n for n in linear if any(n == t or n.endswith(f".{t}") for t in targets)]
    if not chosen:
        known = ", ".join(sorted({name.rpartition(".")[2] for name in linear})) or "no linear layer"
        raise ValueError(f"--targets {' '.join(targets)}: the model has only {known}")
    return chosen


def layer_sizes(layer: Any) -> tuple[int, int]:
    """Inputs and outputs of a linear layer or of GPT-2's Conv1D."""
    if isinstance(layer, nn.Linear):
        return layer.in_features, layer.out_features
    inside, outside = layer.weight.shape
    return int(inside), int(outside)
