"""Derive src/beltrami/data/files/wordnet-mammals.tsv from the closure of WordNet's mammals.

Usage: python scripts/make_mammals.py CLOSURE.json src/beltrami/data/files/wordnet-mammals.tsv

CLOSURE.json is the file that scripts/make_taxonomy.py reads, too. The output is its transitive
reduction, child and parent, sorted: the fewest edges with the same closure.
"""

from __future__ import annotations

import sys

import torch

from beltrami.data.edge_json import read_edge_json
from beltrami.data.edge_list import write_edge_list
from beltrami.data.hierarchy import Hierarchy


def in_alphabetical_order(hierarchy: Hierarchy) -> Hierarchy:
    labels = hierarchy.labels
    rows = sorted(hierarchy.edges.tolist(), key=lambda row: [labels[node] for node in row])
    return Hierarchy(hierarchy.name, labels, torch.tensor(rows))


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit("usage: python scripts/make_mammals.py CLOSURE.json OUT.tsv")
    closure, out = sys.argv[1:]
    write_edge_list(in_alphabetical_order(read_edge_json(closure).reduction()), out)


if __name__ == "__main__":
    main()
