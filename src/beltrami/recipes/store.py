"""Finished runs on disk: written whole or not at all, reused only under the settings they had.

A store is a folder; each run is two files with the same stem, `<run>.safetensors` with its tensors
and `<run>.json` with its settings and results. The JSON file is written last, so its presence means
that the run is complete. Settings are part of the folder's name (by their hash) and of the JSON
file, so runs made under different settings are never mixed, and none is overwritten.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from beltrami.data.atomic import to_json, write_atomically

HASH_LENGTH = 12
RUNS_PREFIX = "runs-"


class RunStore:
    """The finished runs below `root` that were made under `settings` (JSON-able, order-free)."""

    def __init__(self, root: Path, settings: Mapping[str, Any]) -> None:
        canonical = json.dumps(settings, sort_keys=True, allow_nan=False)
        digest = hashlib.sha256(canonical.encode("utf-8")).hexdigest()[:HASH_LENGTH]
        self.settings = json.loads(canonical)  # as it will be read back
        self.root = root
        self.folder = root / f"{RUNS_PREFIX}{digest}"

    def load(self, name: str) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        """Results and tensors of a finished run, or None when there is no complete, equal one."""
        try:
            record = json.loads((self.folder / f"{name}.json").read_text(encoding="utf-8"))
            tensors = load((self.folder / f"{name}.safetensors").read_bytes())
            if record["settings"] != self.settings:
                return None
            return record["results"], tensors
        except (OSError, ValueError, KeyError, TypeError, SafetensorError):
            return None  # missing or damaged: the run is simply done again

    def save(self, name: str, results: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Write a finished run; the JSON file last, as the mark that it is complete."""
        self.folder.mkdir(parents=True, exist_ok=True)
        contiguous = {key: tensor.detach().contiguous() for key, tensor in tensors.items()}
        write_atomically(self.folder / f"{name}.safetensors", save(contiguous))
        record = {"settings": self.settings, "results": dict(results)}
        write_atomically(self.folder / f"{name}.json", to_json(record))

    def finished(self) -> int:
        """How many complete runs the folder holds."""
        return len(list(self.folder.glob("*.json")))

    def others(self) -> int:
        """How many complete runs lie below the same root under other settings."""
        return len(list(self.root.glob(f"{RUNS_PREFIX}*/*.json"))) - self.finished()
