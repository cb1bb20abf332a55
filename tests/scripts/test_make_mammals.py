import json
import sys
from pathlib import Path

import pytest

from scripts import make_mammals


def test_the_reduction_is_written_in_alphabetical_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closure = tmp_path / "closure.json"
    nodes = [{"id": i, "label": label} for i, label in enumerate("mzda")]
    links = [{"source": 0, "target": t} for t in (1, 2, 3)] + [{"source": 1, "target": 3}]
    closure.write_text(json.dumps({"nodes": nodes, "links": links}))
    out = tmp_path / "out.tsv"
    monkeypatch.setattr(sys, "argv", ["make_mammals.py", str(closure), str(out)])
    make_mammals.main()
    assert out.read_text() == "child\tparent\na\tz\nd\tm\nz\tm\n"
