"""What the results of all measures share."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Result:
    """A named group of numbers; tensors beside them are details for those who want to look."""

    def as_dict(self) -> dict[str, float]:
        """The numbers as plain floats by name, without the tensors."""
        values = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {name: float(value) for name, value in values if isinstance(value, (int, float))}
