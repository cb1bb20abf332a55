"""disk.js in Node, over a stand-in for the browser."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
import torch

import beltrami.report
from beltrami.report.disk import RADIUS, disk_svg, seen_from

SCRIPT = Path(beltrami.report.__file__).parent / "disk.js"
DOM = Path(__file__).parent / "dom.js"
SVG = "{http://www.w3.org/2000/svg}"
POINTS = [[0.0, 0.0], [0.5, 0.1], [-0.4, 0.3], [0.7, 0.3], [0.7, -0.2]]
PARENT, LABELS = [-1, 0, 0, 1, 1], ["root", "a", "b", "c", "d"]

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")


def look(**action: int) -> dict[str, Any]:
    """What the page shows after the reader chose or clicked a node."""
    points = torch.tensor(POINTS, dtype=torch.float64)
    svg = ElementTree.fromstring(
        disk_svg(points, PARENT, LABELS, title="T", description="D.", extra_edges=[(4, 2)])
    )

    def data(element: ElementTree.Element) -> dict[str, str]:
        found = element.attrib.items()
        return {name.removeprefix("data-"): v for name, v in found if name.startswith("data-")}

    given = {
        "heading": "Hyperbolic plane",
        "title": svg.findtext(f"{SVG}title"),
        "desc": svg.findtext(f"{SVG}desc"),
        "centre": svg.get("data-centre"),
        "nodes": [data(e) for e in svg.iter(f"{SVG}circle") if "data-node" in e.attrib],
        "edges": [data(e) for e in svg.iter(f"{SVG}path")],
        **action,
    }
    done = subprocess.run(
        ["node", str(DOM), str(SCRIPT)],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=True,
    )
    shown: dict[str, Any] = json.loads(done.stdout)
    return shown


@pytest.mark.parametrize("action", ["choose", "click"])
def test_names_and_points_follow_the_chosen_node(action: str) -> None:
    shown = look(**{action: 3})
    assert shown["heading"] == "Seen from “c”"
    assert shown["title"] == "T, seen from c"
    assert shown["desc"] == "D. In the centre: c."
    assert shown["chosen"] == "3"
    places = [complex(*point) for point in POINTS]
    for node, (x, y) in shown["places"].items():
        expected = RADIUS * seen_from(places[3], places[int(node)])
        assert abs(complex(x, y) - expected) < 2e-3


def test_extra_edges_move_along() -> None:
    shown = look(choose=3)
    places = [complex(*point) for point in POINTS]
    a, b = (seen_from(places[3], places[node]) for node in (2, 4))
    numbers = [float(n) for n in re.findall(r"-?[\d.]+", shown["edges"][-1])]
    expected = [RADIUS * z for z in (a, b)]
    assert abs(complex(*numbers[:2]) - expected[0]) < 2e-3
    assert abs(complex(*numbers[-2:]) - expected[1]) < 2e-3


def test_back_at_the_start_the_names_are_as_drawn() -> None:
    shown = look(choose=0)
    assert shown["heading"] == "Hyperbolic plane"
    assert shown["title"] == "T, seen from root"


def test_the_list_has_every_node_once() -> None:
    shown = look(choose=0)
    assert shown["options"] == ["0", "1", "3", "4", "2"]  # as one reads a tree
    assert shown["groups"] == ["a"]
