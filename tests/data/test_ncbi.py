import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from beltrami.data.hierarchy import HierarchyError
from beltrami.data.load import load_hierarchy
from beltrami.data.ncbi import NAME_PLACES, NAMES, TAXA, read_ncbi
from tests.data.installed import need_installed

# taxon: (parent, name); two taxa share a name, as Leptothrix does.
TREE = {1: (1, "root"), 2: (1, "Bacteria"), 7: (2, "Lepto"), 20: (1, "Insecta"), 9: (20, "Lepto")}


class FakeTrie:
    """Just what the reader uses of marisa-trie, over lines of text."""

    def __init__(self, fields: str) -> None:
        self.width = len(fields)

    def mmap(self, path: str) -> None:
        text = Path(path).read_text()
        if text.startswith("noise"):
            raise RuntimeError("bad magic")
        self.rows = [line.split() for line in text.splitlines()]

    def iteritems(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        for key, value in self.rows:
            yield key, (int(value),) + (0,) * (self.width - 1)


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins for the two libraries, which are not installed for tests."""
    marisa, zstandard = ModuleType("marisa_trie"), ModuleType("zstandard")
    marisa.RecordTrie = FakeTrie  # type: ignore[attr-defined]

    class Decompressor:
        def stream_reader(self, file: Any) -> Any:
            if file.peek(5).startswith(b"noise"):
                raise zstandard.ZstdError("bad magic")
            return file

    zstandard.ZstdDecompressor = Decompressor  # type: ignore[attr-defined]
    zstandard.ZstdError = type("ZstdError", (Exception,), {})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "marisa_trie", marisa)
    monkeypatch.setitem(sys.modules, "zstandard", zstandard)


def write(folder: Path, tree: dict[int, tuple[int, str]] = TREE) -> Path:
    names = "".join(f"{name}\n" for name in dict.fromkeys(name for _, name in tree.values()))
    places = [(taxon, names.index(f"{name}\n")) for taxon, (_, name) in tree.items()]
    taxa = "".join(f"{taxon} {parent}\n" for taxon, (parent, _) in tree.items())
    (folder / TAXA).write_text(taxa)
    (folder / NAMES).write_text(names)
    (folder / NAME_PLACES).write_text("".join(f"{t} {place}\n" for t, place in places))
    return folder


@pytest.mark.usefixtures("libraries")
def test_taxa_with_names_and_parents(tmp_path: Path) -> None:
    h = read_ncbi(write(tmp_path))
    assert h.labels == ("root", "Bacteria", "Lepto (7)", "Lepto (9)", "Insecta")
    assert {(h.labels[c], h.labels[p]) for c, p in h.edges.tolist()} == {
        ("Bacteria", "root"),
        ("Lepto (7)", "Bacteria"),
        ("Lepto (9)", "Insecta"),
        ("Insecta", "root"),
    }
    assert h.is_tree
    assert load_hierarchy(tmp_path, root="Insecta").labels == ("Lepto (9)", "Insecta")


@pytest.mark.usefixtures("libraries")
@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        (TAXA, "1 1\n2 5\n", "taxon 2 has the parent 5, which is not there"),
        (TAXA, "", "is empty"),
        (TAXA, "noise", "not a trie of taxon numbers: bad magic"),
        (TAXA, "x 1\n", "not a trie of taxon numbers"),
        (TAXA, None, "no such file"),
        (NAMES, "noise", "not compressed by zstd"),
        (NAMES, "", "holds no name for taxon 1"),
        (NAMES, None, "No such file"),
        (NAME_PLACES, "1 0\n", "holds no name for taxon 2"),
        (NAME_PLACES, None, "no such file"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, file: str, content: str | None, message: str) -> None:
    write(tmp_path)
    if content is None:
        (tmp_path / file).unlink()
    else:
        (tmp_path / file).write_text(content)
    with pytest.raises(HierarchyError, match=message):
        read_ncbi(tmp_path)


@pytest.mark.usefixtures("libraries")
def test_names_unpack_to_no_more_than_they_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("beltrami.data.ncbi.MAX_NAMES", 10)
    with pytest.raises(HierarchyError, match="unpacks to more than"):
        read_ncbi(write(tmp_path))


@pytest.mark.parametrize("missing", ["marisa_trie", "zstandard"])
@pytest.mark.usefixtures("libraries")
def test_a_missing_library_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ImportError, match=r"pip install marisa-trie zstandard"):
        read_ncbi(write(tmp_path))


@pytest.mark.slow
def test_the_published_taxonomy() -> None:
    pytest.importorskip("marisa_trie")
    pytest.importorskip("zstandard")
    need_installed("ncbi-taxonomy")
    h = load_hierarchy("ncbi")
    assert len(h) == 2_609_295
    assert h.is_tree
    assert len(h.subtree("Mammalia")) == 14_190
