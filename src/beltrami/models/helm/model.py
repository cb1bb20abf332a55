r"""HELM (He et al. 2025): a Llama between points of the Lorentz model.

    x ← residual(x, attention(norm(x)))        residual: x + w·y as ambient vectors, scaled back
    x ← residual(x, mlp(norm(x)))              (`beltrami.nn.Residual`)

    attention: scores −|q − k|²_L/σ, heads are Lorentz centroids; output y = W·h + w_τ·τ(h)
    mlp:       h = silu(W_g·x)·(W_u·x);                           output y = W·h + w_τ·τ(h)

A point is its space part, so every tensor has the shape that it has in Llama, and τ is its excess
time. Modules have Llama's names and types; what is hyperbolic lies beside them.
"""

from __future__ import annotations

import copy
import math
import re
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import GenerationMixin, PreTrainedModel
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.cache_utils import Cache, DynamicCache
from transformers.masking_utils import create_causal_mask
from transformers.modeling_layers import (
    GenericForQuestionAnswering,
    GenericForSequenceClassification,
    GenericForTokenClassification,
    GradientCheckpointingLayer,
)
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.modeling_rope_utils import dynamic_rope_update
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.llama.modeling_llama import (
    LlamaRotaryEmbedding,
    eager_attention_forward,
)
from transformers.utils.generic import can_return_tuple, merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from beltrami.geometry import Curvature, Euclidean, Lorentz, Manifold, lorentz
from beltrami.geometry.curvature import natural_curvature, shares_curvatures
from beltrami.kernels.launch.dtypes import upcast
from beltrami.kernels.layers.gated import gated
from beltrami.kernels.layers.heads import head_centroid, head_tiles
from beltrami.kernels.layers.time_linear import excess_time, hyperplane_distances
from beltrami.models.helm.config import TENSOR_PARALLEL, HelmConfig, LayerSwitches
from beltrami.models.helm.convert import check_loaded, copy_weights, curved_config
from beltrami.models.helm.heads import WordScores
from beltrami.models.helm.inputs import check_inputs, fit_mask
from beltrami.models.helm.saving import AUTO_MAP, write_companions
from beltrami.models.helm.trl import is_fused_forward, with_word_scores
from beltrami.models.helm.wrapped import keep_at_hand, matrix_of
from beltrami.nn import Residual


class HelmRotaryEmbedding(LlamaRotaryEmbedding):
    """Cosines and sines, (B, T, rotary/2) in float32, for heads of `size` channels or `head_dim`.

    A factor of attention (YaRN's, LongRoPE's) is not multiplied into them, which would change the
    times of queries and keys, but into the scale of the scores.
    """

    def __init__(self, config: HelmConfig, size: int | None = None) -> None:
        sized = copy.copy(config)  # unchecked: a config with heads this small may be refused
        sized.head_dim = size or config.head_dim
        super().__init__(sized)  # type: ignore[arg-type]

    @staticmethod
    def compute_default_rope_parameters(config: Any, *_: Any, **__: Any) -> tuple[Tensor, float]:
        """Frequencies without scaling, for the channels that are turned."""
        size = int(config.head_dim * config.partial_rotary_factor)
        exponents = torch.arange(0, size, 2, dtype=torch.float) / size
        return config.rope_parameters["rope_theta"] ** -exponents, 1.0

    @torch.no_grad()
    @dynamic_rope_update
    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        """For the positions (B, T), on the device of x."""
        frequencies = self.inv_freq.to(x.device, torch.float32)
        angles = position_ids[..., None].float() * frequencies
        return angles.cos(), angles.sin()


