"""`HelmConfig`: Llama's fields, and those that say what of the model is hyperbolic."""

from __future__ import annotations

import math
from difflib import get_close_matches
from typing import Any, ClassVar

from transformers import GenerationConfig, PreTrainedConfig
from transformers.activations import ACT2FN
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS, RopeParameters

from beltrami.checks import check_choice, check_flag, check_integer, check_number, check_positive
from beltrami.geometry import Curvature

# Whether transformers has what `beltrami.models.helm.parallel` builds on.
try:
    from transformers.distributed.parallel_utils import (  # noqa: F401
        ALL_PARALLEL_STYLES,
        _AllReduceBackward,
        _AllReduceForward,
        _use_local_dtensor_params,
    )

    TENSOR_PARALLEL = True
except ImportError:  # of an older version, or without torch.distributed
    TENSOR_PARALLEL = False

GEOMETRIES = ("lorentz", "euclidean")
RESIDUALS = ("lorentz", "boost", "euclidean")
SCORES = ("distance", "dot")
AGGREGATES = ("centroid", "mean")
TIME_COLUMNS = ("none", "outputs", "all", "hyperplane")
EMBEDDINGS = ("points", "flat")
LOGITS = ("linear", "mlr", "distance")
LEARNED = ("no", "model", "layer")
NAMED_SCALES = {"sqrt(d)": 1.0, "4*sqrt(d)": 4.0}

# Channels of a head that hold times: three numbers in half precision, and one to align.
TIME_CHANNELS = 4

# What the fields of the geometry are where they are None: of a model with curved layers, of a flat
# one, which then is Llama.
_DEFAULTS: dict[str, tuple[Any, Any]] = {
    "residual": ("lorentz", "euclidean"),
    "learn_residual": (True, False),
    "attention_score": ("distance", "dot"),
    "attention_aggregate": ("centroid", "mean"),
    "time_columns": ("outputs", "none"),
    "embedding": ("points", "flat"),
    "logits": ("mlr", "linear"),
}

# Names that transformers itself gives to a config without a field of that name, in files too.
_FOREIGN = {
    "torch_dtype", "num_labels", "rope_scaling", "rope_theta", "partial_rotary_factor",
    "name_or_path",
    "output_attentions", "attn_implementation", "experts_implementation", "per_layer_config",
    "model_type", "auto_map", "quantization_config", "tie_last_hidden_states", "loss_type",
    "classifier_dropout", "hidden_dropout", "token_classification_bias", "pretraining_tp",
    "use_bfloat16", "tie_encoder_decoder", "is_decoder", "add_cross_attention", "finetuning_task",
    "task_specific_params", "tokenizer_class", "prefix", "original_max_position_embeddings",
}  # fmt: skip


