"""A small knowledge graph in a folder, and a training of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from beltrami.recipes.knowledge_graph.config import KnowledgeGraphRunConfig
from beltrami.recipes.knowledge_graph.recipe import KnowledgeGraphRecipe
from beltrami.recipes.recipe import Trial
from beltrami.train.processes import Processes
from beltrami.train.progress import ProgressListener
from beltrami.train.session import Session


def ring(folder: Path, size: int = 12) -> Path:
    """Entities on a ring with "next" and "opposite"; every fifth triple is held out."""
    folder.mkdir()
    rows = [f"e{i}\tnext\te{(i + 1) % size}" for i in range(size)]
    rows += [f"e{i}\topposite\te{(i + size // 2) % size}" for i in range(size)]
    splits = {
        "valid": rows[2::10],
        "test": rows[7::10],
        "train": [row for i, row in enumerate(rows) if i % 5 != 2],
    }
    for name, part in splits.items():
        (folder / f"{name}.txt").write_text("\n".join(part) + "\n", encoding="utf-8")
    return folder


def small_config(data: Path | str, **options: Any) -> KnowledgeGraphRunConfig:
    """Options that train in a second."""
    usual: dict[str, Any] = {
        "dims": (4,),
        "epochs": 30,
        "batch": 8,
        "pool": 12,
        "negatives": 10.0,
        "learning_rates": (0.1,),
        "validate_every": 5,
        "seeds": 1,
    }
    if options.get("objective") == "softmax":  # it takes neither
        del usual["pool"], usual["negatives"]
    return KnowledgeGraphRunConfig(**{"data": str(data), "device": "cpu", **usual, **options})


def first_trial(recipe: KnowledgeGraphRecipe, model: str = "RotH", seed: int = 0) -> Trial:
    """A trial of the recipe's first dimension and learning rate."""
    arm = next(c for c in recipe.arms() if c.model == model)
    return arm.trial(seed, arm.choices[0])


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
