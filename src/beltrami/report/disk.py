"""SVG pictures of an embedded tree: in the Poincaré disk, with geodesic edges, and in the plane.

Both share colours, sizes and labels, so that they can be compared side by side. Every node carries
its name as a hover title; only nodes near the centre of the disk and those with many descendants
are labelled in the picture, and only where the labels do not collide. Colours tell the families
(children of the root) apart, or show how deep a node lies. Inside a page that also carries
`disk.js`, a disk can be looked at from any node.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from beltrami.checks import check_choice
from beltrami.report.picture import svg_element
from beltrami.report.text import markup

Colour = Literal["family", "depth"]

RADIUS = 240.0  # of the disk, in SVG units
MARGIN_X, MARGIN_Y = 180.0, 32.0  # room for labels outside the rim, also for wide letters
FONT = 15.0
CHAR_WIDTH = 0.58 * FONT  # on average, of a system sans-serif
ASCENT, DESCENT = 0.85 * FONT, 0.25 * FONT  # of letters, from their base line
MAX_LABEL = 17  # characters; longer labels are cut, the hover title has them whole
MAX_LABELS = 36
LABEL_ALL = 30  # a tree of at most so many nodes has its leaves labelled, too
NEAR = 0.97  # nodes within this share of the radius are labelled even when they are leaves
RIM = 0.75  # labels of nodes beyond this share of the radius go outside the disk
EDGE_OF_DOUBLE = 1 - 1e-12  # the farthest observer
COLOURS = 8  # families (children of the root) take turns; disk.css defines as many
DEPTHS = 12  # steps of the scale for depths; deeper trees put several depths into a step
LEGEND_HEIGHT, SWATCH = 44.0, 46.0  # of the scale below a picture coloured by depth
STRAIGHT = 1e-7  # |p × q| below which a geodesic is drawn as the diameter it nearly is


@dataclass(frozen=True)
class Label:
    """A placed label."""

    text: str
    x: float
    y: float
    anchor: str  # SVG's text-anchor

    @property
    def sides(self) -> tuple[float, float]:
        """Left and right of the space it takes, from the average width of a letter."""
        width = CHAR_WIDTH * len(self.text)
        left = self.x - {"start": 0.0, "middle": width / 2, "end": width}[self.anchor]
        return left, left + width

    def meets(self, other: Label) -> bool:
        """Whether the two labels overlap."""
        (left, right), (other_left, other_right) = self.sides, other.sides
        beside = left < other_right and other_left < right
        return beside and abs(self.y - other.y) < ASCENT + DESCENT


def disk_svg(
    points: Tensor,
    parent: Sequence[int],
    labels: Sequence[str],
    *,
    title: str,
    description: str,
    centre: int = 0,
    colour: Colour = "family",
    extra_edges: Sequence[tuple[int, int]] = (),
) -> str:
    """Draw a tree in the unit Poincaré disk, seen from one of its nodes; edges are geodesics.

    Args:
        points: (n, 2) in the unit disk. Points of a ball of curvature −c are to be multiplied by
            √c first.
        parent: index of each node's parent, −1 for the root; parents come first.
        labels: one a node; any text.
        title, description: for screen readers and on hover; both get the name of the central node.
        centre: the node that an isometry moves to the middle; the root by default.
        colour: "family" gives each child of the root and all below it a colour of its own;
            "depth" colours by the number of edges to the root, with a legend.
        extra_edges: (child, parent) pairs to be joined beside the tree's edges, by thin dashed
            geodesics: the other parents in a hierarchy that is not a tree.
    """
    places = in_disk(points)
    _check_tree(places, parent, labels)
    if not 0 <= centre < len(places):
        raise ValueError(f"centre must be a node from 0 to {len(places) - 1}, got {centre}")
    places = [seen_from(places[centre], z) for z in places]
    near = [i for i in range(len(places)) if abs(places[i]) < NEAR]
    near.sort(key=lambda i: abs(places[i]))
    rim = f'<circle class="rim" r="{RADIUS:g}"/>'
    parts = _tree(places, parent, labels, geodesic_path, extra_edges, colour, near)
    # disk.js changes both endings when the reader looks from another node.
    return svg_element(
        "tree disk",
        "\n".join([rim, *parts]),
        view_box=view_box(colour),
        title=f"{title}, seen from {labels[centre]}",
        description=f"{description} In the centre: {labels[centre]}.",
        style="disk.css",
        data=f' data-centre="{centre}"',
    )


def plane_svg(
    points: Tensor,
    parent: Sequence[int],
    labels: Sequence[str],
    *,
    title: str,
    description: str,
    colour: Colour = "family",
    extra_edges: Sequence[tuple[int, int]] = (),
) -> str:
    """Draw a tree in the Euclidean plane, scaled to fill the same square; edges are straight.

    Arguments as for `disk_svg`, except that points may lie anywhere.
    """
    places = as_complex(points)
    _check_tree(places, parent, labels)
    left, right = min(z.real for z in places), max(z.real for z in places)
    top, bottom = min(z.imag for z in places), max(z.imag for z in places)
    middle = complex(left + right, top + bottom) / 2
    largest = max(abs(z - middle) for z in places) or 1.0
    places = [(z - middle) / largest for z in places]
    parts = _tree(places, parent, labels, _line, extra_edges, colour, ())
    return svg_element(
        "tree plane",
        "\n".join(parts),
        view_box=view_box(colour),
        title=title,
        description=description,
        style="disk.css",
    )


def view_box(colour: Colour = "family") -> tuple[float, float, float, float]:
    """Left, top, width and height of a picture, with room for the legend of depths."""
    width, height = RADIUS + MARGIN_X, RADIUS + MARGIN_Y
    legend = LEGEND_HEIGHT if colour == "depth" else 0.0
    return -width, -height, 2 * width, 2 * height + legend


def seen_from(a: complex, z: complex) -> complex:
    """Where z lies after the isometry of the unit disk that moves a to 0: (z − a)/(1 − ā z).

    An observer whom rounding has put on the rim is moved inside, where the map exists.
    """
    if abs(a) > EDGE_OF_DOUBLE:
        a *= EDGE_OF_DOUBLE / abs(a)
    moved = (z - a) / (1 - a.conjugate() * z)
    return moved / max(1.0, abs(moved))


def geodesic_path(p: complex, q: complex) -> str:
    """SVG path of the geodesic between two points of the unit disk.

    It is the arc through p and q of the circle that meets the unit circle at right angles. The
    centre m of that circle satisfies 2 m·p = 1 + |p|² and 2 m·q = 1 + |q|²; its radius is |m − p|.
    Points in line with the origin are joined by a straight segment.
    """
    cross = p.real * q.imag - p.imag * q.real
    if abs(cross) < STRAIGHT:
        return _line(p, q)
    a, b = 1 + abs(p) ** 2, 1 + abs(q) ** 2
    centre = complex(a * q.imag - b * p.imag, b * p.real - a * q.real) / (2 * cross)
    radius = RADIUS * abs(centre - p)
    u, v = p - centre, q - centre
    sweep = 1 if u.real * v.imag - u.imag * v.real > 0 else 0
    return f"M{_at(p)}A{radius:.4f} {radius:.4f} 0 0 {sweep} {_at(q)}"


def _line(p: complex, q: complex) -> str:
    return f"M{_at(p)}L{_at(q)}"


def _at(z: complex) -> str:
    return f"{RADIUS * z.real:.4f} {RADIUS * z.imag:.4f}"


def as_complex(points: Tensor) -> list[complex]:
    """Points (n, 2) as complex numbers, which must be finite."""
    if points.ndim != 2 or points.shape[-1] != 2 or not len(points):
        raise ValueError(f"points must have shape (n, 2) with n > 0, got {tuple(points.shape)}")
    places = [complex(x, y) for x, y in points.detach().double().cpu().tolist()]
    for i, z in enumerate(places):
        if not cmath.isfinite(z):
            raise ValueError(f"points must be finite, got ({z.real}, {z.imag}) at {i}")
    return places


def in_disk(points: Tensor, *, rim: bool = True) -> list[complex]:
    """Points (n, 2) as complex numbers, which must lie in the disk, with its rim or without."""
    places = as_complex(points)
    for i, z in enumerate(places):
        radius = math.hypot(z.real, z.imag)
        if radius > 1 or (radius == 1 and not rim):
            raise ValueError(
                f"points must lie {'in' if rim else 'inside'} the unit disk, got "
                f"({z.real}, {z.imag}) at {i}; "
                "multiply points of a ball of curvature -c by sqrt(c)"
            )
    return places


def _check_tree(places: Sequence[complex], parent: Sequence[int], labels: Sequence[str]) -> None:
    if not len(places) == len(parent) == len(labels):
        raise ValueError(
            f"points, parent and labels must be equally long, got {len(places)}, {len(parent)} "
            f"and {len(labels)}"
        )
    for node, above in enumerate(parent):
        if not (above == -1 if node == 0 else 0 <= above < node):
            raise ValueError(
                f"the parent of node {node} must be {'an earlier node' if node else '-1'}, "
                f"got {above}; number the nodes from the root down"
            )


def _tree(
    places: Sequence[complex],
    parent: Sequence[int],
    labels: Sequence[str],
    path: Callable[[complex, complex], str],
    extra_edges: Sequence[tuple[int, int]],
    colour: Colour,
    near: Sequence[int],
) -> list[str]:
    """Edges, nodes, labels and legend; nodes that are `near` are labelled first, also leaves."""
    nodes = range(len(parent))
    for child, above in extra_edges:
        if child not in nodes or above not in nodes or child == above:
            raise ValueError(
                f"extra_edges must join two different nodes from 0 to {len(parent) - 1}, "
                f"got ({child}, {above})"
            )
    depth, size = [0] * len(parent), [0] * len(parent)  # edges to the root, nodes below
    for node in nodes[1:]:
        depth[node] = depth[parent[node]] + 1
    for node in reversed(nodes[1:]):
        size[parent[node]] += size[node] + 1
    classes = _classes(parent, depth, colour)
    edges = [("edge", parent[i], i) for i in nodes[1:]]
    edges += [("edge extra", above, child) for child, above in extra_edges]
    drawn = [
        f'<path class="{kind} {classes[i]}" data-from="{k}" data-to="{i}" '
        f'd="{path(places[k], places[i])}"/>'
        for kind, k, i in edges
    ]
    large = sorted(nodes, key=lambda i: -size[i])
    circles = []
    for i in large:  # small nodes last: they would vanish below the large ones otherwise
        facts = [f"depth {depth[i]}"] if colour == "depth" else []
        facts += [f"{size[i]} below"] if size[i] else []
        data = f'class="node {classes[i]}" data-node="{i}" data-parent="{parent[i]}"'
        circles.append(_circle(data, places[i], size[i], labels[i], facts))
    worth = [i for i in large if size[i] > 0 or len(size) <= LABEL_ALL]
    order = dict.fromkeys([*near, *worth])
    return [
        f'<g class="edges">{"".join(drawn)}</g>',
        f'<g class="nodes">{"".join(circles)}</g>',
        label_group(places, labels, list(order)),
        *(_legend(depth, classes) if colour == "depth" else []),
    ]


def _circle(data: str, z: complex, size: int, label: str, facts: Sequence[str]) -> str:
    label, note = markup(label), f" ({', '.join(facts)})" if facts else ""
    radius = 2.6 + 1.1 * math.log1p(size)
    return (
        f'<circle {data} data-x="{z.real!r}" data-y="{z.imag!r}" data-label="{label}" '
        f'cx="{RADIUS * z.real:.3f}" cy="{RADIUS * z.imag:.3f}" r="{radius:.2f}">'
        f"<title>{label}{note}</title></circle>"
    )


def _classes(parent: Sequence[int], depth: Sequence[int], colour: Colour) -> list[str]:
    """The class that colours each node and the edge to it."""
    check_choice("colour", colour, ("family", "depth"))
    if colour == "family":
        classes = ["c0"] * len(parent)
        children = [node for node in range(1, len(parent)) if parent[node] == 0]
        turn = {node: f"c{i % COLOURS + 1}" for i, node in enumerate(children)}
        for node in range(1, len(parent)):
            classes[node] = turn.get(node) or classes[parent[node]]
        return classes
    deepest = max(depth)
    if deepest < DEPTHS:  # the whole scale, also in a shallow tree
        return [f"d{round(d * (DEPTHS - 1) / max(1, deepest))}" for d in depth]
    return [f"d{d * DEPTHS // (deepest + 1)}" for d in depth]


def _legend(depth: Sequence[int], classes: Sequence[str]) -> list[str]:
    """The scale from the root's depth to the deepest, below the picture."""
    steps: dict[str, list[int]] = {}
    for d, name in sorted(zip(depth, classes, strict=True)):
        steps.setdefault(name, []).append(d)
    left, top = -SWATCH * len(steps) / 2, RADIUS + MARGIN_Y
    parts = [f'<text x="{left - 10:.1f}" y="{top + 13:.1f}" text-anchor="end">Depth</text>']
    for i, (name, step) in enumerate(steps.items()):
        x = left + i * SWATCH
        label = f"{step[0]}" if step[0] == step[-1] else f"{step[0]}–{step[-1]}"
        parts.append(
            f'<rect class="swatch {name}" x="{x:.1f}" y="{top:.1f}" '
            f'width="{SWATCH:g}" height="16"/>'
            f'<text x="{x + SWATCH / 2:.1f}" y="{top + 33:.1f}" text-anchor="middle">{label}</text>'
        )
    return [f'<g class="legend" aria-hidden="true">{"".join(parts)}</g>']


