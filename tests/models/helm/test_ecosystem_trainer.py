"""Trainers on HELM: transformers', ours and TRL's; checkpoints and resuming."""

from __future__ import annotations

import copy
import os
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import (
    AutoModelForCausalLM,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
)

from beltrami.train.trainer import RiemannianTrainer, RiemannianTrainerMixin
from tests.models.helm import small


@pytest.fixture(autouse=True)
def _environment() -> Iterator[None]:
    """TrainingArguments tells accelerate of precision and compilation through the environment."""
    with mock.patch.dict(os.environ):
        yield


def arguments(folder: Path, **changes: Any) -> dict[str, Any]:
    options: dict[str, Any] = {
        "output_dir": str(folder),
        "use_cpu": True,
        "report_to": [],
        "disable_tqdm": True,
        "logging_steps": 1,
        "save_steps": 2,
        "max_steps": 4,
        "learning_rate": 1e-2,
        "per_device_train_batch_size": 4,
        "dataloader_pin_memory": False,
        "bf16": False,
    }
    return {**options, **changes}


def losses(trainer: Any) -> list[float]:
    return [row["loss"] for row in trainer.state.log_history if "loss" in row]


RATES = {"point_lr": 2e-2, "curvature_lr": 5e-2}


@pytest.mark.parametrize("fused", [False, True], ids=["logits", "fused"])
@pytest.mark.parametrize(("kind", "rates"), [(Trainer, {}), (RiemannianTrainer, RATES)])
def test_a_run_is_resumed_to_the_same_loss(
    kind: Any, rates: dict[str, float], fused: bool, tmp_path: Path
) -> None:
    def trainer(folder: Path, seed: int) -> Any:
        return kind(
            small.model(seed, fused_loss=fused),
            TrainingArguments(**arguments(folder)),
            train_dataset=small.rows(32),
            eval_dataset=small.rows(8),
            **rates,
        )

    whole = trainer(tmp_path / "whole", 0)
    whole.train()
    resumed = trainer(tmp_path / "again", 1)
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-2"))
    assert losses(resumed)[2:] == losses(whole)[2:]
    assert whole.evaluate()["eval_loss"] == pytest.approx(resumed.evaluate()["eval_loss"], rel=1e-6)
    for name, value in whole.model.state_dict().items():
        torch.testing.assert_close(resumed.model.state_dict()[name], value, msg=name)
    weights = tmp_path / "whole" / "checkpoint-4"
    assert (weights / "model.safetensors").exists()
    loaded = AutoModelForCausalLM.from_pretrained(weights)
    torch.testing.assert_close(small.logits(loaded), small.logits(whole.model.eval()))


def test_each_kind_of_parameter_has_its_rate(tmp_path: Path) -> None:
    trainer = RiemannianTrainer(
        small.model(),
        TrainingArguments(**arguments(tmp_path)),
        train_dataset=small.rows(8),
        **RATES,
    )
    groups = {g["kind"]: g for g in trainer.create_optimizer().param_groups}
    assert groups["points"]["lr"] == 2e-2
    assert groups["curvature"]["lr"] == 5e-2
    assert len(groups["curvature"]["params"]) == 3
    assert groups["log_scale"]["lr"] == 1e-2


@pytest.mark.parametrize("reentrant", [True, False])
def test_gradient_checkpointing_changes_nothing(reentrant: bool, tmp_path: Path) -> None:
    def train(**options: Any) -> Any:
        trainer = RiemannianTrainer(
            small.model(),
            TrainingArguments(**arguments(tmp_path, save_strategy="no", **options)),
            train_dataset=small.rows(16),
        )
        trainer.train()
        return trainer

    options = {"use_reentrant": reentrant}
    one = train()
    other = train(gradient_checkpointing=True, gradient_checkpointing_kwargs=options)
    assert losses(other) == pytest.approx(losses(one), rel=1e-5)
    for name, value in one.model.state_dict().items():
        torch.testing.assert_close(other.model.state_dict()[name], value, rtol=1e-3, atol=1e-4)


# --- TRL ------------------------------------------------------------------------------------------


def tokenizer() -> PreTrainedTokenizerFast:
    names = ["<pad>", "<s>", "</s>", *(f"w{i}" for i in range(small.VOCABULARY - 3))]
    words = Tokenizer(WordLevel({name: i for i, name in enumerate(names)}, "<pad>"))
    words.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", bos_token="<s>", eos_token="</s>"
    )


def texts() -> list[str]:
    return [" ".join(f"w{(i + j) % 50}" for j in range(6 + i % 5)) for i in range(32)]


def prompts() -> dict[str, list[str]]:
    return {"prompt": [t[:8] for t in texts()], "completion": [t[8:] for t in texts()]}


SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "packing": {"packing": True, "max_length": 16},
    "completion": {"completion_only_loss": True},
}


def sft(model: Any, data: dict[str, list[str]], folder: Path, **changes: Any) -> Any:
    from trl import SFTConfig, SFTTrainer

    return SFTTrainer(
        model,
        SFTConfig(**arguments(folder, save_strategy="no", **changes)),
        train_dataset=Dataset.from_dict(data),
        processing_class=tokenizer(),
    )


@pytest.mark.parametrize(
    ("kind", "fused", "setting"),
    [
        ("linear", False, "default"),
        ("distance", False, "default"),
        ("mlr", False, "default"),
        ("mlr", True, "default"),
        ("mlr", True, "packing"),
        ("mlr", False, "completion"),
    ],
)
def test_sft_trains_the_scores_that_the_model_has(
    kind: str, setting: str, fused: bool, tmp_path: Path
) -> None:
    data = prompts() if setting == "completion" else {"text": texts()}
    model = small.model(fused_loss=fused, **small.KINDS[kind])
    trainer = sft(model, data, tmp_path, max_steps=6, **SETTINGS[setting])
    batch = next(iter(trainer.get_train_dataloader()))
    with torch.no_grad():
        own = model(**batch).loss
        torch.testing.assert_close(trainer.compute_loss(model, batch), own)
    if setting == "packing":
        assert (batch["position_ids"] == 0).sum() > len(batch["position_ids"])
    trainer.train()
    assert losses(trainer)[-1] < losses(trainer)[0]
    logged = [row for row in trainer.state.log_history if "mean_token_accuracy" in row]
    assert 0 <= logged[-1]["mean_token_accuracy"] <= 1


def test_sft_of_an_adapter(tmp_path: Path) -> None:
    model = get_peft_model(small.model(), LoraConfig(target_modules="all-linear"))
    before = small.logits(model)
    trainer = sft(model, {"text": texts()}, tmp_path, max_steps=4)
    trainer.train()
    after = small.logits(model.eval())
    assert not torch.allclose(after, before, atol=1e-3)
    torch.testing.assert_close(small.logits(model.merge_and_unload()), after)


FIELDS = ("log_probs", "entropy", "is_top1", "log_sum_sq_probs", "mean_logits")


@pytest.mark.parametrize("fields", [*small.KINDS.values(), {"time_columns": "all"}], ids=str)
def test_what_trl_asks_of_a_model(fields: dict[str, Any]) -> None:
    from trl.trainer.utils import add_fused_lm_head

    model, other = small.model(**fields), small.model(**fields)
    add_fused_lm_head(model, temperature=0.7, outputs=FIELDS)
    ids = small.tokens()
    labels = ids.clone()
    labels[0, :3] = -100
    out = model(input_ids=ids, labels=labels, fused_lm_head=True)
    out.loss.backward()
    logs = (other(input_ids=ids).logits[:, :-1] / 0.7).log_softmax(-1)
    mask = labels[:, 1:] != -100
    expected = logs.gather(-1, ids[:, 1:, None]).squeeze(-1) * mask
    torch.testing.assert_close(out.log_probs, expected)
    torch.testing.assert_close(out.entropy, -(logs.exp() * logs).sum(-1) * mask)
    assert torch.equal(out.is_top1, (logs.argmax(-1) == ids[:, 1:]) & mask)
    assert torch.equal(out.label_mask, mask)
    (-expected.sum() / mask.sum()).backward()
    for (name, one), two in zip(model.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one.grad, two.grad, rtol=1e-4, atol=1e-6, msg=name)
    torch.testing.assert_close(small.logits(copy.deepcopy(model)), small.logits(other))


def test_a_trl_that_is_not_understood_is_refused() -> None:
    def _fused_forward(self: Any, *args: Any, **kwargs: Any) -> None: ...

    model = small.model()
    with pytest.raises(ValueError, match=r'logits="mlr".*use transformers.Trainer'):
        model.forward = types.MethodType(_fused_forward, model)  # type: ignore[method-assign]


def test_sft_steps_along_the_manifold(tmp_path: Path) -> None:
    from trl import SFTConfig, SFTTrainer

    class RiemannianSFTTrainer(RiemannianTrainerMixin, SFTTrainer):
        """As the documentation of the mixin says."""

    trainer = RiemannianSFTTrainer(
        small.model(fused_loss=True),
        SFTConfig(**arguments(tmp_path, save_strategy="no", max_steps=6)),
        train_dataset=Dataset.from_dict({"text": texts()}),
        processing_class=tokenizer(),
        point_lr=2e-2,
    )
    trainer.train()
    assert losses(trainer)[-1] < losses(trainer)[0]
    logged = [row for row in trainer.state.log_history if "mean_token_accuracy" in row]
    assert "curvature/model.curvature" in logged[-1]
