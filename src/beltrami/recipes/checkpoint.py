"""The state of a training in one safetensors file, written whole or not at all.

Modules, optimisers, schedulers and random generators are taken apart into tensors and plain values;
the plain values travel as JSON in the file's metadata. Nothing is ever unpickled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from beltrami.data.atomic import write_atomically

TENSOR = "__tensor__"  # stands, in the JSON, for a tensor of the file
INTEGER_KEYS = "__integer_keys__"  # JSON has only text as keys; an optimiser's state has numbers


@runtime_checkable
class Stateful(Protocol):
    """What has a state: a module, an optimiser, a scheduler."""

    def state_dict(self) -> dict[str, Any]:
        """The state."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any:
        """Take the state on."""


Part = Stateful | torch.Generator


def save_checkpoint(path: Path, parts: Mapping[str, Part], facts: Mapping[str, Any]) -> None:
    """Write the states of `parts` and JSON-able `facts`."""
    tensors: dict[str, Tensor] = {}
    states = {name: _apart(_state(part), name, tensors) for name, part in parts.items()}
    document = json.dumps({"states": states, "facts": dict(facts)}, allow_nan=True)
    write_atomically(path, save(tensors, metadata={"beltrami": document}))


def load_checkpoint(path: Path, parts: Mapping[str, Part]) -> dict[str, Any] | None:
    """Give the states back to `parts` and return the facts; None without a whole checkpoint."""
    try:
        with safe_open(str(path), framework="pt", device="cpu") as file:
            document = json.loads((file.metadata() or {})["beltrami"])
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, KeyError, ValueError):
        return None
    states = document["states"]
    if set(states) != set(parts):
        return None
    for name, part in parts.items():
        _restore(part, _together(states[name], tensors))
    facts: dict[str, Any] = document["facts"]
    return facts


def _state(part: Part) -> Any:
    return part.get_state() if isinstance(part, torch.Generator) else part.state_dict()


def _restore(part: Part, state: Any) -> None:
    if isinstance(part, torch.Generator):
        part.set_state(state)
    else:
        part.load_state_dict(state)


def _apart(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """Plain JSON in which tensors are replaced by their names in the file."""
    if isinstance(value, Tensor):
        # A copy: two names may share memory (tied weights), which the format does not hold.
        tensors[path] = value.detach().cpu().clone(memory_format=torch.contiguous_format)
        return {TENSOR: path}
    if isinstance(value, Mapping):
        inner = {str(k): _apart(v, f"{path}.{k}", tensors) for k, v in value.items()}
        numbered = bool(value) and all(isinstance(k, int) for k in value)
        return {INTEGER_KEYS: inner} if numbered else inner
    if isinstance(value, list | tuple):
        return [_apart(v, f"{path}.{i}", tensors) for i, v in enumerate(value)]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"cannot keep {path} in a checkpoint: {type(value).__name__}")


def _together(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(value, dict):
        if set(value) == {TENSOR}:
            return tensors[value[TENSOR]]
        if set(value) == {INTEGER_KEYS}:
            return {int(k): _together(v, tensors) for k, v in value[INTEGER_KEYS].items()}
        return {k: _together(v, tensors) for k, v in value.items()}
    return [_together(v, tensors) for v in value] if isinstance(value, list) else value
