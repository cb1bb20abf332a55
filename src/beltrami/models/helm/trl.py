"""TRL's trainers on scores of words that are not one matrix product.

TRL replaces `model.forward` by one that, with `fused_lm_head=True`, multiplies points by
`lm_head.weight` and takes the products for logits. That is right for linear scores alone: with
hyperplanes or distances it would train another model without a word. So HELM answers such calls
itself, with the same output.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from beltrami.models.helm.heads import IGNORED

if TYPE_CHECKING:
    from beltrami.models.helm.model import HelmForCausalLM

# What a function has to be to be understood: names that it closes over.
_CLOSURE = {"original_forward", "temperature", "outputs"}
_FIELDS = ("log_probs", "entropy", "log_sum_sq_probs", "mean_logits", "is_top1")
_CHUNK_ELEMENTS = 1 << 25  # scores of a chunk


def is_fused_forward(forward: Any) -> bool:
    """Whether it is the forward method that TRL gives a model."""
    code = getattr(forward, "__code__", None)
    return getattr(code, "co_name", "") == "_fused_forward"


def with_word_scores(model: HelmForCausalLM, forward: Any) -> Callable[..., Any]:
    """TRL's forward method, but for `fused_lm_head=True`, where log-probabilities are the model's.

    Args:
        model: whose method it will be.
        forward: from `trl.trainer.utils.add_fused_lm_head`.
    """
    function = forward.__func__
    options = inspect.getclosurevars(function).nonlocals
    result = function.__globals__.get("FusedCausalLMOutput")
    unknown = set(options.get("outputs", ())) - set(_FIELDS)
    if result is None or not options.keys() >= _CLOSURE or unknown:
        raise ValueError(
            f'logits="{model.word_scores.kind}" are not lm_head.weight times points, as this '
            "version of TRL takes them to be, and beltrami does not know how to tell it: use "
            'transformers.Trainer or RiemannianTrainer, TRL 1.16, or logits="linear"'
        )

    @functools.wraps(function)
    def answer(
        self: HelmForCausalLM, *args: Any, fused_lm_head: bool = False, **kwargs: Any
    ) -> Any:
        if not fused_lm_head:
            return function(self, *args, **kwargs)
        labels, shifted = kwargs.pop("labels", None), kwargs.pop("shift_labels", None)
        count = kwargs.pop("num_items_in_batch", None)
        points = self.base_model(*args, **{**kwargs, "use_cache": False}).last_hidden_state
        if shifted is None:
            points, shifted = points[:, :-1], labels[:, 1:]
        shifted = shifted.to(points.device)
        mask = shifted != IGNORED
        fields = _fields(self, points, shifted, mask, options["temperature"], options["outputs"])
        total = -fields["log_probs"].sum()
        loss = total / (mask.sum().clamp(min=1) if count is None else count)
        return result(loss=loss, label_mask=mask, **fields)

    return types.MethodType(answer, model)


def _fields(
    model: HelmForCausalLM,
    points: Tensor,
    labels: Tensor,
    mask: Tensor,
    temperature: float,
    names: tuple[str, ...],
) -> dict[str, Tensor]:
    """The fields of TRL's output, in the shape of the labels; 0 where a label is ignored."""
    names = ("log_probs", *(name for name in names if name != "log_probs"))
    rows, words = points[mask], labels[mask]
    size = max(1, _CHUNK_ELEMENTS // model.config.vocab_size)
    parts = [
        checkpoint(_of_rows, model, r, w, temperature, names, use_reentrant=False)
        for r, w in zip(rows.split(size), words.split(size), strict=True)
    ]
    fields = {}
    for name, pieces in zip(names, zip(*parts, strict=True), strict=True):
        values = torch.cat(pieces)
        fields[name] = values.new_zeros(mask.shape).masked_scatter(mask, values)
    return fields


def _of_rows(
    model: HelmForCausalLM,
    points: Tensor,
    words: Tensor,
    temperature: float,
    names: tuple[str, ...],
) -> list[Tensor]:
    scores = model.word_scores(points, lm_head=model.get_output_embeddings()).float() / temperature
    logs = scores.log_softmax(-1)
    fields: dict[str, Callable[[], Tensor]] = {
        "log_probs": lambda: logs.gather(-1, words[:, None]).squeeze(-1),
        "entropy": lambda: -(logs.exp() * logs).sum(-1),
        "log_sum_sq_probs": lambda: (2 * logs.detach()).logsumexp(-1),
        "mean_logits": lambda: scores.detach().mean(-1),
        "is_top1": lambda: logs.argmax(-1) == words,
    }
    return [fields[name]() for name in names]
