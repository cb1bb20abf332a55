"""`.gguf` files of llama.cpp: the table of tokens, whose numbers are unpacked block by block."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from torch import Tensor

from beltrami.data.vectors.embedding_name import choose_tensor
from beltrami.data.vectors.library import library
from beltrami.data.vectors.numbers import float32_tensor, table_shape
from beltrami.data.vectors.table import Vectors, VectorsError
from beltrami.data.vectors.tokens import label_tokens

TOKEN_TABLE = "token_embd.weight"
OUTPUT_TABLE = "output.weight"
TOKEN_TABLES = (TOKEN_TABLE, OUTPUT_TABLE)
TOKENS = "tokenizer.ggml.tokens"
ARCHITECTURE = "general.architecture"


class GgufVectors(Vectors):
    """A tensor of a GGUF file, quantised or not."""

    architecture: str = ""
    """What the file calls the model's kind, such as "llama"."""

    def __init__(self, tensor: Any, path: Path) -> None:
        """A tensor of gguf's reader, which maps the file."""
        self._where = f"{path}, tensor {tensor.name!r}"
        shape = table_shape([int(size) for size in reversed(tensor.shape)], self._where)
        super().__init__(path, shape, tensor=tensor.name, choices=[tensor.name])
        self._data, self._type = tensor.data, tensor.tensor_type
        self._unpack = library("gguf.quants", extra="gguf", needs=f"{path.name}").dequantize
        self._read(0, 1)  # a kind of numbers that gguf cannot unpack is refused at once

    def _read(self, first: int, last: int) -> Tensor:
        return self._numbers(self._data[first:last], first)

    def _pick(self, ascending: Tensor) -> Tensor:
        return self._numbers(self._data[ascending.numpy()], 0)

    def _numbers(self, packed: NDArray[Any], first: int) -> Tensor:
        if packed.dtype.name != "uint8":  # plain numbers
            return float32_tensor(packed, self._where, first)
        try:
            return float32_tensor(self._unpack(packed, self._type), self._where, first)
        except NotImplementedError as error:
            raise VectorsError(
                f"{self._where} is quantised as {self._type.name}, which the package gguf cannot "
                'unpack; try pip install --upgrade "beltrami[gguf]", or another quantisation'
            ) from error


def open_gguf(
    path: Path, tensor: str | None = None, *, prefer: Sequence[str] = (TOKEN_TABLE,)
) -> GgufVectors:
    """The table of tokens of a model, or the tensor that `tensor` names.

    Args:
        path: of the file. tensor: the one asked for.
        prefer: without `tensor`, the first of these that the file has.
    """
    gguf = library("gguf", extra="gguf", needs=f"{path.name}, a GGUF file,")
    try:
        reader = gguf.GGUFReader(path)
    except OSError as error:
        raise VectorsError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, IndexError, KeyError) as error:
        raise VectorsError(f"{path} is damaged or not a GGUF file ({error})") from error
    tensors = {item.name: item for item in reader.tensors}
    chosen = choose_tensor(
        list(tensors),
        next((name for name in prefer if name in tensors), None) if tensor is None else tensor,
        where=str(path),
        shape_of=lambda name: [int(size) for size in reversed(tensors[name].shape)],
    )
    vectors = GgufVectors(tensors[chosen], path)
    if (field := reader.get_field(ARCHITECTURE)) is not None:
        vectors.architecture = bytes(field.parts[field.data[0]]).decode("utf-8", "replace")
    field = reader.get_field(TOKENS)
    if chosen in TOKEN_TABLES and field is not None:
        label_tokens(
            vectors, [bytes(field.parts[place]).decode("utf-8", "replace") for place in field.data]
        )
    return vectors
