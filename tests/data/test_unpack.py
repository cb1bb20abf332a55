from __future__ import annotations

import bz2
import errno
import gzip
import lzma
import stat
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from beltrami.data import unpack as module
from beltrami.data.entry import Kind
from beltrami.data.unpack import ArchiveError, unpack

from .packages import DATA, KINDS, ROOTS, ar, deb, packed, sha256, tar, toy, wheel


def unpacked(tmp_path: Path, kind: Kind, archive: bytes, **changes: object) -> Path:
    """The target's folder, in a folder of its own that nothing else may appear in."""
    entry, _ = toy(kind, **changes)
    file = tmp_path / "archive"
    file.write_bytes(archive)
    target = tmp_path / "inner" / "target"
    target.mkdir(parents=True)
    unpack(file, entry, target)
    return target


def files_in(folder: Path) -> dict[str, bytes]:
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()
    }


@pytest.mark.parametrize("kind", KINDS)
def test_keeps_what_matters_and_says_what(kind: Kind, tmp_path: Path) -> None:
    entry, archive = toy(kind)
    file = tmp_path / "archive"
    file.write_bytes(archive)
    stored = unpack(file, entry, tmp_path / "target")
    found = files_in(tmp_path / "target")
    assert found == {**DATA, "notices/LICENSE": b"free\n"}
    assert {s.path: (s.size, s.sha256) for s in stored} == {
        name: (len(data), sha256(data)) for name, data in found.items()
    }


@pytest.mark.parametrize("name", ["data.tar.gz", "data.tar"])
def test_other_compressions_of_debian(name: str, tmp_path: Path) -> None:
    members = {f"./usr/share/toy/{file}": data for file, data in DATA.items()}
    assert files_in(unpacked(tmp_path, "debian", deb(tar(members), name))) == DATA


