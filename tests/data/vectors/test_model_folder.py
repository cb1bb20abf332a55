from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from beltrami.data.vectors import VectorsError, open_vectors
from beltrami.data.vectors import tensors as tensors_module
from tests.data.vectors.tables import MATRIX, check_reads, save_shards, save_tokenizer

TOKENS = ["<unk>", "▁dog", "s", "▁oak"]
OTHER = torch.ones(2, 2)
EMBEDDING = "model.embed_tokens.weight"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny"
    folder.mkdir()
    return folder


def test_one_file_with_its_tokenizer(folder: Path) -> None:
    pytest.importorskip("transformers", reason='needs pip install "beltrami[llm]"')
    save_file({EMBEDDING: MATRIX.bfloat16(), "lm_head.weight": OTHER}, folder / "model.safetensors")
    without = open_vectors(folder)
    assert without.labels is None
    save_tokenizer(folder, TOKENS)
    vectors = open_vectors(folder)
    check_reads(vectors, MATRIX.bfloat16())
    assert vectors.name == "tiny"
    assert vectors.tensor == EMBEDDING
    assert vectors.labels == TOKENS
    assert vectors.words == [None, "dog", None, "oak"]
    assert vectors.digest() != without.digest()  # the labels are part of it


def test_of_several_files_one_is_opened(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_shards(folder, [{"a.weight": OTHER}, {EMBEDDING: MATRIX, "n": OTHER}, {"b.weight": OTHER}])
    seen: set[str] = set()
    opening = tensors_module.safe_open

    def spy(path: Path, **options: str) -> object:
        seen.add(path.name)
        return opening(path, **options)

    monkeypatch.setattr(tensors_module, "safe_open", spy)
    vectors = open_vectors(str(folder))
    check_reads(vectors)
    assert vectors.labels is None
    assert seen == {"model-00002-of-00003.safetensors"}


def test_several_files_without_an_index(folder: Path) -> None:
    save_file({"a": OTHER}, folder / "one.safetensors")
    save_file({"wte.weight": MATRIX}, folder / "two.safetensors")
    check_reads(open_vectors(folder))


def test_a_tensor_by_name_has_no_tokens(folder: Path) -> None:
    save_shards(folder, [{"a.weight": OTHER}, {EMBEDDING: MATRIX}])
    (folder / "tokenizer.json").write_text("not asked for")
    vectors = open_vectors(folder, tensor="a.weight")
    check_reads(vectors, OTHER)
    assert vectors.labels is None
    assert vectors.tensor == "a.weight"


def test_no_token_embedding_lists_the_tables_of_all_files(folder: Path) -> None:
    save_shards(folder, [{"a.weight": OTHER}, {"b.weight": MATRIX, "c": torch.ones(3)}])
    with pytest.raises(
        VectorsError, match=r"tiny.*tensor= .*b\.weight \(4, 3\), a\.weight \(2, 2\)"
    ):
        open_vectors(folder)


def test_pickled_weights_are_refused(folder: Path) -> None:
    (folder / "pytorch_model.bin").write_bytes(b"")
    said = r"weights in pytorch_model\.bin.*save.*as safetensors, with AutoModelForCausalLM\."
    with pytest.raises(VectorsError, match=said):
        open_vectors(folder)


def test_a_folder_of_nothing(folder: Path) -> None:
    with pytest.raises(VectorsError, match=r"tiny is a folder without \.safetensors files"):
        open_vectors(folder)


def test_a_tokenizer_that_cannot_be_read(folder: Path) -> None:
    pytest.importorskip("transformers", reason='needs pip install "beltrami[llm]"')
    save_file({EMBEDDING: MATRIX}, folder / "model.safetensors")
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(
        VectorsError, match=r"cannot read the tokenizer in .*tiny.*file itself"
    ) as e:
        open_vectors(folder)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ("{", "is not an index of safetensors files"),
        ('{"weight_map": 3}', "is not an index of safetensors files"),
        (json.dumps({"weight_map": {"wte.weight": "../x.safetensors"}}), "not a file of the same"),
        (json.dumps({"weight_map": {"wte.weight": "x.safetensors"}}), "x.safetensors"),
    ],
)
def test_an_index_that_is_wrong(folder: Path, index: str, message: str) -> None:
    (folder / "model.safetensors.index.json").write_text(index)
    with pytest.raises(VectorsError, match=message):
        open_vectors(folder)


def test_an_index_that_names_the_wrong_file(folder: Path) -> None:
    save_file({"a": OTHER, "b": OTHER.clone()}, folder / "x.safetensors")
    names = dict.fromkeys(["wte.weight", "shared.weight"], "x.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    with pytest.raises(VectorsError, match=r"x\.safetensors has no tensor 'shared.weight', though"):
        open_vectors(folder)
