"""Saving an adapter so that a failure leaves the old one as it was."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from peft import PeftModel


def save_adapter(model: PeftModel, folder: str | Path, **kwargs: Any) -> None:
    """`model.save_pretrained(folder)`, by way of a temporary folder beside it.

    Only when everything is written do the new files replace the old ones, one rename each.

    Args:
        model: to save.
        folder: where to.
        kwargs: for `save_pretrained`.
    """
    folder = Path(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        model.save_pretrained(str(made), **kwargs)
        for path in sorted(p for p in made.rglob("*") if p.is_file()):
            target = folder / path.relative_to(made)
            target.parent.mkdir(parents=True, exist_ok=True)
            path.replace(target)
    finally:
        shutil.rmtree(made, ignore_errors=True)
