"""Hidden states of texts, diagnosed as a table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from beltrami.diagnosis.config import DiagnoseConfig
from beltrami.diagnosis.diagnose import diagnose
from beltrami.diagnosis.states import open_states

TEXT = "Tom has two red apples\nhow many apples and one pear ?\n"


@pytest.fixture
def config(folder: Path, tmp_path: Path) -> DiagnoseConfig:
    path = tmp_path / "t.txt"
    path.write_text(TEXT, encoding="utf-8")
    return DiagnoseConfig(str(folder), of="states", texts=path, layer=1, out=tmp_path / "out")


def test_rows_are_the_models_states_with_their_tokens(config: DiagnoseConfig) -> None:
    from transformers import AutoModel

    found = open_states(config, lambda share: None)
    assert found.labels is not None
    assert list(found.labels) == TEXT.split()
    model = AutoModel.from_pretrained(config.source)
    states = model(torch.tensor([[2, 3, 4, 5, 6]]), output_hidden_states=True).hidden_states[1]
    torch.testing.assert_close(found.take(torch.arange(5)), states[0].detach())
    assert sum(len(block) for _, block in found.blocks(2)) == found.rows == 12


def test_the_digest_tells_layers_and_texts_apart(config: DiagnoseConfig) -> None:
    digests = {open_states(config, lambda share: None).digest()}
    digests.add(open_states(replace(config, layer=0), lambda share: None).digest())
    assert config.texts is not None
    config.texts.write_text("Tom has one pear", encoding="utf-8")
    digests.add(open_states(config, lambda share: None).digest())
    assert len(digests) == 3


def test_they_are_diagnosed_like_any_table(config: DiagnoseConfig) -> None:
    found = diagnose(replace(config, only=("tree-likeness", "vectors"), repeats=2)).document
    assert found["source"]["points"] == 12
    assert "layer 1" in found["source"]["name"]
    assert found["parts"]["vectors"]["hubness"]["hub_label"] in TEXT.split()


def test_options_of_tables_do_not_apply(config: DiagnoseConfig) -> None:
    with pytest.raises(ValueError, match="--of states is of a model"):
        diagnose(replace(config, kind="distances"))
    assert replace(config, out=None).folder.name.endswith("-layer1")


def test_texts_that_are_cut_are_counted(config: DiagnoseConfig) -> None:
    assert config.texts is not None
    config.texts.write_text("Tom has two " * 900, encoding="utf-8")
    found = diagnose(replace(config, only=("tree-likeness",), repeats=2, sample=20)).document
    assert found["source"]["facts"]["texts_that_were_cut_off"] == 1


def test_states_need_texts(folder: Path) -> None:
    with pytest.raises(ValueError, match="--of states needs --texts FILE"):
        diagnose(DiagnoseConfig(str(folder), of="states"))