def test_zstd_by_dpkg_where_python_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tool is asked for the plain tar archive, which is then checked like any other."""
    plain = tmp_path / "plain.tar"
    plain.write_bytes(tar({f"./usr/share/toy/{file}": data for file, data in DATA.items()}))
    tool = tmp_path / "dpkg-deb"
    tool.write_text(f'#!/bin/sh\n[ "$1" = --fsys-tarfile ] && cat {plain}\n')
    tool.chmod(0o755)
    monkeypatch.setattr(module, "_zstd_in_python", lambda: None)
    monkeypatch.setattr(module.shutil, "which", lambda name: str(tool))
    archive = ar({"debian-binary": b"2.0\n", "data.tar.zst": b"anything"})
    assert files_in(unpacked(tmp_path, "debian", archive)) == DATA
    monkeypatch.setattr(module.shutil, "which", lambda name: None)
    (tmp_path / "again").mkdir()
    with pytest.raises(ArchiveError, match="pip install zstandard"):
        unpacked(tmp_path / "again", "debian", archive)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["../evil.txt", "/evil.txt", "a/../../evil.txt", "C:/evil.txt"])
def test_paths_that_leave_are_refused(kind: Kind, name: str, tmp_path: Path) -> None:
    members = {name: b"evil", **{ROOTS[kind] + file: data for file, data in DATA.items()}}
    archive = deb(tar(members)) if kind == "debian" else packed(kind, members)
    with pytest.raises(ArchiveError, match="leaves its folder"):
        unpacked(tmp_path, kind, archive)
    assert set(files_in(tmp_path)) == {"archive"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("inner", ["deep/../../evil.txt", "deep/..\\..\\evil.txt"])
def test_kept_names_that_leave_are_refused(kind: Kind, inner: str, tmp_path: Path) -> None:
    """The pattern deep/*.txt matches them."""
    name = ROOTS[kind] + inner
    archive = deb(tar({name: b"evil"})) if kind == "debian" else packed(kind, {name: b"evil"})
    with pytest.raises(ArchiveError, match="leaves its folder"):
        unpacked(tmp_path, kind, archive)
    assert set(files_in(tmp_path)) == {"archive"}


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.linkname = target
    return info


@pytest.mark.parametrize(
    ("member", "message"),
    [
        (special("package/words.txt", tarfile.SYMTYPE, "/etc/passwd"), "link in the place"),
        (special("package/words.txt", tarfile.SYMTYPE, "deep/tree.txt"), "link in the place"),
        (special("package/words.txt", tarfile.LNKTYPE, "../../passwd"), "link in the place"),
        (special("package/disk", tarfile.BLKTYPE), "a device"),
        (special("package/pipe", tarfile.FIFOTYPE), "a device"),
    ],
)
def test_links_and_devices_are_refused(
    member: tarfile.TarInfo, message: str, tmp_path: Path
) -> None:
    archive = gzip.compress(tar({"package/deep/tree.txt": b"x"}, (member,)))
    with pytest.raises(ArchiveError, match=message):
        unpacked(tmp_path, "npm", archive)
    assert not (tmp_path / "inner" / "target" / "words.txt").exists()


def test_a_folder_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    """The link is not written, so the file after it lands in a real folder."""
    outside = tmp_path / "outside"
    outside.mkdir()
    link = special("package/deep", tarfile.SYMTYPE, str(outside))
    members = tar({}, (link,))[:512] + tar({f"package/{n}": d for n, d in DATA.items()})
    target = unpacked(tmp_path, "npm", gzip.compress(members))
    assert files_in(target) == DATA
    assert list(outside.iterdir()) == []
    assert not (target / "deep").is_symlink()


def test_links_in_wheels_are_refused(tmp_path: Path) -> None:
    name = "toy/data/words.txt"
    archive = wheel({name: b"/etc/passwd"}, {name: stat.S_IFLNK | 0o777})
    with pytest.raises(ArchiveError, match="link in the place of a file"):
        unpacked(tmp_path, "pypi", archive)


@pytest.mark.parametrize("kind", KINDS)
def test_bombs_are_refused(kind: Kind, tmp_path: Path) -> None:
    bomb = {ROOTS[kind] + "words.txt": bytes(8 << 20)}
    with pytest.raises(ArchiveError, match="far more than the catalogue says"):
        unpacked(tmp_path, kind, packed(kind, bomb))
    assert sum(map(len, files_in(tmp_path / "inner").values())) <= toy(kind)[0].limit


@pytest.mark.parametrize("kind", ["npm", "debian"])
def test_bombs_beside_the_data_are_refused(kind: Kind, tmp_path: Path) -> None:
    """A tar archive must be read through to get at what follows."""
    members = {"else": bytes(8 << 20), **{ROOTS[kind] + n: d for n, d in DATA.items()}}
    with pytest.raises(ArchiveError, match="far more than the catalogue says"):
        unpacked(tmp_path, kind, packed(kind, members))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("part", [0, 1, 20, 0.3, 0.5, 0.9])
def test_cut_archives_are_refused(kind: Kind, part: float, tmp_path: Path) -> None:
    _, archive = toy(kind)
    short = archive[: int(part * len(archive)) if part < 1 else int(part)]
    with pytest.raises(ArchiveError, match=r"^archive: "):
        unpacked(tmp_path, kind, short)


@pytest.mark.parametrize("kind", KINDS)
def test_noise_is_refused(kind: Kind, tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match=r"^archive: "):
        unpacked(tmp_path, kind, b"<html>please log in</html>" * 9)


@pytest.mark.parametrize("kind", KINDS)
def test_a_package_without_the_files_is_refused(kind: Kind, tmp_path: Path) -> None:
    archive = packed(kind, {ROOTS[kind] + "words.txt": b"x"})
    with pytest.raises(ArchiveError, match=r"lacks .*deep/\*\.txt"):
        unpacked(tmp_path, kind, archive)


def test_a_file_twice_is_refused(tmp_path: Path) -> None:
    once = tar({"package/words.txt": b"one"})[:1024]
    with pytest.raises(ArchiveError, match="twice"):
        unpacked(tmp_path, "npm", gzip.compress(once + tar({"package/words.txt": b"two"})))


def test_a_debian_package_as_dpkg_makes_it(tmp_path: Path) -> None:
    """Our reader of `ar` against the real tool."""
    if module.shutil.which("dpkg-deb") is None:
        pytest.skip("dpkg-deb is not installed")
    tree = tmp_path / "tree"
    for name, data in DATA.items():
        file = tree / "usr/share/toy" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    (tree / "DEBIAN").mkdir()
    (tree / "DEBIAN/control").write_text(
        "Package: toy\nVersion: 1\nArchitecture: all\nMaintainer: us <us@example.org>\n"
        "Description: toy\n"
    )
    for number, compression in enumerate(("xz", "gzip", "zstd")):
        archive = tmp_path / f"{compression}.deb"
        made = subprocess.run(
            ["dpkg-deb", "--root-owner-group", f"-Z{compression}", "-b", tree, archive],
            capture_output=True,
        )
        if made.returncode:
            assert compression == "zstd", made.stderr  # not every dpkg can
            continue
        place = tmp_path / str(number)
        place.mkdir()
        assert files_in(unpacked(place, "debian", archive.read_bytes())) == DATA


def broken(data: bytes) -> bytes:
    place = len(data) // 2
    return data[:place] + bytes(byte ^ 255 for byte in data[place : place + 9]) + data[place + 9 :]


@pytest.mark.parametrize(
    ("name", "pack"), [("bz2", bz2.compress), ("xz", lzma.compress), ("gz", gzip.compress)]
)
def test_broken_compression_is_the_archives_fault(
    name: str, pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    data = pack(tar({f"./usr/share/toy/{file}": data for file, data in DATA.items()}))
    whole = ar({"debian-binary": b"2.0\n", f"data.tar.{name}": data})
    (tmp_path / "whole").mkdir()
    assert files_in(unpacked(tmp_path / "whole", "debian", whole)) == DATA
    with pytest.raises(ArchiveError, match=r"^archive: damaged"):
        unpacked(
            tmp_path, "debian", ar({"debian-binary": b"2.0\n", f"data.tar.{name}": broken(data)})
        )


def test_broken_zstd_is_the_archives_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = type("ZstdError", (Exception,), {})
    library = ModuleType("zstandard")

    class Stream:
        def read(self, size: int) -> bytes:
            raise error("bad magic")

    class Decompressor:
        def stream_reader(self, part: object) -> Stream:
            return Stream()

    library.ZstdError, library.ZstdDecompressor = error, Decompressor  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "zstandard", library)
    with pytest.raises(ArchiveError, match=r"^archive: damaged"):
        unpacked(tmp_path, "debian", ar({"debian-binary": b"2.0\n", "data.tar.zst": b"noise"}))


@pytest.mark.parametrize(
    "names", [["deep/x.txt", "deep/x.txt/y.txt"], ["deep/X.txt/y.txt", "deep/x.txt"]]
)
def test_a_file_and_a_folder_of_one_name_are_refused(names: list[str], tmp_path: Path) -> None:
    members = {f"package/{name}": b"x" for name in names}
    with pytest.raises(ArchiveError, match="a file and a folder of one name"):
        unpacked(tmp_path, "npm", gzip.compress(tar(members)))


def test_a_full_disk_is_not_the_archives_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, "_write", full)
    with pytest.raises(OSError, match="No space left"):
        unpacked(tmp_path, "npm", toy("npm")[1])
