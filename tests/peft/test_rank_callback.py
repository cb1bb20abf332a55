from __future__ import annotations

from pathlib import Path

import pytest
import torch
from peft import PeftModel, get_peft_model
from torch import Tensor
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments

from beltrami.peft import RankAllocationCallback
from tests.peft import tiny


class Sentences(Dataset):
    def __len__(self) -> int:
        return 16

    def __getitem__(self, i: int) -> dict[str, Tensor]:
        ids = tiny.tokens(1, 8, seed=i)[0]
        return {"input_ids": ids, "labels": ids}


def trainer(folder: Path) -> Trainer:
    torch.manual_seed(0)
    settings = TrainingArguments(
        output_dir=str(folder),
        max_steps=20,
        learning_rate=1e-2,
        per_device_train_batch_size=8,
        save_steps=18,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    model = get_peft_model(tiny.llama(), tiny.config(task_type="CAUSAL_LM"))
    callback = RankAllocationCallback(2, every=2)
    return Trainer(model, settings, train_dataset=Sentences(), callbacks=[callback])


def ranks(of: Trainer) -> dict[str, int]:
    (found,) = [
        c.ranks for c in of.callback_handler.callbacks if isinstance(c, RankAllocationCallback)
    ]
    return found


def test_a_trainer_lowers_ranks_saves_them_and_goes_on(tmp_path: Path) -> None:
    first = trainer(tmp_path)
    first.train()
    found = ranks(first)
    assert sum(found.values()) == 2 * len(found)
    assert len(set(found.values())) > 1
    first.save_model(str(tmp_path / "adapter"))
    again = PeftModel.from_pretrained(tiny.llama(), tmp_path / "adapter")
    ids = tiny.tokens()
    with torch.no_grad():
        expected = first.model.eval()(input_ids=ids).logits
        torch.testing.assert_close(again(input_ids=ids).logits, expected)
    resumed = trainer(tmp_path)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-18"))
    assert ranks(resumed) == found
    for (name, p), q in zip(
        first.model.named_parameters(), resumed.model.parameters(), strict=True
    ):
        torch.testing.assert_close(q, p, rtol=1e-5, atol=1e-6, msg=name)


def test_a_second_training_of_the_same_trainer_is_refused(tmp_path: Path) -> None:
    """Its optimiser has the matrices of before."""
    of = trainer(tmp_path)
    of.train()
    with pytest.raises(ValueError, match="make a new Trainer"):
        of.train()


def test_bad_input_is_refused_before_training() -> None:
    with pytest.raises(ValueError, match="warm_up and settle"):
        RankAllocationCallback(2, warm_up=1.0)
    with pytest.raises(ValueError, match="target_rank"):
        RankAllocationCallback(0)
