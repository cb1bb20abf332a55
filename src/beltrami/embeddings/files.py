"""The files of an embedding in the folder of a run, and `load_run`, which reads them.

The best trial of each arm has, beside its model.safetensors,

    embeddings.npz    labels (n,), points (n, d), and edges (m, 2) where there is a taxonomy;
                      numpy.load reads it without pickle
    embeddings.csv    label and coordinates x1 to xd, one row a label
    embedding.json    what the coordinates mean:
        schema       "beltrami.embedding/1"
        recipe, model, group, trial, seed, choice     where it comes from
        manifold     kind and curvature, as `geometry.description` has it
        coordinates, order     in words
        points, dim  how many, and of how many coordinates
        cones        whether the points are apexes of entailment cones
        data         name, sizes and digest of the data
        metric       key, title, better and value of the metric by which trials are compared
        command      the command line of the run

The rows of all three, and of a table of points in model.safetensors, are in the same order.
"""

from __future__ import annotations

import csv
import io
import math
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from beltrami.data.atomic import to_json, write_atomically
from beltrami.data.output_folder import read_object
from beltrami.embeddings.embedding import Embedding
from beltrami.geometry import Euclidean, Lorentz, PoincareBall, Product
from beltrami.geometry.description import describe, from_description

SCHEMA = "beltrami.embedding/1"
ARRAYS, TABLE, ABOUT = "embeddings.npz", "embeddings.csv", "embedding.json"
FILES = (ABOUT, ARRAYS, TABLE)
COORDINATES = {
    Lorentz: "space part of points of the Lorentz model; their time is sqrt(1/c + |x|^2)",
    PoincareBall: "points of the Poincare ball, |x| < 1/sqrt(c)",
    Euclidean: "plain vectors",
    Product: "the coordinates of the factors, side by side",
}
ORDER = "rows of all files are in the order of the labels in embeddings.csv"


def write_embedding(folder: Path, embedding: Embedding, facts: Mapping[str, Any]) -> None:
    """Write the three files; embedding.json last, as the mark that they are complete."""
    write_atomically(folder / ARRAYS, array_file(embedding))
    write_atomically(folder / TABLE, table_text(embedding))
    about = {
        "schema": SCHEMA,
        "name": embedding.name,
        **facts,
        "manifold": describe(embedding.manifold),
        "coordinates": COORDINATES.get(type(embedding.manifold), "coordinates of the manifold"),
        "order": ORDER,
        "points": len(embedding),
        "dim": embedding.points.shape[1],
        **embedding.facts,
    }
    write_atomically(folder / ABOUT, to_json(about))


def array_file(embedding: Embedding) -> bytes:
    """The NPZ file."""
    arrays = {"labels": np.array(embedding.labels), "points": embedding.points.numpy()}
    if embedding.edges is not None:
        arrays["edges"] = embedding.edges.numpy()
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=False, **arrays)
    return file.getvalue()


def table_text(embedding: Embedding) -> str:
    """The CSV file: a header, then a label and its coordinates with all their digits."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["label", *(f"x{i + 1}" for i in range(embedding.points.shape[1]))])
    rows.writerows(
        [label, *point]
        for label, point in zip(embedding.labels, embedding.points.tolist(), strict=True)
    )
    return text.getvalue()


def read_embedding(folder: Path) -> Embedding:
    """The embedding in the folder of a trial; a `ValueError` where a file is missing or damaged."""
    about = read_object(folder / ABOUT)
    if about is None or about.get("schema") != SCHEMA:
        raise ValueError(f"{folder / ABOUT} is missing or damaged; {REPAIR}")
    try:
        content = io.BytesIO((folder / ARRAYS).read_bytes())
        with np.load(content, allow_pickle=False) as arrays:
            labels, points = arrays["labels"].tolist(), torch.from_numpy(arrays["points"])
            edges = torch.from_numpy(arrays["edges"]) if "edges" in arrays else None
        manifold = from_description(about["manifold"])
        return Embedding(labels, points, manifold, edges=edges, name=about["name"], facts=about)
    except DAMAGE as error:
        where = folder / (ABOUT if isinstance(error, KeyError) else ARRAYS)
        raise ValueError(f"{where} is missing or damaged ({error}); {REPAIR}") from error


REPAIR = "the command of the run with --resume writes it again"
# What numpy, zipfile and our own checks raise for bytes of all kinds.
DAMAGE = (
    OSError,
    EOFError,
    KeyError,
    TypeError,
    ValueError,
    NotImplementedError,
    zlib.error,
    zipfile.BadZipFile,
)


def load_run(path: str | Path, *, model: str = "", trial: str = "") -> Embedding:
    """The embedding that a run has learned: labels, points, manifold, and what is near what.

    >>> embedding = beltrami.load_run("runs/hierarchy-wordnet-mammals")
    >>> embedding.nearest("feline")

    Loads no training code and does not need the data of the run.

    Args:
        path: the folder of a run of a recipe with points (hierarchy, cones, knowledge-graph,
            levels, graph), of one of its trials, or a file that `Embedding.save` wrote.
        model: which arm, such as "lorentz"; by default the best trial of all arms, of equally good
            ones that of fewest dimensions, a hyperbolic one before a flat one.
        trial: which trial, by the name of its folder; the best of each arm has an embedding.
    """
    path = Path(path).expanduser()
    if path.is_file():
        return Embedding.load(path)
    if (path / ABOUT).is_file():
        return read_embedding(path)
    if not path.is_dir():
        raise FileNotFoundError(f"{path} is not there; `beltrami runs` lists the runs there are")
    abouts = trials_with_points(path)
    if not abouts:
        raise ValueError(
            f"{path} holds no embedding; a finished run of hierarchy, cones, knowledge-graph, "
            f"levels or graph does. If it is one of an earlier version, {REPAIR}"
        )
    models = list(dict.fromkeys(str(about.get("model")) for about in abouts.values()))
    if model and model not in models:
        raise ValueError(f"{path} has no embedding of model {model!r}, only of {', '.join(models)}")
    fitting = [name for name, about in abouts.items() if model in ("", about.get("model"))]
    if trial and trial not in fitting:
        raise ValueError(
            f"{path} has no embedding of trial {trial!r}, only of {', '.join(fitting)}"
        )
    name = trial or best_trial({name: abouts[name] for name in fitting})
    return read_embedding(path / "trials" / name)


def trials_with_points(run: Path) -> dict[str, dict[str, Any]]:
    """embedding.json of each trial of a run that has one, by the trial's name."""
    files = sorted(run.glob(f"trials/*/{ABOUT}"))
    return {file.parent.name: read_object(file) or {} for file in files}


def best_trial(abouts: Mapping[str, Mapping[str, Any]]) -> str:
    """The name of the best: by the metric, then of fewest dimensions, then a hyperbolic one."""
    return max(abouts, key=lambda name: _goodness(abouts[name]))


def kind_of(about: Mapping[str, Any]) -> str:
    """The kind of manifold that an embedding.json names."""
    manifold = about.get("manifold")
    return str(manifold.get("kind")) if isinstance(manifold, dict) else ""


def _goodness(about: Mapping[str, Any]) -> tuple[float, int, bool]:
    """What the best trial has most of: the metric, few dimensions, curvature."""
    metric, dim = about.get("metric"), about.get("dim")
    value = metric.get("value") if isinstance(metric, dict) else None
    if not isinstance(value, int | float):
        value = -math.inf
    elif isinstance(metric, dict) and metric.get("better") == "lower":
        value = -value
    return float(value), -dim if isinstance(dim, int) else 0, kind_of(about) != "euclidean"
