from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree

import pytest
import torch

from beltrami.geometry import lorentz
from beltrami.report.disk import (
    ASCENT,
    DEPTHS,
    DESCENT,
    MARGIN_X,
    MARGIN_Y,
    MAX_LABEL,
    RADIUS,
    disk_svg,
    geodesic_path,
    place_labels,
    plane_svg,
    seen_from,
)

NUMBER = r"(-?[\d.]+)"
ARC = re.compile(rf"M{NUMBER} {NUMBER}A{NUMBER} {NUMBER} 0 0 ([01]) {NUMBER} {NUMBER}$")
LINE = re.compile(rf"M{NUMBER} {NUMBER}L{NUMBER} {NUMBER}$")
SVG = "{http://www.w3.org/2000/svg}"


def disk_distance(p: complex, q: complex) -> float:
    return 2 * math.atanh(abs((p - q) / (1 - p.conjugate() * q)))


def middle_of_path(path: str) -> complex:
    """The point half way along a path as SVG draws it, in the coordinates of the unit disk."""
    if line := LINE.match(path):
        x0, y0, x1, y1 = map(float, line.groups())
        return complex(x0 + x1, y0 + y1) / 2 / RADIUS
    arc = ARC.match(path)
    assert arc, path
    x0, y0, radius, _, sweep, x1, y1 = map(float, arc.groups())
    p, q = complex(x0, y0), complex(x1, y1)
    # A short arc bulges to one side of the chord by the sagitta; sweep 1 turns clockwise on the
    # screen, where y points down, so the bulge lies to the left of the direction of travel.
    half = abs(q - p) / 2
    sagitta = radius - math.sqrt(radius**2 - half**2)
    normal = (q - p) / abs(q - p) * (-1j if sweep else 1j)
    return ((p + q) / 2 + sagitta * normal) / RADIUS


def random_disk_points(n: int, radius: float, seed: int = 0) -> list[complex]:
    generator = torch.Generator().manual_seed(seed)
    r = radius * torch.rand(n, generator=generator, dtype=torch.float64).sqrt()
    angle = 2 * math.pi * torch.rand(n, generator=generator, dtype=torch.float64)
    return [complex(math.tanh(a / 2) * math.cos(b), math.tanh(a / 2) * math.sin(b))
            for a, b in zip(r.tolist(), angle.tolist(), strict=True)]  # fmt: skip


def test_arc_runs_along_the_geodesic() -> None:
    points = random_disk_points(200, radius=4.0)
    for p, q in zip(points[::2], points[1::2], strict=True):
        middle = middle_of_path(geodesic_path(p, q))
        # The middle of the arc as drawn is on the geodesic: distances through it add up.
        through = disk_distance(p, middle) + disk_distance(middle, q)
        assert through == pytest.approx(disk_distance(p, q), rel=1e-6)


def test_symmetric_arc_passes_the_hyperbolic_midpoint() -> None:
    for spread in (0.1, 0.8, 1.5):
        p, q = (math.tanh(1.0) * complex(math.cos(a), math.sin(a)) for a in (spread, -spread))
        x = torch.tensor([[math.sinh(2.0) * math.cos(a), math.sinh(2.0) * math.sin(a)]
                          for a in (spread, -spread)], dtype=torch.float64)  # fmt: skip
        space = lorentz.midpoint(x[0], x[1])
        unit = space / (1 + lorentz.time(space))
        found = middle_of_path(geodesic_path(p, q))
        assert abs(found - complex(*unit.tolist())) < 1e-6


def test_geodesics_through_the_centre_are_straight() -> None:
    assert LINE.match(geodesic_path(0.5 + 0.25j, 0j))
    assert LINE.match(geodesic_path(0.5 + 0.25j, -0.8 - 0.4j))


def test_moving_the_observer_is_an_isometry() -> None:
    a, *points = random_disk_points(21, radius=6.0, seed=1)
    assert seen_from(a, a) == 0
    for p, q in zip(points[::2], points[1::2], strict=True):
        before, after = disk_distance(p, q), disk_distance(seen_from(a, p), seen_from(a, q))
        assert after == pytest.approx(before, rel=1e-8)


