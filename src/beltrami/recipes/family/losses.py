r"""The loss of a language model on texts, in nats a predicted token.

    Σ over texts, Σ over t = 2…T of −ln p(token t | tokens before)  /  Σ over texts of (T − 1)

A text of T tokens has T − 1 predictions, and every prediction counts once. A mean of the texts'
means, or one weighted by T, is another number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from beltrami.analysis.results import Result

LONGEST = 2048  # tokens of a text; those behind are left out
TOKENS_AT_ONCE = 2048  # padding included: their scores, one a word of the vocabulary, are held
_SCORED_AT_ONCE = 1 << 26  # scores that are made probabilities at once, 256 MiB
_FEWEST = 2  # tokens that have a prediction
_LOOKED_AT = 8  # tokens that a model is tried with
ROUNDED = 1.0  # units of the last digit of the largest score

Tick = Callable[[float], None]


@dataclass(frozen=True)
class TextLoss(Result):
    """What a model makes of texts.

    Args:
        loss: nats a predicted token. predicted: how many tokens were.
        texts: that were read. skipped: that have fewer than two tokens. cut: that were too long.
        longest: tokens of a text that were read at most.
    """

    loss: float
    predicted: int
    texts: int
    skipped: int
    cut: int
    longest: int


@torch.inference_mode()
def text_loss(
    model: Any,
    tokenizer: Any,
    texts: Sequence[str],
    *,
    longest: int = LONGEST,
    batch: int = 8,
    tick: Tick = lambda share: None,
) -> TextLoss:
    """The loss of a causal language model of transformers, whatever the batches are.

    Tokens that the tokenizer adds, such as one for the beginning, are read as they were in
    training, and count as others do.

    Args:
        model, tokenizer: transformers' own. The model computes in its own dtype; what is summed is
            float32, the sums are float64.
        texts: any; those with fewer than two tokens have no prediction, and are skipped.
        longest: tokens of a text at most; fewer where the model or the tokenizer takes fewer.
        batch: texts at once at most; fewer where they are long.
        tick: is told the share of the tokens that is done.

    Raises:
        ValueError: where no text has a prediction, a loss is not finite, or the model is not
            causal.
    """
    if longest < _FEWEST or batch < 1:
        raise ValueError(f"longest must be at least 2 and batch 1, got {longest} and {batch}")
    longest = _reach(model, tokenizer, longest)
    coded, skipped, cut = _encode(tokenizer, texts, longest)
    if not coded:
        raise ValueError(f"none of {len(texts)} texts has two tokens, the least to predict one of")
    model.eval()
    _check_causal(model, min(_LOOKED_AT, longest))
    total, predicted = 0.0, 0
    everything = sum(len(ids) - 1 for ids in coded)
    for some in _batches(coded, batch):
        total += _summed(model, some)
        predicted += sum(len(ids) - 1 for ids in some)
        tick(predicted / everything)
    loss = total / predicted
    if not loss < float("inf"):  # false for nan, too
        raise ValueError(f"the loss is {loss}: weights that are not finite, or too narrow a dtype")
    return TextLoss(loss, predicted, len(coded), skipped, cut, longest)


def _reach(model: Any, tokenizer: Any, longest: int) -> int:
    known = getattr(model.config, "max_position_embeddings", None)
    return min(longest, known or longest, getattr(tokenizer, "model_max_length", longest))


def _check_causal(model: Any, length: int) -> None:
    """Refuse a model whose scores at a token know those behind it: it would copy, not predict.

    By what it does, for a class does not tell: BertLMHeadModel is causal or not by its config.
    Scores of a causal model are the same to the last digit, or to some where tokens are sorted into
    experts.
    """
    vocabulary = model.get_input_embeddings().weight.shape[0]
    first = torch.arange(length) % vocabulary
    other = torch.cat([first[:1], (first[1:] + vocabulary // 2) % vocabulary])
    ids = torch.stack([first, other]).to(model.device)
    made = model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False).logits
    one, two = made[:, 0].float()
    off = float((one - two).abs().max())
    if off > ROUNDED * torch.finfo(made.dtype).eps * float(one.abs().max()):  # false for NaN
        raise ValueError(
            f"{type(model).__name__} is no causal language model: its scores at the first token "
            "change with the tokens behind it, which it has therefore seen before it predicts them"
        )


def _encode(tokenizer: Any, texts: Sequence[str], longest: int) -> tuple[list[list[int]], int, int]:
    """Tokens of the texts that have a prediction, how many have none, how many were cut."""
    coded: list[list[int]] = []
    skipped = cut = 0
    for text in texts:
        # Cut here: tokenizers may cut at the beginning, or keep what they add to the end.
        ids = tokenizer(text, verbose=False)["input_ids"] if text else []
        if len(ids) < _FEWEST:
            skipped += 1
            continue
        cut += len(ids) > longest
        coded.append(list(ids[:longest]))
    return coded, skipped, cut


def _batches(coded: Sequence[list[int]], batch: int) -> Iterator[list[list[int]]]:
    """Texts of about the same length together, so that little is padding; the longest first."""
    some: list[list[int]] = []
    for ids in sorted(coded, key=len, reverse=True):
        # The first of a batch is its longest: all others are padded to it.
        if some and (len(some) == batch or (len(some) + 1) * len(some[0]) > TOKENS_AT_ONCE):
            yield some
            some = []
        some.append(ids)
    yield some


def _summed(model: Any, some: Sequence[list[int]]) -> float:
    """The summed cross-entropies of a batch.

    Padding is behind the texts, where a causal model does not see it, and has no say in the sum.
    """
    length = len(some[0])
    ids = torch.zeros(len(some), length, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, text in enumerate(some):
        ids[row, : len(text)] = torch.tensor(text)
        mask[row, : len(text)] = 1
    place = model.device
    scores = model(input_ids=ids.to(place), attention_mask=mask.to(place), use_cache=False).logits
    total = 0.0
    for row, text in enumerate(some):
        total += _row_sum(scores[row, : len(text) - 1], ids[row, 1 : len(text)].to(place))
    return total


def _row_sum(scores: Tensor, tokens: Tensor) -> float:
    step = max(1, _SCORED_AT_ONCE // scores.shape[1])
    total = torch.zeros((), dtype=torch.float64, device=scores.device)
    for some, right in zip(scores.split(step), tokens.split(step), strict=True):
        total += cross_entropy(some.float(), right, reduction="none").double().sum()
    return float(total)
