"""Which table of a model is its output table, and what is said of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from beltrami.data.vectors import VectorsError, open_unembedding
from beltrami.data.vectors import hub as hub_module
from beltrami.data.vectors.unembedding import output_name
from tests.data.vectors.tables import MATRIX, check_reads, save_shards, save_tokenizer

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
OTHER = MATRIX.flip(0).contiguous()
STATES = 7  # width of the states of a model that projects them


def save_model(folder: Path, tensors: dict[str, torch.Tensor], **config: Any) -> Path:
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_an_output_table_of_its_own(tmp_path: Path) -> None:
    folder = save_model(
        tmp_path / "m", {EMBEDDING: MATRIX, HEAD: OTHER}, hidden_size=3, model_type="llama"
    )
    found = open_unembedding(str(folder))
    check_reads(found.vectors, OTHER)
    assert (found.role, found.hidden, found.family) == ("output", 3, "llama")
    assert found.vectors.tensor == HEAD


@pytest.mark.parametrize(
    ("tensors", "config"),
    [
        ({EMBEDDING: MATRIX, "norm.weight": OTHER}, {}),
        ({EMBEDDING: MATRIX, HEAD: OTHER}, {"tie_word_embeddings": True}),
        ({EMBEDDING: MATRIX, HEAD: OTHER}, {"text_config": {"tie_word_embeddings": True}}),
        ({EMBEDDING: MATRIX, "layers.0.output.weight": OTHER}, {}),  # a layer's, not the model's
    ],
)
def test_a_model_that_uses_its_embedding_again(
    tmp_path: Path, tensors: dict[str, torch.Tensor], config: dict[str, Any]
) -> None:
    found = open_unembedding(save_model(tmp_path / "m", tensors, **config))
    check_reads(found.vectors, MATRIX)
    assert (found.role, found.hidden) == ("embedding", 3)


def test_tied_tables_may_be_saved_under_the_name_of_the_output(tmp_path: Path) -> None:
    tensors = {HEAD: OTHER, "norm.weight": MATRIX}
    found = open_unembedding(save_model(tmp_path / "m", tensors, tie_word_embeddings=True))
    check_reads(found.vectors, OTHER)


@pytest.mark.parametrize("config", [{"word_embed_proj_dim": 3, "hidden_size": STATES}, {}])
def test_states_that_are_wider_than_the_rows(tmp_path: Path, config: dict[str, int]) -> None:
    tensors = {
        "model.decoder.embed_tokens.weight": MATRIX,
        "model.decoder.project_out.weight": torch.ones(3, STATES),
    }
    folder = save_model(tmp_path / "m", tensors, **config)
    found = open_unembedding(folder)
    assert (found.vectors.width, found.hidden) == (3, STATES)
    assert open_unembedding(folder / "model.safetensors").hidden == STATES


def test_of_several_files(tmp_path: Path) -> None:
    save_shards(tmp_path, [{EMBEDDING: MATRIX}, {"embed_out.weight": OTHER, "n": MATRIX}])
    check_reads(open_unembedding(tmp_path).vectors, OTHER)


def test_rows_that_no_token_has_are_told(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason='needs pip install "beltrami[llm]"')
    folder = save_model(tmp_path / "m", {EMBEDDING: MATRIX, HEAD: OTHER})
    save_tokenizer(folder, ["a", "b", "c"])
    assert open_unembedding(folder).vectors.tokenless == [3]


def test_a_single_file(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({EMBEDDING: MATRIX, HEAD: OTHER}, path)
    found = open_unembedding(path)
    check_reads(found.vectors, OTHER)
    assert found.role == "output"
    rows = open_unembedding(path, tensor=EMBEDDING)
    check_reads(rows.vectors, MATRIX)
    assert rows.role == "rows"


def test_other_tables_are_their_rows(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", MATRIX.numpy())
    found = open_unembedding(tmp_path / "x.npy")
    check_reads(found.vectors)
    assert (found.role, found.hidden, found.family) == ("rows", 3, "")
    save_file({"weight": MATRIX}, tmp_path / "x.safetensors")
    assert open_unembedding(tmp_path / "x.safetensors").role == "rows"
    with pytest.raises(VectorsError, match="neither a file nor a table"):
        open_unembedding("nothing")


def test_gguf(tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason='needs pip install "beltrami[gguf]"')
    from tests.data.vectors.test_gguf_file import write_gguf

    tied = write_gguf(tmp_path / "a.gguf", {"token_embd.weight": MATRIX.numpy()})
    found = open_unembedding(tied)
    check_reads(found.vectors)
    assert (found.role, found.family) == ("embedding", "llama")
    tensors = {"token_embd.weight": MATRIX.numpy(), "output.weight": OTHER.numpy()}
    own = open_unembedding(write_gguf(tmp_path / "b.gguf", tensors))
    check_reads(own.vectors, OTHER)
    assert own.role == "output"


def test_a_model_on_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    huggingface_hub = pytest.importorskip("huggingface_hub", reason='needs "beltrami[llm]"')
    save_model(tmp_path, {EMBEDDING: MATRIX, HEAD: OTHER}, hidden_size=3, model_type="qwen2")

    def download(name: str, file: str, *, local_files_only: bool) -> str:
        if not (tmp_path / file).is_file():
            raise huggingface_hub.errors.EntryNotFoundError("404")
        return str(tmp_path / file)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    monkeypatch.setattr(hub_module, "hub_tokens", lambda name: ["a", "b"])
    found = open_unembedding("org/tiny")
    check_reads(found.vectors, OTHER)
    assert (found.role, found.family, found.vectors.tokenless) == ("output", "qwen2", [2, 3])


@pytest.mark.parametrize("content", ["{", "[]"])
def test_a_config_that_is_none(tmp_path: Path, content: str) -> None:
    folder = save_model(tmp_path / "m", {EMBEDDING: MATRIX, HEAD: OTHER})
    (folder / "config.json").write_text(content)
    with pytest.raises(VectorsError, match=r"config\.json is no"):
        open_unembedding(folder)


def test_the_whole_name_goes_before_one_inside_a_model() -> None:
    names = ["decoder.inner.lm_head.weight", "language_model.lm_head.weight", "x"]
    assert output_name(names, tied=False) == "decoder.inner.lm_head.weight"
    assert output_name([*names, "lm_head.weight"], tied=False) == "lm_head.weight"
    assert output_name(["x"], tied=False) is None


@pytest.mark.parametrize(
    "config",
    [
        {"tie_word_embeddings": False},
        {"tie_word_embeddings": False, "text_config": {"hidden_size": 3}},
        {"text_config": {"tie_word_embeddings": False}},
        {"model_type": "llama", "architectures": ["LlamaForCausalLM"]},  # untied by default
    ],
)
def test_the_embedding_is_not_taken_for_an_output_table_that_is_lost(
    tmp_path: Path, config: dict[str, Any]
) -> None:
    """As AutoModel saves it."""
    if "model_type" in config:
        pytest.importorskip("transformers", reason='needs pip install "beltrami[llm]"')
    folder = save_model(tmp_path / "m", {EMBEDDING: MATRIX, "norm.weight": OTHER}, **config)
    with pytest.raises(VectorsError, match=r"m has an output table of its own .*ForCausalLM"):
        open_unembedding(folder)
    check_reads(open_unembedding(folder, tensor=EMBEDDING).vectors, MATRIX)


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]},  # tied by default
        {"model_type": "llama", "architectures": ["LlamaModel"]},  # of old, as no language model
        {"model_type": "our-own", "architectures": ["OurOwnForCausalLM"]},
        {"tie_word_embeddings": False, "text_config": {"tie_word_embeddings": True}},
    ],
)
def test_models_that_may_tie_their_tables(tmp_path: Path, config: dict[str, Any]) -> None:
    folder = save_model(tmp_path / "m", {EMBEDDING: MATRIX, "norm.weight": OTHER}, **config)
    assert open_unembedding(folder).role == "embedding"
