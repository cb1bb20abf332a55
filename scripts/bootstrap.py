"""Create .venv and install beltrami with the given extras; do nothing when already done.

Usage: python3 scripts/bootstrap.py dev [docs bench ...]

Runs on the system Python with its standard library alone. A stamp file says what the environment
was built from: a second call returns at once, a changed pyproject.toml or constraints.txt installs
again, and another Python or a moved folder builds .venv anew, as does one that lost its pip.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
STAMP = VENV / ".beltrami-stamp"  # "base sources extra extra ..."
SOURCES = ("pyproject.toml", "constraints.txt", "scripts/bootstrap.py")


def base() -> str:
    """Hash of what .venv stands on: this Python and this folder."""
    return hashlib.sha256(f"{sys.version} {ROOT}".encode()).hexdigest()


def sources() -> str:
    """Hash of what is installed into it."""
    digest = hashlib.sha256()
    for name in SOURCES:
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def read_stamp() -> tuple[str, str, set[str]]:
    """(base, sources, extras) of the last complete install; empty where there was none."""
    words = STAMP.read_text().split() if PYTHON.exists() and STAMP.exists() else []
    return (words[0], words[1], set(words[2:])) if len(words) > 1 else ("", "", set())


def write_stamp(extras: set[str]) -> None:
    """Whole or not at all."""
    new = STAMP.with_suffix(".tmp")
    new.write_text(" ".join([base(), sources(), *sorted(extras)]))
    new.replace(STAMP)


def usable() -> bool:
    """Whether .venv has pip and runs this very Python."""
    probe = [str(PYTHON), "-c", "import pip, sys; print(sys.version)"]
    try:
        found = subprocess.run(probe, capture_output=True, text=True)
    except OSError:  # no such file, or a link to a Python that is gone
        return False
    return found.returncode == 0 and found.stdout.split() == sys.version.split()


def create() -> None:
    """Make .venv, in place of what was there."""
    if VENV.is_symlink():  # clearing would empty the folder it leads to
        sys.exit(f".venv is a link to {VENV.resolve()}, made for another folder; remove the link")
    print("creating .venv", flush=True)
    try:
        venv.create(VENV, clear=True, symlinks=os.name != "nt", with_pip=True)
    except subprocess.CalledProcessError:
        sys.exit(
            "cannot put pip into .venv: this Python's ensurepip is missing or broken; on Debian "
            "and Ubuntu `apt install python3-venv` brings it"
        )


def install(extras: set[str]) -> None:
    """Install beltrami, editable, with the pinned versions."""
    print(f"installing beltrami with {sorted(extras)}, minutes the first time", flush=True)
    command = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--constraint", str(ROOT / "constraints.txt")]
    command += ["--editable", f"{ROOT}[{','.join(sorted(extras))}]"]
    if code := subprocess.run(command).returncode:
        sys.exit(f"the install failed (pip exit code {code}); see the lines above")


def main(extras: set[str]) -> None:
    """Bring .venv to where it has these extras, and those it had before."""
    if sys.version_info < (3, 11):
        sys.exit(f"beltrami needs Python 3.11 or later, this is {sys.version.split()[0]}")
    old_base, old_sources, have = read_stamp()
    if (old_base, old_sources) == (base(), sources()) and extras <= have:
        return
    if old_base not in ("", base()) or not usable():
        create()
    STAMP.unlink(missing_ok=True)  # until the install is complete
    extras = extras | have
    install(extras)
    write_stamp(extras)


if __name__ == "__main__":
    main(set(sys.argv[1:]) or {"dev"})
