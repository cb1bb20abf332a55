"""Every `beltrami ...` in the documentation is a command, with options that there are."""

from __future__ import annotations

import contextlib
import functools
import io
import re
import shlex
from pathlib import Path

import pytest

from beltrami.cli.app import main, parse

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/*.md")])
SOURCES = sorted(p for p in ROOT.glob("src/**/*.py") if "`beltrami " in p.read_text("utf-8"))
GROUPS = ("run", "data")  # commands with commands of their own
INVENTED = ("beltrami run words",)  # what a reader of docs/recipes/adding.md makes

FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`(beltrami +[^`]+)`")
PLACEHOLDER = re.compile(r"[A-Z_]+|\.\.\.|<.*>|\{.*")  # NAME, FILE, ..., a variable of a message


def whole_commands(text: str) -> list[str]:
    """The lines of shell blocks, which can be typed as they are."""
    blocks = [code for language, code in FENCE.findall(text) if language in ("", "sh", "bash")]
    lines = "".join(blocks).replace("\\\n", " ").split("\n")
    return [line.strip() for line in lines if line.strip().startswith("beltrami ")]


def mentions(text: str) -> list[str]:
    """Commands in the middle of sentences, which may be incomplete."""
    return [" ".join(command.split()) for command in INLINE.findall(text)]


@functools.cache
def help_of(*command: str) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        code = main([*command, "--help"])
    typed = " ".join(["beltrami", *command])
    assert (code, printed.getvalue().startswith(f"usage: {typed} ")) == (0, True), typed
    return printed.getvalue()


def check(mention: str) -> None:
    words = shlex.split(mention, comments=True)[1:]
    command = [] if words[0].startswith("-") else words[:1]
    more = words[1:2] if words[0] in GROUPS else []
    command += [word for word in more if not re.match(r"-", word) and not PLACEHOLDER.match(word)]
    if PLACEHOLDER.match(words[0]) or mention.startswith(INVENTED):
        return
    known = set(re.findall(r"--[a-z][a-z-]*", help_of(*command))) | {"--help", "--version"}
    if command == ["run"]:
        known = set(re.findall(r"--[a-z][a-z-]*", "".join(help_of("run", r) for r in recipes())))
    named = {word.partition("=")[0].rstrip(".,;:") for word in words if word.startswith("--")}
    assert named <= {*known, "--help"}, f"{mention}: there is no {', '.join(sorted(named - known))}"


def recipes() -> list[str]:
    from beltrami.recipes.registry import RECIPES

    return [kind.recipe for kind in RECIPES]


@pytest.mark.parametrize("page", [*PAGES, *SOURCES], ids=lambda p: str(p.relative_to(ROOT)))
def test_commands_are_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for line in whole_commands(text):
        words = shlex.split(line, comments=True)[1:]
        with contextlib.suppress(SystemExit) if "--help" in words else contextlib.nullcontext():
            parse(words)
    for mention in [*mentions(text), *whole_commands(text)]:
        check(mention)


def test_there_are_commands() -> None:
    guide = (ROOT / "docs/data.md").read_text(encoding="utf-8")
    assert "beltrami data get wordnet-3.0 hpo  # fetch" in whole_commands(guide)
    assert "beltrami diagnose FILE" in mentions(guide)


@pytest.mark.parametrize(
    "mention", ["beltrami diagnos", "beltrami run hierachy", "beltrami tour --sed 1"]
)
def test_what_is_not_there_is_noticed(mention: str) -> None:
    with pytest.raises(AssertionError):
        check(mention)
