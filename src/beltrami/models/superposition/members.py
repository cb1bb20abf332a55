"""Which toy models there are: what each is told, and where it has its columns in a stack."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from beltrami.geometry.checks import check_integer

Readout = Literal["linear", "bent", "margin", "distance", "busemann"]


@dataclass(frozen=True)
class Member:
    """One toy model of a stack.

    Args:
        width: m, hidden dimensions.
        gamma: of the weights. 0 or more is weight decay: features that are not worth their place
            go. Below 0 the lengths of rows are drawn to 1 instead, at the rate |gamma|.
        unit: keep all rows at length 1; gamma does nothing then.
        stream: which of the stack's data it is trained on.
        rate, bias_rate: learning rates, at their highest.
    """

    width: int
    gamma: float = 0.0
    unit: bool = False
    stream: int = 0
    rate: float = 0.01
    bias_rate: float = 0.01

    def __post_init__(self) -> None:
        check_integer("width", self.width)
        if not math.isfinite(self.gamma):
            raise ValueError(f"gamma must be a finite number, got {self.gamma}")
        if self.stream < 0:
            raise ValueError(f"stream must be 0 or more, got {self.stream}")
        if not (0 < self.rate < math.inf and 0 < self.bias_rate < math.inf):
            raise ValueError(
                f"learning rates must be positive and finite, got {self.rate} and {self.bias_rate}"
            )


@dataclass(frozen=True)
class Block:
    """Members of one data stream whose columns are equally many, side by side in the table.

    A member has its weights first, then zeros up to the block's width, and its bias last.

    Args:
        members: their numbers in the stack. stream: whose data they see.
        start: their first column. columns: of each of them.
    """

    members: tuple[int, ...]
    stream: int
    start: int
    columns: int

    @property
    def stop(self) -> int:
        """The column after the last."""
        return self.start + len(self.members) * self.columns


def blocks_of(members: Sequence[Member], multiple: int) -> list[Block]:
    """Members by stream and by width, each with columns up to the next multiple of a number."""

    def columns(i: int) -> int:
        return -(-(members[i].width + 1) // multiple) * multiple

    found: dict[tuple[int, int], list[int]] = {}
    for i in sorted(range(len(members)), key=lambda i: (members[i].stream, columns(i), i)):
        found.setdefault((members[i].stream, columns(i)), []).append(i)
    blocks, start = [], 0
    for (stream, width), some in found.items():
        blocks.append(Block(tuple(some), stream, start, width))
        start = blocks[-1].stop
    return blocks
