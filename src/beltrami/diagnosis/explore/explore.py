"""From a source to a page."""

from __future__ import annotations

import warnings
from pathlib import Path

from beltrami import __version__
from beltrami.data.atomic import write_atomically
from beltrami.data.output_folder import not_writable
from beltrami.data.text import DataWarning
from beltrami.diagnosis.config import DiagnoseConfig
from beltrami.diagnosis.explore.config import ExploreConfig
from beltrami.diagnosis.explore.graph_cloud import graph_cloud
from beltrami.diagnosis.explore.run_cloud import is_run, run_cloud
from beltrami.diagnosis.explore.vector_cloud import vector_cloud
from beltrami.diagnosis.numbers import fact_rows
from beltrami.diagnosis.source import GraphSource, Source, Tick, open_source
from beltrami.options import refuse_given
from beltrami.report.explorer import Cloud, explorer_page


def explore(config: ExploreConfig, tick: Tick = lambda share: None) -> Path:
    """Write the page; returns its path.

    Raises:
        ValueError: what is wrong with an option or the source.
    """
    config.check()
    if is_run(config.source):
        why = f"{config.source} is the folder of a run"
        refuse_given(config, ("kind", "metric", "tensor", "label", "besides"), why)
        return _of_run(config, tick)
    if config.trial:
        raise ValueError(f"--trial is for runs, and {config.source} is not a folder of a run")
    if config.method == "horopca":
        raise ValueError("--method horopca is for points of a run")
    source = open_source(_as_diagnosis(config), tick)
    for note in source.notes():
        warnings.warn(f"{source.name}: {note}", DataWarning, stacklevel=2)
    if isinstance(source, GraphSource):
        why = f"{config.source} is a graph"
        refuse_given(config, ("metric", "tensor", "label", "besides"), why)
        if config.method not in ("auto", "sectors"):
            raise ValueError(f"--method {config.method} is for vectors; a graph takes sectors")
        if source.count > config.points:
            raise ValueError(
                f"{source.name} has {source.count:,} nodes; give --points {source.count}, if the "
                "page may be that large, or a part of it"
            )
        cloud, how = graph_cloud(source.network), "by depth, with subtrees in sectors"
    elif config.method == "sectors":
        raise ValueError(f"--method sectors is for trees and graphs; {source.name} is none")
    else:
        cloud, how = vector_cloud(source, config, tick)
    count = len(cloud.labels)
    lead = (
        f"{count:,} {'nodes' if isinstance(source, GraphSource) else 'points'} in the Poincaré "
        f"disk, {how}."
    )
    return _write(config, cloud, source.name, lead, _facts(source, count))


def _of_run(config: ExploreConfig, tick: Tick) -> Path:
    cloud, how, facts = run_cloud(config, tick)
    lead = f"{len(cloud.labels):,} learned points in the Poincaré disk, {how}."
    made = ("Made by", f"beltrami {__version__}")
    return _write(config, cloud, Path(config.source).name, lead, [*facts, made])


def _write(
    config: ExploreConfig, cloud: Cloud, title: str, lead: str, facts: list[tuple[str, str]]
) -> Path:
    page = explorer_page(cloud, title=title, lead=lead, facts=facts, command=config.command())
    path = config.page
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, page)
    except FileExistsError as error:
        raise ValueError(f"--out {path}: a part of this path is a file") from error
    except OSError as error:
        raise not_writable(path, error) from error
    return path


def _as_diagnosis(config: ExploreConfig) -> DiagnoseConfig:
    return DiagnoseConfig(
        config.source,
        kind=config.kind,
        metric=config.metric,
        tensor=config.tensor,
        label=config.label,
        besides=config.besides,
        strict=config.strict,
    )


def _facts(source: Source, shown: int) -> list[tuple[str, str]]:
    facts = [("Shown", f"{shown:,} of {source.count:,}"), *fact_rows(source.facts)]
    return [*facts, ("Made by", f"beltrami {__version__}")]
