from __future__ import annotations

import re
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from beltrami.report.page import Cell, Figure, Page, Row, Section, Table, render

VOID = {"meta", "br", "hr", "img", "input", "link"}
PARTS = ("title", "lead", "figure", "caption", "table", "row", "section", "paragraph", "name")
PARTS += ("value", "command", "footer", "inner figure", "inner caption", "inner table", "head")
PARTS += ("difference",)
NASTY = "</p><script>alert('1')</script>&amp;\""


class Outline(HTMLParser):
    """Checks nesting and collects tags, attributes and visible text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def outline(html: str) -> Outline:
    parser = Outline()
    parser.feed(html)
    parser.close()
    assert parser.open == []
    return parser


def page(text: str = "text") -> Page:
    return Page(
        title=f"title {text}",
        lead=f"lead {text}",
        figures=(Figure(f"figure {text}", '<svg class="plane"></svg>', f"caption {text}"),),
        table=Table(f"table {text}", ("A", text), (Row(f"row {text}", text, ("1", f"2 {text}")),)),
        sections=(
            Section(
                f"section {text}",
                (f"paragraph {text}",),
                (Figure(f"inner figure {text}", "<svg></svg>", f"inner caption {text}", True),),
                (
                    Table(
                        f"inner table {text}",
                        (f"column {text}",),
                        (Row(text, "", (Cell(f"difference {text}", "better"),)),),
                        head=f"head {text}",
                    ),
                ),
            ),
        ),
        facts=((f"name {text}", f"value {text}"),),
        command=f"command {text}",
        footer=f"footer {text}",
    )


def test_everything_given_is_on_the_page() -> None:
    text = "".join(outline(render(page())).text)
    for part in PARTS:
        assert f"{part} text" in text


def test_every_string_is_escaped() -> None:
    html = render(page(NASTY))
    found = outline(html)
    assert [tag for tag, _ in found.tags].count("script") == 1  # our own
    text = "".join(found.text)
    for part in PARTS:
        assert f"{part} {NASTY}" in text


def test_page_loads_nothing_from_anywhere() -> None:
    found = outline(render(page()))
    policy = next(a["content"] for t, a in found.tags if a.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    for tag, attributes in found.tags:
        assert tag not in {"link", "img", "iframe", "object", "embed"}
        assert not {"src", "href"} & attributes.keys()
    assert "@import" not in "".join(found.text)
    assert "url(" not in "".join(found.text)


def test_page_is_accessible_and_fits_phones_and_dark_rooms() -> None:
    html = render(page())
    found = outline(html)
    assert ("html", {"lang": "en"}) in found.tags
    assert any(a.get("name") == "viewport" for _, a in found.tags)
    assert "prefers-color-scheme: dark" in html
    assert [tag for tag, _ in found.tags].count("h1") == 1
    assert all("scope" in a for tag, a in found.tags if tag == "th")


def test_ragged_tables_are_refused() -> None:
    with pytest.raises(ValueError, match=r"row 'r' has 1 values for 2 columns"):
        Table("t", ("A", "B"), (Row("r", "", ("1",)),))


def test_headings_descend_in_order() -> None:
    levels = [int(tag[1]) for tag, _ in outline(render(page())).tags if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert all(b <= a + 1 for a, b in pairwise(levels))
    assert 3 in levels  # figures in a section


def test_every_table_scrolls_in_its_own_named_box() -> None:
    tags = outline(render(page())).tags
    names = [tag for tag, _ in tags]
    for i, name in enumerate(names):
        if name == "table":
            box = tags[i - 1][1]
            assert box.get("class") == "scroll"
            assert box.get("tabindex") == "0"
            assert box.get("role") == "region"
            assert box.get("aria-label")
    assert names.count("table") == 2
    assert ".scroll { overflow-x: auto" in render(page())


def test_parts_may_be_absent() -> None:
    bare = Page("t", "l", figures=(), table=None, sections=(), facts=(), command="c", footer="f")
    found = outline(render(bare))
    names = [tag for tag, _ in found.tags]
    assert not {"figure", "table", "dl"} & set(names)
    assert "How to rerun it" in found.text


@pytest.mark.parametrize("verdict", ["better", "worse", "no difference"])
def test_verdicts_are_words_not_colours_alone(verdict) -> None:
    table = Table("t", ("Difference",), (Row("r", "", (Cell("+1", verdict),)),))
    html = render(Page("t", "l", (), table, (), (), "c", "f"))
    cell = re.search(r"<td>(.*?)</td>", html)
    assert cell
    assert re.sub("<[^>]*>", "", cell[1]).endswith(f" {verdict}")
    assert f".verdict.{verdict}" in html or verdict == "no difference"
    assert str(Cell("+1", verdict)) == f"+1 ({verdict})"
    assert str(Cell("+1")) == "+1"


def test_bad_verdicts_are_refused() -> None:
    with pytest.raises(
        ValueError, match="one of None, 'better', 'worse', 'no difference'; got 'great'"
    ):
        Cell("1", "great")  # type: ignore[arg-type]
