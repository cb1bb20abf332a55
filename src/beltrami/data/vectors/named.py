"""Tables in the data catalogue, by name; `beltrami data get NAME` installs one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from beltrami.data.cache import MissingDataError, path_of
from beltrami.data.catalogue import find
from beltrami.data.vectors.gguf_file import open_gguf
from beltrami.data.vectors.glove import open_glove
from beltrami.data.vectors.table import Vectors, VectorsError
from beltrami.data.vectors.tensors import open_safetensors
from beltrami.data.vectors.tokens import label_tokens, ordered_tokens

MINILM_TABLE = "embeddings.word_embeddings.weight"
WORDLLAMA_TABLE = "embedding.weight"


def open_named(name: str, tensor: str | None = None) -> Vectors:
    """An installed table; where it is not installed, the error says how to get it."""
    try:
        folder = path_of(name)
    except MissingDataError as error:
        raise VectorsError(str(error)) from error
    vectors = NAMED[name](folder, tensor)
    vectors.name = name
    vectors.content = find(name).content
    vectors.choices = () if tensor is None else (tensor,)
    return vectors


def _smollm2(folder: Path, tensor: str | None) -> Vectors:
    return open_gguf(_file(folder, "*.gguf"), tensor)


def _minilm(folder: Path, tensor: str | None) -> Vectors:
    vectors = open_safetensors(_file(folder, "model.safetensors"), tensor or MINILM_TABLE)
    if tensor in (None, MINILM_TABLE):
        text = _file(folder, "vocab.txt").read_text(encoding="utf-8")
        # Lines end in newlines alone: some tokens are characters that splitlines() splits at.
        label_tokens(vectors, [*text.removesuffix("\n").split("\n")])
    return vectors


def _wordllama(folder: Path, tensor: str | None) -> Vectors:
    file = _file(folder, "weights/*.safetensors")
    vectors = open_safetensors(file, tensor or WORDLLAMA_TABLE)
    if tensor in (None, WORDLLAMA_TABLE):
        path = _file(folder, "tokenizers/*.json")
        try:
            vocabulary = json.loads(path.read_text(encoding="utf-8"))["model"]["vocab"]
            label_tokens(vectors, ordered_tokens(vocabulary))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise VectorsError(
                f"{path} holds no vocabulary under model.vocab; run: "
                "beltrami data get wordllama --check"
            ) from error
    return vectors


def _glove(folder: Path, tensor: str | None) -> Vectors:
    if tensor is not None:
        raise VectorsError(f"glove is one table; leave tensor= (--tensor) {tensor!r} away")
    return open_glove(folder)


def _file(folder: Path, pattern: str) -> Path:
    paths = sorted(folder.glob(pattern))
    if not paths:
        raise VectorsError(
            f"{folder} holds no {pattern}; run: beltrami data get {folder.name} --check"
        )
    return paths[0]


NAMED: dict[str, Callable[[Path, str | None], Vectors]] = {
    "smollm2": _smollm2,
    "minilm": _minilm,
    "wordllama": _wordllama,
    "glove": _glove,
}