class TimedProjections(nn.Module):
    """Linear layers `*_proj`, each a plain `nn.Linear`, some with a time column beside it.

    y = W·s + w_τ·τ(s)                      with a parameter `*_time`
    y = cosh(z)·(u·s) − |u|·sinh(z)·t(s)    a row u of W with a parameter a, `*_offset`: the
        signed distance to a hyperplane, through sinh; z = √c·a/|u| (van der Klis et al. 2026)
    """

    manifold: Manifold
    is_split = False  # over processes, which then each see a share of the output's input

    def add_times(self, switches: LayerSwitches, inputs: tuple[str, ...], output: str) -> None:
        """Register the columns that the config asks for."""
        self.output_has_time = switches.time_columns in ("outputs", "all")
        timed = {"none": (), "outputs": (output,), "all": (*inputs, output), "hyperplane": ()}
        for name in timed[switches.time_columns]:
            size = getattr(self, f"{name}_proj").out_features
            self.register_parameter(f"{name}_time", nn.Parameter(torch.empty(size)))
        if switches.time_columns == "hyperplane":
            size = getattr(self, f"{output}_proj").out_features
            self.register_parameter(f"{output}_offset", nn.Parameter(torch.empty(size)))

    def project(self, x: Tensor, *names: str, tau: Tensor | None = None) -> list[Tensor]:
        """The projections of x, (..., in), whose excess time the caller may know."""
        results = []
        for name in names:
            y = getattr(self, f"{name}_proj")(x)
            time = getattr(self, f"{name}_time", None)
            offset = getattr(self, f"{name}_offset", None)
            if time is not None:
                if tau is None:
                    tau = self.excess_time(x, name)
                y = (y + tau * time).to(y.dtype)
            elif offset is not None:
                asked_by = 'time_columns="hyperplane"'
                weight = matrix_of(getattr(self, f"{name}_proj"), asked_by)
                weight = weight.to(x.device)
                y = hyperplane_distances(y, x, weight, offset, self.radius(x))
            results.append(y)
        return results

    def excess_time(self, x: Tensor, name: str) -> Tensor:
        """τ of the input of a projection, (..., 1)."""
        return excess_time(x, self.radius(x))

    def radius(self, x: Tensor) -> Tensor:
        """R = 1/√c of the input, (1,)."""
        radius = self.manifold.radius_like(x)
        return radius if isinstance(radius, Tensor) else x.new_full((1,), radius)

    def _output_radius(self, x: Tensor) -> Tensor | None:
        """1/√c if the output projection needs the time of what it is given, and x is all of it."""
        return self.radius(x) if self.output_has_time and not self.is_split else None


class HelmAttention(TimedProjections):
    """Attention by distance between points, whose heads are centroids; or Llama's, by the config.

    A head has `head_dim` channels, of which the last four hold its time, so that the attention and
    the caches of transformers see ordinary heads.
    """

    def __init__(
        self, config: HelmConfig, layer_idx: int, manifold: Manifold, head_manifold: Manifold
    ) -> None:
        super().__init__()
        switches = config.for_layer(layer_idx)
        self.config, self.layer_idx = config, layer_idx
        self.manifold, self.head_manifold = manifold, head_manifold
        self.aggregate = switches.aggregate
        self.score_size, self.value_size = switches.score_size, switches.value_size
        assert config.head_dim is not None
        assert config.num_key_value_heads is not None
        self.head_dim = config.head_dim
        size, bias = config.hidden_size, config.attention_bias
        heads, groups = config.num_attention_heads, config.num_key_value_heads
        self.num_key_value_groups, self.num_key_value_heads = heads // groups, groups
        self.attention_dropout = config.attention_dropout
        self.is_causal = True
        self.q_proj = nn.Linear(size, heads * self.score_size, bias=bias)
        self.k_proj = nn.Linear(size, groups * self.score_size, bias=bias)
        self.v_proj = nn.Linear(size, groups * self.value_size, bias=bias)
        self.o_proj = nn.Linear(heads * self.value_size, size, bias=bias)
        _start(self.o_proj, config)
        self.add_times(switches, ("q", "k", "v"), "o")
        if config.qk_norm:
            self.q_norm = nn.RMSNorm(self.score_size, eps=config.rms_norm_eps)
            self.k_norm = nn.RMSNorm(self.score_size, eps=config.rms_norm_eps)
        self.log_scale = nn.Parameter(torch.empty(heads)) if switches.has_score_time else None
        self.log_scales = {"log_scale"} if switches.has_score_time else set()

    def forward(
        self,
        hidden_states: Tensor,
        position_embeddings: tuple[Tensor, Tensor],
        attention_mask: Tensor | None = None,
        past_key_values: Cache | None = None,
        score_factor: float = 1.0,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        """(B, T, hidden_size), with cosines and sines of the tokens' positions."""
        batch, length = hidden_states.shape[:2]
        q, k, v = self.project(hidden_states, "q", "k", "v")
        q = q.view(batch, length, -1, self.score_size)
        k = k.view(batch, length, -1, self.score_size)
        v = v.view(batch, length, -1, self.value_size)
        if self.config.qk_norm:
            q, k = _normed(q, self.q_norm), _normed(k, self.k_norm)
        flat = isinstance(self.head_manifold, Euclidean)
        radius: Any = None if flat else self.head_radius(v)
        scale, scaling = None, score_factor * self.head_dim**-0.5
        if self.log_scale is not None:
            # 2/σ; the rest of −|q − k|²_L/σ is constant along a row, which the softmax drops.
            scale = torch.exp(math.log(2 * score_factor) - self.log_scale).unsqueeze(-1)
            scaling = 1.0
        q, k, v = head_tiles(
            q, k, v, *position_embeddings, radius=radius, scale=scale, width=self.head_dim
        )  # (B, heads, T, head_dim)
        if past_key_values is not None:
            k, v = past_key_values.update(k, v, self.layer_idx)
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, eager_attention_forward
        )
        dropout = self.attention_dropout if self.training else 0.0
        out, weights = attend(
            self, q, k, v, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )  # (B, T, heads, head_dim)
        radius = radius if self.aggregate == "centroid" else None
        out, tau = head_centroid(
            out, self.value_size, radius=radius, time_radius=self._output_radius(out)
        )
        return self.project(out, "o", tau=tau)[0], weights

    def head_radius(self, x: Tensor) -> Any:
        """R = 1/√c of heads."""
        return self.head_manifold.radius_like(x)


