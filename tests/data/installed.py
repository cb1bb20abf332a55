"""Tests of published sets: skipped where a set is not installed, and for no other reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from beltrami.data.cache import installed_path


def need_installed(*names: str, debian: Path | None = None) -> None:
    """Skip unless one of these sets is in the cache, or Debian's file is there.

    What is installed must load: a test that skipped on an error of loading could never fail.
    """
    if debian is not None and debian.exists():
        return
    if all(installed_path(name) is None for name in names):
        pytest.skip(f"not installed: {' or '.join(names)}; get it with: beltrami data get")
