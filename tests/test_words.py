"""The words of the source: names of variables say what they hold, docstrings say something.

See "Words" in CONTRIBUTING.md.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import beltrami

ROOT = Path(beltrami.__file__).parent

REFUSED = {"found", "told", "some", "one", "said", "kept", "asked"}
LEAST_WORDS = 3  # of a public docstring

Place = tuple[int, str]


def _files() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def refused_names(tree: ast.AST) -> Iterator[Place]:
    """Refused names that a file gives to variables, arguments, targets of loops and imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            name = node.attr
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.ExceptHandler | ast.alias):
            name = (node.asname if isinstance(node, ast.alias) else node.name) or ""
        else:
            continue
        if name.strip("_") in REFUSED:
            yield getattr(node, "lineno", 0), name


def short_docstrings(tree: ast.Module) -> Iterator[Place]:
    """Public modules, classes and functions whose docstring has fewer words than it needs."""
    pending: list[ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef] = [tree]
    while pending:
        node = pending.pop()
        text = ast.get_docstring(node)
        if text is not None and len(text.split()) < LEAST_WORDS:
            yield getattr(node, "lineno", 1), text
        if not isinstance(node, ast.Module | ast.ClassDef):
            continue
        for child in node.body:
            named = isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            if named and not child.name.startswith("_"):
                pending.append(child)


def _listed(path: Path, places: Iterator[Place]) -> list[str]:
    return [f"{path.relative_to(ROOT)}:{line}: {text!r}" for line, text in places]


def test_names_of_variables() -> None:
    bad = [line for path in _files() for line in _listed(path, refused_names(_tree(path)))]
    assert not bad, "names that do not say what they hold:\n" + "\n".join(bad)


def test_public_docstrings() -> None:
    bad = [line for path in _files() for line in _listed(path, short_docstrings(_tree(path)))]
    assert not bad, f"docstrings of fewer than {LEAST_WORDS} words:\n" + "\n".join(bad)


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "code",
    [
        "found = 1",
        "found: int = 1",
        "a, (b, found) = 1, (2, 3)",
        "for found in x: pass",
        "[found for found in x]",
        "with open(x) as found: pass",
        "if (found := 1): pass",
        "def f(found): pass",
        "def f(*, found=1): pass",
        "lambda found: 1",
        "import os as found",
        "try: pass\nexcept ValueError as found: pass",
        "_found = 1",
        "self.found = 1",
    ],
)
def test_every_way_to_name_a_variable_is_seen(code: str) -> None:
    assert list(refused_names(ast.parse(code)))


@pytest.mark.parametrize("code", ["print(found)", "x.found", "def found(): pass", "foundation = 1"])
def test_other_uses_of_a_word_are_allowed(code: str) -> None:
    assert not list(refused_names(ast.parse(code)))


def test_short_docstrings_are_seen() -> None:
    code = (
        '"""A module here."""\nclass A:\n    """Both."""\n    def f(self):\n        """Never."""\n'
    )
    hidden = 'def _g():\n    """Both."""\n'
    assert [text for _, text in short_docstrings(ast.parse(code + hidden))] == ["Both.", "Never."]