def _normed(x: Tensor, norm: nn.RMSNorm) -> Tensor:
    """norm(x) in the dtype of x, which autocast may have rounded: in that of the gains."""
    y: Tensor = norm(x.to(norm.weight.dtype))
    return y.to(x.dtype)


class HelmMLP(TimedProjections):
    """The gated MLP, W_d·h + w_τ·τ(h) with h = act(W_g·x)·(W_u·x)."""

    def __init__(self, config: HelmConfig, layer_idx: int, manifold: Manifold) -> None:
        super().__init__()
        self.manifold = manifold
        size, hidden, bias = config.hidden_size, config.intermediate_size, config.mlp_bias
        self.gate_proj = nn.Linear(size, hidden, bias=bias)
        self.up_proj = nn.Linear(size, hidden, bias=bias)
        self.down_proj = nn.Linear(hidden, size, bias=bias)
        _start(self.down_proj, config)
        self.add_times(config.for_layer(layer_idx), ("gate", "up"), "down")
        self.hidden_act, self.act_fn = config.hidden_act, ACT2FN[config.hidden_act]

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, hidden_size)."""
        gate, up = self.project(x, "gate", "up")
        activation = self.act_fn if self.hidden_act != "silu" else None
        h, tau = gated(gate, up, activation=activation, radius=self._output_radius(gate))
        return self.project(h, "down", tau=tau)[0]


class HelmDecoderLayer(GradientCheckpointingLayer):
    """A pre-norm block.

    With `radius_input` each branch gets, beside norm(x), what the norm throws away: the radius
    r = asinh(√c|x|) − asinh(√(c·d)) times a learned direction.
    """

    def __init__(
        self, config: HelmConfig, layer_idx: int, manifold: Manifold, head_manifold: Manifold
    ) -> None:
        super().__init__()
        switches = config.for_layer(layer_idx)
        self.manifold = manifold
        size, eps = config.hidden_size, config.rms_norm_eps
        self.input_layernorm = nn.RMSNorm(size, eps=eps)
        self.self_attn = HelmAttention(config, layer_idx, manifold, head_manifold)
        self.attention_residual = _residual(switches, manifold)
        self.post_attention_layernorm = nn.RMSNorm(size, eps=eps)
        self.mlp = HelmMLP(config, layer_idx, manifold)
        self.mlp_residual = _residual(switches, manifold)
        self.attention_radius = nn.Parameter(torch.empty(size)) if switches.radius_input else None
        self.mlp_radius = nn.Parameter(torch.empty(size)) if switches.radius_input else None

    def forward(self, hidden_states: Tensor, **kwargs: Any) -> Tensor:
        """(B, T, hidden_size); further arguments are those of `HelmAttention`."""
        x = hidden_states
        y, _ = self.self_attn(self._norm(x, self.input_layernorm, self.attention_radius), **kwargs)
        x = self.attention_residual(x, y)
        y = self.mlp(self._norm(x, self.post_attention_layernorm, self.mlp_radius))
        out: Tensor = self.mlp_residual(x, y)
        return out

    def enter(self, x: Tensor, previous: Manifold | None) -> Tensor:
        """Points of the layer before as points of this one's curvature, x·R'/R."""
        if previous in (None, self.manifold, Euclidean()) or isinstance(self.manifold, Euclidean):
            return x
        assert previous is not None
        return (x * (self.manifold.radius_like(x) / previous.radius_like(x))).to(x.dtype)

    def _norm(self, x: Tensor, norm: nn.Module, direction: Tensor | None) -> Tensor:
        h: Tensor = norm(x)
        if direction is None:
            return h
        c = self.manifold.c_like(x)
        assert isinstance(c, Tensor)
        radius = c.sqrt() * lorentz.dist0(upcast(x), c, keepdim=True)
        excess = radius - torch.asinh((c * x.shape[-1]).sqrt())
        return h + (excess * direction).to(h.dtype)


def _start(projection: nn.Linear, config: HelmConfig) -> None:
    """Tell `_init_weights` how an output projection starts; it sees modules without their names."""
    vars(projection)["starts_at_zero"] = config.zero_init_outputs


def _residual(switches: LayerSwitches, manifold: Manifold) -> Residual:
    return Residual(
        manifold=manifold,
        weight=switches.residual_weight,
        learnable=switches.learn_residual,
        scale=switches.residual_scale or "keep",
        form="manifold" if switches.residual == "lorentz" else switches.residual,
    )


class HelmPreTrainedModel(PreTrainedModel):
    """What all HELM models share: how they start, load, compile and are split."""

    config: HelmConfig
    config_class = HelmConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["HelmDecoderLayer"]
    _skip_keys_device_placement = ["past_key_values", "lm_head"]  # a module stays where it is
    _keep_in_fp32_modules_strict = [
        "raw",
        "log_scale",
        "log_weight",
        "log_temperature",
    ]
    _supports_flash_attn = True
    _supports_sdpa = True
    _supports_flex_attn = True
    _can_compile_fullgraph = True
    _supports_attention_backend = True
    _can_record_outputs = {
        "hidden_states": HelmDecoderLayer,
        "attentions": HelmAttention,
    }

    @classmethod
    def register_for_auto_class(cls, auto_class: str = "AutoModel") -> None:
        """Nothing: else transformers would save copies of our sources beside the weights."""

    @classmethod
    def from_pretrained(cls, *args: Any, output_loading_info: bool = False, **kwargs: Any) -> Any:
        """As in transformers; a checkpoint of another geometry is a `ValueError`.

        Curvatures stay at hand where a `device_map` offloads modules.
        """
        loaded: Any = super().from_pretrained(*args, output_loading_info=True, **kwargs)
        model, info = loaded
        check_loaded(model, info)
        for module in model.modules():
            if isinstance(module, Curvature):
                keep_at_hand(module)
        return (model, info) if output_loading_info else model

    def save_pretrained(  # type: ignore[override]  # passes on whatever a version has
        self, save_directory: str | Path, is_main_process: bool = True, **kwargs: Any
    ) -> None:
        """As in transformers, with a stub for `trust_remote_code=True` and a model card."""
        self.config.auto_map = AUTO_MAP
        super().save_pretrained(save_directory, is_main_process=is_main_process, **kwargs)
        if is_main_process:
            write_companions(Path(save_directory), self.config, self.num_parameters())

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """The start of a module's own parameters; those that were loaded are left alone."""
        if isinstance(module, nn.Embedding):
            points = self.config.embedding == "points"
            self._init_rows(module, self.config.curvature if points else None)
            return
        super()._init_weights(module)
        if self.config.logits == "distance" and module is getattr(self, "lm_head", None):
            self._init_rows(module, self.config.logit_curvature or 1.0)
        if isinstance(module, nn.Linear) and getattr(module, "starts_at_zero", False):
            init.zeros_(module.weight)
        if isinstance(module, Curvature | Residual | WordScores):
            module.reset_parameters()
        for name, parameter in module.named_parameters(recurse=False):
            # Offsets of ½, as van der Klis et al. have them, would add the same vector to all
            # tokens, a hundred times as long as the branches of a new Transformer.
            if name.endswith(("_time", "_radius", "_offset")):
                init.zeros_(parameter)
            elif name == "log_scale":
                assert isinstance(module, HelmAttention)
                # 2/σ is then the scale of dot products.
                init.constant_(parameter, math.log(2 * math.sqrt(module.score_size)))

    def _init_rows(self, module: nn.Embedding | nn.Linear, kappa: float | None) -> None:
        """Rows whose coordinates have the standard deviation `embedding_range`; κ of points."""
        weight, std = module.weight, self.config.embedding_range
        if getattr(weight, "_is_hf_initialized", False):
            return
        assert std is not None
        init.normal_(weight, std=std)
        if kappa is not None:
            # A wrapped normal: the same directions, at the distances that flat vectors have.
            c = natural_curvature(self.config.hidden_size, kappa)
            size = math.sqrt(c * self.config.hidden_size) * std
            weight.copy_(lorentz.exp0(math.asinh(size) / size * weight, c))
        if getattr(module, "padding_idx", None) is not None:
            weight[cast(int, module.padding_idx)].zero_()

    def _init_added_embeddings_weights_with_mean(
        self, old_embeddings: Any, new_embeddings: Any, old_num_tokens: int, added_num_tokens: int
    ) -> None:
        is_head = isinstance(old_embeddings, nn.Linear)
        points = self.config.logits == "distance" if is_head else self.config.embedding == "points"
        if not points:
            super()._init_added_embeddings_weights_with_mean(
                old_embeddings, new_embeddings, old_num_tokens, added_num_tokens
            )
            return
        kind = WordScores if is_head else HelmModel
        manifold = next(m.manifold for m in self.modules() if isinstance(m, kind))
        centroid = manifold.centroid(upcast(old_embeddings.weight.data))
        new_embeddings.weight.data[-added_num_tokens:] = centroid.to(new_embeddings.weight.dtype)


