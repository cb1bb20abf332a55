from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest
import torch

from beltrami.report.explorer import LISTED, Cloud, explorer_page
from tests.report.test_page import outline

POINTS = torch.tensor([[0.0, 0.0], [0.5, 0.1], [-0.4, 0.3]], dtype=torch.float64)
LABELS = ["root", "a", "b"]
HOSTILE = [
    "</script><img src=x onerror=alert(1)>",
    "a\u2028b\u2029c & d",
    "quotes \" ' ` \\ <!--<script>",
    "\ud800 alone",
]


def payload(html: str) -> dict[str, Any]:
    """What explorer.js will read."""
    found = re.findall(r'<script type="application/json" id="cloud">(.*?)</script>', html, re.S)
    assert len(found) == 1
    told: dict[str, Any] = json.loads(found[0])
    return told


def page(cloud: Cloud) -> str:
    return explorer_page(cloud, title="T", lead="L")


def cloud_of(**parts: Any) -> Cloud:
    return Cloud(**{"points": POINTS, "labels": LABELS, **parts})


def test_coordinates_come_back_exactly() -> None:
    radius = 1 - torch.logspace(-15, 0, 200, dtype=torch.float64)
    angle = torch.rand(200, dtype=torch.float64) * 2 * math.pi
    points = torch.stack((radius * angle.cos(), radius * angle.sin()), dim=-1)
    told = payload(page(Cloud(points, [f"{i}" for i in range(200)])))
    assert torch.equal(torch.tensor([told["x"], told["y"]], dtype=torch.float64).T, points)


def test_single_precision_and_gradients_are_taken_as_they_are() -> None:
    points = POINTS.float().requires_grad_()
    told = payload(page(Cloud(points, LABELS)))
    assert told["x"] == points[:, 0].double().tolist()


def test_columns_and_edges_come_back() -> None:
    columns = {"kind": ["x", "y", "y"], "size": [1, math.nan, 2.5]}
    told = payload(page(cloud_of(columns=columns, edges=[(1, 0), (2, 0), (1, 0)])))
    assert told["columns"] == [
        {"name": "kind", "words": ["y", "x"], "codes": [1, 0, 0]},  # the most frequent first
        {"name": "size", "numbers": [1.0, None, 2.5]},
    ]
    assert told["edges"] == [1, 0, 2, 0]
    assert told["directed"] is True
    assert payload(page(cloud_of(directed=False)))["directed"] is False


def test_numbers_that_are_not_finite_are_missing() -> None:
    html = page(cloud_of(columns={"k": [math.inf, -(10**400), 2]}))
    assert payload(html)["columns"] == [{"name": "k", "numbers": [None, None, 2.0]}]
    assert html.count("<td>–</td>") == 2


def test_no_text_breaks_out() -> None:
    points = torch.zeros(len(HOSTILE), 2)
    columns = dict.fromkeys(HOSTILE[:3], HOSTILE)
    html = explorer_page(
        Cloud(points, HOSTILE, columns),
        title=HOSTILE[0],
        lead=HOSTILE[2],
        facts=[(HOSTILE[0], HOSTILE[1])],
        command=HOSTILE[2],
    )
    html.encode()  # lone surrogates are gone
    tags = [tag for tag, _ in outline(html).tags]
    assert tags.count("script") == 2  # the data and our own
    assert "img" not in tags
    told = payload(html)
    assert told["labels"] == HOSTILE
    embedded = html.split('id="cloud">')[1].split("</script>")[0]
    assert not set("<>&\u2028\u2029") & set(embedded)


