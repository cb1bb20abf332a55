"""Widths and the losses reached with them, as every fit takes and draws them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from beltrami.report.chart_frame import as_tensor
from beltrami.report.lines import Series, line_chart
from beltrami.report.picture import Picture

Numbers = Sequence[float] | Tensor
"""A list of numbers, or a tensor of them."""


def pairs_of(widths: Numbers, losses: Numbers) -> tuple[Tensor, Tensor]:
    """Both as float64 of the same length, in the order given; widths are positive."""
    m, loss = as_tensor(widths, "widths"), as_tensor(losses, "losses")
    if len(m) != len(loss):
        raise ValueError(f"there are {len(m)} widths and {len(loss)} losses: give one loss a width")
    for name, values in (("widths", m), ("losses", loss)):
        if not bool(torch.isfinite(values).all()):
            bad = int((~torch.isfinite(values)).nonzero()[0])
            raise ValueError(f"{name} must be finite, got {values[bad].item()} at place {bad}")
    if len(m) and float(m.min()) <= 0:
        raise ValueError(f"widths must be positive, got {float(m.min()):g}")
    return m, loss


def sorted_points(widths: Numbers, losses: Numbers) -> tuple[Tensor, Tensor]:
    """By width, and by loss where a width was trained several times; losses are positive."""
    m, loss = pairs_of(widths, losses)
    if len(loss) and float(loss.min()) <= 0:
        raise ValueError(
            f"losses must be positive, for their logarithms are fitted; got {float(loss.min()):g}"
        )
    order = sorted(range(len(m)), key=lambda i: (float(m[i]), float(loss[i])))
    return m[order], loss[order]


def group_means(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Different x, the means of their y, and the place of each point among them."""
    different, group = x.unique(return_inverse=True)
    sums = y.new_zeros(len(different)).index_add(0, group, y)
    return different, sums / torch.bincount(group), group


def loss_chart(
    lines: Sequence[Series], *, title: str, description: str, y_label: str = "Loss"
) -> Picture:
    """Losses over widths in log-log axes, where a power law is a line."""
    return Picture(
        line_chart(
            lines,
            title=title,
            description=description,
            x_label="Width m",
            y_label=y_label,
            x_log=True,
            y_log=True,
        )
    )
