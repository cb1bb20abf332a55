"""Embeddings in the formats of other tools."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from beltrami.checks import check_choice
from beltrami.data.atomic import write_atomically
from beltrami.data.text import quoted
from beltrami.data.vectors.library import library
from beltrami.embeddings.embedding import Embedding
from beltrami.embeddings.files import array_file, table_text
from beltrami.geometry import Euclidean, Lorentz, PoincareBall, poincare

Coordinates = Literal["own", "tangent", "poincare"]
FLAT = ("projector", "word2vec")  # formats of tools that take all vectors as flat


def export_embedding(
    embedding: Embedding, path: Path, format: str, coordinates: Coordinates | None = None
) -> list[Path]:
    """Write an embedding for another tool; returns the files.

    Args:
        embedding: what to write.
        path: the file; for "projector" the folder of its two files.
        format: one of `FORMATS`.
        coordinates: "own" as they were learned; "tangent" for tools that take vectors as flat: the
            tangent vectors at the origin, which keep all distances from it; "poincare" for points
            of the unit ball, which a disk viewer takes. By default tangent for projector and
            word2vec, whose readers take vectors as flat, and else own.
    """
    check_choice("format", format, FORMATS)
    coordinates = coordinates or ("tangent" if format in FLAT else "own")
    return FORMATS[format](in_coordinates(embedding, coordinates), path)


def in_coordinates(embedding: Embedding, coordinates: Coordinates) -> Embedding:
    """The same labels with points in other coordinates."""
    check_choice("coordinates", coordinates, ("own", "tangent", "poincare"))
    if coordinates == "own":
        return embedding
    manifold, points = embedding.manifold, embedding.points
    if coordinates == "tangent":
        return Embedding(embedding.labels, manifold.log0(points), Euclidean(), name=embedding.name)
    if isinstance(manifold, Lorentz):
        points = poincare.from_lorentz(points, manifold.c)
    elif not isinstance(manifold, PoincareBall):
        raise ValueError(
            f"coordinates 'poincare' are for one hyperbolic space, and these points are of "
            f"{manifold!r}; take 'own' or 'tangent'"
        )
    unit = points * manifold.c**0.5
    return Embedding(embedding.labels, unit, PoincareBall(1.0), name=embedding.name)


def _csv(embedding: Embedding, path: Path) -> list[Path]:
    return _written(path, table_text(embedding))


def _word2vec(embedding: Embedding, path: Path) -> list[Path]:
    """The text format of word2vec and GloVe; a space in a label becomes "_"."""
    names: dict[str, str] = {}
    for label in embedding.labels:
        name = re.sub(r"\s+", "_", label)
        if names.setdefault(name, label) != label:
            raise ValueError(
                f"{quoted(names[name])} and {quoted(label)} are both {quoted(name)} in word2vec's "
                "format, which has no spaces in labels; take another format"
            )
    lines = [f"{len(names)} {embedding.points.shape[1]}"]
    rows = embedding.points.tolist()
    lines += (" ".join([name, *map(repr, row)]) for name, row in zip(names, rows, strict=True))
    return _written(path, "\n".join(lines) + "\n")


def _projector(embedding: Embedding, path: Path) -> list[Path]:
    """vectors.tsv and metadata.tsv, which projector.tensorflow.org and TensorBoard load."""
    path.mkdir(parents=True, exist_ok=True)
    vectors = "".join("\t".join(map(repr, row)) + "\n" for row in embedding.points.tolist())
    labels = "".join(re.sub(r"[\t\r\n]+", " ", label) + "\n" for label in embedding.labels)
    return _written(path / "vectors.tsv", vectors) + _written(path / "metadata.tsv", labels)


def _parquet(embedding: Embedding, path: Path) -> list[Path]:
    """Columns label and x1 to xd."""
    pyarrow = library("pyarrow", extra="parquet", needs="a parquet file")
    parquet = library("pyarrow.parquet", extra="parquet", needs="a parquet file")
    columns: dict[str, Any] = {"label": list(embedding.labels)}
    for i, values in enumerate(embedding.points.T.numpy()):
        columns[f"x{i + 1}"] = values
    file = io.BytesIO()
    parquet.write_table(pyarrow.table(columns), file)
    return _written(path, file.getvalue())


def _npz(embedding: Embedding, path: Path) -> list[Path]:
    """Arrays labels and points; numpy.load reads them without pickle."""
    return _written(path, array_file(embedding))


def _written(path: Path, content: str | bytes) -> list[Path]:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content)
    return [path]


FORMATS: Mapping[str, Callable[[Embedding, Path], list[Path]]] = {
    "csv": _csv,
    "npz": _npz,
    "parquet": _parquet,
    "projector": _projector,
    "word2vec": _word2vec,
}
