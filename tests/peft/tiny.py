"""Small models to adapt, always the same."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)
from transformers.utils import logging

from beltrami.peft import HypLoraConfig

VOCABULARY = 61
TARGETS = ["q_proj", "v_proj", "up_proj", "down_proj"]

logging.set_verbosity_error()


def llama(seed: int = 0) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        bos_token_id=1,
        eos_token_id=2,
    )
    return LlamaForCausalLM(config).eval()


def gpt2(seed: int = 0) -> GPT2LMHeadModel:
    torch.manual_seed(seed)
    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=32,
        n_embd=24,
        n_layer=2,
        n_head=2,
        bos_token_id=1,
        eos_token_id=2,
    )
    return GPT2LMHeadModel(config).eval()


def t5() -> T5ForConditionalGeneration:
    return T5ForConditionalGeneration(
        T5Config(vocab_size=VOCABULARY, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
    )


def bert() -> BertModel:
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
    )
    return BertModel(config).eval()


class MLP(nn.Module):
    """In float64."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first = nn.Linear(6, 10, dtype=torch.float64)
        self.second = nn.Linear(10, 5, bias=False, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.tanh(self.first(x)))


def tokens(rows: int = 3, length: int = 7, seed: int = 5) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, VOCABULARY, (rows, length), generator=generator)


def check_gradients(model: nn.Module) -> None:
    """That everything that is trained has one, finite and not 0."""
    for name, p in model.named_parameters():
        if p.requires_grad:
            assert p.grad is not None, name
            assert p.grad.isfinite().all(), name
            assert p.grad.any(), name


def config(**changes: object) -> HypLoraConfig:
    """An adapter that does something from the start."""
    settings: dict = {"r": 4, "alpha": 8, "target_modules": TARGETS, "init_weights": False}
    return HypLoraConfig(**{**settings, **changes})