# Arguments of a forward pass that are the loss's.
_LOSS_OPTIONS = ("shift_labels", "num_items_in_batch", "ignore_index")


class HelmModel(HelmPreTrainedModel):
    """The decoder: tokens to points, layers between points, and a norm.

    `curvature` and `head_curvature` are c of the stream and of the heads, one of each, or a list
    with one of each a layer.
    """

    def __init__(self, config: HelmConfig) -> None:
        super().__init__(config)
        config.check()
        self.vocab_size = config.vocab_size
        size = config.hidden_size
        self.embed_tokens = nn.Embedding(config.vocab_size, size, config.pad_token_id)
        switches = [config.for_layer(i) for i in range(config.num_hidden_layers)]
        bent = [layer.bends_stream for layer in switches]
        if config.tie_word_embeddings and config.logits == "distance":
            bent[max(i for i, layer in enumerate(switches) if layer.curved)] = True
        streams = self._add_curvatures("curvature", size, config.curvature, bent)
        head_size = min(min(layer.score_size, layer.value_size) for layer in switches)
        bent = [layer.bends_heads for layer in switches]
        heads = self._add_curvatures("head_curvature", head_size, config.head_curvature, bent)
        # Of the stream before the first layer, and of the scores after the last.
        curved = [m for m in streams if isinstance(m, Lorentz)] or streams
        self.manifold, self.last_manifold = curved[0], curved[-1]
        layers = [
            HelmDecoderLayer(config, i, streams[i], heads[i])
            for i in range(config.num_hidden_layers)
        ]
        self.layers = nn.ModuleList(layers)
        self.norm = nn.RMSNorm(size, eps=config.rms_norm_eps)
        sizes = sorted({layer.self_attn.score_size for layer in layers})
        self.rotary_emb = nn.ModuleDict({str(n): HelmRotaryEmbedding(config, n) for n in sizes})
        self.gradient_checkpointing = False
        self.post_init()

    def _add_curvatures(
        self, name: str, width: int, kappa: float, used: list[bool]
    ) -> list[Manifold]:
        """Register the curvature, or one a layer, under that name; the manifold of each layer."""
        config = self.config
        each = config.learn_curvature == "layer"
        curvatures = [
            config.new_curvature(width, kappa, u) for u in (used if each else [any(used)])
        ]
        if not config.is_flat:
            setattr(self, name, nn.ModuleList(curvatures) if each else curvatures[0])
        return [
            Lorentz(curvatures[i * each]) if geometry == "lorentz" else Euclidean()
            for i, geometry in enumerate(config.layer_geometries)
        ]

    @property
    def manifold_of(self) -> dict[str, Manifold]:
        """The parameters that are points: the embedding's rows, whatever wraps the embedding."""
        is_curved = self.config.embedding == "points"
        return _points("embed_tokens", self.embed_tokens, self.manifold) if is_curved else {}

    def no_weight_decay(self) -> set[str]:
        """The embedding's rows if they are points: decay would pull every token to the origin."""
        return set(self.manifold_of)

    @merge_with_config_defaults
    @capture_outputs
    @shares_curvatures
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPast:
        """As Llama's; `inputs_embeds` are points."""
        if not torch.compiler.is_compiling():
            heads = cast(HelmDecoderLayer, self.layers[0]).self_attn.num_key_value_heads
            check_inputs(
                self.config,
                input_ids,
                inputs_embeds,
                attention_mask,
                position_ids,
                past_key_values,
                heads,
            )
        x = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        if use_cache and past_key_values is None:
            past_key_values = DynamicCache(config=self.config)
        if position_ids is None:
            past = 0 if past_key_values is None else past_key_values.get_seq_length()
            position_ids = (torch.arange(x.shape[1], device=x.device) + past).unsqueeze(0)
        mask = create_causal_mask(
            config=self.config,
            inputs_embeds=x,
            attention_mask=attention_mask,
            past_key_values=past_key_values,
            position_ids=position_ids,
        )
        mask = fit_mask(mask, x.dtype, self.config._attn_implementation)
        tables = {size: table(x, position_ids) for size, table in self.rotary_emb.items()}
        previous = None
        for layer in self.layers:
            assert isinstance(layer, HelmDecoderLayer)
            x = layer.enter(x, previous)
            size = str(layer.self_attn.score_size)
            x = layer(
                x,
                attention_mask=mask,
                position_embeddings=tables[size],
                position_ids=position_ids,
                past_key_values=past_key_values,
                score_factor=cast(float, self.rotary_emb[size].attention_scaling) ** 2,
                use_cache=use_cache,
                **kwargs,
            )
            previous = layer.manifold
        return BaseModelOutputWithPast(
            last_hidden_state=self.norm(x), past_key_values=past_key_values
        )


