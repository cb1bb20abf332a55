"""The language model that is fine-tuned: trained on the spot, from the data cache, or a user's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from beltrami.models.pretrained.opening import LanguageModel, open_language_model
from beltrami.recipes.hyplora.config import HypLoraRunConfig
from beltrami.recipes.hyplora.corpora import Corpus, arithmetic_corpus, taxonomy_corpus
from beltrami.recipes.hyplora.presets import TINY
from beltrami.recipes.hyplora.questions import Questions
from beltrami.recipes.hyplora.tiny_model import (
    TinyConfig,
    make_tiny_model,
    make_tokenizer,
    tiny_digest,
    tiny_shape,
)
from beltrami.train.progress import ProgressListener

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MISSING = 'fine-tuning needs transformers and peft: pip install "beltrami[peft]"'


@dataclass
class BaseModel(LanguageModel):
    """A model to fine-tune.

    Args:
        tiny: how to train it, where `place` is None.
    """

    tiny: tuple[TinyConfig, Corpus] | None = None

    def prepare(self, listener: ProgressListener, device: torch.device) -> None:
        """Train it if that is still to be done."""
        if self.place is None:
            assert self.tiny is not None
            config, corpus = self.tiny
            self.place = str(make_tiny_model(config, corpus, listener, device))

    def skeleton(self) -> PreTrainedModel:
        """The model without its weights: what layers it has."""
        from transformers import AutoConfig, AutoModelForCausalLM

        if self.tiny is not None:
            shape: Any = tiny_shape(self.tiny[0], self.tokenizer)
        else:
            assert self.place is not None
            shape = AutoConfig.from_pretrained(self.place)
        try:
            with torch.device("meta"):
                model: PreTrainedModel = AutoModelForCausalLM.from_config(shape)
        except ValueError as error:
            kind = getattr(shape, "model_type", "model")
            raise ValueError(
                f"--model {self.name} is not a causal language model: {kind}"
            ) from error
        return model


def open_base_model(config: HypLoraRunConfig, questions: Questions) -> BaseModel:
    """The model that the options ask for; a `ValueError` where it cannot be had."""
    try:
        import peft  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as error:
        raise ValueError(MISSING) from error
    name = config.chosen.model
    if name != TINY:
        opened = open_language_model(name)
        return BaseModel(opened.name, opened.tokenizer, opened.fingerprint, opened.place)
    corpus = (
        arithmetic_corpus(config.largest)
        if questions.hierarchy is None
        else taxonomy_corpus(questions.hierarchy)
    )
    tiny = TinyConfig(config.pretraining_steps)
    tokenizer = make_tokenizer(corpus.sample)
    return BaseModel(TINY, tokenizer, tiny_digest(tiny, corpus), None, (tiny, corpus))
