"""A curved model from the weights of a flat one: a warm start."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from transformers import PreTrainedConfig, PreTrainedModel

from beltrami.models.helm.config import TIME_CHANNELS, HelmConfig

# Model types whose modules and config are Llama's.
SOURCES = ("llama", "mistral", "helm")

# Names of parameters that only a curved model has.
CURVED_PARTS = ("curvature", "residual", "_time", "_radius", "_offset", "log_scale", "word_scores")

_COPIED = (
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim", "hidden_act", "max_position_embeddings",
    "initializer_range", "rms_norm_eps", "use_cache", "pad_token_id", "bos_token_id",
    "eos_token_id", "tie_word_embeddings", "rope_parameters", "attention_bias", "mlp_bias",
)  # fmt: skip

# The parts of a Transformer, which the flat weights are of.
_FLAT_PARTS = {
    "attention_score": "dot", "attention_aggregate": "mean", "embedding": "flat",
    "logits": "linear",
}  # fmt: skip


def curved_config(flat: PreTrainedConfig, curvature: float, switches: dict[str, Any]) -> HelmConfig:
    """The config of a curved model with a flat one's sizes; see `HelmForCausalLM.from_flat`."""
    if flat.model_type not in SOURCES:
        raise ValueError(
            f"from_flat takes the weights of {', '.join(SOURCES)} models, got {flat.model_type!r}"
        )
    if getattr(flat, "sliding_window", None):
        raise ValueError(f"HELM has no sliding window, the model has {flat.sliding_window}")
    fields = {name: getattr(flat, name) for name in _COPIED if hasattr(flat, name)}
    start = {**_FLAT_PARTS, "geometry": "lorentz", "curvature": curvature}
    config = HelmConfig(**{**fields, **start, "head_curvature": curvature, **switches})
    size = fields.get("head_dim") or flat.hidden_size // flat.num_attention_heads
    for i in range(config.num_hidden_layers):
        layer = config.for_layer(i)
        if layer.score_size != size or layer.value_size != size:
            raise ValueError(
                f"the flat model has heads of {size} coordinates, but with head_dim="
                f"{config.head_dim}, attention_score={layer.score!r} and attention_aggregate="
                f"{layer.aggregate!r} there are {layer.score_size} for queries and "
                f"{layer.value_size} for values: distances and centroids both need head_dim="
                f"{size + TIME_CHANNELS}, dot products and means head_dim={size}"
            )
    return config


def copy_weights(flat: PreTrainedModel, curved: PreTrainedModel) -> None:
    """Copy all weights of the flat model; what only the curved one has keeps its start."""
    loaded = curved.load_state_dict(flat.state_dict(), strict=False)
    missing = [n for n in loaded.missing_keys if not any(part in n for part in CURVED_PARTS)]
    if missing or loaded.unexpected_keys:
        raise ValueError(
            f"the flat model's weights do not fit: missing {missing[:3]}, unexpected "
            f"{loaded.unexpected_keys[:3]}"
        )


def check_loaded(model: PreTrainedModel, info: dict[str, Any]) -> None:
    """Raise `ValueError` if a checkpoint was loaded into a model of another geometry.

    Args:
        info: `missing_keys` and `unexpected_keys`, as `from_pretrained` has them.
    """

    def curved(names: Iterable[str]) -> set[str]:
        """Those of the decoder; heads of another task may come and go."""
        return {n for n in names if "word_scores" not in n and any(p in n for p in CURVED_PARTS)}

    ours = curved(model.state_dict())
    if ours and ours <= set(info["missing_keys"]):
        raise ValueError(
            f"the checkpoint has no hyperbolic parameters, such as {min(ours)!r}, but the model's "
            f"geometry is {model.config.geometry!r}: load it as geometry='euclidean', and start a "
            "curved model from it with HelmForCausalLM.from_flat"
        )
    theirs = curved(info["unexpected_keys"])
    if theirs:
        raise ValueError(
            f"the checkpoint has the hyperbolic parameter {min(theirs)!r}, which a model with "
            f"geometry={model.config.geometry!r} and these fields has not: load it with the config "
            "it was saved with"
        )
