"""Files of texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from beltrami.recipes.family.losses import read_texts


def test_a_line_a_text(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_bytes(b"one\r\n\n  two\nthree")
    assert read_texts(path) == ["one", "  two", "three"]


def test_json_lines_keep_what_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"text": "a\\nb", "id": 1}\n\n{"text": ""}\n', encoding="utf-8")
    assert read_texts(path) == ["a\nb", ""]


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("{", "line 1 is not valid JSON"),
        ('{"text": "a"}\n{"prompt": "a"}', 'line 2: expected an object with "text"'),
        ("", "has no texts"),
    ],
)
def test_files_that_are_no_texts(tmp_path: Path, content: str, match: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=match):
        read_texts(path)
