"""NumPy's files: `.npy`, mapped into memory and read row by row, and `.npz`, loaded whole."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from beltrami.data.vectors.numbers import check_real, float32_tensor, table_shape
from beltrami.data.vectors.table import MOST_MAPPED, Column, Vectors, VectorsError

_MEMBER = ".npy"  # what the archive adds to an array's name


class ArrayVectors(Vectors):
    """A numpy array, in memory or mapped."""

    def __init__(
        self,
        array: NDArray[Any],
        path: Path,
        *,
        labels: Sequence[str] | None = None,
        extras: Mapping[str, Column] | None = None,
        tensor: str | None = None,
        choices: Sequence[str] = (),
    ) -> None:
        """A table of `array`, which was read from `path`."""
        self._where = str(path) if tensor is None else f"{path}, array {tensor!r}"
        check_real(array.dtype, self._where)
        shape = table_shape(array.shape, self._where)
        super().__init__(path, shape, labels=labels, extras=extras, tensor=tensor, choices=choices)
        self._array, self._mapped = array, 0

    def _read(self, first: int, last: int) -> Tensor:
        block = float32_tensor(self._array[first:last], self._where, first)
        self._mapped += self._array[first:last].nbytes
        if self._mapped > MOST_MAPPED:
            self._map_anew()
        return block

    def _map_anew(self) -> None:
        if isinstance(self._array, np.memmap):
            self._array, self._mapped = _load(self.path, mmap_mode="r"), 0

    def _pick(self, ascending: Tensor) -> Tensor:
        try:
            return float32_tensor(self._array[ascending.numpy()], self._where)
        except VectorsError:  # its row is one of the picked ones; read again to name the right one
            return super()._pick(ascending)


def open_npy(path: Path) -> Vectors:
    """The array of a `.npy` file, mapped: only what is asked for is read."""
    array = _load(path, mmap_mode="r")
    if not isinstance(array, np.ndarray):
        raise VectorsError(f"{path} is an archive of arrays; rename it to {path.stem}.npz")
    return ArrayVectors(array, path)


def open_npz(path: Path, tensor: str | None = None) -> Vectors:
    """The only array of a `.npz` file, or the one that `tensor` names."""
    with _opened(path) as file:  # numpy leaves it open where the archive is damaged
        archive = _load(path, file)
        if isinstance(archive, np.ndarray):
            raise VectorsError(f"{path} is a single array; rename it to {path.stem}.npy")
        names = list(archive.files)
        chosen = tensor if tensor is not None else names[0] if len(names) == 1 else None
        if chosen is None or chosen not in names:
            problem = f"has no array {tensor!r}" if chosen else f"holds {len(names)} arrays"
            raise VectorsError(
                f"{path} {problem}; name one with tensor= (--tensor): {_listed(path)}"
            )
        try:
            array = archive[chosen]
        except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise _unreadable(f"{path}, array {chosen!r}", error) from error
    several = len(names) > 1
    return ArrayVectors(
        array, path, tensor=chosen if several else None, choices=[chosen] if several else []
    )


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise _unreadable(str(path), error) from error


def _load(path: Path, file: BinaryIO | None = None, **options: Any) -> Any:
    try:
        return np.load(file or path, allow_pickle=False, **options)
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise _unreadable(str(path), error) from error


def _unreadable(where: str, error: Exception) -> VectorsError:
    if isinstance(error, OSError) and error.strerror:
        return VectorsError(f"cannot read {where}: {error.strerror}")
    if "object" in str(error).lower():
        return VectorsError(
            f"{where} holds Python objects or is not a numpy file, and pickles are never read; "
            "save numbers with numpy.save(path, array.astype('float32'))"
        )
    return VectorsError(f"{where} is damaged or cut short ({error}); save it again")


def _listed(path: Path) -> str:
    """The arrays of an archive with their shapes, read from their headers alone."""
    shown = []
    with zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            if member.endswith(_MEMBER):
                with archive.open(member) as file:
                    shown.append(f"{member.removesuffix(_MEMBER)} {_shape(file)}")
    return ", ".join(shown) or "it holds none"


def _shape(file: Any) -> str:
    try:
        version = np.lib.format.read_magic(file)
        header = np.lib.format.read_array_header_1_0
        if version != (1, 0):
            header = np.lib.format.read_array_header_2_0
        return str(header(file)[0])
    except ValueError:
        return "(unreadable)"
