"""Hierarchies by name, or from a file of any format that we read.

    wordnet-mammals, carnivores         embedded
    wordnet-nouns, wordnet-verbs        WordNet, installed or fetched with `beltrami data get`
    ncbi, go-bp, go-mf, go-cc, hpo, icd-10-cm, icd-10        fetched with `beltrami data get`

A file's format is told by its ending: .tsv .csv .edges .json .obo .nwk .newick .tree .tre .xml, or
the names data.noun and data.verb; else by its first characters. Text is read as `text_reader` finds
it: child and parent, columns of ranks, paths or indented lines. A folder may hold NCBI's nodes.dmp
and names.dmp.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path

from beltrami.data.delimited import first_lines
from beltrami.data.edge_json import read_edge_json
from beltrami.data.edge_list import read_edge_list
from beltrami.data.gene_ontology import read_gene_ontology
from beltrami.data.hierarchy import Hierarchy, HierarchyError, did_you_mean, quoted_names
from beltrami.data.icd10 import read_icd10
from beltrami.data.ncbi import NODES, TAXA, read_ncbi, read_ncbi_dump
from beltrami.data.newick import read_newick
from beltrami.data.obo import read_obo
from beltrami.data.outline import is_indented, path_separator, read_indented, read_paths
from beltrami.data.rank_table import is_rank_table, read_rank_table
from beltrami.data.text import DataWarning, quoted
from beltrami.data.wordnet import find_wordnet, read_wordnet

Reader = Callable[[Path], Hierarchy]

DEBIAN_GENE_ONTOLOGY = Path("/usr/lib/R/site-library/GO.db/extdata/GO.sqlite")


def text_reader(path: Path) -> Reader:
    """What reads a text file: the one place where its form is recognised, by its first lines."""
    if is_rank_table(path):
        return read_rank_table
    lines = first_lines(path, error=HierarchyError)
    if lines and is_indented(lines):
        return read_indented
    return read_paths if lines and path_separator(lines) else read_edge_list


def read_text(path: Path) -> Hierarchy:
    """Child and parent, columns of ranks, paths or indented lines."""
    return text_reader(path)(path)


READERS: dict[str, Reader] = {
    ".tsv": read_text,
    ".csv": read_text,
    ".edges": read_edge_list,
    ".json": read_edge_json,
    ".obo": read_obo,
    ".nwk": read_newick,
    ".newick": read_newick,
    ".tree": read_newick,
    ".tre": read_newick,
    ".xml": read_icd10,
}
WORDNET_FILES = ("data.noun", "data.verb")

_HEAD = 1 << 12  # bytes that tell the format


def load_hierarchy(
    spec: str | Path,
    *,
    root: str | None = None,
    ranks: Sequence[str] | None = None,
    strict: bool = False,
) -> Hierarchy:
    """A hierarchy by name or from a file.

    Edges that a file repeats are used once, and its roots, if there are several, are joined under
    a new one, "(root)"; a `DataWarning` says so.

    Args:
        spec: one of `list_hierarchies()`, or a path; a `Path` is never taken for a name.
        root: the label of a node; only it and its descendants are kept.
        ranks: columns of a CSV or TSV file that are ranks, from the top down. Names of ranks that
            biology uses are recognised without.
        strict: refuse a file that would need such changes.
    """
    with refuse_changes(strict):
        return _load(spec, root, ranks)


@contextmanager
def refuse_changes(strict: bool) -> Iterator[None]:
    """Where `strict`, turn a `DataWarning` into a `HierarchyError`."""
    if not strict:
        yield
        return
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        try:
            yield
        except DataWarning as change:
            raise HierarchyError(
                f"{change}; correct it, or leave strict= (--strict) away"
            ) from None


def _load(spec: str | Path, root: str | None, ranks: Sequence[str] | None) -> Hierarchy:
    named = _NAMED.get(spec) if isinstance(spec, str) else None
    if ranks is not None:
        if named is not None:
            raise ValueError(f"ranks are columns of a file, but {spec!r} is the name of a data set")
        hierarchy = read_rank_table(_found(spec)[0], ranks)
    elif named is not None:
        hierarchy = named()
    else:
        path, reader = _found(spec)
        hierarchy = reader(path)
    if root is not None:
        return hierarchy.subtree(root)
    if named is not None or len(hierarchy.roots) == 1:
        return hierarchy
    roots = [hierarchy.labels[root] for root in hierarchy.roots.tolist()]
    joined = hierarchy.with_one_root()
    warnings.warn(
        f"{spec}: {len(roots)} roots ({quoted_names(roots)}) are joined under "
        f"{quoted(joined.labels[-1])}",
        DataWarning,
        stacklevel=3,
    )
    return joined


def list_hierarchies() -> list[str]:
    """The names that `load_hierarchy` knows; not all need be installed."""
    return sorted(_NAMED)


def _found(spec: str | Path) -> tuple[Path, Reader]:
    """The file, and what reads it."""
    try:
        path = Path(spec).expanduser()
        if path.exists():
            return path, find_reader(path)
    except OSError as error:  # such as a name that is too long, or a folder that is locked
        raise HierarchyError(f"cannot read {spec}: {error.strerror or error}") from error
    except RuntimeError as error:  # ~ of a user who is not there
        raise HierarchyError(f"cannot read {spec}: {error}") from error
    known = list_hierarchies()
    hint = did_you_mean(str(spec), known)
    raise HierarchyError(
        f"{str(spec)!r} is neither a file nor a hierarchy we know{'; ' if hint else '.'}{hint} We "
        f"know {', '.join(known)}, and files of the formats {' '.join(READERS)}"
    )


def find_reader(path: Path) -> Reader:
    """What reads a file or folder that exists."""
    if path.is_dir():
        for file, reader in _FOLDER_READERS.items():
            if (path / file).is_file():
                return reader
        raise HierarchyError(
            f"{path} is a folder, without WordNet's {WORDNET_FILES[0]} or NCBI's {TAXA} or {NODES};"
            " pass a file"
        )
    if path.name in WORDNET_FILES:
        return read_wordnet
    reader = READERS.get(path.suffix.lower()) or _reader_by_content(path)
    return text_reader(path) if reader is read_text else reader


_FOLDER_READERS: dict[str, Reader] = {  # by the file that a folder must hold
    TAXA: read_ncbi,
    NODES: read_ncbi_dump,
    WORDNET_FILES[0]: lambda folder: read_wordnet(folder / WORDNET_FILES[0]),
}


def _reader_by_content(path: Path) -> Reader:
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD).removeprefix(b"\xef\xbb\xbf").lstrip()
    except OSError as error:
        raise HierarchyError(f"cannot read {path}: {error.strerror or error}") from error
    if head.startswith((b"format-version:", b"[Term]")):
        return read_obo
    if head.startswith(b"[&") or (head.startswith(b"(") and b"\t" not in head.split(b"\n")[0]):
        return read_newick
    if head.startswith((b"{", b"[")):
        return read_edge_json
    if head.startswith(b"<"):
        return read_icd10
    return read_text


def _embedded(name: str) -> Hierarchy:
    with as_file(files("beltrami.data") / "files" / f"{name}.tsv") as path:
        return read_edge_list(path)


def _installed(name: str, file: str) -> Path:
    """A file of a fetched data set; `file` may be a pattern."""
    from beltrami.data.cache import installed_path  # the only thing here that looks at the cache

    folder = installed_path(name)
    paths = sorted(folder.rglob(file)) if folder else []
    if not paths:
        raise HierarchyError(
            f"the data set {name} is not installed; get it with: beltrami data get {name}"
        )
    return paths[-1]


def _gene_ontology(ontology: str) -> Hierarchy:
    path = DEBIAN_GENE_ONTOLOGY
    return read_gene_ontology(
        path if path.is_file() else _installed("gene-ontology", "GO.sqlite"), ontology
    )


_NAMED: dict[str, Callable[[], Hierarchy]] = {
    "carnivores": lambda: _embedded("carnivores"),
    "wordnet-mammals": lambda: _embedded("wordnet-mammals"),
    "wordnet-nouns": lambda: read_wordnet(find_wordnet("noun")),
    "wordnet-verbs": lambda: read_wordnet(find_wordnet("verb")),
    "ncbi": lambda: read_ncbi(_installed("ncbi-taxonomy", TAXA).parent),
    "go-bp": lambda: _gene_ontology("BP"),
    "go-mf": lambda: _gene_ontology("MF"),
    "go-cc": lambda: _gene_ontology("CC"),
    "hpo": lambda: read_obo(_installed("hpo", "hp.obo"), name="hpo"),
    "icd-10-cm": lambda: read_icd10(_installed("icd-10-cm", "*.xml"), name="icd-10-cm"),
    "icd-10": lambda: read_icd10(_installed("icd-10", "*.xml"), name="icd-10"),
}
