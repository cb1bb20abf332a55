"""Options that belong together: ours for small models, and those of the HypLoRA paper.

The paper's (arXiv 2410.04010) are those of the scripts published with it: rank 32, dropout 0.05, on
the projections q, k, v, up and down, 3 epochs in batches of 16 at a rate of 3e-4, prompts included
in the loss, answers by beams of 4. Its comparison gave LoRA an alpha of 64 and HypLoRA another one
for each model; "paper-math" and "paper-commonsense" give 64 to all, and the presets named after a
model repeat the published inequality.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

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

TINY: dict[str, Any] = {
    "model": "tiny",
    "rank": 8,
    "alpha": 16.0,
    "hyplora_alpha": None,
    "dropout": 0.0,
    "targets": ("all-linear",),
    "epochs": 5.0,
    "batch": 16,
    "learning_rates": (3e-3, 6e-3),
    "warm_up": 40,
    "longest": 256,
    "prompt": "auto",
    "loss_on": "solution",
    "beams": 1,
    "new_tokens": 96,
}
SMALL: dict[str, Any] = {
    **TINY,
    "epochs": 3.0,
    "learning_rates": (1e-4, 3e-4, 1e-3),
    "longest": 768,
    "new_tokens": 400,
}
PAPER: dict[str, Any] = {
    **SMALL,
    "model": "meta-llama/Meta-Llama-3-8B-Instruct",
    "rank": 32,
    "alpha": 64.0,
    "dropout": 0.05,
    "targets": ("q_proj", "k_proj", "v_proj", "up_proj", "down_proj"),
    "batch": 16,
    "learning_rates": (3e-4,),
    "warm_up": 100,
    "longest": 256,
    "prompt": "instruction",
    "loss_on": "whole",
    "beams": 4,
    "new_tokens": 512,
}
PRESETS: dict[str, dict[str, Any]] = {
    "tiny": TINY,
    "small": SMALL,
    "paper-math": PAPER,
    "paper-commonsense": {**PAPER, "new_tokens": 32},
    "published-llama3-8b": {**PAPER, "hyplora_alpha": 128.0},
    "published-gemma-7b": {**PAPER, "model": "google/gemma-7b", "hyplora_alpha": 128.0},
    "published-gemma3-4b": {**PAPER, "model": "google/gemma-3-4b-it", "hyplora_alpha": 32.0},
    "published-qwen2.5-7b": {
        **PAPER,
        "model": "Qwen/Qwen2.5-7B-Instruct-1M",
        "hyplora_alpha": 128.0,
    },
}
assert set(PRESETS) == set(get_args(Preset))
