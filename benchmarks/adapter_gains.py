"""What gains a language model's tokens have before HypLoRA is trained, by layer.

`python -m benchmarks.adapter_gains --model smollm2` adapts every linear layer with small random B,
so that updates are short, has the model read generated word problems, and prints for each kind of
layer the median gain of a block: the lowest, the middle and the highest of the blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from peft import get_peft_model
from rich.console import Console
from rich.table import Table

from beltrami.data.word_problems import generate_problems
from beltrami.models.pretrained.opening import open_language_model
from beltrami.peft import HypLoraConfig, measure_gains
from benchmarks.command import execute

SHORT = 1e-3  # of B's entries


@dataclass(frozen=True)
class Options:
    """Print the gains of an untrained adapter by kind of layer."""

    model: str = "smollm2"
    """A folder, a name on the hub, or smollm2."""
    curvature: float = 1.0
    """Of the adapter."""
    norm_source: Literal["input", "residual"] = "input"
    """Whose norm the gain depends on."""
    texts: int = 16
    """How many problems are read."""


def gains_by_kind(options: Options) -> dict[str, torch.Tensor]:
    """For each kind of layer, by the last part of its name, the median gain in every block."""
    base = open_language_model(options.model)
    problems = generate_problems(options.texts, seed=0)
    texts = [f"{one.question} {one.solution}" for one in problems]
    batch = dict(base.tokenizer(texts, return_tensors="pt", padding=True))
    torch.manual_seed(0)
    config = HypLoraConfig(
        r=16,
        curvature=options.curvature,
        norm_source=options.norm_source,
        target_modules="all-linear",
    )
    model = get_peft_model(base.load(torch.float32), config)
    for name, parameter in model.named_parameters():
        if "hyplora_B" in name:
            torch.nn.init.normal_(parameter, std=SHORT)
    with torch.no_grad():
        model.train()(**batch)  # the unit of the residual stream is that of the first batch
    found: dict[str, list[torch.Tensor]] = {}
    for name, gains in measure_gains(model.eval(), [batch]).items():
        found.setdefault(name.rpartition(".")[2], []).append(gains.median())
    return {kind: torch.stack(medians) for kind, medians in found.items()}


def run(options: Options) -> int:
    table = Table("layer", "lowest", "middle", "highest", "blocks", title="Median gain of a block")
    for kind, medians in gains_by_kind(options).items():
        ends = (medians.min(), medians.median(), medians.max())
        table.add_row(kind, *(f"{float(v):.3f}" for v in ends), str(len(medians)))
    Console().print(table)
    return 0


if __name__ == "__main__":
    execute(run, Options)
