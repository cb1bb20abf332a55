from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beltrami.data import wordnet
from beltrami.data.hierarchy import Hierarchy, HierarchyError
from beltrami.data.wordnet import DEBIAN_FOLDER, PACKAGES, find_wordnet, read_wordnet
from tests.data.installed import need_installed

LICENCE = "  1 This is a licence.  \n  2   \n"
ANIMAL = (
    "00000020 03 n 02 animal 0 beast 1 003 @ 00000010 n 0000 ~ 00000030 n 0000 + 00000099 v 0101"
)
DOG = "00000030 05 n 0a Dog 0 " + " ".join(f"{word} 0" for word in "bcdefghij")  # 0a is ten words
NOUNS = f"""{LICENCE}\
00000010 03 n 01 entity 0 001 ~ 00000020 n 0000 | what is
{ANIMAL} | alive | not a plant
{DOG} 002 @ 00000020 n 0000 #m 00000020 n 0000 | woof
00000040 05 n 01 dog 1 001 @ 00000010 n 0000 | a fellow
00000050 18 n 01 Lassie 0 002 @i 00000030 n 0000 @ 00000099 v 0000 | a collie
""".replace("\n", "  \n")
INDEX = LICENCE + "dog n 2 1 @ 2 1 00000040 00000030  \nlassie n 1 0 1 0 00000050  \n"


def write(folder: Path, data: str = NOUNS, index: str | None = INDEX) -> Path:
    if index is not None:
        (folder / "index.noun").write_text(index)
    (folder / "data.noun").write_text(data)
    return folder / "data.noun"


def edges_of(h: Hierarchy) -> set[tuple[str, str]]:
    return {(h.labels[child], h.labels[parent]) for child, parent in h.edges.tolist()}


def test_synsets_with_their_senses(tmp_path: Path) -> None:
    h = read_wordnet(write(tmp_path))
    assert h.name == "wordnet-nouns"
    assert h.labels == (
        "entity.n.00000010", "animal.n.00000020", "dog.n.02", "dog.n.01", "lassie.n.01",
    )  # fmt: skip
    assert edges_of(h) == {
        ("animal.n.00000020", "entity.n.00000010"),
        ("dog.n.02", "animal.n.00000020"),
        ("dog.n.01", "entity.n.00000010"),
        ("lassie.n.01", "dog.n.02"),
    }


def test_without_an_index_offsets_tell_senses_apart(tmp_path: Path) -> None:
    labels = read_wordnet(write(tmp_path, index=None)).labels
    assert labels[2:4] == ("dog.n.00000030", "dog.n.00000040")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("", "is empty"),
        (LICENCE, "is empty"),
        ("00000010 03 n 01 a 0 000 | x\nhello\n", "line 2: not a synset.*'hello'"),
        ("00000010 03 n 02 a 0 000 | x\n", "line 1: not a synset"),
        ("00000010 03 n 01 a 0 002 @ 00000020 n 0000 | x\n", "line 1: not a synset"),
        ("00000010 03 n 00 000 | x\n", "line 1: not a synset"),
        ("00000010 03 n 01 a 0 001 @ 00000020 n 0000 | x\n",
         "line 1: 'a.n.00000010' has the hypernym 00000020, which is not there"),
        ("00000010 03 n 01 a 0 000 | x\n00000010 03 n 01 b 0 000 | x\n",
         r"line 2: synset 00000010 is there twice .first on line 1"),
        ("00000010 03 n 01 a 0 001 @ 00000020 n 0000 | x\n"
         "00000020 03 n 01 b 0 001 @ 00000010 n 0000 | x\n", "lines 1, 2: the .* form a cycle"),
    ],
)  # fmt: skip
def test_bad_data_names_the_line(tmp_path: Path, data: str, message: str) -> None:
    with pytest.raises(HierarchyError, match=message):
        read_wordnet(write(tmp_path, data, index=None))


def test_bad_index_and_wrong_files(tmp_path: Path) -> None:
    with pytest.raises(HierarchyError, match=r"index\.noun, line 1: not an entry"):
        read_wordnet(write(tmp_path, index="dog n x"))
    with pytest.raises(HierarchyError, match=r"data\.noun or data\.verb"):
        read_wordnet(tmp_path / "data.adj")
    with pytest.raises(HierarchyError, match="No such file"):
        read_wordnet(tmp_path / "data.verb")


def test_finding_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    debian, cache = tmp_path / "debian", tmp_path / "cache" / "dict"
    debian.mkdir()
    cache.mkdir(parents=True)
    monkeypatch.setattr(wordnet, "DEBIAN_FOLDER", debian)
    monkeypatch.setattr("beltrami.data.cache.installed_path", lambda name: tmp_path / "cache")
    with pytest.raises(HierarchyError, match=r"data.noun is not.*beltrami data get wordnet-3\.0"):
        find_wordnet()
    cached = write(cache)
    assert find_wordnet() == cached
    installed = write(debian)
    assert find_wordnet("noun") == installed
    with pytest.raises(ValueError, match="part must be 'noun' or 'verb', got 'adj'"):
        find_wordnet("adj")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(), index=st.binary())
def test_any_bytes_give_synsets_or_a_named_error(
    tmp_path: Path, content: bytes, index: bytes
) -> None:
    (tmp_path / "index.verb").write_bytes(index)
    (tmp_path / "data.verb").write_bytes(b"00000010 03 v 01 go 0 000 | x\n" + content)
    problem = ""
    try:
        assert len(read_wordnet(tmp_path / "data.verb")) >= 1
    except HierarchyError as error:
        problem = str(error)
    assert not problem or ".verb" in problem


def test_the_nouns_of_wordnet_3_0() -> None:
    need_installed(*PACKAGES, debian=DEBIAN_FOLDER / "data.noun")
    h = read_wordnet(find_wordnet("noun"))
    if len(h) != 82_115:
        pytest.skip(f"installed is another version, with {len(h)} synsets")
    assert len(h.closure()) == 743_241  # as in Nickel and Kiela (2017)
    assert [h.labels[root] for root in h.roots.tolist()] == ["entity.n.01"]
    mammals = h.subtree("mammal.n.01")
    assert (len(mammals), len(mammals.closure())) == (1182, 6542)
