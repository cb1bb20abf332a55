"""Series and parallel adapters: small networks behind a layer, or beside it.

Houlsby et al. 2019 and He et al. 2022; PEFT has neither.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

ALL_LINEAR = "all-linear"


class Bottleneck(nn.Module):
    """A frozen layer with a small network of one hidden layer.

    In series it is `y + up(tanh(down(y)))` of the layer's output y, in parallel
    `y + scaling·up(tanh(down(x)))` of its input x. Both start as the layer alone.

    Args:
        base: the layer.
        size: of the hidden layer.
        series: behind it, else beside it.
        scaling: of a parallel one.
    """

    def __init__(self, base: nn.Linear, size: int, *, series: bool, scaling: float = 1.0) -> None:
        super().__init__()
        self.base, self.series, self.scaling = base, series, scaling
        inside = base.out_features if series else base.in_features
        where = {"device": base.weight.device, "dtype": torch.float32}
        self.down = nn.Linear(inside, size, bias=False, **where)
        self.up = nn.Linear(size, base.out_features, bias=False, **where)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output and what the network adds."""
        y: Tensor = self.base(x)
        seen = (y if self.series else x).to(self.down.weight.dtype)
        added: Tensor = self.up(torch.tanh(self.down(seen)))
        return y + (added if self.series else self.scaling * added).to(y.dtype)


def add_bottlenecks(
    model: nn.Module, targets: Sequence[str], rank: int, *, series: bool, scaling: float
) -> nn.Module:
    """Freeze a model and give its target layers bottlenecks, in place.

    A parallel one has `rank` hidden numbers and then as many weights as LoRA's; one in series has
    as many as bring it to the same number of weights.

    Args:
        model: a causal language model.
        targets: ends of the names of linear layers, or "all-linear": all but the output's.
        rank: of the LoRA to compare with.
        series, scaling: as in `Bottleneck`.
    """
    model.requires_grad_(False)
    for name in target_names(model, targets):
        parent, _, child = name.rpartition(".")
        owner = model.get_submodule(parent)
        base = getattr(owner, child)
        size = rank
        if series:
            size = max(
                1, round(rank * (base.in_features + base.out_features) / (2 * base.out_features))
            )
        setattr(owner, child, Bottleneck(base, size, series=series, scaling=scaling))
    return model


def target_names(model: nn.Module, targets: Sequence[str]) -> list[str]:
    """The linear layers that are meant; a `ValueError` where there are none."""
    output = getattr(model, "get_output_embeddings", lambda: None)()
    linear = [n for n, m in model.named_modules() if isinstance(m, nn.Linear) and m is not output]
    if ALL_LINEAR in targets:
        found = linear
    else:
        found = [n for n in linear if any(n == t or n.endswith(f".{t}") for t in targets)]
    if not found:
        known = ", ".join(sorted({name.rpartition(".")[2] for name in linear}))
        raise ValueError(f"--targets {' '.join(targets)}: the model has only {known}")
    return found
