"""What the pages about optimisers promise."""

from __future__ import annotations

from pathlib import Path

import beltrami.optim

ROOT = Path(__file__).resolve().parents[2]


def test_the_reference_lists_everything() -> None:
    listed = (ROOT / "docs/api/optim.md").read_text(encoding="utf-8").split()
    assert set(beltrami.optim.__all__) <= set(listed)
