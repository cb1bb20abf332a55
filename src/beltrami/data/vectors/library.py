"""Libraries that only some sources need, loaded when one does."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from beltrami.data.vectors.table import VectorsError


def library(module: str, *, extra: str, needs: str) -> Any:
    """The module, or a `VectorsError` that names what `needs` it and the extra that brings it."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise VectorsError(
            f'{needs} needs the package {package}: pip install "beltrami[{extra}]"'
        ) from error


def first_line(error: BaseException) -> str:
    """The first line of a library's message, which may have many."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), repr(error))
