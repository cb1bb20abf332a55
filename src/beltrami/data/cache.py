"""Where fetched data lives, and whether what lies there is whole.

The cache is `$BELTRAMI_CACHE`, else `$XDG_CACHE_HOME/beltrami`, else the platform's own place
(`~/.cache/beltrami`, `~/Library/Caches/beltrami`, `%LOCALAPPDATA%\\beltrami`):

    data/NAME/            an installed set, with a manifest.json that names every file
    downloads/NAME/       a package file between its download and its unpacking
    corpus/KEY/           a text as tokens (`corpus.tokens`); may be removed at any time
    locks/NAME.lock       held while a process works on NAME
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from beltrami.data.atomic import to_json
from beltrami.data.catalogue import find
from beltrami.data.entry import NOTICES, Entry, show_bytes

MANIFEST = "manifest.json"
FORMAT = 1


class MissingDataError(RuntimeError):
    """The data set is not in the cache; the message says how to get it."""


@dataclass(frozen=True)
class StoredFile:
    """A file of an installed set; `path` is relative, with forward slashes."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What was installed, from which package file."""

    name: str
    kind: str
    package: str
    version: str
    archive: str
    archive_size: int
    archive_sha256: str
    content: str
    files: tuple[StoredFile, ...]

    def to_json(self) -> str:
        """The text of manifest.json."""
        return to_json({"format": FORMAT, **asdict(self)})


def cache_folder() -> Path:
    """The cache, which need not exist."""
    if own := os.environ.get("BELTRAMI_CACHE"):
        return Path(own).expanduser().absolute()
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    if xdg and Path(xdg).is_absolute():  # a relative one is to be ignored, says its standard
        return Path(xdg) / "beltrami"
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "beltrami"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "beltrami"
    return Path.home() / ".cache" / "beltrami"


def data_folder(entry: Entry) -> Path:
    """Where the set is, or would be, installed."""
    return cache_folder() / "data" / entry.name


def installed_path(name: str | Entry) -> Path | None:
    """The folder of an installed set, or None.

    Installed means: its manifest is complete and of the catalogue's version, and every file that it
    names is there in its full size. `damaged_files` also compares checksums.
    """
    entry = find(name)
    folder = data_folder(entry)
    manifest = _manifest_of(entry)
    if manifest is None or not all(_intact(folder, file) for file in manifest.files):
        return None
    return folder


def path_of(name: str | Entry) -> Path:
    """The folder of an installed set; `MissingDataError` where it is not installed."""
    entry = find(name)
    if path := installed_path(entry):
        return path
    raise MissingDataError(
        f"{entry.name} is not in {cache_folder()}; get it ({show_bytes(entry.size)}) with: "
        f"beltrami data get {entry.name}"
    )


def damaged_files(name: str | Entry) -> list[str] | None:
    """Files of an installed set that are missing or changed, by checksum; None: not installed."""
    entry = find(name)
    manifest = _manifest_of(entry)
    if manifest is None:
        return None
    folder = data_folder(entry)
    return [file.path for file in manifest.files if not _intact(folder, file, digest=True)]


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a folder; None where it is missing, incomplete, or contradicts itself."""
    try:
        return _parse(json.loads((folder / MANIFEST).read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def content_digest(files: Iterable[StoredFile]) -> str:
    """SHA-256 of the files' list as `sha256sum` prints it, sorted by path, without the notices."""
    listed = sorted((f.path, f.sha256) for f in files if not f.path.startswith(f"{NOTICES}/"))
    lines = "".join(f"{digest}  {path}\n" for path, digest in listed)
    return hashlib.sha256(lines.encode("utf-8")).hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _parse(record: Any) -> Manifest:
    if not isinstance(record, dict) or record.pop("format") != FORMAT:
        raise ValueError("another format")
    files = tuple(StoredFile(**file) for file in record.pop("files"))
    manifest = Manifest(files=files, **record)
    for file in files:
        place = PurePosixPath(file.path)
        if place.is_absolute() or ".." in place.parts or not isinstance(file.size, int):
            raise ValueError(f"not a file of this folder: {file.path}")
    if not files or content_digest(files) != manifest.content:
        raise ValueError("incomplete")
    return manifest


def _manifest_of(entry: Entry) -> Manifest | None:
    """The manifest of an installed set; another Debian revision with equal files will do."""
    manifest = read_manifest(data_folder(entry))
    if manifest is None or (manifest.name, manifest.package) != (entry.name, entry.package):
        return None
    if entry.content is None:
        return manifest if manifest.version == entry.version else None
    return manifest if manifest.content == entry.content else None


def _intact(folder: Path, file: StoredFile, *, digest: bool = False) -> bool:
    """Whether a file is there in its full size and, if asked for, with its checksum."""
    path = folder / file.path
    try:
        whole = path.is_file() and path.stat().st_size == file.size
        return whole and (not digest or file_digest(path) == file.sha256)
    except OSError:
        return False
