"""Points in the Poincaré disk, without edges, as SVG; each tells its label on hover."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from beltrami.report.disk import RADIUS, in_disk, label_group, view_box
from beltrami.report.picture import svg_element
from beltrami.report.text import markup

DOT = 3.2


def scatter_svg(points: Tensor, labels: Sequence[str], *, title: str, description: str) -> str:
    """Draw points of the unit disk; those far from the others are labelled, as there is room.

    Args:
        points: (n, 2), at most 1 from the centre.
        labels: one a point; any text.
        title, description: for screen readers and on hover.
    """
    places = in_disk(points)
    if len(labels) != len(places):
        raise ValueError(f"{len(places)} points must have a label each, got {len(labels)} labels")
    dots = (
        f'<circle class="node c1" cx="{RADIUS * z.real:.3f}" cy="{RADIUS * z.imag:.3f}" r="{DOT}">'
        f"<title>{markup(label)}</title></circle>"
        for z, label in zip(places, labels, strict=True)
    )
    order = sorted(range(len(places)), key=lambda i: _room(points, i), reverse=True)
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


def _room(points: Tensor, i: int) -> float:
    """How far a point is from its nearest in the picture; what stands alone can be labelled."""
    apart = (points.detach().double() - points[i]).norm(dim=1)
    apart[i] = torch.inf
    return float(apart.min())
