"""SVG pictures of an embedded tree: in the Poincaré disk, with geodesic edges, and in the plane.

Both pictures share colours, sizes and labels, so that they can be compared side by side. Each is a
complete SVG element that needs nothing else. Every node carries its name as a hover title; only
nodes near the centre of the disk and those with many descendants are labelled in the picture, and
only where the labels do not collide. Colours tell the families (children of the root) apart, or
show how deep a node lies. Inside a page that also carries `disk.js`, a disk can be looked at from
any node.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal, get_args

from torch import Tensor

from beltrami.report.text import markup

Colour = Literal["family", "depth"]

RADIUS = 240.0  # of the disk, in SVG units
MARGIN_X, MARGIN_Y = 180.0, 32.0  # room for labels outside the rim, also for wide letters
FONT = 15.0
CHAR_WIDTH = 0.58 * FONT  # on average, of a system sans-serif
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
class Box:
    """Where a label would stand."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Box) -> bool:
        """Whether the two boxes overlap."""
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )


@dataclass(frozen=True)
class Label:
    """A placed label."""

    text: str
    x: float
    y: float
    anchor: str  # SVG's text-anchor

    @property
    def box(self) -> Box:
        """The space it takes, from the average width of a letter."""
        width = CHAR_WIDTH * len(self.text)
        left = self.x - {"start": 0.0, "middle": width / 2, "end": width}[self.anchor]
        return Box(left, self.y - 0.85 * FONT, left + width, self.y + 0.25 * FONT)


