"""The tokens of a model, through the tokenizer that transformers loads for it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from beltrami.data.vectors.library import first_line, library
from beltrami.data.vectors.table import VectorsError
from beltrami.data.vectors.tokens import ordered_tokens

# Any of these is a tokenizer's vocabulary.
VOCABULARIES = (
    "tokenizer.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
)


def folder_tokens(folder: Path) -> list[str | None] | None:
    """The tokens of a folder's tokenizer by their number; None where it has none."""
    if not any((folder / name).is_file() for name in VOCABULARIES):
        return None
    load = _loader(str(folder))
    try:
        return ordered_tokens(_vocabulary(load, str(folder), local_files_only=True))
    except Exception as error:  # tokenizers raise whatever they like
        raise VectorsError(
            f"cannot read the tokenizer in {folder} ({first_line(error)}); open the .safetensors "
            "file itself for vectors without labels"
        ) from error


def hub_tokens(name: str) -> list[str | None] | None:
    """The tokens of a model on the hub; None where its tokenizer cannot be loaded."""
    load = _loader(name)
    try:
        return ordered_tokens(_vocabulary(load, name))
    except Exception:  # a model need not have one, and vectors are of use without labels
        return None


def _loader(source: str) -> Any:
    needs = f"the tokenizer of {source}"
    return library("transformers", extra="llm", needs=needs).AutoTokenizer.from_pretrained


def _vocabulary(load: Any, source: str, **options: Any) -> Mapping[str, int]:
    vocabulary: Mapping[str, int] = load(source, trust_remote_code=False, **options).get_vocab()
    return vocabulary
