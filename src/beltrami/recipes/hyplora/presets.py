"""Options that belong together: ours for small models, and those of the HypLoRA paper.

The paper's (arXiv 2410.04010) are those of the scripts published with it: rank 32, dropout 0.05, on
the projections q, k, v, up and down, 3 epochs in batches of 16 at a rate of 3e-4, prompts included
in the loss, answers by beams of 4. Its comparison gave LoRA an alpha of 64 and HypLoRA another one
for each model; "paper-math" and "paper-commonsense" give 64 to all, and the presets named after a
model repeat the published inequality.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

TINY = "tiny"
Prompt = Literal["auto", "plain", "instruction", "chat"]
LossOn = Literal["solution", "whole"]
Preset = Literal[
    "tiny",
    "small",
    "paper-math",
    "paper-commonsense",
    "published-llama3-8b",
    "published-gemma-7b",
    "published-gemma3-4b",
    "published-qwen2.5-7b",
]


@dataclass(frozen=True)
class PresetOptions:
    """The options that a preset gives where the command line does not; see `HypLoraRunConfig`."""

    model: str = TINY
    rank: int = 8
    alpha: float = 16.0
    hyplora_alpha: float | None = None
    dropout: float = 0.0
    targets: tuple[str, ...] = ("all-linear",)
    epochs: float = 5.0
    batch: int = 16
    learning_rates: tuple[float, ...] = (3e-3, 6e-3)
    warm_up: int = 40
    longest: int = 256
    prompt: Prompt = "auto"
    loss_on: LossOn = "solution"
    beams: int = 1
    new_tokens: int = 96


SMALL = PresetOptions(epochs=3.0, learning_rates=(1e-4, 3e-4, 1e-3), longest=768, new_tokens=400)
PAPER = PresetOptions(
    model="meta-llama/Meta-Llama-3-8B-Instruct",
    rank=32,
    alpha=64.0,
    dropout=0.05,
    targets=("q_proj", "k_proj", "v_proj", "up_proj", "down_proj"),
    epochs=3.0,
    learning_rates=(3e-4,),
    warm_up=100,
    prompt="instruction",
    loss_on="whole",
    beams=4,
    new_tokens=512,
)
PRESETS: dict[str, PresetOptions] = {
    "tiny": PresetOptions(),
    "small": SMALL,
    "paper-math": PAPER,
    "paper-commonsense": replace(PAPER, new_tokens=32),
    "published-llama3-8b": replace(PAPER, hyplora_alpha=128.0),
    "published-gemma-7b": replace(PAPER, model="google/gemma-7b", hyplora_alpha=128.0),
    "published-gemma3-4b": replace(PAPER, model="google/gemma-3-4b-it", hyplora_alpha=32.0),
    "published-qwen2.5-7b": replace(
        PAPER, model="Qwen/Qwen2.5-7B-Instruct-1M", hyplora_alpha=128.0
    ),
}
assert set(PRESETS) == set(get_args(Preset))
