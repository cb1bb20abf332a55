"""Named sizes of HELM models, and what they take.

    python -m beltrami.models.helm.sizes            # a table of all
    python -m beltrami.models.helm.sizes 7b --ranks 8

>>> config = helm_config("40m", geometry="euclidean")
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import torch
import tyro

from beltrami.checks import check_choice, check_integer
from beltrami.models.helm.config import HelmConfig
from beltrami.models.helm.model import HelmForCausalLM

# The public HELM-D (L6_W390_A6): its 390 and 65 count a time coordinate, which is not stored here.
_REPO = {
    "vocab_size": 128256, "hidden_size": 389, "intermediate_size": 1559, "num_hidden_layers": 6,
    "num_attention_heads": 6, "head_dim": 68, "max_position_embeddings": 2048,
    "curvature": 389.0, "head_curvature": 64.0, "learn_curvature": "no",
    "residual_scale": "4*sqrt(d)", "time_columns": "all", "logits": "linear",
}  # fmt: skip

SIZES: dict[str, dict[str, Any]] = {
    "tiny": {
        "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 2, "max_position_embeddings": 256,
    },
    "40m": {
        "vocab_size": 16384, "hidden_size": 512, "intermediate_size": 1408,
        "num_hidden_layers": 8, "num_attention_heads": 8,
    },
    "120m": {
        "vocab_size": 32768, "hidden_size": 768, "intermediate_size": 2048,
        "num_hidden_layers": 10, "num_attention_heads": 12,
    },
    "1b": {
        "vocab_size": 32768, "hidden_size": 2048, "intermediate_size": 8192,
        "num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 8,
        "max_position_embeddings": 4096,
    },
    "7b": {
        "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008,
        "num_hidden_layers": 32, "num_attention_heads": 32, "max_position_embeddings": 4096,
    },
    "13b": {
        "vocab_size": 32000, "hidden_size": 5120, "intermediate_size": 13824,
        "num_hidden_layers": 40, "num_attention_heads": 40, "max_position_embeddings": 4096,
    },
    "helm-d-repo": _REPO,
}  # fmt: skip
"""Fields of `HelmConfig` by name. Widths of all but the public one are multiples of 64."""

# Bytes a parameter takes in training with AdamW: weight, gradient and two moments in float32.
_TRAINING_BYTES = 16


def helm_config(name: str, **fields: Any) -> HelmConfig:
    """The config of a named size, with further fields of `HelmConfig`."""
    return HelmConfig(**{**SIZES[check_choice("size", name, SIZES)], **fields})


@dataclass(frozen=True)
class Footprint:
    """What a model takes.

    Args:
        parameters: of the whole model.
        embedding_parameters: of them, those of embedding and scores of words.
        cache_bytes: of keys and values a token in bfloat16.
        rank_bytes: of a rank that trains under FSDP2 with AdamW: its share of weights, gradients
            and moments in float32, and the largest layer gathered in bfloat16. Activations are not
            counted.
    """

    parameters: int
    embedding_parameters: int
    cache_bytes: int
    rank_bytes: int


def footprint(config: HelmConfig, ranks: int = 1) -> Footprint:
    """What a model of a config takes; it is built on the meta device."""
    check_integer("ranks", ranks)
    with torch.device("meta"):
        model = HelmForCausalLM(config)
    count = model.num_parameters()
    layers = [sum(p.numel() for p in layer.parameters()) for layer in model.model.layers]
    words = count - sum(layers)
    assert config.num_key_value_heads is not None
    assert config.head_dim is not None
    return Footprint(
        parameters=count,
        embedding_parameters=words,
        cache_bytes=2 * 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim,
        rank_bytes=_TRAINING_BYTES * -(-count // ranks) + 2 * max(*layers, words),
    )


@dataclass(frozen=True)
class Options:
    """Print parameters, cache bytes a token and memory of training a rank of named sizes."""

    names: Annotated[tuple[str, ...], tyro.conf.Positional] = tuple(SIZES)
    """Sizes to print."""
    ranks: int = 8
    """Processes that FSDP2 shares the model among."""
    geometry: str = "lorentz"
    """lorentz, or euclidean for the twin."""


def main(options: Options) -> None:
    """Print the table."""
    print(f"{'size':<12}{'parameters':>16}{'embedding':>16}{'cache/token':>13}{'GiB/rank':>10}")
    for name in options.names:
        flat = options.geometry == "euclidean" and name == "helm-d-repo"
        if flat:
            print(f"{name:<12}the public shape is hyperbolic only")
            continue
        n = footprint(helm_config(name, geometry=options.geometry), options.ranks)
        print(
            f"{name:<12}{n.parameters:>16,}{n.embedding_parameters:>16,}{n.cache_bytes:>13,}"
            f"{n.rank_bytes / 2**30:>10.2f}"
        )


if __name__ == "__main__":
    main(tyro.cli(Options))
