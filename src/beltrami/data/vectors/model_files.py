"""The weights of a model in one or many `.safetensors` files, of which only one is opened."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from beltrami.data.vectors.embedding_name import choose_tensor
from beltrami.data.vectors.table import Vectors, VectorsError
from beltrami.data.vectors.tensors import open_safetensors, tensor_shapes

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
# AutoModel would leave out the output table of a language model.
SAVE = (
    "AutoModelForCausalLM.from_pretrained(...).save_pretrained(folder), or AutoModel for what is "
    "no language model"
)


@dataclass(frozen=True)
class ModelFiles:
    """Which file holds which tensor, and how to come by a file."""

    where: str
    holders: Mapping[str, str]
    fetch: Callable[[str], Path]
    at_hand: bool
    """Whether fetching is free; else a message must not ask for the shapes of all tensors."""

    def open(self, tensor: str | None) -> tuple[Vectors, str]:
        """The table of tokens, or the tensor asked for, and the tensor's name."""
        chosen = choose_tensor(
            sorted(self.holders),
            tensor,
            where=self.where,
            shape_of=self._shape,
            shapes_at_hand=self.at_hand,
        )
        return open_safetensors(self.fetch(self.holders[chosen]), chosen), chosen

    def _shape(self, tensor: str) -> Sequence[int]:
        path = self.fetch(self.holders[tensor])
        try:
            return tensor_shapes(path)[tensor]
        except KeyError:
            raise VectorsError(f"{path} has no tensor {tensor!r}, though {INDEX} says so") from None


def read_index(path: Path) -> dict[str, str]:
    """Which file holds which tensor, as the index of a model in several files says."""
    try:
        holders = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
        file_of = {str(tensor): str(file) for tensor, file in holders.items()}
    except OSError as error:
        raise VectorsError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise VectorsError(f"{path} is not an index of safetensors files: no weight_map") from error
    for file in file_of.values():
        if PurePosixPath(file).name != file or "\\" in file:
            raise VectorsError(f"{path} names {file!r}, which is not a file of the same folder")
    return file_of
