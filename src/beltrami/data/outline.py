"""Taxonomies as people write them: paths, one a line, and indented text.

    animal/cat/lion             animal > cat > lion             animal
    animal/dog                  animal > dog                        cat
                                                                        lion
                                                                    dog

Names of paths are separated by ">" or "/", and may be quoted as CSV allows; nodes above need no
line of their own, and a first line `path` is a header. Where all lines begin with a number, as
`2 - Animals` does in Google's product taxonomy, it is left away. Each level of an indented text is
indented by the same tabs or spaces, or by more than the level above; the marks of a list, `-` and
`*`, are left away. Lines that start with `#` are comments. A node is a path of names, as in
`rank_table`: a name may be at several places.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from beltrami.data.collect import warn_of_repetitions
from beltrami.data.delimited import Rows, count_outside_quotes, find_delimiter, first_lines
from beltrami.data.edge_list import edge_columns
from beltrami.data.hierarchy import Hierarchy, HierarchyError
from beltrami.data.rank_table import Key, hierarchy_of_keys
from beltrami.data.text import quoted, read_lines

PATH_HEADERS = {"path", "paths", "lineage", "taxonomy", "category"}
_NUMBER = re.compile(r"\s*\d+ - ")  # of a path, as in Google's product taxonomy
_ROOT = ("root",)  # instead of ranks: what labels call a root whose name others have, too


def is_indented(lines: Sequence[str]) -> bool:
    """Whether the first lines of a file are indented text, not columns with spaces around them."""
    delimiter = find_delimiter([lines[0].strip()])
    indented = [line for line in lines if line[:1].isspace()]
    if delimiter is None or delimiter == "\t":
        return False
    if not count_outside_quotes(lines[0], delimiter):
        return bool(indented)
    if not lines[0][:1].isspace() and not edge_columns(lines[0].split(delimiter)):
        return 2 * len(indented) >= max(len(lines) - 1, 1)
    return 2 * sum(delimiter not in line for line in indented) > len(lines)


def path_separator(lines: Sequence[str]) -> str | None:
    """What separates the names of paths in the first lines of a file; None for other files.

    Most lines have it, and the first line has no columns: a "/" may be in names of edge lists.
    Lines with " > " may have commas, if they do not all have as many.
    """
    delimiter = find_delimiter(lines)
    if delimiter is None or delimiter == "\t":
        return None
    columns = [count_outside_quotes(line, delimiter) for line in lines]
    marks = [" > "] if columns[0] else [" > ", "/", ">"]
    if columns[0] and len(set(columns)) == 1:
        return None
    likely = [m for m in marks if 2 * sum(m in line for line in lines) >= len(lines)]
    return likely[0].strip() if likely else None


def read_paths(path: str | Path) -> Hierarchy:
    """The hierarchy in a file of paths; else a `HierarchyError`."""
    path = Path(path)
    lines = first_lines(path, error=HierarchyError)
    separator, numbered = path_separator(lines) or "/", all(map(_NUMBER.match, lines))
    node_of: dict[Key, int] = {}
    rows = Rows(path, error=HierarchyError, comments=True, delimiter=separator)
    for number, row in enumerate(row for row in rows if not rows.is_comment(row.text)):
        names = row.fields if len(row.fields) > 1 else row.fields[0].split(separator)
        if number == 0 and row.text.strip().lower() in PATH_HEADERS:
            continue
        if numbered:
            names = [_NUMBER.sub("", names[0]), *names[1:]]
        node = -1
        for name in filter(None, map(str.strip, names)):
            node = node_of.setdefault((node, 0, name), len(node_of))
        if node < 0:
            raise rows.problem(row.line, f"the path {quoted(row.text)} has no names")
    return hierarchy_of_keys(path, list(node_of), _ROOT, ranked=False)


def read_indented(path: str | Path) -> Hierarchy:
    """The hierarchy in an indented text; else a `HierarchyError`."""
    path = Path(path)
    node_of: dict[Key, int] = {}
    lines: list[int] = []  # of nodes
    above: list[tuple[str, int]] = []  # indentation and node of each level
    repeated: list[str] = []
    for line, text in read_lines(path, error=HierarchyError):
        name = text.strip().removeprefix("- ").removeprefix("* ").lstrip()
        indent = text[: len(text) - len(text.lstrip())]
        if name.startswith("#"):
            continue
        if above and not (indent != above[-1][0] and indent.startswith(above[-1][0])):
            while above and above[-1][0] != indent:
                above.pop()
            if not above:
                raise HierarchyError(
                    f"{path}, line {line}: {quoted(text)} is indented like no line above it; "
                    "indent each level by the same tabs or spaces"
                )
            above.pop()
        key = (above[-1][1] if above else -1, 0, name)
        if key in node_of:
            first = lines[node_of[key]]
            repeated.append(f"{quoted(name)} on line {line}, which is on line {first}, too")
        else:
            lines.append(line)
        above.append((indent, node_of.setdefault(key, len(node_of))))
    if repeated:
        warn_of_repetitions(str(path), len(repeated), repeated[0])
    return hierarchy_of_keys(path, list(node_of), _ROOT, ranked=False)
