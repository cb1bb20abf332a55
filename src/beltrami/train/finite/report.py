"""What is said about something that is not finite: where it began, and what tensors held."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from beltrami.geometry import Manifold
from beltrami.optim.sharded import is_sharded, local
from beltrami.train.finite.processes import rank

Cause = Literal["parameter", "buffer", "batch", "forward", "loss", "backward"]


class NonFiniteLossError(ArithmeticError):
    """A run was stopped because its loss, or the norm of its gradients, is not finite.

    Attributes:
        origin: where it began, if that could be found.
        step: the optimiser step, counted from 1.
    """

    def __init__(
        self, message: str, *, origin: NonFinite | None = None, step: int | None = None
    ) -> None:
        super().__init__(message)
        self.origin = origin
        self.step = step


@dataclass(frozen=True)
class Entries:
    """What a tensor held: how many entries are NaN, +∞ and −∞, and the largest finite |entry|."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    nan: int
    inf: int
    minus_inf: int
    largest: float

    @property
    def faulty(self) -> bool:
        """Whether there is a NaN or +∞; −∞ alone may be a mask."""
        return self.nan + self.inf > 0

    @property
    def bad(self) -> int:
        """How many entries are not finite."""
        return self.nan + self.inf + self.minus_inf

    def __str__(self) -> str:
        counts = (("nan", self.nan), ("inf", self.inf), ("-inf", self.minus_inf))
        total = 1
        for size in self.shape:
            total *= size
        bad = ", ".join(f"{n} {word}" for word, n in counts if n)
        shape = f"{self.dtype} of shape {self.shape}"
        if not bad:
            return f"{self.name} ({shape}), largest |entry| {self.largest:.3g}"
        return f"{self.name} ({shape}) with {bad} among {total} entries"


@dataclass(frozen=True)
class NonFinite:
    """Where something non-finite began; `str` of it is a sentence for a person.

    Attributes:
        cause: "forward": the module made it of finite inputs and parameters. "backward": the same
            of gradients. "parameter", "buffer": it was there before the forward. "batch": it was in
            what the model was given. "loss": all modules were fine, what made the loss of their
            outputs was not.
        module: the module's path from the model, "" for the model itself and outside of it.
        kind: the module's class, "" outside of the model.
        manifold: that of the module, if it has one, and its curvature at the time.
        entries: what was non-finite.
        inputs: what the module was given; for "backward" the gradients of its outputs.
        note: more that is worth knowing, in whole sentences.
        rank: the process that found it.
    """

    cause: Cause
    module: str
    kind: str
    manifold: str | None
    entries: Entries
    inputs: tuple[Entries, ...] = ()
    note: str = ""
    rank: int = 0

    @property
    def label(self) -> str:
        """The module's path, class and manifold."""
        where = f" on {self.manifold}" if self.manifold else ""
        return f"{self.module or 'the model itself'} ({self.kind}{where})"

    def __str__(self) -> str:
        given = "; ".join(map(str, self.inputs)) or "none"
        text = {
            "parameter": (
                f"{self.entries}, a parameter of {self.label}, was not finite before the forward: "
                "an optimiser step or a checkpoint made it so"
            ),
            "buffer": (
                f"{self.entries}, a buffer of {self.label}, was not finite before the forward"
            ),
            "batch": f"what the model was given is not finite: {self.entries}",
            "forward": (
                f"it began in the forward of {self.label}: {self.entries}, though its parameters "
                f"and inputs are finite; inputs: {given}"
            ),
            "loss": (
                f"every module's output is finite, the loss made of them is not: {self.entries}"
            ),
            "backward": (
                f"the loss is finite, and it began in the backward of "
                f"{self.label if self.kind else 'the loss'}: {self.entries}; "
                f"gradients of its outputs: {given}"
            ),
        }[self.cause]
        return f"{text}. {self.note}" if self.note else f"{text}."


def entries(tensor: Tensor, name: str) -> Entries | None:
    """What a tensor holds, of a split one this process's part; None if it holds no numbers."""
    held = local(tensor.detach())
    if held.is_sparse:
        held = held._values()
    if held.is_complex():
        held = torch.view_as_real(held)
    if not held.is_floating_point() or held.layout != torch.strided or held.is_meta:
        return None
    if held.itemsize == 1:  # float8 has no arithmetic
        held = held.float()
    dtype = str(tensor.dtype).removeprefix("torch.")
    nan, inf, minus_inf, largest = _count(held)
    return Entries(name, tuple(tensor.shape), dtype, nan, inf, minus_inf, largest)


def _count(held: Tensor) -> tuple[int, int, int, float]:
    """NaNs, +∞s, −∞s and the largest finite |entry|; one pass and no copy if all are finite."""
    if not held.numel():
        return 0, 0, 0, 0.0
    low, high = (float(end) for end in held.aminmax())  # NaN if there is one
    if math.isfinite(low) and math.isfinite(high):
        return 0, 0, 0, max(abs(low), abs(high))
    largest = float(torch.where(held.isfinite(), held, 0).abs().max())
    nan, inf, minus_inf = (
        int(f(held).sum()) for f in (torch.isnan, torch.isposinf, torch.isneginf)
    )
    return nan, inf, minus_inf, largest


def _tensors(value: Any, name: str) -> Iterator[tuple[str, Tensor]]:
    """The tensors in nested tuples, lists, mappings and dataclasses, with names for a reader."""
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _tensors(item, f"{name}[{key!r}]")
    elif isinstance(value, tuple | list):
        for i, item in enumerate(value):
            yield from _tensors(item, name if len(value) == 1 else f"{name}[{i}]")
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from _tensors(getattr(value, field.name, None), f"{name}.{field.name}")


def describe(value: Any, name: str) -> tuple[Entries, ...]:
    """What the tensors inside a value hold."""
    summaries = (entries(tensor, path) for path, tensor in _tensors(value, name))
    return tuple(e for e in summaries if e is not None)


def describe_inputs(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Entries, ...]:
    """What the tensors among a module's arguments hold."""
    named = (describe(value, key) for key, value in kwargs.items())
    return (*describe(args, "input"), *(e for part in named for e in part))


def report(
    cause: Any,
    module: nn.Module | None,
    path: str,
    bad: Entries,
    inputs: tuple[Entries, ...] = (),
    note: str = "",
) -> NonFinite:
    """A report of this process about a module, or about what is outside of the model."""
    kind = "" if module is None else type(module).__name__
    return NonFinite(cause, path, kind, _manifold(module), bad, inputs, note, rank())


def _manifold(module: nn.Module | None) -> str | None:
    """The manifold a module works on, with the curvature it has now."""
    manifold = getattr(module, "manifold", None)
    if not isinstance(manifold, Manifold):
        manifold = next(iter(getattr(module, "manifold_of", {}).values()), None)
    if not isinstance(manifold, Manifold):
        return None
    c = getattr(manifold, "c", None)
    if not isinstance(c, Tensor) or is_sharded(c) or c.is_meta:
        return repr(manifold)
    numbers = c.detach().flatten().tolist()
    value = f"{numbers[0]:.4g}" if len(numbers) == 1 else f"{min(numbers):.4g}..{max(numbers):.4g}"
    return f"{type(manifold).__name__} with c={value}"
