"""Tiny random models under the names that PEFT's tests look for on the Hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from datasets import Dataset, DatasetDict
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    BartConfig,
    BertConfig,
    GPT2Config,
    LlamaConfig,
    OPTConfig,
    PreTrainedTokenizerFast,
    RobertaConfig,
    T5Config,
)

OPT = "peft-internal-testing/tiny-random-OPTForCausalLM"
GPT2 = "peft-internal-testing/tiny-random-GPT2LMHeadModel"
LLAMA = "trl-internal-testing/tiny-random-LlamaForCausalLM"
DECODERS = (LLAMA, GPT2, OPT)
T5 = "peft-internal-testing/tiny-random-T5ForConditionalGeneration-calibrated"
BART = "peft-internal-testing/tiny-random-BartForConditionalGeneration"
WITH_DECODERS = (T5, BART)
BERT = "peft-internal-testing/tiny-random-BertModel"
ROBERTA = "peft-internal-testing/tiny-random-RobertaModel"
ENCODERS = (BERT, ROBERTA)
BERT_CLASSIFIER = "peft-internal-testing/tiny-random-BertForSequenceClassification"
ROBERTA_CLASSIFIER = "peft-internal-testing/tiny-random-RobertaForSequenceClassification"
CLASSIFIERS = (BERT_CLASSIFIER, ROBERTA_CLASSIFIER)

LONGEST = 64  # tokens
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


_BART_SIZE = {"layers": 2, "attention_heads": 4, "ffn_dim": 32}


def tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte."""
    symbols = [*SPECIAL.values(), *sorted(pre_tokenizers.ByteLevel.alphabet())]
    found = Tokenizer(models.BPE({s: i for i, s in enumerate(symbols)}, [], unk_token="<unk>"))
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    found.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=found, model_max_length=LONGEST, **SPECIAL)


def configs() -> dict[str, tuple[Any, Any]]:
    """Class and architecture of each model, by its name."""
    tokens: dict[str, Any] = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
    tokens["vocab_size"] = 1000  # tests draw token numbers below 1000
    size: dict[str, Any] = {"hidden_size": 16, "num_attention_heads": 4, "num_hidden_layers": 5}
    long = {"max_position_embeddings": 128}
    llama = LlamaConfig(
        intermediate_size=32,
        num_key_value_heads=2,
        **{**size, "num_hidden_layers": 2},
        **long,
        **tokens,
    )
    opt = OPTConfig(ffn_dim=32, word_embed_proj_dim=16, **size, **long, **tokens)
    gpt2 = GPT2Config(n_embd=32, n_head=4, n_layer=5, n_positions=128, **tokens)
    parts = ("encoder", "decoder")
    bart = BartConfig(
        d_model=16,
        decoder_start_token_id=0,
        forced_eos_token_id=None,
        **{f"{part}_{name}": n for part in parts for name, n in _BART_SIZE.items()},
        **long,
        **tokens,
    )
    t5 = T5Config(
        d_model=16, d_kv=4, d_ff=32, num_heads=4, num_layers=5, decoder_start_token_id=0, **tokens
    )
    bert = {"intermediate_size": 32, **size, **long, **tokens}
    return {
        OPT: (AutoModelForCausalLM, opt),
        GPT2: (AutoModelForCausalLM, gpt2),
        LLAMA: (AutoModelForCausalLM, llama),
        T5: (AutoModelForSeq2SeqLM, t5),
        BART: (AutoModelForSeq2SeqLM, bart),
        BERT: (AutoModel, BertConfig(**bert)),
        ROBERTA: (AutoModel, RobertaConfig(**bert)),
        BERT_CLASSIFIER: (AutoModelForSequenceClassification, BertConfig(**bert)),
        ROBERTA_CLASSIFIER: (AutoModelForSequenceClassification, RobertaConfig(**bert)),
    }


def save_all(folder: Path) -> None:
    """Each model with a tokenizer into a folder of its name."""
    for name, (kind, config) in configs().items():
        torch.manual_seed(0)
        kind.from_config(config).save_pretrained(folder / name)
        tokenizer().save_pretrained(folder / name)


def quotes() -> DatasetDict:
    """In place of PEFT's dataset: the same columns."""
    lines = [f"Quote {i}: " + "to be or not to be, " * (i % 3 + 1) for i in range(40)]
    columns = {"quote": lines, "author": ["nobody"] * 40, "tags": [["none"]] * 40}
    return DatasetDict(train=Dataset.from_dict(columns))
