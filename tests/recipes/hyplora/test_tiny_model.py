from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from beltrami.data.load import load_hierarchy
from beltrami.recipes.hyplora import tiny_model
from beltrami.recipes.hyplora.corpora import arithmetic_corpus, taxonomy_corpus
from beltrami.recipes.hyplora.tiny_model import (
    TinyConfig,
    make_tiny_model,
    make_tokenizer,
    tiny_folder,
)
from beltrami.train.progress import ProgressListener

CPU = torch.device("cpu")
SIZE = TinyConfig(6, width=16, layers=1, heads=2, batch=4, tokens=24)


class Watcher(ProgressListener):
    """Remembers where trainings began, and stops one at a step."""

    def __init__(self, stop: int = -1) -> None:
        self.began: list[int] = []
        self.stop = stop

    def on_train_begin(self, name: str, steps: int, done: int) -> None:
        self.began.append(done)

    def on_step_end(self, done: int) -> None:
        if done == self.stop:
            raise KeyboardInterrupt


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def test_it_is_trained_once_and_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiny_model, "CHECKPOINT_SECONDS", 0.0)
    corpus = arithmetic_corpus(50)
    monkeypatch.setenv("BELTRAMI_CACHE", str(tmp_path / "whole"))
    whole = weights(make_tiny_model(SIZE, corpus, ProgressListener(), CPU))
    monkeypatch.setenv("BELTRAMI_CACHE", str(tmp_path / "broken"))
    with pytest.raises(KeyboardInterrupt):
        make_tiny_model(SIZE, corpus, Watcher(stop=4), CPU)
    assert not tiny_folder(SIZE, corpus).exists()
    listener = Watcher()
    folder = make_tiny_model(SIZE, corpus, listener, CPU)
    assert listener.began == [3]
    for name, value in weights(folder).items():
        assert torch.equal(value, whole[name]), name
    assert not list(folder.parent.glob("*checkpoint*"))
    again = Watcher()
    assert make_tiny_model(SIZE, corpus, again, CPU) == folder
    assert not again.began


def test_what_weights_depend_on_is_in_the_name() -> None:
    one, other = arithmetic_corpus(50), arithmetic_corpus(60)
    folders = {
        tiny_folder(SIZE, one),
        tiny_folder(SIZE, other),
        tiny_folder(TinyConfig(7, width=16), one),
        tiny_folder(SIZE, taxonomy_corpus(load_hierarchy("carnivores"))),
    }
    assert len(folders) == 4


def test_texts_come_back_from_tokens() -> None:
    tokenizer = make_tokenizer(arithmetic_corpus(99).sample)
    text = "Ada has 12 apples. Ben gives Ada 307 apples.\n12 + 307 = 319\n#### 319"
    ids = tokenizer(text)["input_ids"]
    assert ids[0] == tokenizer.bos_token_id
    assert tokenizer.unk_token_id not in ids
    assert tokenizer.decode(ids, skip_special_tokens=True) == text
    digits = [i for i in ids if re.fullmatch(r"\d+", tokenizer.convert_ids_to_tokens(i))]
    assert len(digits) == 2 + 3 + 2 + 3 + 3 + 3  # one token a digit
    assert tokenizer("a zebra")["input_ids"][-1] == tokenizer.unk_token_id


def test_training_lowers_the_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    monkeypatch.setenv("BELTRAMI_CACHE", str(tmp_path))
    corpus = taxonomy_corpus(load_hierarchy("carnivores"))
    losses = []
    for steps in (1, 150):
        config = TinyConfig(steps, width=32, layers=1, heads=2, batch=8, tokens=40)
        folder = make_tiny_model(config, corpus, ProgressListener(), CPU)
        model = AutoModelForCausalLM.from_pretrained(folder)
        ids = AutoTokenizer.from_pretrained(folder)(corpus.sample[0], return_tensors="pt")
        with torch.no_grad():
            losses.append(float(model(**ids, labels=ids["input_ids"]).loss))
    assert losses[1] < 0.8 * losses[0]
