"""Tiny random models under the names that PEFT's tests look for on the Hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from datasets import Dataset, DatasetDict
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    LlamaConfig,
    OPTConfig,
    PreTrainedTokenizerFast,
)

OPT = "peft-internal-testing/tiny-random-OPTForCausalLM"
GPT2 = "peft-internal-testing/tiny-random-GPT2LMHeadModel"
LLAMA = "trl-internal-testing/tiny-random-LlamaForCausalLM"
DECODERS = (LLAMA, GPT2, OPT)

LONGEST = 64  # tokens
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


def tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte."""
    symbols = [*SPECIAL.values(), *sorted(pre_tokenizers.ByteLevel.alphabet())]
    found = Tokenizer(models.BPE({s: i for i, s in enumerate(symbols)}, [], unk_token="<unk>"))
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    found.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=found, model_max_length=LONGEST, **SPECIAL)


def configs() -> dict[str, Any]:
    """Name and architecture of each model."""
    tokens: dict[str, Any] = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
    tokens["vocab_size"] = 1000  # tests draw token numbers below 1000
    size: dict[str, Any] = {"hidden_size": 16, "num_attention_heads": 4, "num_hidden_layers": 5}
    long = {"max_position_embeddings": 128}
    return {
        OPT: OPTConfig(ffn_dim=32, word_embed_proj_dim=16, **size, **long, **tokens),
        GPT2: GPT2Config(n_embd=32, n_head=4, n_layer=5, n_positions=128, **tokens),
        LLAMA: LlamaConfig(
            intermediate_size=32,
            num_key_value_heads=2,
            **{**size, "num_hidden_layers": 2},
            **long,
            **tokens,
        ),
    }


def save_all(folder: Path) -> None:
    """Each model with a tokenizer into a folder of its name."""
    for name, config in configs().items():
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(config).save_pretrained(folder / name)
        tokenizer().save_pretrained(folder / name)


def quotes() -> DatasetDict:
    """In place of PEFT's dataset: the same columns."""
    lines = [f"Quote {i}: " + "to be or not to be, " * (i % 3 + 1) for i in range(40)]
    columns = {"quote": lines, "author": ["nobody"] * 40, "tags": [["none"]] * 40}
    return DatasetDict(train=Dataset.from_dict(columns))
