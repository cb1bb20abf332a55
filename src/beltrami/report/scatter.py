"""Points in the Poincaré disk, without edges, as SVG; each tells its label on hover."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from torch import Tensor

from beltrami.report.disk import MARGIN_X, MARGIN_Y, RADIUS, place_labels, style
from beltrami.report.text import markup

DOT = 3.2


def scatter_svg(points: Tensor, labels: Sequence[str], *, title: str, description: str) -> str:
    """Draw points of the unit disk; those far from the others are labelled, as there is room.

    Args:
        points: (n, 2), at most 1 from the centre.
        labels: one a point; any text.
        title: of the picture, for screen readers and on hover.
        description: a sentence on what it shows, for screen readers.
    """
    if points.ndim != 2 or points.shape[-1] != 2 or len(points) != len(labels) or not len(points):
        raise ValueError(
            f"points must be (n, 2) with a label each, got {tuple(points.shape)} and "
            f"{len(labels)} labels"
        )
    if not float(points.norm(dim=1).max()) <= 1:
        raise ValueError("points must lie in the unit disk")
    places = [complex(x, y) for x, y in points.detach().double().cpu().tolist()]
    dots = (
        f'<circle class="node c1" cx="{RADIUS * z.real:.3f}" cy="{RADIUS * z.imag:.3f}" r="{DOT}">'
        f"<title>{markup(label)}</title></circle>"
        for z, label in zip(places, labels, strict=True)
    )
    order = sorted(range(len(places)), key=lambda i: -_room(places, i))
    texts = (
        f'<text x="{label.x:.1f}" y="{label.y:.1f}" text-anchor="{label.anchor}">'
        f"{markup(label.text)}</text>"
        for label in place_labels(places, labels, order)
    )
    width, height = RADIUS + MARGIN_X, RADIUS + MARGIN_Y
    # A page may hold several, and ids must differ.
    name = f"scatter-{zlib.crc32(repr((places, title)).encode()):08x}"
    return (
        f'<svg class="tree" role="img" aria-labelledby="{name}-title {name}-text" '
        f'viewBox="{-width:g} {-height:g} {2 * width:g} {2 * height:g}" '
        f'xmlns="http://www.w3.org/2000/svg"><title id="{name}-title">{markup(title)}</title>'
        f'<desc id="{name}-text">{markup(description)}</desc><style>{style()}</style>\n'
        f'<circle class="rim" r="{RADIUS:g}"/>\n<g>{"".join(dots)}</g>\n'
        f'<g aria-hidden="true">{"".join(texts)}</g>\n</svg>'
    )


def _room(places: Sequence[complex], i: int) -> float:
    """How far a point is from its nearest in the picture; what stands alone can be labelled."""
    return min((abs(places[i] - z) for k, z in enumerate(places) if k != i), default=1.0)
