"""A language model that is small enough for tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

WORDS = ("Tom", "has", "two", "red", "apples", "and", "one", "pear", "how", "many", "?", "3", "#")


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A random Llama with a tokenizer of a few words."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    path = tmp_path_factory.mktemp("model")
    vocabulary = {word: i for i, word in enumerate(("<end>", "<unk>", *WORDS))}
    tokens = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    tokens.pre_tokenizer = Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=tokens, unk_token="<unk>", eos_token="<end>", pad_token="<end>"
    ).save_pretrained(path)
    torch.manual_seed(0)
    LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(vocabulary),
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            eos_token_id=0,
            bos_token_id=0,
        )
    ).save_pretrained(path)
    return path
