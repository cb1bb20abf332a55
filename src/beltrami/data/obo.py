"""Ontologies in the OBO flat-file format, versions 1.2 and 1.4, such as HPO's hp.obo.

Terms are the `[Term]` stanzas that are not obsolete, and edges their `is_a` lines, with those of
the `relationship` kinds asked for. A term that is only mentioned as a parent is a node as well,
called by its id. Labels are names, with the id in brackets where several terms share a name.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from beltrami.data.collect import Collector, unique_labels
from beltrami.data.hierarchy import Hierarchy, HierarchyError
from beltrami.data.text import quoted, read_lines

_STANZA = re.compile(r"\[([^\]]*)\]\s*(?:!.*)?")
# A space before them tells these from the ! and { inside a name; escaped ones have a backslash.
_COMMENT = re.compile(r"(?:^|\s)!")
_ESCAPE = re.compile(r"\\(.)")


@dataclass
class _Term:
    line: int
    ident: str = ""
    name: str = ""
    obsolete: bool = False
    parents: dict[str, int] = field(default_factory=dict)  # id -> line


def read_obo(
    path: str | Path, *, relationships: Collection[str] = (), name: str | None = None
) -> Hierarchy:
    """The hierarchy of an ontology.

    Args:
        path: the file.
        relationships: kinds of `relationship` lines that count as edges besides `is_a`, such as
            ("part_of",).
        name: what to call the hierarchy; the file's name by default.
    """
    path = Path(path)
    terms: dict[str, _Term] = {}
    for term in _terms(path, relationships):
        if not term.ident:
            raise HierarchyError(f"{path}, line {term.line}: this [Term] has no id")
        first = terms.setdefault(term.ident, term)
        if first is not term:
            raise HierarchyError(
                f"{path}, line {term.line}: the id {quoted(term.ident)} is there twice "
                f"(first on line {first.line})"
            )
    obsolete = {ident for ident, term in terms.items() if term.obsolete}
    current = {ident: term for ident, term in terms.items() if not term.obsolete}
    names = {ident: term.name or ident for ident, term in current.items()}
    for term in current.values():
        for parent in term.parents:
            names.setdefault(parent, parent)
    if not names:
        raise HierarchyError(f"{path} is empty: it has no [Term] that is not obsolete")
    label = dict(zip(names, unique_labels((names[i], i) for i in names), strict=True))
    collector = Collector(str(path))
    for ident, term in current.items():
        collector.node(label[ident])
        for parent, line in term.parents.items():
            if parent in obsolete:
                raise collector.error(
                    line, f"{ident} has the parent {parent}, which is obsolete; remove the line"
                )
            collector.edge(label[ident], label[parent], line)
    return collector.hierarchy(name or path.stem)


def _terms(path: Path, relationships: Collection[str]) -> list[_Term]:
    """The [Term] stanzas."""
    terms: list[_Term] = []
    stanza = ""  # the header
    for number, text in read_lines(path, error=HierarchyError):
        if begin := _STANZA.fullmatch(text.strip()):
            stanza = begin[1]
            if stanza == "Term":
                terms.append(_Term(number))
            continue
        if text.lstrip().startswith("!"):
            continue
        tag, colon, value = text.partition(":")
        if not colon:
            where = "a stanza" if stanza else "the header"
            raise HierarchyError(
                f"{path}, line {number}: expected `tag: value` in {where}, found "
                f"{quoted(text.strip())}"
            )
        if stanza == "Term":
            _add(terms[-1], tag.strip(), _plain(value), number, path, relationships)
    return terms


def _add(
    term: _Term, tag: str, value: str, line: int, path: Path, relationships: Collection[str]
) -> None:
    """Take in one `tag: value` line of a term."""
    if tag == "id":
        if term.ident:
            first = f"the [Term] of line {term.line}"
            raise HierarchyError(f"{path}, line {line}: a second id in {first}")
        term.ident = value
    elif tag == "name":
        term.name = value
    elif tag == "is_obsolete":
        term.obsolete = value == "true"
    elif tag == "is_a":
        _add_parent(term, value, line, path)
    elif tag == "relationship" and relationships:
        kind, _, parent = value.partition(" ")
        if kind in relationships and parent.strip() not in term.parents:
            _add_parent(term, parent.strip(), line, path)


def _add_parent(term: _Term, parent: str, line: int, path: Path) -> None:
    if not parent or " " in parent:
        raise HierarchyError(
            f"{path}, line {line}: expected the id of a term, found {quoted(parent)}"
        )
    if parent in term.parents:
        raise HierarchyError(
            f"{path}, line {line}: the parent {parent} is there twice "
            f"(first on line {term.parents[parent]}); remove one"
        )
    term.parents[parent] = line


def _without_modifiers(value: str) -> str:
    """Searched from the end: a pattern would try every space, and take the square of them."""
    if not value.endswith("}"):
        return value
    start = value.rfind("{")
    whole = start >= 0 and value.find("}", start) == len(value) - 1
    if whole and (start == 0 or value[start - 1].isspace()):
        return value[:start].rstrip()
    return value


def _plain(value: str) -> str:
    """A value without comment, trailing modifiers and escapes: `HP:1 {a="b"} ! All` is `HP:1`."""
    value = _COMMENT.split(value, maxsplit=1)[0].strip()
    value = _without_modifiers(value)
    return _ESCAPE.sub(lambda match: " " if match[1] in "nWt" else match[1], value)
