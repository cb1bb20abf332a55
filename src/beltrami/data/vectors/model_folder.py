"""Folders in transformers' format: the token embedding, and the tokenizer's tokens as labels."""

from __future__ import annotations

from pathlib import Path

from beltrami.data.vectors.embedding_name import is_token_table
from beltrami.data.vectors.model_files import INDEX, SAVE, ModelFiles, read_index
from beltrami.data.vectors.table import Vectors, VectorsError
from beltrami.data.vectors.tensors import tensor_shapes
from beltrami.data.vectors.tokenizer import folder_tokens
from beltrami.data.vectors.tokens import label_tokens, labels_digest

PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")


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
            raise VectorsError(_without_weights(folder))
        holders = {name: path.name for path in weights for name in tensor_shapes(path)}
        if not holders:
            raise VectorsError(f"{weights[0]} holds no tensors")
    return ModelFiles(str(folder), holders, lambda file: folder / file, at_hand=True)


def _without_weights(folder: Path) -> str:
    pickles = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
    if pickles:
        return (
            f"{folder} has its weights in {pickles[0]}, a pickle, which is never read; save them "
            f"as safetensors, with {SAVE}"
        )
    return (
        f"{folder} is a folder without .safetensors files; pass a file, or a folder with "
        "config.json and the model's weights"
    )
