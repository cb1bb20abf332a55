"""Tokenizers: byte-level BPE trained on a text, or one that is given."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beltrami.checks import check_integer
from beltrami.data.corpus.documents import END_OF_TEXT
from beltrami.data.vectors.hub import is_hub_name
from beltrami.data.vectors.library import first_line, library

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PADDING = "<|pad|>"
SPECIAL_TOKENS = (END_OF_TEXT, PADDING)


def train_tokenizer(
    documents: Iterable[str], vocab_size: int, *, show_progress: bool = False
) -> PreTrainedTokenizerFast:
    """Byte-level BPE with the splitting rule of GPT-2; the same documents give the same tokenizer.

    `<|endoftext|>` (id 0) ends documents and is the bos and eos token, `<|pad|>` (id 1) pads. The
    vocabulary holds all bytes, so nothing is unknown; a small text may give fewer tokens than
    `vocab_size`.
    """
    tokenizers = library("tokenizers", extra="llm", needs="a tokenizer")
    byte_level = tokenizers.pre_tokenizers.ByteLevel
    check_integer("vocab_size", vocab_size, len(SPECIAL_TOKENS) + len(byte_level.alphabet()))
    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    backend.pre_tokenizer = byte_level(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=byte_level.alphabet(),
        show_progress=show_progress,
    )
    backend.train_from_iterator(documents, trainer)
    return _fast(tokenizer_object=backend, pad_token=PADDING)


def load_tokenizer(source: str | Path) -> PreTrainedTokenizerFast:
    """A fast tokenizer from a saved folder, a tokenizer.json, or the hub, by `org/name`.

    The hub is asked only where there is no such folder or file. No code of a model is run. A
    tokenizer.json without its tokenizer_config.json ends documents with `<|endoftext|>`.
    """
    path = Path(source).expanduser()
    if path.is_file() and not (path.parent / "tokenizer_config.json").is_file():
        try:
            return _fast(tokenizer_file=str(path))
        except Exception as error:  # the library raises `Exception` itself
            raise ValueError(f"{path} is not a tokenizer.json: {first_line(error)}") from error
    local = path.exists()
    if not local and not (isinstance(source, str) and is_hub_name(source)):
        raise ValueError(
            f"the tokenizer {str(source)!r} is not there; give a folder that save_pretrained "
            "wrote, a tokenizer.json, or a name on the hub, org/name"
        )
    auto = library("transformers", extra="llm", needs="a tokenizer").AutoTokenizer
    place = str(path.parent if path.is_file() else path) if local else source
    try:
        tokenizer = auto.from_pretrained(place, trust_remote_code=False, local_files_only=local)
    except (OSError, ValueError, KeyError, TypeError, ImportError) as error:
        raise ValueError(
            f"cannot load the tokenizer {source}: {first_line(error)}; give a folder with "
            "tokenizer.json and tokenizer_config.json"
        ) from error
    if not tokenizer.is_fast:
        raise ValueError(
            f"the tokenizer {source} is not a fast one; give one that has a tokenizer.json"
        )
    return tokenizer  # type: ignore[no-any-return]


def _fast(**options: Any) -> PreTrainedTokenizerFast:
    transformers = library("transformers", extra="llm", needs="a tokenizer")
    return transformers.PreTrainedTokenizerFast(  # type: ignore[no-any-return]
        bos_token=END_OF_TEXT,
        eos_token=END_OF_TEXT,
        clean_up_tokenization_spaces=False,
        **options,
    )
