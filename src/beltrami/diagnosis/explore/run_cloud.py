"""What a run has learned of a taxonomy: its points, in the disk, with the taxonomy's edges."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from beltrami.analysis.horopca import horopca
from beltrami.analysis.tangent_pca import tangent_pca
from beltrami.data import Hierarchy, load_hierarchy
from beltrami.diagnosis.explore.config import ExploreConfig
from beltrami.diagnosis.explore.graph_cloud import families
from beltrami.diagnosis.explore.vector_cloud import inside_disk
from beltrami.geometry import lorentz, poincare
from beltrami.recipes.folder import CONFIG, MODEL, RESULT, read_document, read_result
from beltrami.report.explorer import Cloud

SHOWN = {"hierarchy": "map", "cones": "f1"}  # recipes with points, and what the best is chosen by
CURVED = ("lorentz", "poincare")
METHODS = ("auto", "as-is", "horopca", "tangent-pca")
C = 1.0  # of all points that these recipes train


def is_run(source: str) -> bool:
    """Whether a source is the folder of a run."""
    return read_document(Path(source) / CONFIG) is not None


def run_cloud(
    config: ExploreConfig, tick: Callable[[float], None]
) -> tuple[Cloud, str, list[tuple[str, str]]]:
    """Points of one trial, how they got into the disk in words, and facts about them.

    Raises:
        ValueError: for a run without points, a trial that is not there, data that have changed.
    """
    folder = Path(config.source)
    document = read_document(folder / CONFIG) or {}
    recipe = document.get("recipe")
    if recipe not in SHOWN:
        known = " and ".join(SHOWN)
        raise ValueError(f"{folder} is a run of {recipe}; pages are made of runs of {known}")
    if config.method not in METHODS:
        raise ValueError(
            f"--method {config.method} is not for runs; they take {', '.join(METHODS)}"
        )
    name, trial, points = _trial(folder, config.trial, SHOWN[recipe])
    hierarchy = _hierarchy(folder, document)
    if len(points) != len(hierarchy):
        raise ValueError(f"{name} of {folder} has {len(points)} points for {len(hierarchy)} nodes")
    if len(hierarchy) > config.points:
        raise ValueError(
            f"{folder} has {len(hierarchy):,} points; give --points {len(hierarchy)}, if the page "
            "may be that large"
        )
    x = points.double()
    if trial["model"] == "poincare":
        x = poincare.to_lorentz(x, C)
    disk, how = _in_disk(x, config, tick)
    tree = hierarchy.spanning_tree()
    family = dict(zip(tree.labels, families(tree), strict=True))
    cloud = Cloud(
        points=inside_disk(disk),
        labels=hierarchy.labels,
        columns={
            "depth": [float(d) for d in hierarchy.depth.tolist()],
            "distance from the origin": lorentz.dist0(x, C).tolist(),
            "family": [family[label] for label in hierarchy.labels],
        },
        edges=[(child, parent) for child, parent in hierarchy.edges.tolist()],
    )
    facts = [
        ("Trial", f"{name} of {folder.name}"),
        ("Space", f"{trial['model']}, {points.shape[1]} dimensions"),
        ("Taxonomy", hierarchy.name),
    ]
    tick(1.0)
    return cloud, how, facts


def _in_disk(x: Tensor, config: ExploreConfig, tick: Callable[[float], None]) -> tuple[Tensor, str]:
    """Lorentz points as points of the unit disk, and how in words."""
    dimensions = x.shape[1]
    method = config.method
    if method == "auto":
        method = "as-is" if dimensions == 2 else "horopca"
    if method == "as-is":
        if dimensions != 2:
            raise ValueError(f"--method as-is takes 2 dimensions; this trial has {dimensions}")
        return poincare.from_lorentz(x, C), "as they were learned"
    seen = horopca(x, C, seed=config.seed, tick=tick) if method == "horopca" else tangent_pca(x, C)
    words = "HoroPCA" if method == "horopca" else "tangent PCA"
    how = f"by {words} of {dimensions} dimensions (distortion {seen.distortion:.3f})"
    return poincare.from_lorentz(seen.points, C), how


def _trial(folder: Path, wanted: str, best_by: str) -> tuple[str, Mapping[str, Any], Tensor]:
    """Name, record and points of a trial: the one that is wanted, or the best in a curved space."""
    trials: dict[str, Mapping[str, Any]] = {}
    for path in sorted(folder.glob(f"trials/*/{RESULT}")):
        try:
            record = read_result(path)
        except (OSError, ValueError):
            continue  # of a trial that is damaged, which the run would make again
        if record["trial"].get("model") in CURVED and record["diverged"] is None:
            trials[path.parent.name] = record
    if not trials:
        raise ValueError(
            f"{folder} has no finished trial in one hyperbolic space ({' or '.join(CURVED)})"
        )
    if wanted and wanted not in trials:
        raise ValueError(f"--trial {wanted} is not among those of {folder}: {', '.join(trials)}")
    name = wanted or max(trials, key=lambda trial: trials[trial]["metrics"].get(best_by) or 0.0)
    path = folder / "trials" / name / MODEL
    try:
        points = load_file(path)["weight"]
    except (OSError, SafetensorError, KeyError) as error:
        raise ValueError(f"{path} holds no points; run it again with --resume") from error
    return name, trials[name]["trial"], points


def _hierarchy(folder: Path, document: Mapping[str, Any]) -> Hierarchy:
    """The taxonomy of a run, if it is still what it was."""
    settings = document["settings"]
    try:
        hierarchy = load_hierarchy(settings["data"], root=settings["root"])
    except (OSError, ValueError) as error:
        raise ValueError(f"the data of {folder} are needed, too: {error}") from error
    if hierarchy.digest() != document["data"]["digest"]:
        raise ValueError(
            f"{settings['data']} is not what {folder} was trained on; its points have other labels"
        )
    return hierarchy
