"""The output table of a language model: a row a token, which its last state is compared with.

A model has a table of its own for that, or uses the token embedding again ("tied"). Its rows need
not be as wide as its states: OPT-350m brings states of 1024 down to rows of 512 first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from beltrami.data.vectors.embedding_name import OUTPUT_SUFFIXES, token_rank
from beltrami.data.vectors.gguf_file import OUTPUT_TABLE, TOKEN_TABLE, open_gguf
from beltrami.data.vectors.hub import hub_file, hub_files, is_hub_name, open_hub
from beltrami.data.vectors.model_folder import ModelFiles, folder_files, open_folder
from beltrami.data.vectors.named import NAMED, open_named
from beltrami.data.vectors.source import existing_path, open_vectors
from beltrami.data.vectors.table import Vectors, VectorsError
from beltrami.data.vectors.tensors import open_safetensors, tensor_shapes

CONFIG = "config.json"
LANGUAGE_MODELS = ("smollm2",)  # of the names we know, those that have an output table
_TEXT = "text_config"  # where models that also see keep what is said of their language model
_WIDTHS = ("hidden_size", "n_embd", "d_model")  # what configs call the width of the states
_TIE = "tie_word_embeddings"
_LANGUAGE_MODELS = ("ForCausalLM", "LMHeadModel")  # what their classes' names end with
_PROJECTIONS = ("project_out.weight",)  # (rows' width, states' width)

Role = Literal["output", "embedding", "rows"]


@dataclass(frozen=True)
class Unembedding:
    """A table to compare states with.

    Args:
        vectors: its rows.
        role: "output" for a table of its own, "embedding" for the token embedding of a model that
            ties both, or of a file that does not say, "rows" for what is not a model.
        hidden: width of the model's states; `vectors.width` unless the model projects them.
        family: what the model's config calls its kind, such as "llama"; "" where nothing does.
    """

    vectors: Vectors
    role: Role
    hidden: int
    family: str = ""


def open_unembedding(
    source: str | Path, *, tensor: str | None = None, label: str | None = None
) -> Unembedding:
    """The output table of a model, or the rows of any other source that `open_vectors` takes.

    Args:
        source, label: as for `open_vectors`.
        tensor: these rows instead, whatever they are.
    """
    table = output_table(source) if tensor is None and label is None else None
    return table or as_rows(open_vectors(source, tensor=tensor, label=label))


def as_rows(vectors: Vectors) -> Unembedding:
    """A table that is not a model's, or not known to be."""
    return Unembedding(vectors, "rows", vectors.width)


def output_table(source: str | Path) -> Unembedding | None:
    """The output table of a model; None where the source is none."""
    path = existing_path(source)
    if path is None:
        return _of_name(str(source))
    if path.is_dir():
        return _of_folder(path)
    ending = path.suffix.lower()
    if ending == ".safetensors":
        return _of_file(path)
    return _of_gguf(path) if ending == ".gguf" else None


def output_name(names: Sequence[str], *, tied: bool) -> str | None:
    """Which tensor is the output table; None for the token embedding.

    A model that ties both may have been saved with the output table alone.
    """
    # Inside a model "output.weight" is many things, so it counts only as a whole name.
    ends = tuple(f".{suffix}" for suffix in OUTPUT_SUFFIXES if suffix != OUTPUT_TABLE)
    outputs = [name for name in names if name in OUTPUT_SUFFIXES]
    outputs += sorted((name for name in names if name.endswith(ends)), key=len)
    return outputs[0] if outputs and not (tied and _has_tokens(names)) else None


def _has_tokens(names: Sequence[str]) -> bool:
    return any(token_rank(name) is not None for name in names)


def _of_name(name: str) -> Unembedding | None:
    if name in NAMED:
        if name not in LANGUAGE_MODELS:
            return None
        vectors = open_named(name)
        family = getattr(vectors, "architecture", "")
        return Unembedding(vectors, "embedding", vectors.width, family)
    if not is_hub_name(name):
        return None
    path = hub_file(name, CONFIG)
    config = read_config(path) if path is not None else {}
    return _of_model(name, hub_files(name), config, lambda tensor: open_hub(name, tensor))


