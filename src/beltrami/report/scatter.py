"""Points in the Poincaré disk, without edges, as SVG; each tells its label on hover."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from beltrami.report.disk import RADIUS, label_group, view_box
from beltrami.report.picture import svg_element
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
    rim = f'<circle class="rim" r="{RADIUS:g}"/>'
    parts = [rim, f"<g>{''.join(dots)}</g>", label_group(places, labels, order)]
    return svg_element(
        "tree",
        "\n".join(parts),
        view_box=view_box(),
        title=title,
        description=description,
        style="disk.css",
    )


def _room(places: Sequence[complex], i: int) -> float:
    """How far a point is from its nearest in the picture; what stands alone can be labelled."""
    return min((abs(places[i] - z) for k, z in enumerate(places) if k != i), default=1.0)
