"""Folders in transformers' format: the token embedding, and the tokenizer's tokens as labels.

Of the weights in one or many `.safetensors` files only the one that holds the table is opened.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from beltrami.data.vectors.embedding_name import choose_tensor, is_token_table
from beltrami.data.vectors.table import Vectors, VectorsError
from beltrami.data.vectors.tensors import open_safetensors, tensor_shapes
from beltrami.data.vectors.tokens import folder_tokens, label_tokens, labels_digest

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
# AutoModel would leave out the output table of a language model.
SAVE = (
    "AutoModelForCausalLM.from_pretrained(...).save_pretrained(folder), or AutoModel for what is "
    "no language model"
)
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")


@dataclass(frozen=True)
class ModelFiles:
    """Which file holds which tensor, and how to come by a file."""

    where: str
    holders: Mapping[str, str]
    fetch: Callable[[str], Path]
    at_hand: bool
    """Whether fetching is free; else a message must not ask for the shapes of all tensors."""

    def open(self, tensor: str | None) -> tuple[Vectors, str]:
        """The table of tokens, or the tensor asked for, and the tensor's name."""
        chosen = choose_tensor(
            sorted(self.holders),
            tensor,
            where=self.where,
            shape_of=self._shape,
            shapes_at_hand=self.at_hand,
        )
        return open_safetensors(self.fetch(self.holders[chosen]), chosen), chosen

    def _shape(self, tensor: str) -> Sequence[int]:
        path = self.fetch(self.holders[tensor])
        try:
            return tensor_shapes(path)[tensor]
        except KeyError:
            raise VectorsError(f"{path} has no tensor {tensor!r}, though {INDEX} says so") from None


def read_index(path: Path) -> dict[str, str]:
    """Which file holds which tensor, as the index of a model in several files says."""
    try:
        holders = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
        file_of = {str(tensor): str(file) for tensor, file in holders.items()}
    except OSError as error:
        raise VectorsError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise VectorsError(f"{path} is not an index of safetensors files: no weight_map") from error
    for file in file_of.values():
        if PurePosixPath(file).name != file or "\\" in file:
            raise VectorsError(f"{path} names {file!r}, which is not a file of the same folder")
    return file_of


def open_folder(folder: Path, tensor: str | None = None) -> Vectors:
    """The token embedding of a saved model, or the tensor that `tensor` names.

    Of a model in several files only the one that holds it is opened. Rows of tokens are labelled
    if the folder holds a tokenizer.
    """
    vectors, chosen = folder_files(folder).open(tensor)
    vectors.name = folder.resolve().name
    vectors.tensor = chosen
    tokens = folder_tokens(folder) if is_token_table(chosen) else None
    if tokens is not None:
        add_tokens(vectors, tokens)
    return vectors


def add_tokens(vectors: Vectors, tokens: list[str | None]) -> None:
    """Label rows with tokens of another file, which then count in the digest, too."""
    label_tokens(vectors, tokens)
    vectors.choices = (*vectors.choices, labels_digest(vectors.labels or ()))


def folder_files(folder: Path) -> ModelFiles:
    """Which of a folder's files holds which tensor."""
    index = folder / INDEX
    if index.is_file():
        holders = read_index(index)
    else:
        weights = sorted(folder.glob("*.safetensors"))
        if not weights:
            raise _without_weights(folder)
        holders = {name: path.name for path in weights for name in tensor_shapes(path)}
        if not holders:
            raise VectorsError(f"{weights[0]} holds no tensors")
    return ModelFiles(str(folder), holders, lambda file: folder / file, at_hand=True)


def _without_weights(folder: Path) -> VectorsError:
    pickles = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
    if pickles:
        return VectorsError(
            f"{folder} has its weights in {pickles[0]}, a pickle, which is never read; save them "
            f"as safetensors, with {SAVE}"
        )
    return VectorsError(
        f"{folder} is a folder without .safetensors files; pass a file, or a folder with "
        "config.json and the model's weights"
    )
