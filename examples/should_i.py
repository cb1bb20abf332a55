"""Is hyperbolic geometry worth trying? Measure tree-likeness beside noise, before any training.

    python examples/should_i.py
    python examples/should_i.py --vectors my_vectors.npy

Without options: vectors of the nodes of a tree, and noise. docs/tutorials/should-i.md explains it,
and `beltrami diagnose` does all of it, with a page.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from beltrami.analysis.gromov import delta_hyperbolicity
from beltrami.analysis.intervals import mean_interval
from beltrami.analysis.null_models import gaussian_at_radii, gaussian_like

LITTLE, STRONG = 0.25, 0.6  # of the way from noise to a tree, as `beltrami diagnose` has it
DIMENSIONS = 64


def tree_vectors(levels: int = 4, branches: int = 4) -> Tensor:
    """A vector for every node of a tree: its parent's plus a random one that is half as long."""
    level, nodes = torch.zeros(1, DIMENSIONS), []
    for depth in range(levels):
        level = level.repeat_interleave(branches, 0)
        level = level + torch.randn(level.shape) * 0.5**depth
        nodes.append(level)
    return torch.cat(nodes)


def diagnose(name: str, vectors: Tensor, samples: int, size: int) -> None:
    """Print δ of the data beside noise like it, and how far it is on the way to a tree."""
    ways, data, noise = [], [], []
    for seed in range(samples):
        draws = torch.Generator().manual_seed(seed)
        rows = vectors[torch.randperm(len(vectors), generator=draws)[:size]]
        nulls = (gaussian_like(rows, seed=seed), gaussian_at_radii(rows, seed=seed))
        data.append(delta_hyperbolicity(rows).relative)
        noise.append(min(delta_hyperbolicity(null).relative for null in nulls))
        ways.append(1 - data[-1] / noise[-1])
    way = mean_interval(ways)
    off = way.half_width or 0.0
    if way.mean - off <= 0:
        verdict = "not more tree-like than noise"
    elif way.mean < LITTLE:
        verdict = "a little tree-like"
    else:
        verdict = f"{'strongly' if way.mean >= STRONG else 'somewhat'} tree-like"
    deltas = f"δ {mean_interval(data).format()}, of noise {mean_interval(noise).format()}"
    print(f"{name}: {deltas}, way to a tree {way.format()}: {verdict}")


def main() -> None:
    """Diagnose a file of vectors, or two tables made here."""
    parser = argparse.ArgumentParser(description="How tree-like vectors are, beside noise.")
    parser.add_argument("--vectors", type=Path, help="a .npy file, one vector a row")
    parser.add_argument("--samples", type=int, default=5, help="samples of the rows; 2 or more")
    parser.add_argument("--size", type=int, default=250, help="rows in a sample")
    options = parser.parse_args()
    torch.set_num_threads(1)

    torch.manual_seed(0)
    if options.vectors:
        table = torch.from_numpy(np.load(options.vectors, allow_pickle=False)).float()
        tables = {options.vectors.name: table}
    else:
        noise = torch.randn(340, DIMENSIONS)
        tables = {"vectors of a tree": tree_vectors(), "Gaussian noise": noise}
    for name, vectors in tables.items():
        diagnose(name, vectors, options.samples, options.size)


if __name__ == "__main__":
    main()