def test_observer_on_the_rim_stays_finite() -> None:
    for z in (1 + 0j, 0j, 0.5j):
        assert abs(seen_from(1 + 0j, z)) <= 1


def small_tree() -> tuple[torch.Tensor, list[int], list[str]]:
    points = torch.tensor([[0.0, 0.0], [0.5, 0.1], [-0.4, 0.3], [0.7, 0.3], [0.7, -0.2]])
    return points, [-1, 0, 0, 1, 1], ["root", "a", "b", "c", "d"]


@pytest.mark.parametrize("draw", [disk_svg, plane_svg])
def test_picture_is_well_formed_and_complete(draw) -> None:
    points, parent, labels = small_tree()
    svg = ElementTree.fromstring(draw(points, parent, labels, title="T", description="D"))
    nodes = svg.findall(f".//{SVG}circle[@class]")
    titles = {node.findtext(f"{SVG}title") for node in nodes} - {None}
    assert titles == {"root (4 below)", "a (2 below)", "b", "c", "d"}
    assert len(svg.findall(f".//{SVG}path")) == len(parent) - 1
    assert svg.get("role") == "img"
    named = {element.get("id") for element in svg}
    assert set(svg.get("aria-labelledby", "").split()) <= named
    for node in nodes:
        x, y = float(node.get("cx", 0)), float(node.get("cy", 0))
        assert math.hypot(x, y) <= RADIUS + 1e-3


@pytest.mark.parametrize("draw", [disk_svg, plane_svg])
def test_labels_cannot_break_out(draw) -> None:
    points, parent, _ = small_tree()
    nasty = '<script>alert("1")</script>'
    labels = [nasty, "a & b", "'single'", '"double"', "]]>"]
    text = draw(points, parent, labels, title=nasty, description=nasty)
    assert "<script" not in text
    svg = ElementTree.fromstring(text)
    found = {node.get("data-label") for node in svg.iter(f"{SVG}circle")} - {None}
    assert found == set(labels)


def test_other_centre_moves_that_node_to_the_middle() -> None:
    points, parent, labels = small_tree()
    svg = ElementTree.fromstring(
        disk_svg(points, parent, labels, title="T", description="D", centre=3)
    )
    (node,) = svg.findall(f".//{SVG}circle[@data-node='3']")
    assert (float(node.get("cx", 1)), float(node.get("cy", 1))) == (0, 0)


def test_the_names_end_with_the_central_node() -> None:
    points, parent, labels = small_tree()
    svg = ElementTree.fromstring(
        disk_svg(points, parent, labels, title="T", description="D.", centre=3)
    )
    assert svg.findtext(f"{SVG}title") == "T, seen from c"
    assert svg.findtext(f"{SVG}desc") == "D. In the centre: c."


def test_the_longest_labels_fit_the_picture_all_around_the_rim() -> None:
    long = "W" * (2 * MAX_LABEL)
    for degrees in range(360):
        angle = math.radians(degrees)
        (label,) = place_labels([0.99 * complex(math.cos(angle), math.sin(angle))], [long], [0])
        assert abs(label.sides[0]) <= RADIUS + MARGIN_X
        assert abs(label.sides[1]) <= RADIUS + MARGIN_X
        assert max(ASCENT - label.y, label.y + DESCENT) <= RADIUS + MARGIN_Y


def test_placed_labels_never_overlap() -> None:
    places = random_disk_points(300, radius=5.0)
    labels = [f"label number {i}" for i in range(300)]
    placed = place_labels(places, labels, range(300))
    assert placed
    assert placed[0].text == "label number 0"
    for i, label in enumerate(placed):
        assert not any(label.meets(other) for other in placed[:i])


