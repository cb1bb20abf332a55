from __future__ import annotations

import dataclasses
from importlib.util import find_spec

import pytest
import torch

from beltrami.data.cache import installed_path
from beltrami.recipes.hyplora.base_model import open_base_model
from beltrami.recipes.hyplora.config import HypLoraRunConfig
from beltrami.recipes.hyplora.questions import load_questions
from tests.recipes.hyplora.small import SMALL


@pytest.mark.slow
@pytest.mark.skipif(installed_path("smollm2") is None, reason="needs: beltrami data get smollm2")
@pytest.mark.skipif(find_spec("gguf") is None, reason="needs gguf: pip install 'beltrami[gguf]'")
def test_smollm2_speaks() -> None:
    given = {"pretraining_steps": HypLoraRunConfig.pretraining_steps}
    config = dataclasses.replace(SMALL, model="smollm2", **given)
    base = open_base_model(config, load_questions(SMALL))
    model = base.load(torch.float32)
    assert sum(p.numel() for p in model.parameters()) == 134_515_008
    asked = base.tokenizer("The capital of France is", return_tensors="pt")
    said = model.generate(**asked, max_new_tokens=4, do_sample=False)
    assert "Paris" in base.tokenizer.decode(said[0])


def test_what_is_not_there_is_named(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BELTRAMI_CACHE", str(tmp_path_factory.mktemp("empty")))
    config = dataclasses.replace(SMALL, model="smollm2")
    with pytest.raises(ValueError, match="beltrami data get smollm2"):
        open_base_model(config, load_questions(SMALL))
