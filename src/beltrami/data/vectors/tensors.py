"""`.safetensors` files: one tensor of many, read in slices."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from beltrami.data.vectors.embedding_name import choose_tensor
from beltrami.data.vectors.numbers import float32_tensor, table_shape
from beltrami.data.vectors.table import MOST_MAPPED, Vectors, VectorsError

_COMPLEX = "C"  # how the names of complex types begin


class TensorVectors(Vectors):
    """A tensor of a `.safetensors` file; half precision of either kind becomes float32."""

    def __init__(self, file: Any, path: Path, tensor: str, *, alone: bool) -> None:
        """The tensor of an opened file; `alone` where it is the only one."""
        self._where = f"{path}, tensor {tensor!r}"
        self._named, self._mapped = tensor, 0
        self._slice = file.get_slice(tensor)
        dtype = str(self._slice.get_dtype())
        if dtype.startswith(_COMPLEX):
            raise VectorsError(f"{self._where} holds {dtype}, complex numbers; save real ones")
        super().__init__(
            path,
            table_shape(self._slice.get_shape(), self._where),
            tensor=None if alone else tensor,
            choices=[] if alone else [tensor],
        )

    def _read(self, first: int, last: int) -> Tensor:
        block = self._slice[first:last]
        self._mapped += block.nbytes
        if self._mapped > MOST_MAPPED:
            self._map_anew()
        return float32_tensor(block, self._where, first)

    def _map_anew(self) -> None:
        self._slice, self._mapped = _opened(self.path).get_slice(self._named), 0


def open_safetensors(path: Path, tensor: str | None = None) -> Vectors:
    """The tensor that `tensor` names, or the only one, or the table of tokens by its name."""
    file = _opened(path)
    names = sorted(file.keys())
    if not names:
        raise VectorsError(f"{path} holds no tensors; save one with safetensors.torch.save_file")
    chosen = choose_tensor(
        names, tensor, where=str(path), shape_of=lambda name: file.get_slice(name).get_shape()
    )
    return TensorVectors(file, path, chosen, alone=len(names) == 1)


def tensor_shapes(path: Path) -> dict[str, Sequence[int]]:
    """The shapes of all tensors of a file, from its header alone."""
    file = _opened(path)
    return {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118


def _opened(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt")
    except SafetensorError as error:
        raise VectorsError(f"{path} is damaged or no safetensors file ({error})") from error
    except OSError as error:
        raise VectorsError(f"cannot read {path}: {error.strerror or error}") from error
