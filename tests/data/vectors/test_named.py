from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from beltrami.data.catalogue import find
from beltrami.data.vectors import VectorsError, list_vectors, open_vectors
from beltrami.data.vectors import named as named_module
from tests.data.installed import need_installed
from tests.data.vectors.tables import MATRIX, check_reads


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the data seem to be installed, whatever their name."""
    monkeypatch.setenv("BELTRAMI_CACHE", str(tmp_path))
    monkeypatch.setattr(named_module, "path_of", lambda name: tmp_path)
    return tmp_path


def test_the_names() -> None:
    assert list_vectors() == ["smollm2", "minilm", "wordllama", "glove"]


@pytest.mark.parametrize("name", list_vectors())
def test_what_is_not_installed_says_how_to_get_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BELTRAMI_CACHE", str(tmp_path))
    with pytest.raises(VectorsError, match=rf"{name} is not in .*: beltrami data get {name}$"):
        open_vectors(name)


def test_smollm2(folder: Path) -> None:
    pytest.importorskip("gguf", reason='needs pip install "beltrami[gguf]"')
    from tests.data.vectors.test_gguf_file import TOKENS, write_gguf

    other = torch.ones(2, 2)
    tensors = {"blk.0.weight": other.numpy(), "token_embd.weight": MATRIX.numpy()}
    write_gguf(folder / "SmolLM2.gguf", tensors)
    vectors = open_vectors("smollm2")
    check_reads(vectors)
    assert (vectors.name, vectors.tensor) == ("smollm2", "token_embd.weight")
    assert vectors.labels == TOKENS
    assert vectors.words == [None, "dog", None, "café"]
    assert vectors.digest() == find("smollm2").content
    another = open_vectors("smollm2", tensor="blk.0.weight")
    check_reads(another, other)
    assert another.labels is None
    assert another.digest() != vectors.digest()


def test_minilm(folder: Path) -> None:
    tensors = {
        "embeddings.word_embeddings.weight": MATRIX,
        "embeddings.position_embeddings.weight": torch.ones(2, 3),
    }
    save_file(tensors, folder / "model.safetensors")
    # A token may be a character at which str.splitlines splits.
    (folder / "vocab.txt").write_text("[PAD]\ndog\n##s\n\u2028\n", encoding="utf-8")
    vectors = open_vectors("minilm")
    check_reads(vectors)
    assert vectors.name == "minilm"
    assert vectors.labels == ["[PAD]", "dog", "##s", "\u2028"]
    assert vectors.words == [None, "dog", None, None]
    assert vectors.digest() == find("minilm").content
    positions = open_vectors("minilm", tensor="embeddings.position_embeddings.weight")
    assert positions.labels is None
    assert positions.digest() != vectors.digest()


def write_wordllama(folder: Path, tokenizer: object) -> None:
    for name in ("weights", "tokenizers"):
        (folder / name).mkdir(exist_ok=True)
    save_file({"embedding.weight": MATRIX.half()}, folder / "weights" / "l2.safetensors")
    (folder / "tokenizers" / "l2.json").write_text(json.dumps(tokenizer), encoding="utf-8")


def test_wordllama(folder: Path) -> None:
    vocabulary = {"s": 2, "<unk>": 0, "▁été": 3, "▁dog": 1}
    write_wordllama(folder, {"model": {"type": "BPE", "vocab": vocabulary}})
    vectors = open_vectors("wordllama")
    check_reads(vectors, MATRIX.half())
    assert vectors.name == "wordllama"
    assert vectors.labels == ["<unk>", "▁dog", "s", "▁été"]
    assert vectors.words == [None, "dog", None, "été"]
    assert vectors.digest() == find("wordllama").content


def test_a_tokenizer_without_a_vocabulary(folder: Path) -> None:
    write_wordllama(folder, {"model": {}})
    with pytest.raises(VectorsError, match=r"l2\.json holds no vocabulary under model\.vocab"):
        open_vectors("wordllama")


def test_glove(folder: Path) -> None:
    from tests.data.vectors.test_glove import WORDS, document, matrix, write

    numbers = matrix()
    write(folder, document(numbers))
    vectors = open_vectors("glove")
    check_reads(vectors, numbers)
    assert vectors.name == "glove"
    assert vectors.labels == WORDS
    assert vectors.digest() == find("glove").content
    with pytest.raises(VectorsError, match=r"glove is one table; leave tensor=.*'x' away"):
        open_vectors("glove", tensor="x")


def test_files_that_are_missing(folder: Path) -> None:
    with pytest.raises(VectorsError, match=r"holds no \*\.gguf; run: beltrami data get"):
        open_vectors("smollm2")


@pytest.mark.parametrize(
    ("name", "rows", "width", "words", "some"),
    [
        ("smollm2", 49152, 576, 31664, {"the", "dog", "machine", "â"}),
        ("minilm", 30522, 384, 22501, {"dog", "knight", "zealand", "ß"}),
        ("wordllama", 32000, 256, 16054, {"admit", "force", "на"}),
        ("glove", 341479, 100, 317730, {"the", "dog", "philippines"}),
    ],
)
def test_the_published_tables(name: str, rows: int, width: int, words: int, some: set[str]) -> None:
    need_installed(name)
    if name == "smollm2":
        pytest.importorskip("gguf", reason='needs pip install "beltrami[gguf]"')
    vectors = open_vectors(name)
    assert (vectors.rows, vectors.width) == (rows, width)
    assert vectors.labels is not None
    assert vectors.words is not None
    assert len(vectors.labels) == len(vectors.words) == rows
    found = [word for word in vectors.words if word is not None]
    assert len(found) == words
    assert some <= set(found)
    assert all(word.isalpha() for word in found)
    picked = torch.tensor([rows - 1, 0, 5000])
    first, block = next(vectors.blocks(5001))
    assert first == 0
    assert torch.equal(vectors.take(picked)[1:], block[picked[1:]])
    assert block.isfinite().all()


@pytest.mark.parametrize("name", list_vectors())
def test_related_words_are_near_in_the_published_tables(name: str) -> None:
    """Rows and labels belong together: a shift by one row would scatter these."""
    need_installed(name)
    if name == "smollm2":
        pytest.importorskip("gguf", reason='needs pip install "beltrami[gguf]"')
    vectors = open_vectors(name)
    assert vectors.words is not None
    place = {word: row for row, word in enumerate(vectors.words) if word}
    rows = [place[word] for word in ("king", "queen", "dog", "animal")]
    unit = torch.nn.functional.normalize(vectors.take(torch.tensor(rows)), dim=1)
    near = unit @ unit.T
    assert near[0, 1] > near[0, 2] + 0.1
    assert near[2, 3] > near[2, 0] + 0.1
