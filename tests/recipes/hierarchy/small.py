"""A small hierarchy in a file, and a session to train in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from beltrami.recipes.hierarchy.config import HierarchyConfig
from beltrami.recipes.hierarchy.recipe import TableSettings
from beltrami.recipes.recipe import Trial
from beltrami.train.processes import Processes
from beltrami.train.progress import ProgressListener
from beltrami.train.session import Session


def binary_tree(path: Path, nodes: int = 15, label: str = "n{}") -> Path:
    """A file with a complete binary tree."""
    rows = [f"{label.format(i)}\t{label.format((i - 1) // 2)}" for i in range(1, nodes)]
    path.write_text("\n".join(["child\tparent", *rows]) + "\n", encoding="utf-8")
    return path


def small_config(data: Path, **options: Any) -> HierarchyConfig:
    """Options that train in a second."""
    usual = {"dims": (2,), "epochs": 60, "batch": 4, "pool": 15, "learning_rates": (0.3,)}
    return HierarchyConfig(**{"data": str(data), "device": "cpu", **usual, **options})


def trial(model: str, dim: int = 2, seed: int = 0, rate: float = 0.3) -> Trial:
    settings = TableSettings(
        dim,
        batch=4,
        pool=15,
        epochs=60,
        negatives=50.0,
        burn_in=0.2,
        max_step=0.1,
        learning_rate=rate,
    )
    return Trial(model, f"{dim} dimensions", seed, settings, {"learning_rate": rate})


def session(
    folder: Path,
    of: Trial,
    listener: ProgressListener | None = None,
    device: str = "cpu",
    **options: Any,
) -> Session:
    """A training in a folder."""
    return Session(
        of.name,
        of.record(),
        checkpoint=folder / "checkpoint.safetensors",
        logs=folder / "logs",
        processes=Processes(torch.device(device)),
        listener=listener or ProgressListener(),
        **options,
    )
