"""What the pages about layers promise."""

from __future__ import annotations

import re
from pathlib import Path

import beltrami.nn as bnn

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs/layers.md").read_text(encoding="utf-8")


def test_a_transformer_takes_twenty_lines() -> None:
    first = re.search(r"^```python\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)
    assert first is not None
    lines = [line for line in first.group(1).splitlines() if line.strip()]
    assert "TransformerBlock" in first.group(1)
    assert len(lines) <= 20


def test_the_table_has_every_layer() -> None:
    table = [line for line in GUIDE.splitlines() if line.startswith("| `")]
    named = set(re.findall(r"`(\w+)`", " ".join(line.split("|")[1] for line in table)))
    layers = {
        name
        for name in bnn.__all__
        if isinstance(found := getattr(bnn, name), type) and issubclass(found, bnn.Layer)
    }
    assert layers - {"Layer"} <= named


def test_the_table_says_on_which_manifolds_a_layer_works() -> None:
    letters = {"L": "Lorentz", "P": "PoincareBall", "E": "Euclidean"}
    for line in GUIDE.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if not line.startswith("| `") or cells[2] == "any":
            continue
        for name in re.findall(r"`([A-Z]\w+)`", cells[1]):
            accepted = {kind.__name__ for kind in getattr(bnn, name).accepts}
            assert {letters[x] for x in cells[2].split(", ")} <= accepted, name


def test_the_reference_lists_everything() -> None:
    listed = (ROOT / "docs/api/nn.md").read_text(encoding="utf-8").split()
    assert set(bnn.__all__) <= set(listed)


def test_the_reference_lists_every_kernel() -> None:
    """A kernel is a module with a public function of its own name, or of what it computes."""
    page = (ROOT / "docs/api/kernels.md").read_text(encoding="utf-8")
    helpers = {"__init__", "chords", "geodesic_rows", "row_blocks", "scores"}
    helpers |= {"adapted_linear_operator", "adapted_linear_passes", "gain"}
    folders = [
        ROOT / "src/beltrami/kernels" / name for name in ("layers", "hyplora", "rows", "pairs")
    ]
    files = {f"{p.parent.name}.{p.stem}" for folder in folders for p in folder.glob("*.py")}
    modules = {
        name for name in files if name.split(".")[1] not in helpers and not name.endswith("_triton")
    }
    assert modules == set(re.findall(r"^::: beltrami\.kernels\.([\w.]+)", page, re.MULTILINE))
