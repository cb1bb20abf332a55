from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from beltrami.models.pretrained.opening import load_causal, open_language_model
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


@pytest.mark.parametrize("opened", [open_language_model, load_causal])
def test_a_missing_path_never_goes_to_the_hub(
    opened: Callable[[str], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transformers.AutoConfig.from_pretrained", pytest.fail)
    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", pytest.fail)
    with pytest.raises(ValueError, match="runs/nosuch: no such file or folder; "):
        opened("runs/nosuch")
