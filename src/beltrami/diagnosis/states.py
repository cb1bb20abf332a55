"""Hidden states of texts as a table of vectors: one row a token."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from torch import Tensor

from beltrami.data.vectors import Vectors
from beltrami.diagnosis.config import DiagnoseConfig
from beltrami.diagnosis.prompts import hidden_states, read_prompts
from beltrami.diagnosis.source import Tick
from beltrami.models.pretrained.opening import load_encoder, model_fingerprint


class HiddenStates(Vectors):
    """Rows that a model computed, in memory, with their tokens as labels."""

    def __init__(self, rows: Tensor, tokens: list[str], name: str, digest: str, cut: int) -> None:
        """`digest` says which model, texts and layer; `cut` how many texts were too long."""
        super().__init__(Path(name), (len(rows), rows.shape[1]), labels=tokens)
        self.name, self.content = name, digest
        self.cut, self._rows = cut, rows

    def _read(self, first: int, last: int) -> Tensor:
        return self._rows[first:last]


def open_states(config: DiagnoseConfig, tick: Tick) -> HiddenStates:
    """The states of all prompts of --texts, in --layer."""
    assert config.texts is not None
    model, tokenizer = load_encoder(config.source)
    prompts = read_prompts(config.texts)[: config.prompts]
    rows, tokens, cut = [], [], 0
    for i, prompt in enumerate(prompts):
        seen = hidden_states(model, tokenizer, prompt.text, config.layer)
        cut += not seen.whole
        rows.append(seen.points.float())
        tokens += tokenizer.convert_ids_to_tokens(seen.tokens)
        tick((i + 1) / len(prompts))
    key = (
        f"{model_fingerprint(config.source)} {config.layer} {config.prompts} "
        f"{hashlib.sha256(config.texts.read_bytes()).hexdigest()}"
    )
    name = f"{Path(config.source).name}, layer {config.layer}, {config.texts.name}"
    digest = hashlib.sha256(key.encode()).hexdigest()
    return HiddenStates(torch.cat(rows), tokens, name, digest, cut)
