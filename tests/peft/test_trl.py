"""TRL's SFTTrainer."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from peft import PeftModel
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import PreTrainedTokenizerFast

from beltrami.peft import RankAllocationCallback
from tests.peft import tiny


def tokenizer() -> PreTrainedTokenizerFast:
    names = ["<pad>", "<s>", "</s>", *(f"w{i}" for i in range(tiny.VOCABULARY - 3))]
    words = Tokenizer(WordLevel({name: i for i, name in enumerate(names)}, "<pad>"))
    words.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", bos_token="<s>", eos_token="</s>"
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("callbacks", [[], [RankAllocationCallback(2, every=2)]], ids=["", "ranks"])
def test_it_takes_the_config_trains_and_saves(callbacks: list, tmp_path: Path) -> None:
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    texts = [" ".join(f"w{(i + j) % 50}" for j in range(12)) for i in range(32)]
    told = SFTConfig(
        output_dir=str(tmp_path),
        max_steps=20,
        learning_rate=2e-2,
        per_device_train_batch_size=8,
        logging_steps=5,
        report_to=[],
        use_cpu=True,
        bf16=False,
        disable_tqdm=True,
        save_strategy="no",
        gradient_checkpointing=True,
    )
    config = tiny.config(task_type="CAUSAL_LM", init_weights=True, learn_curvature="module")
    trainer = SFTTrainer(
        tiny.llama(),
        told,
        train_dataset=Dataset.from_dict({"text": texts}),
        processing_class=tokenizer(),
        peft_config=config,
        callbacks=callbacks,
    )
    trainer.train()
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    assert losses[-1] < losses[0]
    trainer.save_model(str(tmp_path / "adapter"))
    again = PeftModel.from_pretrained(tiny.llama(), tmp_path / "adapter").eval()
    ids = tiny.tokens()
    with torch.no_grad():
        expected = trainer.model.eval()(input_ids=ids).logits
        torch.testing.assert_close(again(input_ids=ids).logits, expected, rtol=1e-4, atol=1e-5)
