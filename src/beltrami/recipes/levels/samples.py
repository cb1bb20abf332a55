"""The leaves of a taxonomy with their features and classes, and which of them are for what."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from beltrami.data import Hierarchy, HierarchyError, load_hierarchy
from beltrami.data.graph_files import NodeNames, read_features
from beltrami.data.levels import LevelLabels, level_labels
from beltrami.data.text_features import hashed_ngrams
from beltrami.models.level_classifier.tasks import ROWS_AT_ONCE
from beltrami.recipes.levels.config import LevelsConfig
from beltrami.train.seeding import epoch_order

SHARES = (0.6, 0.2)  # of training and validation; the rest is the test
FEWEST = 10  # leaves
MOST_NUMBERS = 1 << 28  # in one table of float32, 1 GiB


@dataclass(frozen=True, eq=False)
class Samples:
    """Leaves to classify: features (n, f), and labels of n rows."""

    hierarchy: Hierarchy
    features: Tensor
    labels: LevelLabels

    def __len__(self) -> int:
        return len(self.labels.nodes)

    def parts(self, seed: int) -> tuple[Tensor, Tensor, Tensor]:
        """Rows of training, validation and test, drawn by the seed."""
        order = epoch_order(len(self), seed, 0)
        first, second = (round(sum(SHARES[: i + 1]) * len(self)) for i in range(2))
        return order[:first], order[first:second], order[second:]

    def digest(self) -> str:
        """SHA-256 of the hierarchy and the features."""
        sha256 = hashlib.sha256(self.hierarchy.digest().encode())
        if self.labels.ranks:  # which the hierarchy's digest leaves out
            sha256.update(self.labels.targets.contiguous().numpy().tobytes())
        sha256.update(repr(tuple(self.features.shape)).encode())
        sha256.update(self.features.contiguous().numpy().tobytes())
        return sha256.hexdigest()


def load_samples(config: LevelsConfig) -> Samples:
    """The leaves that a config asks for; a `ValueError` says what is wrong with it."""
    hierarchy = load_hierarchy(config.data, root=config.root, strict=config.strict)
    labels = level_labels(hierarchy, levels=config.levels, ranks=config.ranks)
    labelled = (labels.targets >= 0).any(1)  # a leaf beside the root has no class at any level
    labels = replace(labels, nodes=labels.nodes[labelled], targets=labels.targets[labelled])
    if len(labels.nodes) < FEWEST:
        raise ValueError(
            f"{hierarchy.name} has {len(labels.nodes)} leaves below its first level; at least "
            f"{FEWEST} are needed"
        )
    check_size(hierarchy.name, labels, config)
    names = [hierarchy.labels[node] for node in labels.nodes.tolist()]
    if config.features is None:
        features = hashed_ngrams([words(name) for name in names], config.ngrams)
    else:
        features = read_leaf_features(config.features, names)
    return Samples(hierarchy, features, labels)


def check_size(name: str, labels: LevelLabels, config: LevelsConfig) -> None:
    """Refuse, before any table is made, what would have more than `MOST_NUMBERS` in one."""
    leaves, classes = len(labels.nodes), sum(labels.sizes)
    if config.features is None and leaves * config.ngrams > MOST_NUMBERS:
        raise ValueError(
            f"{name} has {leaves:,} leaves, too many for --ngrams {config.ngrams}: features may "
            f"have {MOST_NUMBERS:,} numbers (1 GiB), that is {MOST_NUMBERS // config.ngrams:,} "
            "leaves; take a part of it by --root LABEL, or fewer --ngrams"
        )
    rows = max(config.batch, ROWS_AT_ONCE)
    if rows * classes > MOST_NUMBERS:
        raise ValueError(
            f"{name} has {classes:,} classes, too many: the scores of {rows:,} leaves may have "
            f"{MOST_NUMBERS:,} numbers (1 GiB), that is {MOST_NUMBERS // rows:,} classes; take a "
            "part of it by --root LABEL, or fewer --levels"
        )


def words(label: str) -> str:
    """A label as text: without WordNet's ".n.01", and with spaces for underscores."""
    return re.sub(r"\.[nvars]\.\d+$", "", label).replace("_", " ")


def read_leaf_features(path: Path, leaves: list[str]) -> Tensor:
    """Rows of a table for the given leaves, in their order; other rows are left aside."""
    if path.suffix.lower() not in (".csv", ".tsv"):
        raise HierarchyError(
            f"--features {path} must be a .csv or .tsv table with labels in its first column"
        )
    names = NodeNames()
    rows = read_features(path, names)
    place = {name: i for i, name in enumerate(names.in_order)}
    missing = [leaf for leaf in leaves if leaf not in place]
    if missing:
        raise HierarchyError(
            f"{path} has no row for {len(missing)} of {len(leaves)} leaves, the first is "
            f"{missing[0]!r}; labels in its first column must be those of the taxonomy"
        )
    return rows[torch.tensor([place[leaf] for leaf in leaves])]
