"""Wheels, npm tarballs and Debian packages, unpacked without trusting them.

Only regular files that the entry keeps are written, and only below the target. An archive with a
name that leaves its folder, with a device, with a link in the place of a kept file, with a kept
file twice, or with more bytes than the entry allows is refused as a whole.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import shutil
import stat
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from beltrami.data.cache import StoredFile
from beltrami.data.entry import NOTICES, Entry

CHUNK = 1 << 20
_BROKEN = (
    zipfile.BadZipFile,
    tarfile.TarError,
    gzip.BadGzipFile,
    lzma.LZMAError,
    zlib.error,
    EOFError,
    NotImplementedError,  # a compression that zipfile does not know
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
    except _broken() as error:
        raise ArchiveError(f"{archive.name}: damaged or not a package file: {error}") from error
    except OSError as error:
        if error.errno is not None:  # the disk's, not the data's
            raise
        raise ArchiveError(f"{archive.name}: damaged: {error}") from error  # bz2 says it so
    return sorted(written.values(), key=lambda file: file.path)


def _placed(member: Member, entry: Entry) -> str | None:
    """Where a member is kept, relative to the target; None where it is not."""
    name = _safe(member.name)
    if member.kind == "device":
        raise ArchiveError(f"holds a device, {member.name}")
    place = place_of(name, entry)
    if place is None or member.kind == "folder":
        return None
    if member.kind == "link":
        raise ArchiveError(f"holds a link in the place of a file, {member.name}")
    return place


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
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name:
        raise ArchiveError(f"holds a path that leaves its folder, {name!r}")
    if path.parts and ":" in path.parts[0]:  # a drive, on Windows
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
        return _tar_members(lambda: _opened_gzip(archive), entry.limit)
    return _tar_members(lambda: _deb_data(archive), entry.limit)


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


def _tar_members(opened: Callable[[], Any], limit: int) -> Iterator[Member]:
    with opened() as stream:
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


@contextmanager
def _opened_gzip(archive: Path) -> Iterator[IO[bytes]]:
    with gzip.open(archive, "rb") as stream:
        yield cast(IO[bytes], stream)


@contextmanager
def _deb_data(archive: Path) -> Iterator[IO[bytes]]:
    """The tar archive with the files of a Debian package: an `ar` archive of three members."""
    with archive.open("rb") as file:
        name, part = _ar_member(file, "data.tar")
        if name.endswith(".zst"):
            with _zstd(archive, part) as stream:
                yield stream
            return
        openers: dict[str, Callable[..., Any]] = {
            "data.tar.xz": lzma.open,
            "data.tar.gz": gzip.open,
            "data.tar.bz2": bz2.open,
        }
        if name == "data.tar":
            yield cast(IO[bytes], part)
        elif name in openers:
            with openers[name](part, "rb") as stream:
                yield stream
        else:
            raise ArchiveError(f"holds {name}, a compression we do not know")


AR_MAGIC = b"!<arch>\n"
AR_HEADER = 60  # name 16, time 12, owner 6, group 6, mode 8, size 10, end 2


def _ar_member(file: IO[bytes], wanted: str) -> tuple[str, _Slice]:
    """The first member whose name starts with `wanted`."""
    if file.read(len(AR_MAGIC)) != AR_MAGIC:
        raise ArchiveError("not a Debian package")
    while header := file.read(AR_HEADER):
        name = header[:16].decode("ascii", "replace").rstrip().rstrip("/")
        digits = header[48:58].strip()
        if len(header) < AR_HEADER or header[58:] != b"`\n" or not digits.isdigit():
            raise ArchiveError("damaged: a header inside is not one")
        size = int(digits)
        if name.startswith(wanted):
            return name, _Slice(file, size)
        file.seek(size + size % 2, 1)
    raise ArchiveError(f"lacks {wanted}")


class _Slice:
    """The next `size` bytes of a file, as a file to read from start to end."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file = file
        self._left = size

    def read(self, size: int = -1) -> bytes:
        wanted = self._left if size < 0 else min(size, self._left)
        data = self._file.read(wanted)
        self._left -= len(data)
        if len(data) < wanted:
            raise EOFError("the file ends too early")
        return data

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


@contextmanager
def _zstd(archive: Path, part: _Slice) -> Iterator[IO[bytes]]:
    """Zstandard, from the standard library (3.14), `zstandard`, or dpkg-deb, whichever is there."""
    opened = _zstd_in_python(part)
    if opened is not None:
        yield opened
        return
    if not (tool := shutil.which("dpkg-deb")):
        raise ArchiveError("is compressed by zstd; to read it: pip install zstandard")
    command = [tool, "--fsys-tarfile", str(archive.absolute())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            yield cast(IO[bytes], process.stdout)
        finally:
            process.kill()


def _broken() -> tuple[type[Exception], ...]:
    """What broken data raise, also in the library for Zstandard that is in use, if any."""
    modules = (sys.modules.get(name) for name in ("compression.zstd", "zstandard"))
    errors = (getattr(module, "ZstdError", None) for module in modules)
    return (*_BROKEN, *(error for error in errors if error is not None))


def _zstd_in_python(part: _Slice) -> IO[bytes] | None:
    from importlib import import_module

    try:
        return cast(IO[bytes], import_module("compression.zstd").open(part, "rb"))
    except ImportError:
        pass
    try:
        module = import_module("zstandard")
    except ImportError:
        return None
    return cast(IO[bytes], module.ZstdDecompressor().stream_reader(part))
