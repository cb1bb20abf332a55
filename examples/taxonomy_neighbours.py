"""Embed a small taxonomy, ask what is near what, place a new node, and export the points.

    python examples/taxonomy_neighbours.py --out runs/software

docs/tutorials/taxonomy.md explains the steps.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from beltrami.embeddings import export_embedding
from beltrami.recipes.hierarchy import HierarchyEmbedding

# A section of a software archive, and what is in it.
SECTIONS = """
software: system development office media games
system: shells filesystems kernels
shells: bash zsh fish dash
filesystems: ext4 btrfs xfs zfs
kernels: linux freebsd hurd
development: editors compilers interpreters versioning
editors: vim emacs nano kakoune
compilers: gcc clang rustc ghc
interpreters: cpython pypy lua ruby
versioning: git mercurial subversion
office: spreadsheets writers mail
spreadsheets: calc gnumeric
writers: abiword lyx texmacs
mail: mutt thunderbird evolution
media: players graphics
players: mpv vlc audacious
graphics: gimp inkscape krita blender
games: puzzles arcade strategy
puzzles: sudoku mines tetris
arcade: supertux pingus
strategy: freeciv wesnoth
"""


def write_taxonomy(path: Path) -> Path:
    """A CSV file with the columns child and parent: all that a taxonomy needs."""
    rows = ["child,parent"]
    for line in SECTIONS.strip().splitlines():
        parent, _, children = line.partition(":")
        rows += [f"{child},{parent}" for child in children.split()]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def main() -> None:
    """Train, ask, add, save and export."""
    parser = argparse.ArgumentParser(description="Embed a small taxonomy and use its points.")
    parser.add_argument("--out", type=Path, default=Path("runs/software"), help="folder for files")
    parser.add_argument("--dim", type=int, default=5, help="coordinates of a point")
    parser.add_argument("--epochs", type=int, default=300, help="passes over all nodes")
    options = parser.parse_args()

    taxonomy = write_taxonomy(options.out / "software.csv")
    model = HierarchyEmbedding(dim=options.dim, epochs=options.epochs).fit(taxonomy)
    print(f"{len(model.labels_)} nodes in {options.dim} dimensions: MAP {model.map_:.3f}")
    embedding = model.embedding_
    ancestors = ", ".join(n.label for n in embedding.nearest("vim", k=3))
    print(f"nearest to vim: {ancestors}")  # its ancestors: training put them there

    inner = {parent for label in embedding.labels for parent in embedding.parents(label)}
    ranking = embedding.nearest("vim", k=len(embedding))  # everything, the nearest first
    alike = [n.label for n in ranking if n.label not in inner][:3]
    print(f"nearest to vim among the leaves: {', '.join(alike)}")

    embedding.add("helix", parents=["editors"])  # no training: the other points stay
    print("nearest to helix, which is new:", embedding.nearest("helix", k=1)[0].label)

    embedding.save(options.out / "software.safetensors")  # Embedding.load reads it again
    for file in export_embedding(embedding, options.out / "flat.txt", "word2vec", "tangent"):
        print(f"Written: {file}")


if __name__ == "__main__":
    main()
