"""Ways to fine-tune: what each does to a model, and what of it is trained."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from beltrami.analysis.gromov import curvature_estimate, delta_hyperbolicity
from beltrami.recipes.hyplora.bottleneck import (
    ALL_LINEAR,
    add_bottlenecks,
    layer_sizes,
    target_names,
)

AUTO = "auto"
MIXTURE = (0.1, 1.0, 4.0)
MOST_PREFIX_TOKENS = 64
# What a variant tells HypLoraConfig, beside rank, alpha and so on.
HYPLORA: dict[str, dict[str, Any]] = {
    "hyplora": {},
    "hyplora-boost": {"variant": "boost"},
    "hyplora-simplified": {"variant": "simplified"},
    "hyplora-tangent": {"variant": "tangent"},
    "hyplora-residual": {"norm_source": "residual"},
    "hyplora-learned": {"learn_curvature": "module"},
    "hyplora-token": {"learn_curvature": "token"},
    "hyplora-mixture": {"curvature": list(MIXTURE)},
    "hyplora-auto": {"curvature": AUTO},
    "hyplora-dora": {"use_dora": True},
    "hyplora-rslora": {"use_rslora": True},
    "hyplora-repo": {"reference": "repo"},
}
GAINED = "lora-gained"
# What HypLoRA of curvature 1 multiplies the small update of a token of mean square 1 by.
CONSTANT_GAIN = math.sinh(1.0)
# Full fine-tuning wants smaller rates than adapters, prefixes larger ones.
RATE_FACTORS = {"full": 0.1, "prefix": 10.0}


@dataclass(frozen=True, kw_only=True)
class HypLoraSettings:
    """What a training depends on; see `HypLoraRunConfig`.

    Args:
        hyplora: options of `HypLoraConfig` beside rank, alpha, dropout and targets; none for other
            methods.
        unit: how the residual norm's unit is measured, for that method.
    """

    method: str
    rank: int
    alpha: float
    dropout: float
    targets: tuple[str, ...]
    hyplora: Mapping[str, Any]
    unit: str | None = None
    epochs: float
    batch: int
    learning_rate: float
    warm_up: int
    longest: int
    prompt: str
    loss_on: str
    beams: int
    new_tokens: int
    precision: str


class FineTuned(nn.Module):
    """A model of which a part is trained; its state is that part.

    Args:
        model: with `requires_grad` as it should be.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model: Any = model

    def forward(self, **batch: Tensor) -> Tensor:
        """Scores of the next token, (questions, tokens, words)."""
        scores: Tensor = self.model(**batch).logits
        return scores

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """Everything but frozen parameters."""
        frozen = {
            name for name, p in self.named_parameters(remove_duplicate=False) if not p.requires_grad
        }
        whole = super().state_dict(*args, **kwargs)
        return {name: value for name, value in whole.items() if name not in frozen}

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Take on a state as `state_dict` gives it."""
        expected = self.state_dict().keys()
        if state_dict.keys() != expected:
            odd = sorted(state_dict.keys() ^ expected)
            raise KeyError(f"not the state of this model: {odd[0]} and {len(odd) - 1} more differ")
        return super().load_state_dict(state_dict, strict=False)


def fine_tuned(
    base: nn.Module, settings: HypLoraSettings, questions: Sequence[Sequence[int]]
) -> FineTuned:
    """A model made ready for a method, in place.

    Args:
        base: a causal language model.
        settings: the method and its options.
        questions: token ids to fit a curvature to, where it is "auto".
    """
    method, rank, alpha = settings.method, settings.rank, settings.alpha
    targets = list(settings.targets)
    base.requires_grad_(method == "full")
    if method in ("base", "full"):
        return FineTuned(base)
    if method in ("series", "parallel"):
        return FineTuned(
            add_bottlenecks(
                base,
                targets,
                rank,
                series=method == "series",
                scaling=alpha / rank,
                dropout=settings.dropout,
            )
        )
    from peft import LoraConfig, PrefixTuningConfig, get_peft_model

    chosen: Any = ALL_LINEAR if ALL_LINEAR in targets else targets
    layers = [base.get_submodule(name) for name in target_names(base, targets)]
    common = {
        "r": rank,
        "target_modules": chosen,
        "task_type": "CAUSAL_LM",
        "fan_in_fan_out": not any(isinstance(layer, nn.Linear) for layer in layers),  # Conv1D
    }
    dropout = settings.dropout
    if method == "prefix":
        tokens = _prefix_tokens(base, targets, rank)
        config: Any = PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=tokens)
    elif method in ("lora", GAINED, "rslora", "dora"):
        config = LoraConfig(
            lora_alpha=alpha,
            lora_dropout=dropout,
            use_dora=method == "dora",
            use_rslora=method == "rslora",
            **common,
        )
    else:
        config = _hyplora(base, settings, questions, {"dropout": dropout, **common})
    return FineTuned(get_peft_model(base, config))


def _hyplora(
    base: nn.Module,
    settings: HypLoraSettings,
    questions: Sequence[Sequence[int]],
    common: Mapping[str, Any],
) -> Any:
    from beltrami.peft import HypLoraConfig

    options = dict(settings.hyplora)
    if options.get("curvature") == AUTO:
        options["curvature"] = fitted_curvature(base, questions)
    return HypLoraConfig(alpha=settings.alpha, **common, **options)


def fitted_curvature(model: Any, questions: Sequence[Sequence[int]]) -> float:
    """The curvature that the δ of a model's token embeddings suggests, mean over questions."""
    table = model.get_input_embeddings().weight.detach()
    deltas = []
    for ids in questions:
        rows = table[torch.tensor(sorted(set(ids)), device=table.device)].double()
        if len(rows) > 3:
            deltas.append(delta_hyperbolicity(rows).relative)
    if not deltas:
        raise ValueError("hyplora-auto needs questions of more than 3 different tokens")
    return curvature_estimate(math.fsum(deltas) / len(deltas))


def _prefix_tokens(model: Any, targets: Sequence[str], rank: int) -> int:
    """Number of prefix tokens that has about as many parameters as LoRA."""
    layers = [model.get_submodule(name) for name in target_names(model, targets)]
    wanted = sum(rank * sum(layer_sizes(layer)) for layer in layers)
    shape = model.config.get_text_config()
    heads = shape.num_attention_heads
    shared = heads // (getattr(shape, "num_key_value_heads", None) or heads)
    each = 2 * shape.num_hidden_layers * shape.hidden_size // shared
    return max(1, min(MOST_PREFIX_TOKENS, round(wanted / int(each))))
