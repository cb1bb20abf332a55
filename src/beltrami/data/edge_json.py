"""Hierarchies in JSON, in one of four shapes:

    [["dog", "canine"], ...]                                    pairs of child and parent
    [{"child": "dog", "parent": "canine"}, ...]                 or "target" and "source"
    {"nodes": [{"id": 0, "label": "dog"}, ...],                 node-link, as networkx writes it;
     "links": [{"source": 1, "target": 0}, ...]}                "edges" for "links", too
    {"name": "canine", "children": [{"name": "dog"}, ...]}      nested, as for d3

A source is the parent and a target the child. In node-link files a node's label is its "label",
else its "name", else its "id"; numbers are taken as text. Nodes of the last two shapes may have a
"rank", such as "genus".
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from beltrami.data.collect import Collector
from beltrami.data.edge_list import COLUMN_NAMES, RANK_COLUMN
from beltrami.data.hierarchy import Hierarchy, HierarchyError
from beltrami.data.text import quoted, whole_text

LABEL_KEYS = ("label", "name", "id")
NESTED_LABEL_KEYS = ("name", "label", "id")
LINK_KEYS = ("links", "edges")
SHAPES = (
    "expected pairs [[child, parent], ...], objects [{child, parent}, ...], node-link "
    "{nodes, links} or nested {name, children}"
)


def read_edge_json(path: str | Path) -> Hierarchy:
    """The hierarchy in a JSON file as the module describes it; else a `HierarchyError`."""
    path = Path(path)
    data = _parsed(path)
    collector = Collector(str(path), unit="entry")
    if isinstance(data, list):
        _add_list(data, collector)
    elif isinstance(data, dict) and isinstance(data.get("nodes"), list):
        _add_node_link(data, collector)
    elif isinstance(data, dict) and any(key in data for key in NESTED_LABEL_KEYS):
        _add_nested(data, collector)
    else:
        raise HierarchyError(f"{path}: {SHAPES}; found {_shown(data)}")
    return collector.hierarchy(path.stem)


def _parsed(path: Path) -> Any:
    text = whole_text(path, error=HierarchyError)
    if not text.strip():
        raise HierarchyError(f"{path} is empty; {SHAPES}")
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise HierarchyError(
            f"{path}, line {error.lineno}, column {error.colno}: not JSON: {error.msg}"
        ) from error
    except ValueError as error:  # a number of thousands of digits
        raise HierarchyError(f"{path}: not JSON that can be used: {error}") from error
    except RecursionError:
        raise HierarchyError(
            f"{path} is nested too deeply for JSON; pass a TSV file of two columns, child and "
            "parent, which may be as deep as it likes"
        ) from None


def _add_list(data: list[Any], collector: Collector) -> None:
    for place, entry in enumerate(data, start=1):
        names = _pair_of_keys(entry)
        if names is not None:
            pair = [entry[name] for name in names]
        elif isinstance(entry, list) and len(entry) == 2:
            pair = entry
        else:
            raise collector.error(place, f"{SHAPES}; found {_shown(entry)}")
        child, parent = (
            _label(value, what, place, collector)
            for value, what in zip(pair, ("child", "parent"), strict=True)
        )
        collector.edge(child, parent, place)


def _pair_of_keys(entry: Any) -> tuple[str, str] | None:
    if not isinstance(entry, dict):
        return None
    return next((pair for pair in COLUMN_NAMES if pair[0] in entry and pair[1] in entry), None)


def _add_node_link(data: dict[str, Any], collector: Collector) -> None:
    label_of = _node_labels(data["nodes"], collector)
    links = next((data[key] for key in LINK_KEYS if isinstance(data.get(key), list)), None)
    if links is None:
        raise HierarchyError(f'{collector.source} has "nodes" but no list of "links"')
    for label, node in zip(label_of.values(), data["nodes"], strict=True):
        collector.rank(label, _rank(node), 0)
    for place, link in enumerate(links, start=1):
        names = _pair_of_keys(link)
        if names is None:
            raise collector.error(
                place, f'a link needs "source" and "target", found {_shown(link)}'
            )
        ends = []
        for name in names:
            ident = _label(link[name], name, place, collector)
            if ident not in label_of:
                raise collector.error(place, f"the {name} {quoted(ident)} is the id of no node")
            ends.append(label_of[ident])
        collector.edge(ends[0], ends[1], place)


def _node_labels(nodes: list[Any], collector: Collector) -> dict[str, str]:
    """The label of each id; both must be unique."""
    label_of: dict[str, str] = {}
    labels: set[str] = set()
    for place, node in enumerate(nodes, start=1):
        where = f"{collector.source}, node {place}"
        if not isinstance(node, dict) or "id" not in node:
            raise HierarchyError(f'{where}: a node needs an "id", found {_shown(node)}')
        ident = _label(node["id"], "id", place, collector)
        key = next(key for key in LABEL_KEYS if key in node)
        label = _label(node[key], key, place, collector)
        if ident in label_of or label in labels:
            what = f"id {quoted(ident)}" if ident in label_of else f"label {quoted(label)}"
            raise HierarchyError(
                f"{where}: the {what} is taken by an earlier node; ids and labels must be unique"
            )
        label_of[ident] = label
        labels.add(label)
    return label_of


def _add_nested(data: dict[str, Any], collector: Collector) -> None:
    """Walk the tree, parents first; places count the nodes in this order."""
    pending: list[tuple[Any, str | None]] = [(data, None)]
    place_of: dict[str, int] = {}
    while pending:
        node, parent = pending.pop()
        place = len(place_of) + 1
        keys = NESTED_LABEL_KEYS if isinstance(node, dict) else ()
        key = next((key for key in keys if key in node), None)
        if key is None:
            raise collector.error(place, f'a node needs a "name", found {_shown(node)}')
        label = _label(node[key], key, place, collector)
        if label in place_of:
            first = f"entry {place_of[label]}; names must be unique"
            raise collector.error(place, f"the name {quoted(label)} is taken by {first}")
        place_of[label] = place
        children = node.get("children") or []
        if not isinstance(children, list):
            raise collector.error(place, f'"children" of {quoted(label)} must be a list')
        collector.rank(label, _rank(node), place)
        if parent is not None:
            collector.edge(label, parent, place)
        pending += [(child, label) for child in reversed(children)]


def _rank(node: dict[str, Any]) -> str:
    """The rank of a node; one that is not text means something else."""
    rank = node.get(RANK_COLUMN)
    return rank if isinstance(rank, str) else ""


def _label(value: Any, what: str, place: int, collector: Collector) -> str:
    """A label or id as text."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise collector.error(
            place, f"the {what} must be text or a whole number, found {_shown(value)}"
        )
    if not value:
        raise collector.error(place, f"the {what} is empty")
    return value


def _shown(value: Any) -> str:
    """A value for an error message."""
    try:
        return quoted(json.dumps(value))
    except RecursionError:  # what can be parsed may still be too deep to print
        return f"a deeply nested {type(value).__name__}"
