"""HoroPCA (Chami et al., 2021): principal directions to infinity.

A horospherical projection keeps how far points are towards each of k ideal points, so that it keeps
distances along the geodesics that lead there. The ideal points are sought whose projection spreads
the points most: the mean of all squared distances is largest.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import torch
from torch import Tensor

from beltrami.analysis.lowering import Lowered, centred, check_lowering, lowered
from beltrami.analysis.tangent_pca import principal_directions
from beltrami.checks import check_integer
from beltrami.geometry import lorentz
from beltrami.geometry.hyperplane import horospherical_projection

MOST_SIGNS = 4  # components of which both ends are tried as a start


def horopca(
    x: Tensor,
    c: float = 1.0,
    *,
    components: int = 2,
    steps: int = 300,
    starts: int = 3,
    learning_rate: float = 0.05,
    sample: int = 1000,
    seed: int = 0,
    tick: Callable[[float], None] = lambda share: None,
) -> Lowered:
    """The horospherical projection that spreads points most.

    The first start has the directions of `tangent_pca`, with those ends that are best; the others
    are random.

    Args:
        x: space parts of Lorentz points, (n, d).
        c: curvature −c.
        components: dimensions to keep.
        steps, learning_rate: of Adam, from each start.
        starts: how many.
        sample: more points than this are represented by so many, drawn at random, while directions
            are sought; all of them are projected.
        seed: of starts and sample.
        tick: called with the share of the work that is done.
    """
    check_lowering(x, c, components)
    check_integer("steps", steps)
    check_integer("starts", starts)
    check_integer("sample", sample, low=2)
    moved = centred(x, c)
    g = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(moved), generator=g)[:sample]
    seen = moved if len(moved) <= sample else moved[chosen.to(moved.device)]
    first = _first_start(seen, c, components)
    others = torch.randn(starts - 1, *first.shape, generator=g, dtype=first.dtype).to(first.device)
    ends = []
    for number, start in enumerate((first, *others)):

        def step_done(step: int, number: int = number) -> None:
            tick((number + step / steps) / starts)

        ends.append(_climb(seen, c, start, steps, learning_rate, step_done))
    directions, _ = max(ends, key=lambda end: end[1])
    return lowered(moved, _image(moved, directions, c), c)


def _first_start(x: Tensor, c: float, components: int) -> Tensor:
    directions = principal_directions(lorentz.log0(x, c), components)
    if components > MOST_SIGNS:
        return directions
    signs = torch.tensor(list(product((1.0, -1.0), repeat=components)), dtype=x.dtype).to(x.device)
    ends = [sign.unsqueeze(1) * directions for sign in signs]
    best: Tensor = max(ends, key=lambda v: float(_spread(x, v, c)))
    return best


def _climb(
    x: Tensor,
    c: float,
    start: Tensor,
    steps: int,
    learning_rate: float,
    step_done: Callable[[int], None],
) -> tuple[Tensor, float]:
    """The directions of the largest spread on the way up from a start, and that spread."""
    with torch.inference_mode(False), torch.enable_grad():
        x, free = x.clone(), start.clone().requires_grad_()
        optimiser = torch.optim.Adam([free], lr=learning_rate)
        best, most = _orthonormal(start.clone()), -torch.inf
        for step in range(steps + 1):
            directions = _orthonormal(free)
            spread = _spread(x, directions, c)
            if spread.item() > most:
                best, most = directions.detach(), spread.item()
            if step < steps:
                optimiser.zero_grad()
                (-spread).backward()
                optimiser.step()
                step_done(step + 1)
    return best, most


def _orthonormal(rows: Tensor) -> Tensor:
    """By Gram and Schmidt: the first row keeps its direction."""
    q, r = torch.linalg.qr(rows.mT)
    directions: Tensor = (q * torch.where(r.diagonal() < 0, -1.0, 1.0)).mT
    return directions


def _image(x: Tensor, directions: Tensor, c: float) -> Tensor:
    """(n, k): where the projection lies in the subspace of the directions."""
    return horospherical_projection(x, directions, c) @ directions.mT


def _spread(x: Tensor, directions: Tensor, c: float) -> Tensor:
    image = _image(x, directions, c)
    return lorentz.pairwise_dist(image, image, c).square().mean()
