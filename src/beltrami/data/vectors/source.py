"""Where vectors come from: a known name, a file, a model's folder, or a model on the hub."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

from beltrami.data.hierarchy import did_you_mean, quoted_names
from beltrami.data.vectors.arrays import open_npy, open_npz
from beltrami.data.vectors.csv_file import open_csv
from beltrami.data.vectors.gguf_file import open_gguf
from beltrami.data.vectors.hub import is_hub_name, open_hub
from beltrami.data.vectors.model_folder import SAVE, open_folder
from beltrami.data.vectors.named import NAMED, open_named
from beltrami.data.vectors.parquet_file import open_parquet
from beltrami.data.vectors.table import Vectors, VectorsError
from beltrami.data.vectors.tensors import open_safetensors

READERS: dict[str, Callable[[Path, str | None, str | None, Sequence[str]], Vectors]] = {
    ".npy": lambda path, tensor, label, besides: open_npy(path),
    ".npz": lambda path, tensor, label, besides: open_npz(path, tensor),
    ".safetensors": lambda path, tensor, label, besides: open_safetensors(path, tensor),
    ".csv": lambda path, tensor, label, besides: open_csv(path, label, besides),
    ".tsv": lambda path, tensor, label, besides: open_csv(path, label, besides),
    ".parquet": open_parquet,
    ".gguf": lambda path, tensor, label, besides: open_gguf(path, tensor),
}
ONE_TABLE = (".npy", ".csv", ".tsv")  # in which there is no tensor to choose
WITH_COLUMNS = (".csv", ".tsv", ".parquet")
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
OTHER_ENDINGS = (*PICKLES, ".edges", ".obo", ".json", ".txt", ".nwk", ".newick", ".xml", ".vec")


def open_vectors(
    source: str | Path,
    *,
    tensor: str | None = None,
    label: str | None = None,
    besides: Sequence[str] = (),
) -> Vectors:
    """A table of vectors, opened; its numbers are read when they are asked for.

    Args:
        source: one of `list_vectors()`; a file (.npy .npz .safetensors .csv .tsv .parquet .gguf);
            a folder in transformers' format; or a model's name on the hub, `org/name`. A `Path` is
            never taken for a name.
        tensor: which tensor, where the source has several; if not given, the token embedding.
        label: the column of labels in a CSV or parquet file; if not given, the first one of text.
        besides: columns of numbers in such a file that are not dimensions, but `extras`.
    """
    path = existing_path(source)
    ending = path.suffix.lower() if path is not None and path.is_file() else None
    named = (("label", [label] if label is not None else []), ("besides", besides))
    for option, columns in named:
        if columns and ending not in WITH_COLUMNS:
            raise VectorsError(
                f"{option}= (--{option}) {columns[0]!r} names a column of a "
                f"{' '.join(WITH_COLUMNS)} file; {source} has no columns to name: leave it away"
            )
    if path is None:
        return _open_name(str(source), tensor)
    if path.is_dir():
        return open_folder(path, tensor)
    if ending not in READERS:
        raise VectorsError(_unknown_ending(path))
    if tensor is not None and ending in ONE_TABLE:
        raise VectorsError(f"{path} is one table; leave tensor= (--tensor) {tensor!r} away")
    return READERS[ending](path, tensor, label, besides)


def list_vectors() -> list[str]:
    """The names that `open_vectors` knows; not all need be installed."""
    return list(NAMED)


def existing_path(source: str | Path) -> Path | None:
    """The path, if it is one and no name; a path that is not there is an error at once."""
    if isinstance(source, str) and source in NAMED:
        return None
    try:
        path = Path(source).expanduser()
        if path.exists():
            return path
    except (OSError, RuntimeError, ValueError) as error:  # too long, ~ of nobody, a NUL in it
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise VectorsError(f"cannot read {str(source)!r}: {reason}") from error
    if isinstance(source, Path):
        raise _missing(source, path)
    refuse_missing_path(source)
    return None


def refuse_missing_path(source: str) -> None:
    """Raise `VectorsError` for a text that can only be a path, and is not there.

    Others, `org/name`, may be models on the hub: a path starts with `.`, `/`, `~` or `runs/`, has
    more than one `/`, the ending of a file, or a first part that is a folder here.
    """
    path = Path(source)
    with contextlib.suppress(RuntimeError):  # ~ of nobody
        path = path.expanduser()
    inside = len(path.parts) > 1 and Path(path.parts[0]).is_dir()
    marked = source.startswith((".", "/", "~", "runs/")) or source.count("/") > 1
    ending = path.suffix.lower() in (*READERS, *OTHER_ENDINGS)
    if (inside or marked or ending) and not path.exists():
        raise _missing(source, path)


def _missing(source: str | Path, path: Path) -> VectorsError:
    """What is not there, and what is in the nearest folder that is."""
    while not path.parent.exists():
        path = path.parent
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = sorted(entry.name for entry in path.parent.iterdir())
    hint = did_you_mean(path.name, names)
    hint = hint or f"{path.parent.resolve()} has {quoted_names(names) or 'nothing'}"
    return VectorsError(f"{source}: no such file or folder; {hint}")


def _open_name(source: str, tensor: str | None) -> Vectors:
    if source in NAMED:
        return open_named(source, tensor)
    if is_hub_name(source):
        return open_hub(source, tensor)
    hint = did_you_mean(source, list_vectors())
    raise VectorsError(
        f"{source!r} is neither a file nor a table we know{'; ' if hint else '.'}{hint} We know "
        f"{', '.join(list_vectors())}, files ending in {' '.join(READERS)}, folders of models, and "
        "models on the hub as org/name"
    )


def _unknown_ending(path: Path) -> str:
    if path.suffix.lower() in PICKLES:
        return f"{path} may be a pickle, which is never read; save it as safetensors, with {SAVE}"
    return (
        f"{path} is not a table of vectors we read: its ending is {path.suffix or 'missing'!r}, "
        f"and we know {' '.join(READERS)}"
    )