class HelmConfig(PreTrainedConfig):
    r"""Configuration of a HELM model: a Llama whose parts are hyperbolic one by one.

    Llama's fields mean what they mean there. Of the others, those that are None take the value for
    curved layers, or with `geometry="euclidean"` Llama's, in brackets.

    Args:
        geometry: "lorentz", "euclidean" (exactly Llama), or a list with one of the two a layer.
        curvature, head_curvature, logit_curvature: κ = c·d at the start of the stream, of attention
            heads and of the scores of words (None: 1, or the stream's curvature if tied); c itself
            is κ over the number of coordinates. See docs/layers.md, "Natural units".
        curvature_range: the interval of κ in which curvatures are learned.
        learn_curvature: "no", "model" (one curvature of the stream and one of the heads), "layer"
            (one of each a layer).
        residual: "lorentz", "boost" or "euclidean" ("euclidean"); see `beltrami.nn.Residual`.
        residual_weight: w of each residual at the start.
        learn_residual: whether w is learned, one a residual (False).
        residual_scale: γ of each residual; None is the one with which an empty branch leaves the
            stream as it is. The public code's are "sqrt(d)" and "4*sqrt(d)".
        attention_score: "distance" or "dot" ("dot").
        attention_aggregate: "centroid" or "mean" ("mean").
        qk_norm: whether queries and keys are normalised, each head on its own.
        time_columns: which projections see how far their input lies from the origin: "none",
            "outputs" (output and down projections), "all" (all, and linear logits), or "hyperplane"
            (output and down projections are signed distances to hyperplanes) ("none").
        radius_input: whether attention and MLP are told the radius that their norm takes away.
        embedding: "points" (rows are trained on the hyperboloid) or "flat" ("flat").
        logits: "linear", "mlr" (distances to hyperplanes) or "distance" (to one point a word)
            ("linear").
        embedding_range: standard deviation of the embedding's coordinates at the start; None is 1
            for points, `initializer_range` for flat ones.
        zero_init_outputs: whether output and down projections start at 0.
        fused_loss: whether the loss is computed without keeping logits, which the output then
            lacks: memory no longer grows with tokens times vocabulary. A Trainer's
            `compute_metrics` reads logits, so set it to False on the model's config for that.
        label_smoothing: of the loss.
        z_loss: weight of the mean squared log-sum-exp of the logits, added to the loss.
    """

    model_type = "helm"
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["past_key_values"]
    base_model_tp_plan: ClassVar[dict[str, Any] | None] = (
        {
            "layers.*.self_attn": "helm_heads",
            "layers.*.self_attn.q_proj": "colwise",
            "layers.*.self_attn.k_proj": "colwise",
            "layers.*.self_attn.v_proj": "colwise",
            "layers.*.self_attn.o_proj": "rowwise",
            "layers.*.mlp": "helm_gated",
            "layers.*.mlp.gate_proj": "colwise",
            "layers.*.mlp.up_proj": "colwise",
            "layers.*.mlp.down_proj": "rowwise",
        }
        if TENSOR_PARALLEL
        else None
    )

    vocab_size: int = 32000
    hidden_size: int = 768
    intermediate_size: int = 2048
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    hidden_act: str = "silu"
    max_position_embeddings: int = 2048
    initializer_range: float = 0.02
    rms_norm_eps: float = 1e-6
    use_cache: bool = True
    pad_token_id: int | None = None
    bos_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    tie_word_embeddings: bool = False
    rope_parameters: RopeParameters | dict[str, Any] | None = None
    attention_bias: bool = False
    attention_dropout: float = 0.0
    mlp_bias: bool = False

    geometry: str | list[str] = "lorentz"
    curvature: float = 1.0
    head_curvature: float = 1.0
    logit_curvature: float | None = None
    curvature_range: list[float] | tuple[float, float] = (0.01, 100.0)
    learn_curvature: str = "model"
    residual: str | None = None
    residual_weight: float = 1.0
    learn_residual: bool | None = None
    residual_scale: float | str | None = None
    attention_score: str | None = None
    attention_aggregate: str | None = None
    qk_norm: bool = False
    time_columns: str | None = None
    radius_input: bool = False
    embedding: str | None = None
    logits: str | None = None
    embedding_range: float | None = None
    zero_init_outputs: bool = False
    fused_loss: bool = False
    label_smoothing: float = 0.0
    z_loss: float = 0.0

    @classmethod
    def register_for_auto_class(cls, auto_class: str = "AutoConfig") -> None:
        """Nothing: else transformers would save copies of our sources beside the weights."""

    def __post_init__(self, **kwargs: Any) -> None:
        _check_known(kwargs, self)
        for name in ("hidden_size", "num_hidden_layers"):
            check_integer(name, getattr(self, name))
        _check_rope(self.rope_parameters)
        if not isinstance(self.curvature_range, list | tuple):
            raise TypeError(
                f"curvature_range must be two numbers (low, high), got {self.curvature_range!r}"
            )
        if self.head_dim is None:
            _check_divides("num_attention_heads", self.num_attention_heads, self.hidden_size)
            self.head_dim = self.hidden_size // self.num_attention_heads
        if self.num_key_value_heads is None:
            self.num_key_value_heads = self.num_attention_heads
        check_geometry(self.geometry, self.num_hidden_layers)
        for name, defaults in _DEFAULTS.items():
            if getattr(self, name) is None:
                setattr(self, name, defaults[self.is_flat])
        if self.embedding_range is None:
            self.embedding_range = 1.0 if self.embedding == "points" else self.initializer_range
        self.curvature_range = list(self.curvature_range)
        super().__post_init__(**kwargs)
        self.check()

    @property
    def is_flat(self) -> bool:
        """Whether no layer is curved."""
        return "lorentz" not in self.layer_geometries

    @property
    def layer_geometries(self) -> list[str]:
        """The geometry of each layer."""
        if isinstance(self.geometry, str):
            return [self.geometry] * self.num_hidden_layers
        return list(self.geometry)

    def new_curvature(self, width: int, kappa: float, used: bool = True) -> Curvature:
        """A curvature c of a space of that many coordinates, κ/width at the start.

        One that nothing uses is not learned: a parameter without a gradient stops DDP.
        """
        learned = used and self.learn_curvature != "no"
        low, high = self.curvature_range if learned else (kappa / 2, kappa * 2)
        return Curvature.natural(width, kappa, bounds=(low, high), learnable=learned)

    def for_layer(self, index: int) -> LayerSwitches:
        """What of a layer is hyperbolic."""
        return LayerSwitches(self, self.layer_geometries[index])

    def residual_scale_value(self) -> float | None:
        """γ as a number; None for the one that keeps the stream."""
        if isinstance(self.residual_scale, str):
            return NAMED_SCALES[self.residual_scale] * math.sqrt(self.hidden_size)
        return self.residual_scale

    def check(self) -> None:
        """Raise `ValueError` or `TypeError` for a field that does not fit; also after a change."""
        for name in (
            "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
            "num_attention_heads", "num_key_value_heads", "head_dim", "max_position_embeddings",
        ):  # fmt: skip
            check_integer(name, getattr(self, name))
        check_geometry(self.geometry, self.num_hidden_layers)
        assert self.num_key_value_heads is not None
        _check_divides("num_key_value_heads", self.num_key_value_heads, self.num_attention_heads)
        for name, choices in (
            ("learn_curvature", LEARNED),
            ("residual", RESIDUALS),
            ("attention_score", SCORES),
            ("attention_aggregate", AGGREGATES),
            ("time_columns", TIME_COLUMNS),
            ("embedding", EMBEDDINGS),
            ("logits", LOGITS),
        ):
            check_choice(name, getattr(self, name), choices)
        for name in (
            "learn_residual", "qk_norm", "radius_input", "zero_init_outputs", "fused_loss",
            "tie_word_embeddings", "attention_bias", "mlp_bias",
        ):  # fmt: skip
            check_flag(name, getattr(self, name))
        for name in ("initializer_range", "rms_norm_eps", "residual_weight", "embedding_range"):
            check_positive(name, getattr(self, name))
        for name in ("label_smoothing", "attention_dropout"):
            check_number(name, getattr(self, name), low=0, high=1, open_high=True)
        check_number("z_loss", self.z_loss, low=0)
        if self.pad_token_id is not None:
            check_integer("pad_token_id", self.pad_token_id, -self.vocab_size, self.vocab_size - 1)
        check_choice("hidden_act", self.hidden_act, ACT2FN)
        if self.time_columns == "hyperplane" and self.zero_init_outputs:
            raise ValueError(
                'zero_init_outputs=True leaves time_columns="hyperplane" without hyperplanes, '
                "whose normals are the rows of output and down projections: use one of the two"
            )
        self._check_curvatures()
        self._check_scale()
        self._check_heads()
        self._check_flat()
        self._check_tied()

    def _check_curvatures(self) -> None:
        ends = list(self.curvature_range)
        numbers = all(isinstance(end, int | float) for end in ends)
        if len(ends) != 2 or not numbers or not 0 < ends[0] < ends[1] < math.inf:
            raise ValueError(
                f"curvature_range must be two numbers 0 < low < high, got {self.curvature_range}"
            )
        low, high = ends
        learned = self.learn_curvature != "no"
        for name in ("curvature", "head_curvature", "logit_curvature"):
            kappa = getattr(self, name)
            if kappa is None and name == "logit_curvature":
                continue
            check_positive(name, kappa)
            if learned and not low < kappa < high:
                raise ValueError(
                    f"{name} must lie strictly inside curvature_range ({low:g}, {high:g}) to be "
                    f'learned, got {kappa:g}: widen the range, or set learn_curvature="no"'
                )

    def _check_heads(self) -> None:
        assert self.head_dim is not None
        for i in range(self.num_hidden_layers):
            layer = self.for_layer(i)
            if min(layer.score_size, layer.value_size) < 2:
                raise ValueError(
                    f"head_dim={self.head_dim} leaves no room: {TIME_CHANNELS} channels of a head "
                    "hold its time, and at least 2 its coordinates; use head_dim >= "
                    f'{TIME_CHANNELS + 2}, or attention_score="dot" and attention_aggregate="mean"'
                )
            rotary = int(layer.score_size * self.partial_rotary_factor)
            if rotary % 2 or not rotary:
                raise ValueError(
                    f"rotary positions turn pairs of channels, but {rotary} of the "
                    f"{layer.score_size} of a head (head_dim={self.head_dim}"
                    + (f", of which {TIME_CHANNELS} hold its time" if layer.has_score_time else "")
                    + ") would be turned: choose an even head_dim and partial_rotary_factor"
                )

    @property
    def partial_rotary_factor(self) -> float:
        """The part of a head's channels that rotary positions turn."""
        factor: Any = (self.rope_parameters or {}).get("partial_rotary_factor", 1.0)
        return float(factor)

    def _check_scale(self) -> None:
        scale = self.residual_scale
        if isinstance(scale, str):
            check_choice("residual_scale", scale, NAMED_SCALES)
        elif scale is not None:
            check_positive("residual_scale", scale)
        if scale is not None and self.residual == "boost":
            raise ValueError(
                f'residual_scale={scale} is for sums of vectors; residual="boost" has no scale'
            )

        if self.zero_init_outputs and self.time_columns == "hyperplane":
            raise ValueError(
                'time_columns="hyperplane" with zero_init_outputs=True: a row that is 0 has no '
                "hyperplane"
            )

    def _check_flat(self) -> None:
        if not self.is_flat:
            return
        for name, value in (
            ("embedding", "points"),
            ("logits", "mlr"),
            ("logits", "distance"),
            ("residual", "boost"),
            ("residual", "lorentz"),
        ):
            if getattr(self, name) == value:
                raise ValueError(
                    f'{name}="{value}" needs a curved layer; the geometry is euclidean'
                )
        if self.time_columns != "none" or self.radius_input:
            name = "radius_input" if self.radius_input else "time_columns"
            raise ValueError(
                f'{name}={getattr(self, name)!r} needs a curved layer: with geometry="euclidean" '
                "there is no time"
            )

    def _check_tied(self) -> None:
        if not self.tie_word_embeddings:
            return
        fitting = "distance" if self.embedding == "points" else "linear"
        if self.logits != fitting:
            raise ValueError(
                f'tie_word_embeddings=True scores words by the rows of embedding="{self.embedding}"'
                f', which takes logits="{fitting}", got logits="{self.logits}"'
            )
        if self.logit_curvature is not None:
            raise ValueError(
                f"logit_curvature={self.logit_curvature} with tied embeddings, whose rows are "
                "points of the stream's curvature: leave it None"
            )


