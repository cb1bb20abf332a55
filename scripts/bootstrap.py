"""Create .venv and install beltrami with the given extras; do nothing when already done.

Usage: python3 scripts/bootstrap.py dev [docs bench ...]

Runs on the system Python with its standard library alone. A stamp file holds a hash of everything
the environment is built from, so that a second call returns at once and a changed
pyproject.toml or constraints.txt reinstalls.
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
SOURCES = ("pyproject.toml", "constraints.txt", "scripts/bootstrap.py")


def fingerprint() -> str:
    digest = hashlib.sha256(sys.version.encode())
    for name in SOURCES:
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def installed(stamp: Path, wanted: str, extras: set[str]) -> set[str]:
    """Extras already installed from the same sources, empty when the environment is stale."""
    if not PYTHON.exists() or not stamp.exists():
        return set()
    found, *have = stamp.read_text().split()
    return set(have) if found == wanted else set()


def main(extras: set[str]) -> None:
    if sys.version_info < (3, 11):
        sys.exit(f"beltrami needs Python 3.11 or later, this is {sys.version.split()[0]}")
    stamp, wanted = VENV / ".beltrami-stamp", fingerprint()
    have = installed(stamp, wanted, extras)
    if extras <= have:
        return
    extras |= have
    if not PYTHON.exists():
        print("creating .venv", flush=True)
        venv.create(VENV, with_pip=True)
    target = f"{ROOT}[{','.join(sorted(extras))}]"
    print(f"installing beltrami with {sorted(extras)}, minutes the first time", flush=True)
    command = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run(
        [*command, "--constraint", str(ROOT / "constraints.txt"), "--editable", target], check=True
    )
    stamp.write_text(" ".join([wanted, *sorted(extras)]))


if __name__ == "__main__":
    try:
        main(set(sys.argv[1:]) or {"dev"})
    except subprocess.CalledProcessError as error:
        sys.exit(f"the install failed (pip exit code {error.returncode}); see the lines above")