def test_page_loads_nothing_from_anywhere() -> None:
    found = outline(page(cloud_of(edges=[(1, 0)])))
    policy = next(a["content"] for _, a in found.tags if a.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    for tag, attributes in found.tags:
        assert tag not in {"link", "img", "iframe", "object", "embed"}
        assert not {"src", "href"} & attributes.keys()
    text = "".join(found.text)
    assert "@import" not in text
    assert "url(" not in text


def test_everything_given_is_on_the_page() -> None:
    html = explorer_page(
        cloud_of(columns={"depth": [0.0, 1.0, math.nan]}),
        title="the title",
        lead="the lead",
        facts=[("fact", "its value")],
        command="the command",
    )
    text = "".join(outline(html).text)
    for part in ("the title", "the lead", "fact", "its value", "the command", "How to rerun it"):
        assert part in text
    bare = "".join(outline(page(cloud_of())).text)
    assert "How to rerun it" not in bare
    assert "What was run" not in bare


def test_a_reader_without_scripts_has_a_table() -> None:
    html = page(cloud_of(columns={"depth": [0.0, 1.0, math.nan]}))
    rows = re.findall(r'<tr data-point="\d+">(.*?)</tr>', html)
    cells = [re.findall(r">([^<]*)</t[hd]>", row) for row in rows]
    far = f"{2 * math.atanh(math.hypot(0.5, 0.1)):.6g}"
    assert cells[:2] == [["root", "0", "0"], ["a", "1", far]]
    assert cells[2][1] == "–"
    assert "<noscript>" in html
    assert '<details id="list" open>' in html


def test_only_the_first_points_are_listed() -> None:
    count = LISTED + 50
    html = page(Cloud(torch.zeros(count, 2), [f"p{i}" for i in range(count)]))
    assert len(re.findall("<tr data-point=", html)) == LISTED
    assert f"The first {LISTED} of {count} points" in html


def test_the_edges_box_is_there_only_with_edges() -> None:
    assert 'id="edges"' in page(cloud_of(edges=[(1, 0)]))
    assert 'id="edges"' not in page(cloud_of())


def test_everything_operable_has_a_name() -> None:
    html = page(cloud_of(edges=[(1, 0)]))
    tags = outline(html).tags
    labelled = {a["for"] for tag, a in tags if tag == "label" and "for" in a}
    for tag, attributes in tags:
        if tag in {"select", "input"} and attributes.get("type") != "checkbox":
            assert attributes["id"] in labelled
    canvas = next(a for tag, a in tags if tag == "canvas")
    assert canvas["role"] == "application"
    assert canvas["tabindex"] == "0"
    assert canvas["aria-label"]
    assert any(a.get("aria-live") == "polite" for _, a in tags)
    ids = [a["id"] for _, a in tags if "id" in a]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"points": torch.zeros(3)}, r"shape \(n, 2\) with n > 0, got \(3,\)"),
        ({"points": torch.zeros(3, 3)}, r"got \(3, 3\)"),
        ({"points": torch.zeros(0, 2), "labels": []}, r"got \(0, 2\)"),
        ({"points": torch.zeros(3, 2).long()}, "floating-point numbers, got torch.int64"),
        ({"points": POINTS * math.nan}, r"finite, got \(nan, nan\) at 0"),
        ({"points": POINTS + torch.tensor([math.inf, 0])}, r"finite, got \(inf, 0.0\) at 0"),
        ({"points": POINTS + 0.9}, r"inside the unit disk, got \(0.9, 0.9\) at 0"),
        ({"points": torch.tensor([[0.0, 0], [0.6, 0.8], [0, 0]]).double()}, "inside the unit disk"),
        ({"labels": ["a", "b"]}, "labels must have 3 values, got 2"),
        ({"labels": "abc"}, "labels must be a sequence, got the text 'abc'"),
        ({"labels": ["a", 1, "c"]}, "labels must be texts, got 1 at 1"),
        ({"columns": {"": ["a"] * 3}}, "named by a text, got ''"),
        ({"columns": {7: ["a"] * 3}}, "named by a text, got 7"),
        ({"columns": {"k": "abc"}}, "column 'k' must be a sequence, got the text 'abc'"),
        ({"columns": {"k": ["a"]}}, "column 'k' must have 3 values, got 1"),
        ({"columns": {"k": ["a", 1.0, "b"]}}, "'k' must be all texts or all numbers, got 'a' at 0"),
        ({"columns": {"k": [1.0, True, 2.0]}}, "all numbers, got True at 1"),
        ({"columns": {"k": [1.0, None, 2.0]}}, "all numbers, got None at 1"),
        ({"edges": [(0, 3)]}, r"different points from 0 to 2, got \(0, 3\)"),
        ({"edges": [(-1, 0)]}, r"got \(-1, 0\)"),
        ({"edges": [(1, 1)]}, r"got \(1, 1\)"),
        ({"edges": [(0, 1, 2)]}, r"got \(0, 1, 2\)"),
        ({"edges": [(0.0, 1.0)]}, r"got \(0.0, 1.0\)"),
        ({"edges": [5]}, "got 5"),
    ],
)
def test_bad_clouds_are_refused(parts: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cloud_of(**parts)


def test_texts_must_be_texts() -> None:
    with pytest.raises(TypeError, match="expected a text"):
        explorer_page(cloud_of(), title=3, lead="L")  # type: ignore[arg-type]