class LayerSwitches:
    """What of one layer is hyperbolic, and the channels of its heads.

    A flat layer of a model with curved ones is Llama's; the layers of a flat model have the
    switches of its config, which are Llama's by default.
    """

    def __init__(self, config: HelmConfig, geometry: str) -> None:
        self.curved = geometry == "lorentz"
        plain = not self.curved and not config.is_flat

        def switch(name: str) -> Any:
            return _DEFAULTS[name][1] if plain else getattr(config, name)

        self.residual: str = switch("residual")
        self.learn_residual: bool = switch("learn_residual")
        self.residual_weight = 1.0 if plain else config.residual_weight
        self.residual_scale = None if plain else config.residual_scale_value()
        self.score: str = switch("attention_score")
        self.aggregate: str = switch("attention_aggregate")
        self.time_columns: str = switch("time_columns")
        self.radius_input = config.radius_input and not plain
        assert config.head_dim is not None
        self.has_score_time = self.score == "distance"
        self.score_size = config.head_dim - TIME_CHANNELS * self.has_score_time
        self.value_size = config.head_dim - TIME_CHANNELS * (self.aggregate == "centroid")
        # Whether the curvature of the stream, and that of the heads, change what the layer does.
        timed = self.time_columns != "none" or self.radius_input
        self.bends_stream = self.curved and (self.residual != "euclidean" or timed)
        self.bends_heads = self.curved and (
            self.score == "distance" or self.aggregate == "centroid"
        )


