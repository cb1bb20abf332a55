"""Small packages of all kinds, their entries, and clients that serve them without a network."""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import stat
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from beltrami.data.cache import StoredFile, content_digest
from beltrami.data.entry import Entry, Kept, Kind

ROOTS: dict[Kind, str] = {"pypi": "toy/data/", "npm": "package/", "debian": "usr/share/toy/"}
FILE_NAMES: dict[Kind, str] = {
    "pypi": "toy-1.0-py3-none-any.whl",
    "npm": "toy-1.0.tgz",
    "debian": "toy_1%3a1.0-1_all.deb",
}
DATA = {"words.txt": b"dog\ncat\n" * 40, "deep/tree.txt": b"dog animal\n" * 40}
KINDS: list[Kind] = ["pypi", "npm", "debian"]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def wheel(members: Mapping[str, bytes], modes: Mapping[str, int] | None = None) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (modes or {}).get(name, stat.S_IFREG | 0o644) << 16
            archive.writestr(info, data)
    return buffer.getvalue()


def tar(members: Mapping[str, bytes], odd: tuple[tarfile.TarInfo, ...] = ()) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        for info in odd:
            archive.addfile(info)
    return buffer.getvalue()


def ar(parts: Mapping[str, bytes]) -> bytes:
    out = b"!<arch>\n"
    for name, data in parts.items():
        header = f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n"
        out += header.encode() + data + b"\n" * (len(data) % 2)
    return out


def deb(data_tar: bytes, name: str = "data.tar.xz") -> bytes:
    pack = {"xz": lzma.compress, "gz": gzip.compress, "tar": bytes}[name.rsplit(".", 1)[1]]
    control = lzma.compress(tar({"./control": b"Package: toy\n"}))
    return ar({"debian-binary": b"2.0\n", "control.tar.xz": control, name: pack(data_tar)})


def packed(kind: Kind, members: Mapping[str, bytes]) -> bytes:
    """A package with these members, named from its top."""
    if kind == "pypi":
        return wheel(members)
    if kind == "npm":
        return gzip.compress(tar(members), mtime=0)
    return deb(tar({f"./{name}": data for name, data in members.items()}))


def toy(kind: Kind, **changes: Any) -> tuple[Entry, bytes]:
    """An entry and its package file: DATA, a licence, and a program that must not be kept."""
    root = ROOTS[kind]
    members = {root + name: data for name, data in DATA.items()}
    archive = packed(
        kind, {**members, "LICENSE": b"free\n", f"{root}setup.py": b"raise SystemExit"}
    )
    files = [StoredFile(name, len(data), sha256(data)) for name, data in DATA.items()]
    entry = Entry(
        name="toy",
        title="A toy",
        group="Toys",
        kind=kind,
        package="toy",
        version="1:1.0-1" if kind == "debian" else "1.0",
        size=len(archive),
        unpacked_size=sum(map(len, DATA.values())) + 21,
        installed_size=sum(map(len, DATA.values())) + 5,
        licence="free",
        holds="words",
        root=root,
        files=(Kept("words.txt", "words"), Kept("deep/*.txt", "trees")),
        notices=("LICENSE",),
        sha256=sha256(archive),
        content=content_digest(files),
    )
    return replace(entry, **changes), archive


@dataclass
class FakeClients:
    """pip, npm and apt-get that serve the files of a folder, or do what a script says."""

    folder: Path
    log: Path

    def calls(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def serve(self, kind: Kind, archive: bytes, name: str | None = None, before: str = "") -> None:
        """`before` is a shell script that runs first; with an `exit` in it nothing is served."""
        shelf = self.folder / f"shelf-{kind}"
        shelf.mkdir(exist_ok=True)
        (shelf / (name or FILE_NAMES[kind])).write_bytes(archive)
        program = {"pypi": "pip", "npm": "npm", "debian": "apt-get"}[kind]
        script = self.folder / "bin" / program
        script.parent.mkdir(exist_ok=True)
        script.write_text(
            f'#!/bin/sh\necho "{program} $*" >> {self.log}\n{before}\ncp {shelf}/* .\n'
        )
        script.chmod(0o755)
        module = self.folder / "lib" / "pip" / "__main__.py"  # what `python -m pip` runs
        module.parent.mkdir(parents=True, exist_ok=True)
        module.parent.joinpath("__init__.py").touch()
        module.write_text(
            "import subprocess, sys\n"
            f"sys.exit(subprocess.call([{str(self.folder / 'bin' / 'pip')!r}, *sys.argv[1:]]))\n"
        )


@pytest.fixture
def clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeClients:
    """Fakes in front of the real clients, and an empty cache."""
    if sys.platform == "win32":
        pytest.skip("the fake clients are shell scripts")
    folder = tmp_path / "clients"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("PYTHONPATH", str(folder / "lib"))
    monkeypatch.setenv("BELTRAMI_CACHE", str(tmp_path / "cache"))
    return FakeClients(folder, folder / "log")