@dataclass(frozen=True)
class Colouring:
    """The class that colours each node and the edge to it, and the legend that explains it."""

    classes: Sequence[str]
    depth: Sequence[int]
    by_depth: bool

    @property
    def legend_height(self) -> float:
        """How much room the legend takes below the picture."""
        return LEGEND_HEIGHT if self.by_depth else 0.0

    def legend(self, top: float) -> list[str]:
        """The scale from the root's depth to the deepest, from `top` downwards."""
        if not self.by_depth:
            return []
        steps: dict[str, list[int]] = {}
        for depth, name in sorted(zip(self.depth, self.classes, strict=True)):
            steps.setdefault(name, []).append(depth)
        left = -SWATCH * len(steps) / 2
        parts = [f'<text x="{left - 10:.1f}" y="{top + 13:.1f}" text-anchor="end">Depth</text>']
        for i, (name, depths) in enumerate(steps.items()):
            x = left + i * SWATCH
            label = f"{depths[0]}" if depths[0] == depths[-1] else f"{depths[0]}–{depths[-1]}"
            parts.append(
                f'<rect class="swatch {name}" x="{x:.1f}" y="{top:.1f}" '
                f'width="{SWATCH:g}" height="16"/>'
                f'<text x="{x + SWATCH / 2:.1f}" y="{top + 33:.1f}" '
                f'text-anchor="middle">{label}</text>'
            )
        return [f'<g class="legend" aria-hidden="true">{"".join(parts)}</g>']


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
        title: what the picture is called, for screen readers and on hover; ", seen from" and the
            central node are added.
        description: a sentence on what it shows, for screen readers; one on the central node is
            added.
        centre: the node that an isometry moves to the middle; the root by default.
        colour: "family" gives each child of the root and all below it a colour of its own;
            "depth" colours by the number of edges to the root, with a legend.
        extra_edges: (child, parent) pairs to be joined beside the tree's edges, by thin dashed
            geodesics: the other parents in a hierarchy that is not a tree.
    """
    places = _as_complex(points, parent, labels)
    if not 0 <= centre < len(places):
        raise ValueError(f"centre must be a node from 0 to {len(places) - 1}, got {centre}")
    outside = max(abs(z) for z in places)
    if not outside <= 1:
        raise ValueError(
            f"points must lie in the unit disk, got one at radius {outside:g}; "
            "multiply points of a ball of curvature -c by sqrt(c)"
        )
    places = [seen_from(places[centre], z) for z in places]
    rim = f'<circle class="rim" r="{RADIUS:g}"/>'
    edges = _edges(parent, extra_edges)
    paths = [geodesic_path(places[i], places[k]) for i, k in edges]
    order = _near_then_large(places, descendants(parent))
    # disk.js changes both endings when the reader looks from another node.
    title = f"{title}, seen from {labels[centre]}"
    description = f"{description} In the centre: {labels[centre]}."
    look = _colouring(parent, colour)
    return _svg(
        "disk", centre, places, parent, labels, edges, paths, order, look, rim, title, description
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
    places = _as_complex(points, parent, labels)
    left, right = min(z.real for z in places), max(z.real for z in places)
    top, bottom = min(z.imag for z in places), max(z.imag for z in places)
    middle = complex(left + right, top + bottom) / 2
    reach = max(abs(z - middle) for z in places) or 1.0
    places = [(z - middle) / reach for z in places]
    edges = _edges(parent, extra_edges)
    paths = [_line(places[i], places[k]) for i, k in edges]
    order = _large(descendants(parent))
    look = _colouring(parent, colour)
    return _svg(
        "plane", 0, places, parent, labels, edges, paths, order, look, "", title, description
    )


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


def _as_complex(points: Tensor, parent: Sequence[int], labels: Sequence[str]) -> list[complex]:
    if points.ndim != 2 or points.shape[-1] != 2 or not len(points):
        raise ValueError(f"points must have shape (n, 2) with n > 0, got {tuple(points.shape)}")
    if not len(points) == len(parent) == len(labels):
        raise ValueError(
            f"points, parent and labels must be equally long, got {len(points)}, {len(parent)} "
            f"and {len(labels)}"
        )
    for node, above in enumerate(parent):
        if not (above == -1 if node == 0 else 0 <= above < node):
            raise ValueError(
                f"the parent of node {node} must be {'an earlier node' if node else '-1'}, "
                f"got {above}; number the nodes from the root down"
            )
    places = [complex(x, y) for x, y in points.detach().double().cpu().tolist()]
    if not all(math.isfinite(z.real) and math.isfinite(z.imag) for z in places):
        raise ValueError("points must be finite")
    return places


def _svg(
    kind: str,
    centre: int,
    places: Sequence[complex],
    parent: Sequence[int],
    labels: Sequence[str],
    edges: Sequence[tuple[int, int]],
    paths: Sequence[str],
    label_order: Sequence[int],
    look: Colouring,
    background: str,
    title: str,
    description: str,
) -> str:
    size = descendants(parent)
    width, height = RADIUS + MARGIN_X, RADIUS + MARGIN_Y
    # A page may hold the same tree in several models, and ids must differ.
    print_of_points = zlib.crc32(repr((places, title, description)).encode())
    name = f"{kind}-{centre}-{print_of_points:08x}"
    head = (
        f'<svg class="tree {kind}" data-centre="{centre}" role="img" '
        f'aria-labelledby="{name}-title {name}-text" '
        f'viewBox="{-width:g} {-height:g} {2 * width:g} {2 * height + look.legend_height:g}" '
        'xmlns="http://www.w3.org/2000/svg">'
        f'<title id="{name}-title">{markup(title)}</title>'
        f'<desc id="{name}-text">{markup(description)}</desc>'
        f"<style>{style()}</style>"
    )
    drawn = [
        f'<path class="edge{"" if n < len(parent) - 1 else " extra"} {look.classes[k]}" '
        f'data-from="{i}" data-to="{k}" d="{d}"/>'
        for n, ((i, k), d) in enumerate(zip(edges, paths, strict=True))
    ]
    # Small nodes last: they would vanish below the large ones otherwise.
    order = sorted(range(len(places)), key=lambda i: -size[i])
    nodes = [_node(i, places[i], size[i], look, parent[i], labels[i]) for i in order]
    texts = [
        f'<text x="{label.x:.1f}" y="{label.y:.1f}" text-anchor="{label.anchor}">'
        f"{markup(label.text)}</text>"
        for label in place_labels(places, labels, label_order)
    ]
    return "\n".join(
        [
            head,
            background,
            f'<g class="edges">{"".join(drawn)}</g>',
            f'<g class="nodes">{"".join(nodes)}</g>',
            f'<g class="labels" aria-hidden="true">{"".join(texts)}</g>',
            *look.legend(RADIUS + MARGIN_Y),
            "</svg>",
        ]
    )


def style() -> str:
    """The style that every picture of the disk carries."""
    return files("beltrami.report").joinpath("disk.css").read_text(encoding="utf-8")


def _node(index: int, z: complex, size: int, look: Colouring, parent: int, label: str) -> str:
    facts = [f"depth {look.depth[index]}"] if look.by_depth else []
    facts += [f"{size} below"] if size else []
    note = f" ({', '.join(facts)})" if facts else ""
    radius = 2.6 + 1.1 * math.log1p(size)
    return (
        f'<circle class="node {look.classes[index]}" data-node="{index}" data-parent="{parent}" '
        f'data-x="{z.real!r}" data-y="{z.imag!r}" data-label="{markup(label)}" '
        f'cx="{RADIUS * z.real:.3f}" cy="{RADIUS * z.imag:.3f}" r="{radius:.2f}">'
        f"<title>{markup(label)}{note}</title></circle>"
    )


def descendants(parent: Sequence[int]) -> list[int]:
    """Number of nodes below each node."""
    count = [0] * len(parent)
    for node in range(len(parent) - 1, 0, -1):
        count[parent[node]] += count[node] + 1
    return count


def families(parent: Sequence[int]) -> list[int]:
    """A colour number for each node: 0 for the root, then one a child of the root, in turns."""
    colour = [0] * len(parent)
    met = 0
    for node in range(1, len(parent)):
        if parent[node] == 0:
            colour[node] = met % COLOURS + 1
            met += 1
        else:
            colour[node] = colour[parent[node]]
    return colour


def depths(parent: Sequence[int]) -> list[int]:
    """Number of edges from each node to the root."""
    depth = [0] * len(parent)
    for node in range(1, len(parent)):
        depth[node] = depth[parent[node]] + 1
    return depth


def _colouring(parent: Sequence[int], colour: Colour) -> Colouring:
    if colour not in get_args(Colour):
        raise ValueError(f'colour must be "family" or "depth", got {colour!r}')
    depth = depths(parent)
    if colour == "family":
        return Colouring([f"c{number}" for number in families(parent)], depth, by_depth=False)
    deepest = max(depth)
    if deepest < DEPTHS:  # the whole scale, also in a shallow tree
        steps = [round(d * (DEPTHS - 1) / max(1, deepest)) for d in depth]
    else:
        steps = [d * DEPTHS // (deepest + 1) for d in depth]
    return Colouring([f"d{step}" for step in steps], depth, by_depth=True)


def _edges(parent: Sequence[int], extra_edges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """(parent, child) of all edges, the tree's first."""
    nodes = range(len(parent))
    extra = []
    for pair in extra_edges:
        child, above = (int(node) for node in pair)
        if child not in nodes or above not in nodes or child == above:
            raise ValueError(
                f"extra_edges must join two different nodes from 0 to {len(parent) - 1}, "
                f"got ({child}, {above})"
            )
        extra.append((above, child))
    return [(parent[i], i) for i in nodes if parent[i] >= 0] + extra


def _large(size: Sequence[int]) -> list[int]:
    """Nodes worth a label, the one with most descendants first; leaves only in small trees."""
    wanted = [i for i in range(len(size)) if size[i] > 0 or len(size) <= LABEL_ALL]
    return sorted(wanted, key=lambda i: -size[i])


def _near_then_large(places: Sequence[complex], size: Sequence[int]) -> list[int]:
    """In a disk, what is near the centre comes first, be it a leaf; then what is large."""
    near = [i for i in range(len(places)) if abs(places[i]) < NEAR]
    near.sort(key=lambda i: abs(places[i]))
    return near + [i for i in _large(size) if abs(places[i]) >= NEAR]


def place_labels(
    places: Sequence[complex], labels: Sequence[str], order: Sequence[int]
) -> list[Label]:
    """Labels for the nodes in `order`, leaving out those that would collide with an earlier one."""
    placed: list[Label] = []
    for node in order:
        label = _label_at(places[node], labels[node])
        if all(not label.box.meets(other.box) for other in placed):
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
