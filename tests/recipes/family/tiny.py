"""Language models that are small enough for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

WORDS = ("Tom", "has", "two", "red", "apples", "and", "one", "pear", "how", "many", "?", "3", "#")
VOCABULARY = 15  # these, and two special tokens


def save_tokenizer(path: Path) -> None:
    """A token a word; the end serves as padding, as is usual."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: i for i, word in enumerate(("<end>", "<unk>", *WORDS))}
    tokens = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    tokens.pre_tokenizer = Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=tokens, unk_token="<unk>", eos_token="<end>", pad_token="<end>"
    ).save_pretrained(path)


def llama(path: Path, width: int = 16, seed: int = 0, **options: Any) -> Path:
    """A random Llama with a tokenizer of a few words."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": width,
        "intermediate_size": 2 * width,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "eos_token_id": 0,
        "bos_token_id": 0,
    }
    model = LlamaForCausalLM(LlamaConfig(**(sizes | options)))
    model.save_pretrained(path)
    save_tokenizer(path)
    return path


def gpt2(path: Path, width: int = 16, positions: int = 64) -> Path:
    """A random GPT-2, which ties its tables and has learnt positions."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    shape = GPT2Config(
        vocab_size=VOCABULARY,
        n_embd=width,
        n_layer=1,
        n_head=2,
        n_positions=positions,
        bos_token_id=0,
        eos_token_id=0,
    )
    GPT2LMHeadModel(shape).save_pretrained(path)
    save_tokenizer(path)
    return path


def bert(path: Path, *, causal: bool) -> Path:
    """A random BERT that predicts tokens, seeing those behind them unless it is causal."""
    from transformers import BertConfig, BertLMHeadModel

    torch.manual_seed(0)
    shape = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        is_decoder=causal,
    )
    BertLMHeadModel(shape).save_pretrained(path)
    save_tokenizer(path)
    return path


def opt(path: Path, width: int = 8, hidden: int = 16) -> Path:
    """A random OPT whose rows are narrower than its states, as those of OPT-350m."""
    from transformers import OPTConfig, OPTForCausalLM

    torch.manual_seed(0)
    shape = OPTConfig(
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        word_embed_proj_dim=width,
        ffn_dim=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=64,
        do_layer_norm_before=False,
        init_std=0.5,  # else all predictions are nearly the same
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
    )
    OPTForCausalLM(shape).save_pretrained(path)
    save_tokenizer(path)
    return path


def sentences(count: int, seed: int = 0, longest: int = 18) -> list[str]:
    """Random words, of different lengths."""
    g = torch.Generator().manual_seed(seed)
    lengths = (2 + torch.randint(longest - 1, (count,), generator=g)).tolist()
    return [
        " ".join(WORDS[i] for i in torch.randint(len(WORDS), (n,), generator=g).tolist())
        for n in lengths
    ]
