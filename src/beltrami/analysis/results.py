"""What the results of all measures share."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Result:
    """A named group of numbers; tensors beside them are details for those who want to look."""

    def as_dict(self) -> dict[str, float]:
        """The numbers as plain floats by name, without the tensors."""
        values = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {name: float(value) for name, value in values if isinstance(value, (int, float))}

    def as_json(self) -> dict[str, Any]:
        """All fields but tensors, as JSON can hold them: numbers that are not finite are None."""
        return _fields(self)


def _fields(value: Any) -> dict[str, Any]:
    named = ((field.name, getattr(value, field.name)) for field in fields(value))
    return {name: _plain(part) for name, part in named if not isinstance(part, Tensor)}


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return _fields(value) if is_dataclass(value) else value