@pytest.mark.parametrize(
    ("points", "message"),
    [
        (torch.zeros(3, 3), r"shape \(n, 2\)"),
        (torch.zeros(0, 2), r"shape \(n, 2\)"),
        (torch.zeros(2, 2), "equally long"),
        (torch.tensor([[0.0, 0.0], [1.5, 0.0], [0.0, 0.0]]), r"unit disk.*1\.5"),
        (torch.tensor([[0.0, 0.0], [math.nan, 0.0], [0.0, 0.0]]), "finite"),
    ],
)
def test_bad_points_are_refused(points: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        disk_svg(points, [-1, 0, 0], ["a", "b", "c"], title="T", description="D")


def nodes_of(svg: ElementTree.Element) -> dict[int, ElementTree.Element]:
    found = svg.iter(f"{SVG}circle")
    return {int(e.get("data-node", -1)): e for e in found if "data-node" in e.attrib}


def chain(n: int) -> tuple[torch.Tensor, list[int], list[str]]:
    """A tree of depth n − 1, every node the only child of the one before."""
    x = torch.arange(n, dtype=torch.float64)
    return torch.stack((torch.tanh(x / 4), 0 * x), 1), list(range(-1, n - 1)), [f"n{i}" for i in x]


@pytest.mark.parametrize("draw", [disk_svg, plane_svg])
@pytest.mark.parametrize("n", [1, 2, 5, DEPTHS, DEPTHS + 1, 30])
def test_depth_scale_is_in_order_and_explained(draw, n: int) -> None:
    points, parent, labels = chain(n)
    svg = ElementTree.fromstring(
        draw(points, parent, labels, title="T", description="D", colour="depth")
    )
    steps = [nodes_of(svg)[i].get("class", "").split()[1] for i in range(n)]
    numbers = [int(step.removeprefix("d")) for step in steps]
    assert numbers == sorted(numbers)
    assert len(set(numbers)) == min(n, DEPTHS)  # one step a depth, as far as they go
    assert numbers[0] == 0
    assert numbers[-1] == (DEPTHS - 1 if n > 1 else 0)
    (legend,) = svg.findall(f"{SVG}g[@class='legend']")
    swatches = [e.get("class", "").split()[1] for e in legend.iter(f"{SVG}rect")]
    assert swatches == list(dict.fromkeys(steps))
    name, *depths = (e.text or "" for e in legend.iter(f"{SVG}text"))
    assert name == "Depth"
    told = [range(int(t.split("–")[0]), int(t.split("–")[-1]) + 1) for t in depths]
    assert [depth for span in told for depth in span] == list(range(n))
    _, top, _, height = map(float, svg.get("viewBox", "").split())
    assert all(float(e.get("y", 0)) + 4 <= top + height for e in legend.iter(f"{SVG}text"))
    assert nodes_of(svg)[n - 1].findtext(f"{SVG}title") == f"{labels[-1]} (depth {n - 1})"


def test_colour_by_family_has_no_legend_and_is_the_default() -> None:
    points, parent, labels = small_tree()
    drawn = disk_svg(points, parent, labels, title="T", description="D", colour="family")
    assert drawn == disk_svg(points, parent, labels, title="T", description="D")
    assert "Depth" not in drawn


@pytest.mark.parametrize("draw", [disk_svg, plane_svg])
def test_extra_edges_join_their_nodes_by_dashed_lines(draw) -> None:
    points, parent, labels = small_tree()
    options = {"title": "T", "description": "D"}
    plain = ElementTree.fromstring(draw(points, parent, labels, **options))
    svg = ElementTree.fromstring(
        draw(points, parent, labels, extra_edges=[(3, 2), (4, 0)], **options)
    )
    edges = [e for e in svg.iter(f"{SVG}path") if "edge" in e.get("class", "").split()]
    extra = [e for e in edges if "extra" in e.get("class", "").split()]
    assert len(edges) == len(plain.findall(f".//{SVG}path")) + 2
    assert [(e.get("data-from"), e.get("data-to")) for e in extra] == [("2", "3"), ("0", "4")]
    nodes = nodes_of(svg)
    for edge in extra:
        numbers = re.findall(NUMBER, edge.get("d", ""))
        ends = (numbers[:2], edge.get("data-from")), (numbers[-2:], edge.get("data-to"))
        for end, node in ends:
            at = nodes[int(node or -1)]
            assert float(end[0]) == pytest.approx(float(at.get("cx", 0)), abs=1e-3)
            assert float(end[1]) == pytest.approx(float(at.get("cy", 0)), abs=1e-3)
    assert "stroke-dasharray" in (svg.findtext(f"{SVG}style") or "")


def test_extra_edges_in_the_disk_are_geodesics() -> None:
    points, parent, labels = small_tree()
    svg = ElementTree.fromstring(
        disk_svg(points, parent, labels, title="T", description="D", extra_edges=[(3, 2)])
    )
    path = svg.findall(f".//{SVG}path")[-1].get("d", "")
    p, q = complex(0.7, 0.3), complex(-0.4, 0.3)
    middle = middle_of_path(path)
    assert disk_distance(p, middle) + disk_distance(middle, q) == pytest.approx(
        disk_distance(p, q), rel=1e-5
    )


def test_a_hierarchy_of_1180_nodes_stays_small() -> None:
    generator = torch.Generator().manual_seed(0)
    parent = [-1, *(int(torch.randint(i, (1,), generator=generator)) for i in range(1, 1180))]
    places = random_disk_points(1180, radius=6.0)
    points = torch.tensor([[z.real, z.imag] for z in places], dtype=torch.float64)
    labels = [f"some_longer_mammal.n.{i:04d}" for i in range(1180)]
    extra = [(i, i - 2) for i in range(2, 1180, 10)]
    drawn = disk_svg(points, parent, labels, title="T", description="D", colour="depth",
                     extra_edges=extra)  # fmt: skip
    assert len(drawn.encode()) < 600_000


def test_pictures_on_one_page_have_different_ids() -> None:
    points, parent, labels = small_tree()
    drawn = [
        disk_svg(scale * points, parent, labels, title="T", description="D") for scale in (1, 0.5)
    ]
    ids = [set(re.findall(r' id="([^"]+)"', svg)) for svg in drawn]
    assert ids[0].isdisjoint(ids[1])


def test_characters_that_xml_forbids_are_replaced() -> None:
    points, parent, labels = small_tree()
    labels[1] = "a\x00\ud800"
    svg = disk_svg(points, parent, labels, title="T", description="D")
    svg.encode()
    assert nodes_of(ElementTree.fromstring(svg))[1].get("data-label") == "a\ufffd\ufffd"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"colour": "rainbow"}, "colour must be .* got 'rainbow'"),
        ({"extra_edges": [(0, 5)]}, r"from 0 to 4, got \(0, 5\)"),
        ({"extra_edges": [(-1, 2)]}, r"got \(-1, 2\)"),
        ({"extra_edges": [(3, 3)]}, r"different nodes .* got \(3, 3\)"),
    ],
)
@pytest.mark.parametrize("draw", [disk_svg, plane_svg])
def test_bad_options_are_refused(draw, options: dict[str, object], message: str) -> None:
    points, parent, labels = small_tree()
    with pytest.raises(ValueError, match=message):
        draw(points, parent, labels, title="T", description="D", **options)


@pytest.mark.parametrize(
    ("parent", "message"),
    [
        ([0, 0, 0], "parent of node 0 must be -1, got 0"),
        ([-1, 2, 0], "parent of node 1 must be an earlier node, got 2"),
        ([-1, 0, -1], "parent of node 2 must be an earlier node, got -1"),
    ],
)
def test_bad_parents_are_refused(parent: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        disk_svg(torch.zeros(3, 2), parent, ["a", "b", "c"], title="T", description="D")


def test_bad_centre_is_refused() -> None:
    points, parent, labels = small_tree()
    with pytest.raises(ValueError, match="from 0 to 4, got 5"):
        disk_svg(points, parent, labels, title="T", description="D", centre=5)


def test_coincident_points_draw() -> None:
    for draw in (disk_svg, plane_svg):
        assert draw(torch.zeros(3, 2), [-1, 0, 0], ["a", "b", "c"], title="T", description="D")
