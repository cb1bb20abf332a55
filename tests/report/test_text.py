from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beltrami.report.text import markup, shorten, text_width

# Also what no well-behaved file holds: control characters and lone surrogates.
ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()))


@given(ANY_TEXT)
def test_any_text_is_shown_and_changes_nothing_else(text: str) -> None:
    element = ElementTree.fromstring(f'<a b="{markup(text)}">{markup(text)}</a>')
    assert len(element) == 0
    assert len((element.text or "").splitlines()) == len(unescape(markup(text)).splitlines())


@pytest.mark.parametrize("text", ["<script>", "a & b", "\"'", "&amp;", "šálom שלום 漢字"])
def test_ordinary_text_comes_back_as_it_was(text: str) -> None:
    element = ElementTree.fromstring(f'<a b="{markup(text)}">{markup(text)}</a>')
    assert (element.text, element.get("b")) == (text, text)


def test_only_text_is_text() -> None:
    with pytest.raises(TypeError, match=r"text \(str\), got 5"):
        markup(5)  # type: ignore[arg-type]


@given(ANY_TEXT, st.floats(20, 500))
def test_a_shortened_text_fits(text: str, room: float) -> None:
    cut = shorten(text, room, 15)
    assert text_width(cut, 15) <= room
    assert cut.endswith("…") or cut == " ".join(text.split())
    assert "\n" not in cut


def test_wide_letters_are_wider_and_marks_take_no_room() -> None:
    assert text_width("WWW", 10) > text_width("abc", 10) > text_width("iii", 10)
    assert text_width("漢", 10) >= 10
    assert text_width("é", 10) == text_width("e\u0301", 10)