# What a table is called in an `nn.Embedding` or `nn.Linear`, in the copies of `modules_to_save` and
# under an adapter; the matrices of adapters are no points.
_IS_TABLE = re.compile(r"((base_layer|original_module|modules_to_save\.\w+)\.)*weight")


def _points(name: str, module: nn.Module, manifold: Manifold) -> dict[str, Manifold]:
    """The matrices with one point a word in an embedding or head, also in one that PEFT wraps."""
    names = [n for n, _ in module.named_parameters() if _IS_TABLE.fullmatch(n)]
    return {f"{name}.{n}": manifold for n in names}


class HelmForCausalLM(HelmPreTrainedModel, GenerationMixin):
    """The decoder with scores of words; see `WordScores` for their kinds."""

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}
    _tp_plan = {"lm_head": "colwise_gather_output"} if TENSOR_PARALLEL else None
    # No `_fsdp_plan`: `lm_head` belongs to the root, which gathers it for losses without logits.

    def __init__(self, config: HelmConfig) -> None:
        super().__init__(config)
        self.model = HelmModel(config)
        self.vocab_size = config.vocab_size
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.word_scores = WordScores(config, self.model.last_manifold)
        self.post_init()
        if TENSOR_PARALLEL and not self.word_scores.is_product:
            scores = {"lm_head": "helm_word_matrix", "word_scores": "helm_words"}
            self._tp_plan = {**self.tp_plan, **scores}

    def __setattr__(self, name: str, value: Any) -> None:
        """As in `nn.Module`; but a forward method that takes scores for linear is replaced."""
        if name == "forward" and is_fused_forward(value) and not self.word_scores.is_product:
            value = with_word_scores(self, value)
        super().__setattr__(name, value)

    @classmethod
    def from_flat(
        cls, model: PreTrainedModel, curvature: float = 1.0, **switches: Any
    ) -> HelmForCausalLM:
        """A curved model that starts from the weights of a Llama, such as SmolLM2.

        Scores of attention are dot products, heads are means, embedding and scores of words are
        flat unless told otherwise; time columns start at 0. So as κ → 0 it gives the flat model's
        logits.

        Args:
            model: a causal language model with Llama's modules.
            curvature: κ of stream and heads at the start.
            switches: further fields of `HelmConfig`. Distances and centroids in attention have
                heads with four more channels: give `head_dim`.
        """
        config = curved_config(model.config, curvature, switches)
        curved = cls(config)
        copy_weights(model, curved)
        if model.generation_config is not None:
            curved.generation_config = copy.deepcopy(model.generation_config)
        curved.to(model.device)  # type: ignore[arg-type]
        for name, p in curved.named_parameters():
            if not any(part in name for part in cls._keep_in_fp32_modules_strict):
                p.data = p.data.to(model.dtype)
        return curved

    @property
    def manifold_of(self) -> dict[str, Manifold]:
        """The rows of `lm_head` if scores are distances to points of their own."""
        if self.config.logits != "distance" or self.config.tie_word_embeddings:
            return {}
        return _points("lm_head", self.lm_head, self.word_scores.manifold)

    def no_weight_decay(self) -> set[str]:
        """Points, and what else has no business near 0."""
        return {*self.manifold_of, *(f"word_scores.{name}" for name in ("time", "offset"))}

    def resize_token_embeddings(self, *args: Any, **kwargs: Any) -> nn.Embedding:
        """As in transformers; new points lie at the centroid of the old ones."""
        embeddings = super().resize_token_embeddings(*args, **kwargs)
        self.word_scores.resize(self.config.vocab_size)
        return embeddings

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast:
        """As Llama's. With labels and `config.fused_loss` the output has a loss and no logits."""
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            use_cache=use_cache,
            **kwargs,
        )
        h = outputs.last_hidden_state
        if isinstance(logits_to_keep, Tensor) or logits_to_keep:
            keep = logits_to_keep
            h = h[:, keep] if isinstance(keep, Tensor) else h[:, -keep:]
        has_labels = labels is not None or kwargs.get("shift_labels") is not None
        logits = (
            None
            if has_labels and self.config.fused_loss
            else self.word_scores(h, lm_head=self.lm_head)
        )
        loss = None
        if has_labels:
            given = {k: kwargs[k] for k in _LOSS_OPTIONS if kwargs.get(k) is not None}
            loss = self.word_scores.loss(h, self.lm_head, labels, logits, **given)
        return CausalLMOutputWithPast(
            loss=cast(torch.FloatTensor | None, loss),
            logits=cast(torch.FloatTensor | None, logits),
            past_key_values=outputs.past_key_values,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class HelmForSequenceClassification(GenericForSequenceClassification, HelmPreTrainedModel):
    """The decoder with a class score of each sequence, of its last token."""


class HelmForTokenClassification(GenericForTokenClassification, HelmPreTrainedModel):
    """The decoder with class scores of each token."""


class HelmForQuestionAnswering(GenericForQuestionAnswering, HelmPreTrainedModel):
    """The decoder with scores of where an answer begins and ends."""
