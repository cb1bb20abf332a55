"""Run HELM's tests on another version of transformers, by default the oldest that is supported.

Usage: python -m scripts.test_transformers [VERSION]

The version, and what it needs in other versions than are installed, goes into an environment of its
own below .cache/upstream; everything else comes from the one that runs this.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST = "5.5.0"


def environment(version: str) -> Path:
    """The Python of an environment with that version of transformers."""
    folder = ROOT / ".cache" / "upstream" / f"transformers-{version}"
    python = folder / "bin" / "python"
    installed = folder / "installed"
    if not installed.exists():
        print(f"installing transformers {version} into {folder}", flush=True)
        venv.create(folder, with_pip=True, clear=True)
        (site,) = folder.glob("lib/python*/site-packages")
        (site / "zz.pth").write_text(sysconfig.get_paths()["purelib"] + "\n", encoding="utf-8")
        command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        if subprocess.run([*command, f"transformers=={version}"]).returncode:
            sys.exit(f"cannot install transformers {version}; see pip's message")
        installed.touch()
    return python


def main() -> None:
    """Run the tests."""
    version = sys.argv[1] if len(sys.argv) > 1 else OLDEST
    python = environment(version)
    tests = ["tests/models/helm", "tests/recipes/helm"]
    command = [python, "-m", "pytest", "-q", "-n", "auto", *tests]
    sys.exit(subprocess.run(command, cwd=ROOT).returncode)


if __name__ == "__main__":
    main()
