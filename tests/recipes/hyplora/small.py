"""A run of seconds: a language model trained for a few steps, and few questions."""

from __future__ import annotations

import pytest

from beltrami.recipes.hyplora.config import HypLoraRunConfig

SMALL = HypLoraRunConfig(
    methods=("base", "lora", "hyplora-learned"),
    rank=2,
    targets=("q_proj", "down_proj"),
    epochs=1.0,
    batch=8,
    learning_rates=(0.01, 0.03),
    dropout=0.1,
    warm_up=2,
    new_tokens=12,
    train_size=40,
    test_size=6,
    pretraining_steps=3,
    seeds=2,
    device="cpu",
)


@pytest.fixture(scope="session", name="model_cache")
def fixture_model_cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A cache of models that all tests of a process share."""
    return str(tmp_path_factory.mktemp("models"))


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, model_cache: str) -> None:
    monkeypatch.setenv("BELTRAMI_CACHE", model_cache)
