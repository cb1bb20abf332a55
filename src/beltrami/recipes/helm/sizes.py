"""Models of equal size: the fields of each arm's `HelmConfig`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from beltrami.recipes.helm.config import ABLATIONS, HELM, TWIN, HelmRunConfig
from beltrami.recipes.helm.text import Text

TOLERANCE = 0.01  # of the number of parameters
STEP = 16  # MLP widths are multiples of it, as tensor cores like them


def model_fields(config: HelmRunConfig, text: Text) -> dict[str, dict[str, Any]]:
    """The fields of each arm's `HelmConfig`; a `ValueError` where sizes cannot be matched."""
    chosen, pad = config.chosen, text.train.pad_id
    shape = {
        "vocab_size": text.vocab_size,
        "hidden_size": chosen.width,
        "intermediate_size": chosen.mlp,
        "num_hidden_layers": chosen.layers,
        "num_attention_heads": chosen.heads,
        "max_position_embeddings": chosen.length,
        "bos_token_id": text.train.end_id,
        "eos_token_id": text.train.end_id,
        "pad_token_id": None if pad == text.train.end_id else pad,
        "fused_loss": True,
    }
    # An embedding of standard deviation 1, as HELM's: far better for the twin than Llama's 0.02.
    twin = {**shape, "geometry": "euclidean", "embedding_range": 1.0}
    full = {**shape, "learn_curvature": config.learn_curvature}
    curved = {HELM: full} | (
        {name: {**full, **fields} for name, fields in ABLATIONS.items()} if config.ablation else {}
    )
    return {**{name: matched(fields, twin) for name, fields in curved.items()}, TWIN: twin}


def matched(fields: Mapping[str, Any], twin: Mapping[str, Any]) -> dict[str, Any]:
    """The fields with an MLP as wide as needed for the twin's number of parameters.

    A curved head keeps some of its channels for its time, so its attention has fewer parameters.
    Both the number of all parameters and of those without embeddings agree within 1 percent.
    """

    def wider(width: int) -> dict[str, Any]:
        return {**fields, "intermediate_size": width}

    total, body = parameter_counts(twin)
    width = int(twin["intermediate_size"])
    least = parameter_counts(wider(width))[1]
    slope = parameter_counts(wider(width + STEP))[1] - least
    hidden = max(STEP, STEP * round(width / STEP + (body - least) / slope))
    counts = parameter_counts(wider(hidden))
    if any(abs(a / b - 1) > TOLERANCE for a, b in zip(counts, (total, body), strict=True)):
        raise ValueError(
            f"HELM with an MLP of {hidden} has {counts[0]:,} parameters ({counts[1]:,} without "
            f"embeddings), its twin with one of {width} has {total:,} ({body:,}); no multiple of "
            f"{STEP} brings both within 1 percent: give a larger --mlp, --width or --heads"
        )
    return wider(hidden)


def parameter_counts(fields: Mapping[str, Any]) -> tuple[int, int]:
    """Numbers that a model learns: all, and those of its blocks."""
    from beltrami.models.helm import HelmConfig
    from beltrami.models.helm.sizes import footprint

    size = footprint(HelmConfig(**fields))
    return size.parameters, size.parameters - size.embedding_parameters
