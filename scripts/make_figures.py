"""The pictures and figures of docs/why-hyperbolic.md, from beltrami's own functions.

Usage: python -m scripts.make_figures (or `make figures`); about a minute

Writes docs/figures/*.svg and the text between the markers of the page: every number there is
measured here.
"""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch import Tensor

from beltrami.analysis import average_distortion
from beltrami.geometry import lorentz
from benchmarks import markers
from scripts.svg import BLUE, GREY, INK, ORANGE, PURPLE, RULE, TEAL, Axes, Picture

ROOT = Path(__file__).resolve().parent.parent
PAGE, FIGURES = ROOT / "docs/why-hyperbolic.md", ROOT / "docs/figures"
DEPTHS = range(2, 8)
EDGES = (1.2, 2.0, 4.0)
SHOWN_DEPTH = 6
STEPS = 2000
LEARNING_RATES = (0.1, 0.2, 0.5, 1.0)
EDGE_COLOURS = dict(zip(EDGES, (TEAL, BLUE, PURPLE), strict=True))


# --- circles -------------------------------------------------------------------------------------


def circumference(radius: float, corners: int = 1 << 16) -> float:
    """Length of a hyperbolic circle, summed over the sides of a fine polygon."""
    angle = torch.arange(corners, dtype=torch.float64) * (2 * math.pi / corners)
    x = lorentz.exp0(radius * torch.stack([angle.cos(), angle.sin()], dim=-1))
    return float(lorentz.dist(x, x.roll(1, 0)).sum())


def draw_circles() -> str:
    radii = [0.1 * i for i in range(1, 81)]
    curved = [circumference(r) for r in radii]
    picture = Picture(720, 400, "Circumference of a circle by its radius")
    axes = Axes(picture, 70, 30, 560, 340, (0, 8), (1, 1e4), log_y=True)
    axes.frame(range(9), (1, 10, 100, 1000, 10000), "radius")
    axes.curve(radii, curved, BLUE)
    axes.curve(radii, [2 * math.pi * r for r in radii], ORANGE)
    axes.curve(radii, [2.0**r for r in radii], GREY, "5 4")
    picture.text((70, 20), "length of a circle of radius r, logarithmic", INK, 14)
    for r, value, words, colour in (
        (8, curved[-1], "hyperbolic plane", BLUE),
        (8, 2 * math.pi * 8, "Euclidean plane", ORANGE),
        (8, 2.0**8, "2ʳ nodes at depth r", GREY),
    ):
        x, y = axes.at(r, value)
        picture.text((x + 8, y + 4), words, colour)
    (FIGURES / "circles.svg").write_text(picture.svg(), encoding="utf-8")
    lines = [
        "| radius | Euclidean circle | hyperbolic circle | nodes at that depth of a binary tree |"
    ]
    lines.append("|---|---|---|---|")
    for r in (1, 2, 4, 6, 8, 10):
        flat, curved_r = 2 * math.pi * r, circumference(float(r), corners=1 << 20)
        lines.append(f"| {r} | {flat:,.1f} | {curved_r:,.1f} | {2**r:,} |")
    return "\n".join(lines)


# --- a tree in both planes ------------------------------------------------------------------------


def children_directions(towards_parent: Tensor) -> Tensor:
    """(n, 2, 2): two unit vectors a node, at ±120° from the direction of its parent."""
    angle = torch.atan2(towards_parent[:, 1], towards_parent[:, 0])[:, None]
    angle = angle + torch.tensor([1.0, -1.0], dtype=angle.dtype) * (2 * math.pi / 3)
    return torch.stack([angle.cos(), angle.sin()], dim=-1)


def level_sizes(depth: int) -> list[int]:
    """Every node has three neighbours: 1, 3, 6, 12, ... nodes a level."""
    return [1] + [3 * 2**i for i in range(depth)]


