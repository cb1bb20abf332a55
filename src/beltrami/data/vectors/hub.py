"""Models on the hub, by `org/name`: only the file that holds the token embedding is fetched."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from beltrami.data.vectors.embedding_name import is_token_table
from beltrami.data.vectors.library import first_line, library
from beltrami.data.vectors.model_folder import (
    INDEX,
    SAVE,
    SINGLE,
    ModelFiles,
    add_tokens,
    read_index,
)
from beltrami.data.vectors.table import Vectors, VectorsError
from beltrami.data.vectors.tensors import tensor_shapes
from beltrami.data.vectors.tokens import hub_tokens

_NAME = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)


def is_hub_name(source: str) -> bool:
    """Whether the text may be a model's name on the hub."""
    return _NAME.fullmatch(source) is not None and not source.startswith((".", "-"))


def open_hub(name: str, tensor: str | None = None) -> Vectors:
    """The token embedding of a model on the hub, or the tensor that `tensor` names."""
    vectors, chosen = hub_files(name).open(tensor)
    vectors.name = name
    vectors.tensor = chosen
    tokens = hub_tokens(name) if is_token_table(chosen) else None
    if tokens is not None:
        add_tokens(vectors, tokens)
    return vectors


def hub_file(name: str, file: str) -> Path | None:
    """A file of a model on the hub, fetched; None where there is none."""
    return _Hub(name).find(file)


def hub_files(name: str) -> ModelFiles:
    """Which of the files of a model on the hub holds which tensor."""
    hub = _Hub(name)
    if (index := hub.find(INDEX)) is not None:
        return ModelFiles(name, read_index(index), hub.fetch, at_hand=False)
    if (single := hub.find(SINGLE)) is not None:
        holders = dict.fromkeys(tensor_shapes(single), SINGLE)
        return ModelFiles(name, holders, lambda file: single, at_hand=True)
    if hub.unreached:
        raise VectorsError(
            f"{name} is neither a local path nor in the hub's cache, and the hub cannot be "
            "reached; go online, or pass a local file or folder"
        )
    raise VectorsError(
        f"{name} on the hub has no {SINGLE}; if its weights are .bin files, save them as "
        f"safetensors, with {SAVE}, and pass that folder"
    )


class _Hub:
    """The files of one model on the hub."""

    def __init__(self, name: str) -> None:
        self._name = name
        needs = f"{name}, which is not a local path but may be a model on the hub,"
        self._library: Any = library("huggingface_hub", extra="llm", needs=needs)
        self._errors: Any = library("huggingface_hub.errors", extra="llm", needs=needs)
        self.unreached = False

    def find(self, file: str) -> Path | None:
        """The file, fetched, or None where the model has none, or none that can be reached."""
        try:
            # Once offline, the cache alone is asked: each try would take the hub half a minute.
            path = self._library.hf_hub_download(self._name, file, local_files_only=self.unreached)
            return Path(path)
        except self._errors.LocalEntryNotFoundError:  # offline; another file may be cached
            self.unreached = True
        except self._errors.EntryNotFoundError:
            pass
        except self._errors.GatedRepoError as error:
            raise VectorsError(
                f"{self._name} asks on the hub for its terms to be accepted; accept them there "
                "and log in with: hf auth login"
            ) from error
        except self._errors.RepositoryNotFoundError as error:
            raise VectorsError(
                f"{self._name} is neither a local path nor a model on the hub; correct the name, "
                "or log in with: hf auth login, if it is private"
            ) from error
        except Exception as error:  # of the network, whose library changes with the hub's version
            raise VectorsError(
                f"cannot fetch {file} of {self._name} from the hub ({first_line(error)}); go "
                "online, or pass a local file or folder"
            ) from error
        return None

    def fetch(self, file: str) -> Path:
        """A file that the model's index names."""
        if (path := self.find(file)) is not None:
            return path
        why = "which cannot be reached; go online" if self.unreached else "which has no such file"
        raise VectorsError(f"cannot fetch {file} of {self._name} from the hub, {why}")