def label_group(places: Sequence[complex], labels: Sequence[str], order: Sequence[int]) -> str:
    """The labels that `place_labels` places, as markup."""
    texts = [
        f'<text x="{label.x:.1f}" y="{label.y:.1f}" text-anchor="{label.anchor}">'
        f"{markup(label.text)}</text>"
        for label in place_labels(places, labels, order)
    ]
    return f'<g class="labels" aria-hidden="true">{"".join(texts)}</g>'


def place_labels(
    places: Sequence[complex], labels: Sequence[str], order: Sequence[int]
) -> list[Label]:
    """Labels for the nodes in `order`, leaving out those that would collide with an earlier one."""
    placed: list[Label] = []
    for node in order:
        label = _label_at(places[node], labels[node])
        if not any(label.meets(other) for other in placed):
            placed.append(label)
        if len(placed) == MAX_LABELS:
            break
    return placed


def _label_at(z: complex, text: str) -> Label:
    text = text if len(text) <= MAX_LABEL else text[: MAX_LABEL - 1] + "…"
    if abs(z) < RIM:
        return Label(text, RADIUS * z.real, RADIUS * z.imag - 9, "middle")
    direction = z / abs(z)
    anchor = "middle" if abs(direction.real) < 0.3 else "start" if direction.real > 0 else "end"
    out = (RADIUS + 9) * direction
    # Above the disk a label stands on its point, below it hangs from it.
    return Label(text, out.real, out.imag + FONT * (0.35 + 0.4 * direction.imag), anchor)