def parents_of(depth: int) -> list[int]:
    """Index of each node's parent, level by level; the root is its own."""
    parents, start = [0, 0, 0, 0], 1
    for size in level_sizes(depth)[1:-1]:
        parents += [start + i // 2 for i in range(2 * size)]
        start += size
    return parents


def hyperbolic_tree(depth: int, edge: float) -> Tensor:
    """The tree in the hyperbolic plane by Sarkar's construction, (nodes, 2), all edges as long.

    Each node is boosted to the origin, its children are put there at ±120° from the parent, and
    the boost is undone.
    """
    angle = math.pi * (0.5 + torch.tensor([0.0, 2.0, 4.0], dtype=torch.float64) / 3)
    root = torch.zeros(1, 2, dtype=torch.float64)
    level = lorentz.exp0(edge * torch.stack([angle.cos(), angle.sin()], dim=-1))
    parents, levels = root.expand(3, 2), [root, level]
    for _ in range(depth - 1):
        seen = lorentz.boost(parents, -level)
        steps = lorentz.exp0(edge * children_directions(seen))
        parents = level.repeat_interleave(2, 0)
        level = lorentz.boost(steps.flatten(0, 1), parents)
        levels.append(level)
    return torch.cat(levels)


def tree_distances(depth: int) -> Tensor:
    """Edges between all pairs of nodes."""
    parent = torch.tensor(parents_of(depth))
    n = len(parent)
    a = torch.arange(n)[:, None].expand(n, n)
    b, steps = a.T, torch.zeros(n, n, dtype=torch.float64)
    for _ in range(2 * depth):  # parents come first: the later of the two moves up until they meet
        up_a, up_b = a > b, b > a
        a, b = torch.where(up_a, parent[a], a), torch.where(up_b, parent[b], b)
        steps += (up_a | up_b).double()
    return steps


def radial_layout(depth: int) -> Tensor:
    """The usual drawing of a tree in the plane: levels on circles, evenly spaced."""
    rows = []
    for level, size in enumerate(level_sizes(depth)):
        angle = (torch.arange(size, dtype=torch.float64) + 0.5) * (2 * math.pi / size)
        rows.append(level * torch.stack([angle.cos(), angle.sin()], dim=-1))
    return torch.cat(rows)


def euclidean_tree(depth: int, wanted: Tensor) -> Tensor:
    """The tree in the plane: the fit with the lowest final loss over LEARNING_RATES."""
    fits = [fit_plane(radial_layout(depth), wanted, rate) for rate in LEARNING_RATES]
    return min(fits, key=lambda fit: fit[1])[0]


def fit_plane(start: Tensor, wanted: Tensor, learning_rate: float) -> tuple[Tensor, float]:
    """Points (nodes, 2) by Adam on the mean squared relative error from `start`, and that error."""
    x = start.clone().requires_grad_()
    rows, columns = torch.triu_indices(len(x), len(x), 1)
    target = wanted[rows, columns]

    def error() -> Tensor:
        found = torch.linalg.vector_norm(x[rows] - x[columns], dim=-1)
        return ((found / target - 1) ** 2).mean()

    optimiser = torch.optim.Adam([x], lr=learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, STEPS)
    for _ in range(STEPS):
        optimiser.zero_grad()
        error().backward()
        optimiser.step()
        schedule.step()
    return x.detach(), error().item()


def distortion(found: Tensor, wanted: Tensor) -> tuple[float, float]:
    """(mean |s·d/d_tree − 1| at its best scale s, largest over smallest d/d_tree)."""
    rows, columns = torch.triu_indices(len(found), len(found), 1)
    ratio = found[rows, columns] / wanted[rows, columns]
    return average_distortion(ratio), float(ratio.max() / ratio.min())


def to_disk(x: Tensor) -> Tensor:
    """Poincaré disk coordinates, for drawing."""
    return x / (1 + lorentz.time(x, keepdim=True))


def geodesic(a: Tensor, b: Tensor) -> Tensor:
    t = torch.linspace(0, 1, 13, dtype=a.dtype)[:, None]
    return to_disk(lorentz.geodesic(a, b, t))


def draw_trees(flat: Tensor) -> None:
    curved = hyperbolic_tree(SHOWN_DEPTH, edge=EDGES[0])
    picture = Picture(720, 390, "A tree in the Euclidean and in the hyperbolic plane")
    left, right, size = (180.0, 200.0), (540.0, 200.0), 160.0
    picture.ring(right, size, RULE)
    extent = float(flat.norm(dim=-1).max())
    flat = flat * (size / extent)
    disk = to_disk(curved)
    for i, parent in enumerate(parents_of(SHOWN_DEPTH)):
        ends = [(left[0] + float(p[0]), left[1] + float(p[1])) for p in (flat[parent], flat[i])]
        picture.line(ends, ORANGE, 1)
        arc = geodesic(curved[parent], curved[i]) * size
        picture.line([(right[0] + float(p[0]), right[1] + float(p[1])) for p in arc], BLUE, 1)
    for i in range(len(curved)):
        x, y = (float(v) for v in flat[i])
        picture.dot((left[0] + x, left[1] + y), 2.4, ORANGE)
        x, y = (float(v) for v in disk[i] * size)
        # Drawn as large as it is there: sizes shrink towards the rim, as distances do.
        shrink = 1 - float((disk[i] * disk[i]).sum())
        picture.dot((right[0] + x, right[1] + y), max(0.7, 4 * shrink), BLUE)
    words = f"{len(curved)} nodes, depth {SHOWN_DEPTH}"
    picture.text((left[0], 26), "Euclidean plane", INK, 14, "middle")
    picture.text((right[0], 26), "hyperbolic plane, in the Poincaré disk", INK, 14, "middle")
    picture.text((left[0], 382), words, GREY, 12, "middle")
    picture.text((right[0], 382), f"{words}, all edges of length {EDGES[0]:g}", GREY, 12, "middle")
    (FIGURES / "trees.svg").write_text(picture.svg(), encoding="utf-8")


def draw_distortion(flat: dict[int, float], curved: dict[float, dict[int, float]]) -> None:
    top = math.ceil(max(flat.values()) * 10) / 10
    picture = Picture(740, 360, "Mean distortion of a tree by depth")
    axes = Axes(picture, 60, 40, 560, 300, (DEPTHS[0], DEPTHS[-1]), (0, top))
    axes.frame(DEPTHS, [i / 10 for i in range(int(top * 10) + 1)], "depth of the tree")
    picture.text((60, 22), "mean relative error of distances", INK, 14)
    named = [("Euclidean plane", ORANGE, flat)]
    named += [(f"hyperbolic, edge {e:g}", EDGE_COLOURS[e], curved[e]) for e in EDGES]
    named.sort(key=lambda line: -line[2][DEPTHS[-1]])
    lowest = -math.inf
    for name, colour, values in named:
        axes.curve(list(values), list(values.values()), colour)
        x, y = axes.at(DEPTHS[-1], values[DEPTHS[-1]])
        lowest = max(y + 4, lowest + 16)  # labels do not overlap
        picture.text((x + 8, lowest), name, colour)
    (FIGURES / "distortion.svg").write_text(picture.svg(), encoding="utf-8")


def measure_trees() -> str:
    flat: dict[int, tuple[float, float]] = {}
    curved: dict[float, dict[int, tuple[float, float]]] = {e: {} for e in EDGES}
    for depth in DEPTHS:
        wanted = tree_distances(depth)
        placed = euclidean_tree(depth, wanted)
        flat[depth] = distortion(torch.cdist(placed, placed), wanted)
        for edge in EDGES:
            x = hyperbolic_tree(depth, edge)
            curved[edge][depth] = distortion(lorentz.pairwise_dist(x, x), wanted)
        if depth == SHOWN_DEPTH:
            draw_trees(placed)
    draw_distortion(
        {d: v[0] for d, v in flat.items()},
        {e: {d: v[0] for d, v in rows.items()} for e, rows in curved.items()},
    )
    header = ["depth", "nodes", "Euclidean", *(f"hyperbolic, edge {e:g}" for e in EDGES)]
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for d in DEPTHS:
        cells = [flat[d], *(curved[e][d] for e in EDGES)]
        words = [f"{100 * mean:.1f} %, {worst:.1f}×" for mean, worst in cells]
        lines.append("| " + " | ".join([str(d), str(sum(level_sizes(d))), *words]) + " |")
    return "\n".join(lines)


def main() -> None:
    torch.set_num_threads(1)  # sums in a fixed order; and threads gain nothing at this size
    FIGURES.mkdir(parents=True, exist_ok=True)
    for name, text in (("circles", draw_circles()), ("trees", measure_trees())):
        markers.replace(PAGE, name, text)
        print(f"{name}\n\n{text}\n")


if __name__ == "__main__":
    main()
