from __future__ import annotations

from pathlib import Path

import pytest

from beltrami.models.pretrained.opening import load_causal
from tests.recipes.family import tiny


def test_models_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no tokenizer that can be read"):
        load_causal(str(tmp_path))
    tiny.save_tokenizer(tmp_path)
    with pytest.raises(ValueError, match="not a causal language model"):
        load_causal(str(tmp_path))


def test_weights_that_are_missing_are_not_drawn_at_random(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    path = tiny.llama(tmp_path) / "model.safetensors"
    tensors = load_file(path)
    del tensors["lm_head.weight"]
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"lacks weights .*lm_head\.weight"):
        load_causal(str(tmp_path))
