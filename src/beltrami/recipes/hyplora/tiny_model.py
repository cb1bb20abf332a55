"""A small causal language model, trained on the spot and kept in the cache.

It is a Llama in transformers' own format with a tokenizer of words and single digits, so that
everything downstream treats it like any other checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from beltrami.data.cache import cache_folder
from beltrami.data.lock import locked
from beltrami.models.pretrained.opening import publish
from beltrami.recipes.hyplora.corpora import Corpus
from beltrami.train.checkpoint import load_checkpoint, save_checkpoint
from beltrami.train.progress import ProgressListener
from beltrami.train.seeding import seeded
from beltrami.train.threads import one_thread

if TYPE_CHECKING:
    from transformers import LlamaConfig, PreTrainedModel, PreTrainedTokenizerFast

METHOD = 1  # raised when other weights come out, so that older ones are not reused
WORDS = r" ?[A-Za-z]+|[0-9]| ?[^A-Za-z0-9\s]|\s"
SPECIAL = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
WARM_UP = 100  # steps
CHECKPOINT_SECONDS = 20.0
CHECKPOINT = "checkpoint.safetensors"


@dataclass(frozen=True)
class TinyConfig:
    """Sizes of the model and of its training."""

    steps: int
    width: int = 96
    layers: int = 3
    heads: int = 4
    batch: int = 48
    tokens: int = 80
    rate: float = 3e-3
    weight_decay: float = 0.05


def tiny_digest(config: TinyConfig, corpus: Corpus) -> str:
    """Hash of all that the weights depend on."""
    whole = {"method": METHOD, "corpus": corpus.digest, **asdict(config)}
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()


def tiny_folder(config: TinyConfig, corpus: Corpus) -> Path:
    """Where the model is kept, or would be."""
    return cache_folder() / "models" / f"tiny-{corpus.name}-{tiny_digest(config, corpus)[:12]}"


def make_tiny_model(
    config: TinyConfig, corpus: Corpus, listener: ProgressListener, device: torch.device
) -> Path:
    """The folder of the model, trained if it is not there yet.

    A training that was interrupted goes on from its last checkpoint.
    """
    folder = tiny_folder(config, corpus)
    lock = folder.with_name(f"{folder.name}.lock")

    def waiting() -> None:
        listener.note(f"waiting for another process that trains {folder.name}")

    with locked(lock, waiting):
        if not (folder / "config.json").is_file():
            tokenizer = make_tokenizer(corpus.sample)
            listener.note(
                f"training the small language model {folder.name} once; it is kept in {folder}"
            )
            model = _pretrain(config, corpus, tokenizer, listener, device)
            publish(folder, model, tokenizer)
            _checkpoint(folder).unlink(missing_ok=True)
    return folder


def make_tokenizer(sample: Sequence[str]) -> PreTrainedTokenizerFast:
    """One token a word with the space before it, and one a digit."""
    import re

    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: i for i, word in enumerate(SPECIAL.values())}
    for text in (*sample, "0123456789 "):
        for word in re.findall(WORDS, text):
            vocabulary.setdefault(word, len(vocabulary))
    words = Tokenizer(models.WordLevel(vocabulary, unk_token=SPECIAL["unk_token"]))
    words.pre_tokenizer = pre_tokenizers.Split(Regex(WORDS), "isolated")
    words.decoder = decoders.Fuse()
    begin = SPECIAL["bos_token"]
    words.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A", special_tokens=[(begin, vocabulary[begin])]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=words, clean_up_tokenization_spaces=False, **SPECIAL
    )


def tiny_shape(config: TinyConfig, tokenizer: PreTrainedTokenizerFast) -> LlamaConfig:
    """The model's config in transformers' words."""
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=config.width,
        intermediate_size=8 * config.width // 3,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        max_position_embeddings=512,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=True,
    )


def _pretrain(
    config: TinyConfig,
    corpus: Corpus,
    tokenizer: PreTrainedTokenizerFast,
    listener: ProgressListener,
    device: torch.device,
) -> PreTrainedModel:
    from transformers import LlamaForCausalLM

    with seeded(0):
        model: Any = LlamaForCausalLM(tiny_shape(config, tokenizer))
    model.to(device).train()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=config.rate, weight_decay=config.weight_decay, betas=(0.9, 0.98)
    )
    path = _checkpoint(tiny_folder(config, corpus))
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = {"model": model, "optimizer": optimizer}
    facts = load_checkpoint(path, parts)
    done = 0 if facts is None else int(facts["step"])
    listener.on_train_begin(f"pretraining-{corpus.name}", config.steps, done)
    saved = time.monotonic()
    with one_thread():
        for step in range(done, config.steps):
            for group in optimizer.param_groups:
                group["lr"] = config.rate * _schedule(step, config.steps)
            ids = _texts(corpus, tokenizer, step, config).to(device)
            labels = ids.masked_fill(ids == tokenizer.pad_token_id, -100)
            optimizer.zero_grad()
            loss: Tensor = model(input_ids=ids, labels=labels).loss
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            listener.on_step_end(step + 1)
            if time.monotonic() - saved > CHECKPOINT_SECONDS:
                save_checkpoint(path, parts, {"step": step + 1})
                saved = time.monotonic()
    trained: PreTrainedModel = model.eval()
    return trained


def _texts(
    corpus: Corpus, tokenizer: PreTrainedTokenizerFast, step: int, config: TinyConfig
) -> Tensor:
    """The batch of a step, (batch, tokens)."""
    draws = random.Random(f"{corpus.name} {step}")
    texts = [f"{corpus.text(draws)}{tokenizer.eos_token}" for _ in range(config.batch)]
    coded = tokenizer(
        texts, truncation=True, max_length=config.tokens, padding=True, return_tensors="pt"
    )
    ids: Tensor = coded["input_ids"]
    return ids


def _schedule(step: int, steps: int) -> float:
    """Up, then down to a hundredth, in straight lines."""
    return min(1.0, (step + 1) / min(WARM_UP, steps)) * max(0.01, 1 - step / steps)


def _checkpoint(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.{CHECKPOINT}")
