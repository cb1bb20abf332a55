"""The code of the tutorials runs, in the order of the page: Python, and commands of beltrami."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import unicodedata
from pathlib import Path
from typing import NamedTuple

import pytest
from _pytest.mark import ParameterSet

from beltrami.cli import main

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs/tutorials").glob("*.md"))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)

# What makes the commands cheap; the pages show them with their defaults.
CHEAP = {
    "run": ["--epochs=10", "--seeds=1", "--learning-rates=1.0", "--device=cpu"],
    "diagnose": ["--only=tree-likeness", "--sample=40", "--repeats=2"],
}


class Block(NamedTuple):
    language: str
    source: str
    line: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [Block(m[1], m[2], text.count("\n", 0, m.start(2))) for m in FENCE.finditer(text)]


def run_python(page: Path, block: Block, namespace: dict[str, object]) -> str:
    """What the block prints; errors show the page's own line."""
    printed = io.StringIO()
    code = compile("\n" * block.line + block.source, str(page), "exec")
    with contextlib.redirect_stdout(printed):
        exec(code, namespace)
    return printed.getvalue()


def run_command(line: str) -> None:
    program, command, *options = shlex.split(line, comments=True)
    assert program == "beltrami"
    assert main([command, *options, *CHEAP.get(command, [])]) == 0, line


def test_the_tutorials_are_there() -> None:
    assert {p.stem for p in PAGES} == {"taxonomy", "classifier", "hyplora", "should-i"}


def marked(page: Path) -> ParameterSet:
    slow = page.stem in {"taxonomy", "hyplora"}
    return pytest.param(page, id=page.stem, marks=[pytest.mark.slow] if slow else [])


@pytest.mark.filterwarnings("ignore::UserWarning")  # of Trainer, PEFT, and merging, which warns
@pytest.mark.parametrize("page", [marked(page) for page in PAGES])
def test_every_block_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One namespace and one folder a page; a text block is what the block before it prints."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__main__"}
    printed = ""
    for block in blocks(page):
        if block.language == "python":
            printed = run_python(page, block, namespace)
        elif block.language == "sh":
            for line in block.source.splitlines():
                run_command(line)
        else:
            assert block.language == "text"
            assert printed == block.source


def test_links_lead_somewhere() -> None:
    """To pages and, where a link names one, to a heading of them."""
    for page in [*PAGES, ROOT / "docs/glossary.md", ROOT / "docs/gallery.md"]:
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            if target.startswith("http"):
                continue
            path, _, anchor = target.partition("#")
            other = (page.parent / path).resolve() if path else page
            assert other.exists(), f"{page.name}: {target}"
            if anchor:
                assert anchor in anchors(other), f"{page.name}: {target}"


def anchors(page: Path) -> set[str]:
    """The ids that MkDocs gives to a page's headings."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    return {anchor(heading) for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}


def anchor(heading: str) -> str:
    """As markdown.extensions.toc makes it: ASCII letters, digits and hyphens."""
    plain = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())
