"""The text as tokens, in three parts of whole documents."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from beltrami.data.corpus import (
    PackedRows,
    TokenCorpus,
    documents,
    load_tokenizer,
    pack,
    train_tokenizer,
)
from beltrami.recipes.helm.config import HelmRunConfig

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

TOKENIZER_TEXT = 1 << 26  # characters that a tokenizer is trained on
LARGEST_SHARE = 20  # a held-out part is at most this part of the text


@dataclass(frozen=True, eq=False)
class Text:
    """Documents to train on, to choose by and to test on."""

    tokenizer: PreTrainedTokenizerFast
    train: TokenCorpus
    validation: TokenCorpus
    test: TokenCorpus
    digest: str

    @property
    def vocab_size(self) -> int:
        """Tokens of the vocabulary, used or not."""
        return len(self.train.token_bytes)

    def held_out_rows(self, part: str, length: int, document_masks: bool) -> PackedRows:
        """The rows of "validation" or "test", the same for every training."""
        return pack(getattr(self, part), length, documents=document_masks)

    def counts(self) -> Tensor:
        """How often each token is in the documents to train on."""
        counts = torch.zeros(self.vocab_size, dtype=torch.int64)
        for i in range(len(self.train)):
            tokens = torch.from_numpy(self.train[i].astype(np.int64))
            counts += torch.bincount(tokens, minlength=self.vocab_size)
        return counts


def load_text(config: HelmRunConfig) -> Text:
    """The text that a config asks for; a `ValueError` says what is wrong with it."""
    chosen, field = config.chosen, config.field
    try:
        if config.tokenizer is None:
            texts = documents(config.data, field=field)
            tokenizer = train_tokenizer(_first(texts), chosen.vocab_size)
        else:
            tokenizer = load_tokenizer(config.tokenizer)
        corpus = TokenCorpus.build(config.data, tokenizer, field=field, show_progress=True)
    except ImportError as error:  # of a package that this source needs
        raise ValueError(f"--data {config.data}: {error}") from error
    held_out = max(1, min(chosen.held_out, corpus.n_tokens // LARGEST_SHARE))
    rest, test = corpus.split(held_out)
    train, validation = rest.split(held_out, seed=1)
    sha256 = hashlib.sha256(tokenizer.backend_tokenizer.to_str().encode())
    sha256.update(np.concatenate([corpus.digests, corpus.sizes]).tobytes())
    text = Text(tokenizer, train, validation, test, sha256.hexdigest())
    if train.n_tokens < chosen.batch * chosen.length:
        raise ValueError(
            f"{config.data} has {train.n_tokens:,} tokens to train on, fewer than one step of "
            f"{chosen.batch} rows of {chosen.length}; give more text, or a smaller --batch"
        )
    for part in ("validation", "test"):
        if not text.held_out_rows(part, chosen.length, config.document_masks).target_bytes():
            raise ValueError(
                f"the {part} documents of {config.data} are of one token each; give longer ones"
            )
    return text


def _first(texts: Iterable[str]) -> Iterator[str]:
    """As many documents as a tokenizer is trained on."""
    left = TOKENIZER_TEXT
    for text in texts:
        yield text
        left -= len(text)
        if left <= 0:
            return
