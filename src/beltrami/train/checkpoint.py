"""The state of a training in one safetensors file, written whole or not at all.

Modules, optimisers, schedulers and random generators are taken apart into tensors and plain values;
the plain values travel as JSON in the file's metadata. Nothing is ever unpickled.
"""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from beltrami.data.atomic import write_atomically

Facts = dict[str, Any]


@runtime_checkable
class Stateful(Protocol):
    """What has a state: a module, an optimiser, a scheduler."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any:
        """Restore a state."""


Part = Stateful | torch.Generator


def save_checkpoint(path: Path, parts: Mapping[str, Part], facts: Mapping[str, Any]) -> None:
    """Write the states of `parts` and JSON-able `facts`.

    A state that holds anything but tensors, plain values, lists, tuples and dicts of them is a
    `TypeError` that names its place.
    """
    tensors: dict[str, Tensor] = {}
    states = {name: _apart(_state(part), name, tensors) for name, part in parts.items()}
    document = json.dumps({"states": states, "facts": dict(facts)})
    write_atomically(path, save(tensors, metadata={"beltrami": document}))


def load_checkpoint(
    path: Path, parts: Mapping[str, Part], accept: Callable[[Facts], bool] = lambda facts: True
) -> Facts | None:
    """Give the states back to `parts` and return the facts.

    None, with all parts as they were, where there is no whole checkpoint, where `accept` says no
    to its facts, and where a part cannot load its state (it has another shape by now).
    """
    try:
        with safe_open(str(path), framework="pt", device="cpu") as file:
            document = json.loads((file.metadata() or {})["beltrami"])
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        facts: Facts = document["facts"]
        if not accept(facts) or set(document["states"]) != set(parts):
            return None
        states = {name: _together(document["states"][name], tensors) for name in parts}
    except (OSError, SafetensorError, LookupError, TypeError, ValueError):
        return None
    before = {name: copy.deepcopy(_state(part)) for name, part in parts.items()}
    try:
        for name, part in parts.items():
            _restore(part, states[name])
    except (RuntimeError, LookupError, TypeError, ValueError):
        for name, part in parts.items():
            _restore(part, before[name])
        return None
    return facts


def _state(part: Part) -> Any:
    return part.get_state() if isinstance(part, torch.Generator) else part.state_dict()


def _restore(part: Part, state: Any) -> None:
    if isinstance(part, torch.Generator):
        part.set_state(state)
    else:
        part.load_state_dict(state)


# In the JSON, everything but plain values is an object with one key that says what it is, so
# that nothing a state may hold is taken for something else. Keys stay numbers where they are, as
# in an optimiser's state, because a dict is a list of pairs.


def _apart(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """Plain JSON in which tensors are replaced by their names in the file."""
    if isinstance(value, Tensor):
        if value.layout != torch.strided or value.is_complex():
            kind = f"{value.dtype} tensor of layout {value.layout}"
            raise TypeError(f"cannot keep {path} in a checkpoint: {kind}")
        name = f"{len(tensors)} {path}"  # numbered: two paths may read the same
        # A copy: two names may share memory (tied weights), which the format does not hold.
        tensors[name] = value.detach().cpu().clone(memory_format=torch.contiguous_format)
        return {"tensor": name}
    if isinstance(value, Mapping):
        pairs = [[_key(k, path), _apart(v, f"{path}.{k}", tensors)] for k, v in value.items()]
        # MultiStepLR counts its milestones.
        return {"counter" if isinstance(value, Counter) else "dict": pairs}
    if isinstance(value, list | tuple):
        items = [_apart(v, f"{path}.{i}", tensors) for i, v in enumerate(value)]
        return {"tuple": items} if isinstance(value, tuple) else items
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"cannot keep {path} in a checkpoint: {type(value).__name__}")


def _key(key: Any, path: str) -> str | int | float | None:
    if key is None or isinstance(key, str | int | float):
        return key
    raise TypeError(f"cannot keep {path} in a checkpoint: a key of it is {type(key).__name__}")


def _together(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(value, list):
        return [_together(v, tensors) for v in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "tuple":
        return tuple(_together(v, tensors) for v in content)
    mapping = {key: _together(v, tensors) for key, v in content}
    return Counter(mapping) if kind == "counter" else mapping
