from __future__ import annotations

import json
from pathlib import Path

import pytest

from beltrami.data import cache
from beltrami.data.cache import (
    MissingDataError,
    StoredFile,
    cache_folder,
    content_digest,
    damaged_files,
    data_folder,
    installed_path,
    path_of,
)
from beltrami.data.catalogue import UnknownDataError
from beltrami.data.entry import Entry
from beltrami.data.fetch import get

from .packages import FakeClients, clients, sha256, toy

__all__ = ["clients"]


@pytest.fixture
def installed(clients: FakeClients) -> tuple[Entry, Path]:
    entry, archive = toy("npm")
    clients.serve("npm", archive)
    return entry, get(entry)


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("BELTRAMI_CACHE", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "own"
    monkeypatch.setenv("BELTRAMI_CACHE", "~/mine")
    assert cache_folder() == tmp_path / "home" / "mine"
    monkeypatch.setenv("BELTRAMI_CACHE", "")  # as good as unset
    assert cache_folder() == tmp_path / "xdg" / "beltrami"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    for platform, place in {
        "linux": ".cache/beltrami",
        "darwin": "Library/Caches/beltrami",
        "win32": "AppData/Local/beltrami",
    }.items():
        monkeypatch.setattr(cache.sys, "platform", platform)
        monkeypatch.delenv("LOCALAPPDATA", raising=False)
        assert cache_folder() == tmp_path / "home" / place


def test_absent(clients: FakeClients) -> None:
    entry, _ = toy("npm")
    assert installed_path(entry) is None
    assert damaged_files(entry) is None
    with pytest.raises(MissingDataError, match=r"get it .* with: beltrami data get toy$"):
        path_of(entry)
    with pytest.raises(UnknownDataError):
        path_of("no such set")
    assert not cache_folder().exists()  # asking makes nothing


def test_installed(installed: tuple[Entry, Path]) -> None:
    entry, path = installed
    assert installed_path(entry) == path_of(entry) == path == data_folder(entry)
    assert damaged_files(entry) == []


def test_a_manifest_says_everything(installed: tuple[Entry, Path]) -> None:
    entry, path = installed
    manifest = json.loads((path / "manifest.json").read_text())
    assert manifest["package"] == "toy"
    assert manifest["version"] == "1.0"
    assert manifest["archive_sha256"] == entry.sha256
    there = {str(p.relative_to(path).as_posix()) for p in path.rglob("*") if p.is_file()}
    assert {file["path"] for file in manifest["files"]} == there - {"manifest.json"}
    for file in manifest["files"]:
        data = (path / file["path"]).read_bytes()
        assert (file["size"], file["sha256"]) == (len(data), sha256(data))


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"format": 1}', '{"format": 2, "files": []}', "\xff"],
    ids=["empty", "cut", "list", "null", "bare", "other", "binary"],
)
def test_a_bad_manifest_is_none(installed: tuple[Entry, Path], text: str) -> None:
    entry, path = installed
    (path / "manifest.json").write_text(text, encoding="latin-1")
    assert installed_path(entry) is None
    assert damaged_files(entry) is None


def change_manifest(path: Path, **changes: object) -> None:
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**manifest, **changes}))


def test_a_manifest_of_another_set_or_content_does_not_count(
    installed: tuple[Entry, Path],
) -> None:
    entry, path = installed
    change_manifest(path, name="other")
    assert installed_path(entry) is None
    change_manifest(path, name="toy")
    assert installed_path(entry) == path
    files = json.loads((path / "manifest.json").read_text())["files"]
    change_manifest(path, files=files[:-1])  # not all of them
    assert installed_path(entry) is None


def test_a_manifest_cannot_point_elsewhere(installed: tuple[Entry, Path]) -> None:
    _, path = installed
    outside = StoredFile("../../../clients/log", 1, "0" * 64)
    change_manifest(path, files=[vars(outside)], content=content_digest([outside]))
    assert cache.read_manifest(path) is None


def test_missing_and_shortened_files_are_seen_without_checksums(
    installed: tuple[Entry, Path],
) -> None:
    entry, path = installed
    words = path / "words.txt"
    whole = words.read_bytes()
    words.write_bytes(whole[:-1])
    assert installed_path(entry) is None
    words.unlink()
    assert installed_path(entry) is None
    assert damaged_files(entry) == ["words.txt"]
    words.write_bytes(whole)
    assert installed_path(entry) == path


def test_a_changed_byte_is_seen_by_checksum(installed: tuple[Entry, Path]) -> None:
    entry, path = installed
    words = path / "words.txt"
    words.write_bytes(b"D" + words.read_bytes()[1:])
    assert installed_path(entry) == path
    assert damaged_files(entry) == ["words.txt"]


def test_the_content_digest_is_that_of_sha256sum() -> None:
    files = [StoredFile("b", 1, sha256(b"b")), StoredFile("a/c", 1, sha256(b"c"))]
    notice = StoredFile("notices/LICENSE", 1, sha256(b"l"))
    listing = f"{sha256(b'c')}  a/c\n{sha256(b'b')}  b\n"
    assert content_digest([*files, notice]) == sha256(listing.encode())
