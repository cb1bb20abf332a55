from __future__ import annotations

from html.parser import HTMLParser

import pytest

from beltrami.report.page import Figure, Page, Row, Section, Table, render

VOID = {"meta", "br", "hr", "img", "input", "link"}
PARTS = ("title", "lead", "figure", "caption", "table", "row", "section", "paragraph", "name")
PARTS += ("value", "command", "footer")
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
        sections=(Section(f"section {text}", (f"paragraph {text}",)),),
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