def _of_folder(folder: Path) -> Unembedding:
    files = folder_files(folder)
    path = folder / CONFIG
    config = read_config(path) if path.is_file() else {}
    table = _of_model(str(folder), files, config, lambda tensor: open_folder(folder, tensor))
    if _hidden(config) is not None:
        return table
    shapes = {
        name: tensor_shapes(folder / file)[name]
        for name, file in files.holders.items()
        if name.endswith(_PROJECTIONS)
    }
    return replace(table, hidden=_projected(table.vectors.width, shapes))


def _of_model(
    where: str,
    files: ModelFiles,
    config: Mapping[str, Any],
    opened: Callable[[str | None], Vectors],
) -> Unembedding:
    chosen = output_name(sorted(files.holders), tied=config.get(_TIE) is True)
    if chosen is None:
        _check_tied(where, config)
    vectors = opened(chosen)
    role: Role = "output" if chosen else "embedding"
    return Unembedding(vectors, role, _hidden(config) or vectors.width, _family(config))


def _of_file(path: Path) -> Unembedding | None:
    shapes = tensor_shapes(path)
    if len(shapes) < 2 or not (_has_tokens(list(shapes)) or output_name(list(shapes), tied=False)):
        return None
    chosen = output_name(sorted(shapes), tied=False)
    vectors = open_safetensors(path, chosen)
    hidden = _projected(vectors.width, shapes)
    return Unembedding(vectors, "output" if chosen else "embedding", hidden)


def _of_gguf(path: Path) -> Unembedding:
    vectors = open_gguf(path, prefer=(OUTPUT_TABLE, TOKEN_TABLE))
    role: Role = "output" if vectors.tensor == OUTPUT_TABLE else "embedding"
    return Unembedding(vectors, role, vectors.width, vectors.architecture)


def read_config(path: Path) -> Mapping[str, Any]:
    """A model's config.json; of a multimodal model, with the fields of its language model."""
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise VectorsError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise VectorsError(f"{path} is not JSON: {error}; save the model again") from error
    if not isinstance(config, dict):
        raise VectorsError(f"{path} is not the config of a model: expected an object")
    inner = config.get(_TEXT)
    # The outer config comes first: it says what the whole model is called, and what it ties.
    return {**inner, **config} if isinstance(inner, dict) else config


def _check_tied(where: str, config: Mapping[str, Any]) -> None:
    """Refuse to take the embedding for the output table of a model that has one of its own."""
    inner = config.get(_TEXT)
    ties = [part[_TIE] for part in (config, inner) if isinstance(part, Mapping) and _TIE in part]
    if any(ties) or not (ties or _is_untied_by_default(config)):
        return
    why = f"{_TIE} is false" if ties else f"as models of the type {_family(config)} have"
    raise VectorsError(
        f"{where} has an output table of its own by its config ({why}), but no tensor called "
        f"{' or '.join(OUTPUT_SUFFIXES)}; if it was saved with AutoModel, which leaves the table "
        "out, save it with AutoModelForCausalLM, else name the table with tensor= (--tensor)"
    )


def _is_untied_by_default(config: Mapping[str, Any]) -> bool:
    """Whether language models of this type do not tie their tables; False where unknown."""
    names = config.get("architectures")
    if not isinstance(names, list) or not any(str(n).endswith(_LANGUAGE_MODELS) for n in names):
        return False
    try:
        from transformers import AutoConfig

        usual = AutoConfig.for_model(_family(config))
    except (ImportError, ValueError):
        return False
    return getattr(usual.get_text_config(), _TIE, None) is False


def _hidden(config: Mapping[str, Any]) -> int | None:
    known = (config.get(name) for name in _WIDTHS)
    return next((width for width in known if isinstance(width, int) and width > 0), None)


def _family(config: Mapping[str, Any]) -> str:
    return str(config.get("model_type") or "")


def _projected(width: int, shapes: Mapping[str, Sequence[int]]) -> int:
    """The width of the states, by the matrix that brings them to that of the rows, if any."""
    for name, shape in shapes.items():
        if name.endswith(_PROJECTIONS) and len(shape) == 2 and shape[0] == width:
            return int(shape[1])
    return width
