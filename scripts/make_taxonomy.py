"""Derive src/beltrami/data/files/carnivores.tsv from the closure of WordNet's mammals.

Usage: python scripts/make_taxonomy.py CLOSURE.json > src/beltrami/data/files/carnivores.tsv

CLOSURE.json is a node-link file ({"nodes": [{"id", "label"}], "links": [{"source", "target"}]}) of
the transitive closure of WordNet 3.0's noun hypernyms below mammal.n.01; a link goes from the more
general synset to the more special one.

1. Transitive reduction: of a synset's ancestors only those stay that are no other's ancestor.
2. A strict tree: a synset with several parents keeps the alphabetically first.
3. The subtree of ROOT down to MAX_DEPTH levels, without LEFT_OUT and what lies below them.
4. Readable labels: "brown_bear.n.01" becomes "brown bear"; a clash keeps the sense number.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from pathlib import Path

ROOT = "carnivore.n.01"
MAX_DEPTH = 3
# Words for one sex or age, and nicknames: WordNet lists them beside the kinds, but they are none.
LEFT_OUT = {
    "bear_cub.n.01",
    "bitch.n.04",
    "bruin.n.01",
    "cur.n.01",
    "pooch.n.01",
    "puppy.n.01",
    "reynard.n.01",
    "vixen.n.02",
    "wolf_pup.n.01",
}


def read_ancestors(path: Path) -> dict[str, set[str]]:
    closure = json.loads(path.read_text(encoding="utf-8"))
    label = {node["id"]: node["label"] for node in closure["nodes"]}
    ancestors: dict[str, set[str]] = {name: set() for name in label.values()}
    for link in closure["links"]:
        ancestors[label[link["target"]]].add(label[link["source"]])
    return ancestors


def choose_parents(ancestors: dict[str, set[str]]) -> dict[str, str]:
    """Each synset's direct hypernym, the alphabetically first where there are several."""
    parents = {}
    for name, above in ancestors.items():
        direct = {a for a in above if not any(a in ancestors[b] for b in above)}
        if direct:
            parents[name] = min(direct)
    return parents


def subtree(parents: dict[str, str]) -> list[tuple[str, str]]:
    """(child, parent) rows of the subtree, level by level, siblings in alphabetical order."""
    children = defaultdict(list)
    for child in sorted(parents):
        children[parents[child]].append(child)
    rows, level = [], [ROOT]
    for _ in range(MAX_DEPTH):
        found = [(c, p) for p in level for c in children[p] if c not in LEFT_OUT]
        rows += found
        level = [child for child, _ in found]
    return rows


def readable(rows: list[tuple[str, str]]) -> list[tuple[str, str]]:
    names = [ROOT, *(child for child, _ in rows)]
    short = {name: name.split(".")[0].replace("_", " ") for name in names}
    count = Counter(short.values())
    label = {
        name: text if count[text] == 1 else f"{text} (sense {int(name.split('.')[-1])})"
        for name, text in short.items()
    }
    return [(label[child], label[parent]) for child, parent in rows]


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python scripts/make_taxonomy.py CLOSURE.json > carnivores.tsv")
    rows = readable(subtree(choose_parents(read_ancestors(Path(sys.argv[1])))))
    print("child\tparent")
    for child, parent in rows:
        print(f"{child}\t{parent}")


if __name__ == "__main__":
    main()
