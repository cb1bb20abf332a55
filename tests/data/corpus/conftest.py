from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from beltrami.data.corpus import TokenCorpus, train_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

pytest.importorskip("transformers")

WORDS = ["the", "genus", "of", "sea snails", "Größe", "海", "<|endoftext|>", "\n\n", " def f(x):"]


def some_texts(count: int, seed: int = 0, most: int = 60) -> list[str]:
    draw = random.Random(seed)
    return [
        f"{number} " + " ".join(draw.choices(WORDS, k=draw.randint(1, most)))
        for number in range(count)
    ]


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    return train_tokenizer(some_texts(100), 300)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[list[str]], Path]:
    """A file of JSON lines with these documents."""

    def write(texts: list[str]) -> Path:
        path = tmp_path / "texts.jsonl"
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        return path

    return write


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BELTRAMI_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def build(
    write: Callable[[list[str]], Path], tokenizer: PreTrainedTokenizerFast
) -> Callable[[list[str]], TokenCorpus]:
    return lambda texts: TokenCorpus.build(write(texts), tokenizer)
