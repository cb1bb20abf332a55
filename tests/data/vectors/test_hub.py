from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from beltrami.data.vectors import VectorsError, open_vectors
from beltrami.data.vectors.hub import is_hub_name
from tests.data.vectors.tables import MATRIX, check_reads, save_shards

huggingface_hub = pytest.importorskip("huggingface_hub", reason='needs "beltrami[llm]"')
transformers = pytest.importorskip("transformers", reason='needs pip install "beltrami[llm]"')

OTHER = torch.ones(2, 2)
EMBEDDING = "model.embed_tokens.weight"
MISSING = huggingface_hub.errors.EntryNotFoundError("404: no such file\nsecond line")
OFFLINE = huggingface_hub.errors.LocalEntryNotFoundError("no connection\nsecond line")


class FakeHub:
    """A model on the hub: a local folder, an answer for what is not in it, and a vocabulary."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.missing: Exception = MISSING
        self.vocabulary: dict[str, int] | None = None
        self.fetched: list[str] = []
        self.offline = False

    def hf_hub_download(self, name: str, file: str, *, local_files_only: bool) -> str:
        assert name == "org/tiny"
        assert local_files_only == self.offline  # asked for after the first failure alone
        self.offline |= self.missing is OFFLINE and not (self.folder / file).is_file()
        if not (self.folder / file).is_file():
            raise self.missing
        self.fetched.append(file)
        return str(self.folder / file)

    def from_pretrained(self, name: str, **options: Any) -> Any:
        assert (name, options) == ("org/tiny", {"trust_remote_code": False})
        if self.vocabulary is None:
            raise OSError("no tokenizer")
        return self

    def get_vocab(self) -> dict[str, int]:
        assert self.vocabulary is not None
        return self.vocabulary


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    fake = FakeHub(tmp_path / "hub")
    fake.folder.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fake.hf_hub_download)
    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", fake.from_pretrained)
    return fake


def test_names_of_the_hub() -> None:
    assert is_hub_name("Qwen/Qwen2.5-0.5B")
    for other in ("smollm2", "a/b/c", "../x", "./x", "/x", "a/", "a b/c", "-a/b"):
        assert not is_hub_name(other)


def test_one_file(hub: FakeHub) -> None:
    save_file({EMBEDDING: MATRIX, "a.weight": OTHER}, hub.folder / "model.safetensors")
    hub.vocabulary = {"Ġdog": 1, "s": 2, "<s>": 0}
    vectors = open_vectors("org/tiny")
    check_reads(vectors)
    assert vectors.name == "org/tiny"
    assert vectors.tensor == EMBEDDING
    assert vectors.labels == ["<s>", "Ġdog", "s", "<row 3: no token>"]
    assert vectors.words == [None, "dog", None, None]


def test_of_several_files_one_is_fetched(hub: FakeHub) -> None:
    save_shards(hub.folder, [{"a.weight": OTHER}, {EMBEDDING: MATRIX}, {"b.weight": OTHER}])
    vectors = open_vectors("org/tiny")
    check_reads(vectors)
    assert vectors.labels is None  # it has no tokenizer
    assert set(hub.fetched) == {
        "model.safetensors.index.json", "model-00002-of-00003.safetensors",
    }  # fmt: skip


def test_an_error_fetches_no_weights(hub: FakeHub) -> None:
    save_shards(hub.folder, [{"a.weight": OTHER}, {"b.weight": MATRIX}])
    with pytest.raises(VectorsError, match=r"org/tiny has no tensor.*--tensor\): a\.weight, b\.w"):
        open_vectors("org/tiny")
    assert hub.fetched == ["model.safetensors.index.json"]


def test_a_file_of_the_index_that_cannot_be_fetched(hub: FakeHub) -> None:
    save_shards(hub.folder, [{EMBEDDING: MATRIX}])
    (hub.folder / "model-00001-of-00001.safetensors").unlink()
    hub.missing = OFFLINE
    with pytest.raises(VectorsError, match=r"cannot fetch model-00001.*of org/tiny.*go online"):
        open_vectors("org/tiny")


def test_offline_a_cached_file_is_found(hub: FakeHub) -> None:
    save_file({EMBEDDING: MATRIX}, hub.folder / "model.safetensors")
    hub.missing = OFFLINE
    check_reads(open_vectors("org/tiny"))


def response(error: str) -> Exception:
    """One of the hub's errors that come with an answer of its server."""
    kind = getattr(huggingface_hub.errors, error)
    built: Exception = kind.__new__(kind)
    built.args = (f"{error}\nsecond line",)
    return built


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (MISSING, r"org/tiny on the hub has no model\.safetensors.*save them as safetensors"),
        (OFFLINE, r"org/tiny is neither a local path.*cannot be reached; go online"),
        (ConnectionError("refused\nx"), r"cannot fetch .*of org/tiny.*\(refused\); go online"),
        (ValueError("bad name"), r"cannot fetch .*of org/tiny.*\(bad name\)"),
        (response("RepositoryNotFoundError"), "org/tiny is neither a local path nor a model on"),
        (response("GatedRepoError"), "org/tiny asks on the hub for its terms to be accepted"),
    ],
)
def test_errors_are_one_line(hub: FakeHub, error: Exception, message: str) -> None:
    hub.missing = error
    with pytest.raises(VectorsError, match=message) as caught:
        open_vectors("org/tiny")
    assert "\n" not in str(caught.value)


def test_a_local_folder_comes_first(hub: FakeHub, tmp_path: Path) -> None:
    (tmp_path / "org" / "tiny").mkdir(parents=True)
    save_file({"x": OTHER}, tmp_path / "org" / "tiny" / "model.safetensors")
    check_reads(open_vectors("org/tiny"), OTHER)
    assert hub.fetched == []
