r"""The loss of a language model on texts, in nats a predicted token.

    Σ over texts, Σ over t = 2…T of −ln p(token t | tokens before)  /  Σ over texts of (T − 1)

A text of T tokens has T − 1 predictions, and every prediction counts once. A mean of the texts'
means, or one weighted by T, is another number.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

from beltrami.analysis.results import Result
from beltrami.diagnosis.text_files import read_text

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


def read_texts(path: Path) -> list[str]:
    """The lines that are not blank; of a .jsonl file "text" of each object, also if empty."""
    lines = [(i, line) for i, line in enumerate(read_text(path, "--texts").split("\n"), 1)]
    lines = [(i, line.strip("\r")) for i, line in lines if line.strip()]
    if not lines:
        raise ValueError(f"--texts {path} has no texts")
    if path.suffix.lower() != ".jsonl":
        return [line for _, line in lines]
    texts = []
    for number, line in lines:
        where = f"--texts {path}, line {number}"
        try:
            record = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{where} is not valid JSON: {error}") from error
        if not isinstance(record, dict) or not isinstance(record.get("text"), str):
            raise ValueError(f'{where}: expected an object with "text", got {line[:60]!r}')
        texts.append(record["text"])
    return texts


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
    positions = getattr(model.config, "max_position_embeddings", None) or longest
    longest = min(longest, positions, getattr(tokenizer, "model_max_length", longest))
    # Cut here: tokenizers may cut at the beginning, or keep what they add to the end.
    whole = [tokenizer(text, verbose=False)["input_ids"] if text else [] for text in texts]
    coded = [list(ids[:longest]) for ids in whole if len(ids) >= _FEWEST]
    if not coded:
        raise ValueError(f"none of {len(texts)} texts has two tokens, the least to predict one of")
    model.eval()
    _check_causal(model, min(_LOOKED_AT, longest))
    total, predicted = 0.0, 0
    everything = sum(len(ids) - 1 for ids in coded)
    for rows in _batches(coded, batch):
        total += _summed(model, rows)
        predicted += sum(len(ids) - 1 for ids in rows)
        tick(predicted / everything)
    loss = total / predicted
    if not loss < float("inf"):  # false for nan, too
        raise ValueError(f"the loss is {loss}: weights that are not finite, or too narrow a dtype")
    cut = sum(len(ids) > longest for ids in whole)
    return TextLoss(loss, predicted, len(coded), len(whole) - len(coded), cut, longest)


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
    scores, changed = made[:, 0].float()
    off = float((scores - changed).abs().max())
    if off > ROUNDED * torch.finfo(made.dtype).eps * float(scores.abs().max()):  # false for NaN
        raise ValueError(
            f"{type(model).__name__} is not a causal language model: its scores at the first token "
            "change with the tokens behind it, which it has therefore seen before it predicts them"
        )


def _batches(coded: Sequence[list[int]], batch: int) -> Iterator[list[list[int]]]:
    """Texts of about the same length together, so that little is padding; the longest first."""
    rows: list[list[int]] = []
    for ids in sorted(coded, key=len, reverse=True):
        # The first of a batch is its longest: all others are padded to it.
        if rows and (len(rows) == batch or (len(rows) + 1) * len(rows[0]) > TOKENS_AT_ONCE):
            yield rows
            rows = []
        rows.append(ids)
    yield rows


def _summed(model: Any, rows: Sequence[list[int]]) -> float:
    """The summed cross-entropies of a batch.

    Padding is behind the texts, where a causal model does not see it, and has no say in the sum.
    """
    mask = pad_sequence([torch.ones(len(row), dtype=torch.long) for row in rows], True)
    ids = pad_sequence([torch.tensor(row) for row in rows], True).to(model.device)
    scores = model(input_ids=ids, attention_mask=mask.to(model.device), use_cache=False).logits
    step = max(1, _SCORED_AT_ONCE // scores.shape[-1])
    total = 0.0
    for row, row_scores, row_ids in zip(rows, scores, ids, strict=True):
        last = len(row) - 1
        pairs = zip(row_scores[:last].split(step), row_ids[1 : last + 1].split(step), strict=True)
        for part, right in pairs:
            total += float(cross_entropy(part.float(), right, reduction="none").double().sum())
    return total
