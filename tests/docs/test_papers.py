"""What docs/papers.md promises: the calls exist, and each row says in which state it is."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/papers.md").read_text(encoding="utf-8")
STATES = {"works", "in work", "refused"}
PAPERS = {
    "HypLoRA",
    "HyperCore",
    "HELM",
    "MERU, HyCoCLIP and PHyCLIP",
    "RCME",
    "HCFormer and ClusterMixer",
    "Hi-Mapper",
    "Cartan networks",
    "Superposition and scaling",
}


class Row(NamedTuple):
    paper: str
    theirs: str
    ours: str
    difference: str
    state: str


def rows() -> list[Row]:
    result, paper = [], ""
    for line in PAGE.splitlines():
        if line.startswith("## "):
            paper = line[3:]
        elif line.startswith("| ") and not line.startswith("| in the paper"):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            result.append(Row(paper, *cells))
    return result


def names(cell: str) -> list[str]:
    """The dotted names of a cell, without arguments."""
    return re.findall(r"`(beltrami(?:\.\w+)*)(?:\([^`]*\))?`", cell)


def resolve(name: str) -> object:
    """A module, or what it has by that name."""
    words = name.split(".")
    for end in range(len(words), 0, -1):
        try:
            thing = importlib.import_module(".".join(words[:end]))
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name):
                raise
            continue
        for word in words[end:]:
            thing = getattr(thing, word)
        return thing
    raise AssertionError(name)


def test_every_paper_has_a_section_with_rows_and_a_snippet() -> None:
    assert {row.paper for row in rows()} >= PAPERS
    for section in PAGE.split("\n## ")[1:]:
        if section.splitlines()[0] in PAPERS:
            assert "```python" in section, section.splitlines()[0]


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row.paper}-{row.theirs}"[:60])
def test_a_row_says_its_state_and_its_names_import(row: Row) -> None:
    assert row.state in STATES
    if row.state == "works":
        assert names(row.ours), "a row that works names a call"
        for name in names(row.ours):
            assert resolve(name) is not None
    if row.state == "refused":
        assert row.difference, "a refusal has a reason"


def test_a_wrong_name_would_be_seen() -> None:
    with pytest.raises(AttributeError):
        resolve("beltrami.nn.NoSuchLayer")