def check_geometry(geometry: str | list[str], layers: int) -> None:
    """Raise `ValueError` unless it is one of `GEOMETRIES`, or a list with one a layer."""
    if isinstance(geometry, str):
        check_choice("geometry", geometry, GEOMETRIES)
        return
    if not isinstance(geometry, list | tuple) or len(geometry) != layers:
        raise ValueError(
            f"geometry must be one of {', '.join(map(repr, GEOMETRIES))}, or a list of them with "
            f"one for each of num_hidden_layers={layers}, got {geometry!r}"
        )
    for i, name in enumerate(geometry):
        check_choice(f"geometry[{i}]", name, GEOMETRIES)


def _check_rope(parameters: Any) -> None:
    if parameters is None:
        return
    if not isinstance(parameters, dict):
        raise TypeError(
            f"rope_parameters must be a dict such as {{'rope_type': 'default', 'rope_theta': "
            f"10000.0}}, got {parameters!r}"
        )
    kind = parameters.get("rope_type", "default")
    check_choice("rope_parameters['rope_type']", kind, ("default", *ROPE_INIT_FUNCTIONS))
    check_number(
        "rope_parameters['partial_rotary_factor']",
        parameters.get("partial_rotary_factor", 1.0),
        low=0,
        high=1,
        open_low=True,
    )


def _check_divides(name: str, divisor: int, number: int) -> None:
    check_integer(name, divisor)
    if number % divisor:
        other = "hidden_size" if name == "num_attention_heads" else "num_attention_heads"
        hint = "; or give head_dim" if name == "num_attention_heads" else ""
        raise ValueError(f"{name}={divisor} must divide {other}={number}{hint}")


def _check_known(given: dict[str, Any], config: HelmConfig) -> None:
    known = {name for name in vars(type(config)) if not name.startswith("_")}
    known |= set(config.__dataclass_fields__) | _FOREIGN
    known |= set(GenerationConfig().to_dict())  # older configs have them, too
    unknown = [name for name in given if name not in known and not name.startswith("_")]
    if unknown:
        close = get_close_matches(unknown[0], sorted(known), n=3)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        raise TypeError(f"HelmConfig has no field {unknown[0]!r}{hint}")
