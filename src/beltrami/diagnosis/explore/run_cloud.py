"""What a run has learned: its points, in the disk, with the edges of its taxonomy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from torch import Tensor

from beltrami.analysis.horopca import horopca
from beltrami.analysis.tangent_pca import tangent_pca
from beltrami.data.output_folder import read_object
from beltrami.diagnosis.explore.config import NEIGHBOURS, ExploreConfig
from beltrami.diagnosis.explore.graph_cloud import families
from beltrami.diagnosis.explore.vector_cloud import inside_disk, tangent_disk
from beltrami.embeddings import Embedding, load_run, nearest_rows
from beltrami.embeddings.files import ABOUT, best_trial, kind_of, trials_with_points
from beltrami.geometry import Lorentz, PoincareBall, poincare
from beltrami.report.explorer import Cloud

CURVED = ("lorentz", "poincare")  # one hyperbolic space, which the disk shows truest
METHODS = ("auto", "as-is", "horopca", "tangent-pca")


def is_run(source: str) -> bool:
    """Whether a source is the folder of a run, or of one of its trials."""
    document = read_object(Path(source) / "config.json") or {}
    return document.get("schema") == "beltrami.run/1" or (Path(source) / ABOUT).is_file()


def run_cloud(
    config: ExploreConfig, tick: Callable[[float], None]
) -> tuple[Cloud, str, list[tuple[str, str]]]:
    """Points of one trial, how they got into the disk in words, and facts about them.

    Raises:
        ValueError: for a run without points, or a trial that is not there.
    """
    if config.method not in METHODS:
        raise ValueError(
            f"--method {config.method} is not for runs; they take {', '.join(METHODS)}"
        )
    abouts = trials_with_points(Path(config.source))
    curved = {name: about for name, about in abouts.items() if kind_of(about) in CURVED}
    trial = config.trial or (best_trial(curved) if curved else "")
    embedding = load_run(config.source, trial=trial)
    count, dim = embedding.points.shape
    if count > config.points:
        raise ValueError(
            f"{config.source} has {count:,} points; give --points {count}, if the page may be that "
            "large"
        )
    disk, how = _in_disk(embedding, config, tick)
    space = f"{dim} dimensions"
    radius = embedding.manifold.dist0(embedding.points).tolist()
    columns: dict[str, Sequence[str] | Sequence[float]] = {
        f"distance from the origin in {space}": radius
    }
    hierarchy = embedding.hierarchy
    if hierarchy is not None:
        tree = hierarchy.spanning_tree()
        family = dict(zip(tree.labels, families(tree), strict=True))
        depth = [float(d) for d in hierarchy.depth.tolist()]
        family_names = [family[label] for label in hierarchy.labels]
        columns = {"depth": depth, **columns, "family": family_names}
    cloud = Cloud(
        points=inside_disk(disk),
        labels=embedding.labels,
        columns=columns,
        edges=[] if hierarchy is None else [(a, b) for a, b in hierarchy.edges.tolist()],
        space=space,
        near=nearest_rows(
            lambda block: embedding.manifold.pairwise_dist(
                embedding.points[block], embedding.points
            ),
            count,
            NEIGHBOURS,
            tick,
        ),
    )
    facts = [
        ("Trial", f"{embedding.facts.get('trial')} of {Path(config.source).name}"),
        ("Space", f"{embedding.manifold!r}, {space}"),
        ("Data", embedding.name),
    ]
    tick(1.0)
    return cloud, how, facts


def _in_disk(
    embedding: Embedding, config: ExploreConfig, tick: Callable[[float], None]
) -> tuple[Tensor, str]:
    """Points of the unit disk, and how they got there in words."""
    manifold, points, method = embedding.manifold, embedding.points.double(), config.method
    dim = points.shape[1]
    if not isinstance(manifold, Lorentz | PoincareBall):
        if method not in ("auto", "tangent-pca"):
            raise ValueError(
                f"--method {method} is for points of one hyperbolic space; those of {manifold!r} "
                "take tangent-pca"
            )
        return tangent_disk(manifold.log0(points)), "by the principal components of tangent vectors"
    x = points * manifold.c**0.5  # with curvature −1
    x = poincare.to_lorentz(x, 1.0) if isinstance(manifold, PoincareBall) else x
    if method == "auto":
        method = "as-is" if dim == 2 else "tangent-pca"
    if method == "as-is":
        if dim != 2:
            raise ValueError(f"--method as-is takes 2 dimensions; this trial has {dim}")
        return poincare.from_lorentz(x, 1.0), "as they were learned"
    seen = horopca(x, 1.0, seed=config.seed, tick=tick) if method == "horopca" else tangent_pca(x)
    words = "HoroPCA" if method == "horopca" else "tangent PCA"
    how = f"by {words} of {dim} dimensions (distortion {seen.distortion:.3f})"
    return poincare.from_lorentz(seen.points, 1.0), how
