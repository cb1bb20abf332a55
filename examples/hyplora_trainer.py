"""Fine-tune a small language model by HypLoRA and by LoRA, with transformers' Trainer.

    python examples/hyplora_trainer.py --rank 4

The model is a Llama of random weights that first learns to count upwards; the adapters then teach
it to count downwards. It saves, loads and merges the HypLoRA adapter.
docs/tutorials/hyplora.md explains it.
"""

from __future__ import annotations

import argparse
import copy
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor, nn
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PrinterCallback,
    Trainer,
    TrainingArguments,
)

from beltrami.peft import HypLoraConfig

WORDS, LENGTH = 32, 16


def make_data(step: int, count: int) -> list[dict[str, Tensor]]:
    """Sequences that go up or down by a step, modulo the number of words."""
    starts = torch.randint(WORDS, (count, 1))
    rows = (starts + step * torch.arange(LENGTH)) % WORDS
    return [{"input_ids": row, "labels": row} for row in rows]


def train(
    model: nn.Module, data: list[dict[str, Tensor]], rate: float, steps: int, folder: Path
) -> None:
    """An ordinary Trainer: HypLoRA needs nothing else."""
    arguments = TrainingArguments(
        output_dir=str(folder), max_steps=steps, learning_rate=rate, seed=0, use_cpu=True,
        per_device_train_batch_size=16, report_to=[], save_strategy="no", disable_tqdm=True,
        logging_strategy="no",
    )  # fmt: skip
    trainer = Trainer(model=model, args=arguments, train_dataset=data)
    trainer.remove_callback(PrinterCallback)
    trainer.train()


def loss_of(model: nn.Module, data: list[dict[str, Tensor]]) -> float:
    """Mean loss a token."""
    rows = torch.stack([item["input_ids"] for item in data])
    with torch.no_grad():
        return float(model.eval()(input_ids=rows, labels=rows).loss)


def main() -> None:
    """Train the base, then one adapter after the other on copies of it."""
    parser = argparse.ArgumentParser(description="HypLoRA beside LoRA with transformers' Trainer.")
    parser.add_argument("--rank", type=int, default=4, help="rank of both adapters")
    parser.add_argument("--steps", type=int, default=100, help="steps of each training")
    parser.add_argument("--out", type=Path, default=Path("runs/adapter"), help="where it is saved")
    options = parser.parse_args()
    torch.set_num_threads(1)  # more gain nothing at this size
    torch.manual_seed(0)

    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    base = LlamaForCausalLM(LlamaConfig(vocab_size=WORDS, num_attention_heads=4, **shape))
    train(base, make_data(1, 400), 3e-3, options.steps, options.out)
    training, test = make_data(-1, 400), make_data(-1, 200)
    print(f"base model: loss {loss_of(base, test):.3f} on sequences that go down")

    same = {"r": options.rank, "target_modules": "all-linear"}
    configs = {"LoRA": LoraConfig(lora_alpha=8, **same), "HypLoRA": HypLoraConfig(alpha=8, **same)}
    for name, config in configs.items():
        for rate in (3e-3, 1e-2):
            torch.manual_seed(0)
            model = get_peft_model(copy.deepcopy(base), config)
            train(model, training, rate, options.steps, options.out)
            print(f"{name:8} rate {rate:g}: loss {loss_of(model, test):.3f}")

    model.save_pretrained(options.out)  # the HypLoRA of the last rate
    loaded = PeftModel.from_pretrained(copy.deepcopy(base), options.out)
    print(f"loaded again: loss {loss_of(loaded, test):.3f}")
    loaded.calibrate([{"input_ids": item["input_ids"][None]} for item in training[:64]])
    merged = loaded.merge_and_unload(merge_mode="calibrated")
    print(f"merged into the weights: loss {loss_of(merged, test):.3f}")


if __name__ == "__main__":
    main()
