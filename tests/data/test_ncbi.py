import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from beltrami.data.hierarchy import HierarchyError
from beltrami.data.load import load_hierarchy
from beltrami.data.ncbi import NAME_PLACES, NAMES, RANK_OF_CODE, TAXA, read_ncbi
from tests.data.installed import need_installed

# taxon: (parent, name); two taxa share a name, as Leptothrix does.
TREE = {1: (1, "root"), 2: (1, "Bacteria"), 7: (2, "Lepto"), 20: (1, "Insecta"), 9: (20, "Lepto")}

RANK = {2: 40, 7: 9, 20: 3, 9: 9}  # superkingdom, genus, class, genus


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
            yield key, (int(value), RANK.get(int(key), len(RANK_OF_CODE)), 0, 0)[: self.width]


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
    assert h.ranks == ("", "superkingdom", "genus", "genus", "class")
    assert load_hierarchy(tmp_path, root="Insecta").ranks == ("genus", "class")


@pytest.mark.usefixtures("libraries")
def test_a_rank_of_another_version_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RANK, 7, 46)
    with pytest.raises(
        HierarchyError, match=r"taxa\.marisa has a rank numbered 46; ranks are 1\.\.45"
    ):
        read_ncbi(write(tmp_path))


NODES_DMP = """1\t|\t1\t|\tno rank\t|\t\t|
20\t|\t1\t|\tclass\t|\t\t|
2\t|\t1\t|\tdomain\t|\t\t|
9\t|\t20\t|\tgenus\t|\t\t|
7\t|\t2\t|\tgenus\t|\t\t|
"""
NAMES_DMP = """1\t|\tall\t|\t\t|\tsynonym\t|
1\t|\troot\t|\t\t|\tscientific name\t|
2\t|\tBacteria\t|\tBacteria <bacteria>\t|\tscientific name\t|
7\t|\tLepto\t|\t\t|\tscientific name\t|
9\t|\tLepto\t|\t\t|\tscientific name\t|
20\t|\tInsecta "true"\t|\t\t|\tscientific name\t|
20\t|\tinsects\t|\t\t|\tcommon name\t|
"""


def test_the_files_that_ncbi_publishes(tmp_path: Path) -> None:
    (tmp_path / "nodes.dmp").write_text(NODES_DMP)
    (tmp_path / "names.dmp").write_text(NAMES_DMP)
    h = load_hierarchy(tmp_path)
    assert h.labels == ("root", "Bacteria", "Lepto (7)", "Lepto (9)", 'Insecta "true"')
    assert h.ranks == ("", "domain", "genus", "genus", "class")
    assert h.is_tree
    assert h.lineage("Lepto (9)")[1:] == (("class", 'Insecta "true"'), ("genus", "Lepto (9)"))


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("nodes.dmp", NODES_DMP + "x\t|\t1\t|\tgenus\t|\n", r"nodes\.dmp, line 6: .*got 'x \| 1'"),
        ("nodes.dmp", "1\t|\t1\n", r"nodes\.dmp, line 1: expected 3 or more columns"),
        ("nodes.dmp", NODES_DMP + "9\t|\t1\t|\tgenus\t|\n", "has taxon 9 twice; remove one"),
        ("nodes.dmp", NODES_DMP + "8\t|\t3\t|\tgenus\t|\n", "holds no name for taxon 8"),
        ("nodes.dmp", NODES_DMP.replace("\t20\t", "\t21\t"), "taxon 9 has the parent 21, which"),
        ("nodes.dmp", "", "is empty"),
        ("names.dmp", None, "No such file"),
        ("names.dmp", NAMES_DMP.replace("Bacteria\t|\tB", "\t|\tB"), "no name for taxon 2"),
    ],
)
def test_bad_published_files_are_named(
    tmp_path: Path, file: str, content: str | None, message: str
) -> None:
    (tmp_path / "nodes.dmp").write_text(NODES_DMP)
    (tmp_path / "names.dmp").write_text(NAMES_DMP)
    if content is None:
        (tmp_path / file).unlink()
    else:
        (tmp_path / file).write_text(content)
    with pytest.raises(HierarchyError, match=message):
        load_hierarchy(tmp_path)


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
    assert h.rank_counts["species"] == 2_140_509
    mammals = h.subtree("Mammalia")
    assert len(mammals) == 14_190
    assert mammals.rank_counts["species"] == 9_828
