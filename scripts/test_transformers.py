"""Run HELM's tests on another version of transformers, or transformers' common tests on HELM.

Usage: python -m scripts.test_transformers [VERSION]
       python -m scripts.test_transformers --upstream

A version, by default the oldest that is supported, goes with what it needs into an environment of
its own below .cache/upstream; everything else comes from the one that runs this. transformers' own
tests come from the source distribution of the installed version; two folders that they import from
are not in it and are replaced by empty classes. Nothing needs the Hub.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "upstream"
TESTS = ROOT / "scripts" / "upstream_transformers"
OLDEST = "5.5.0"

# What transformers' tests import and its source distribution lacks.
STAND_INS = {
    "exporters/test_export.py": "class ExportTesterMixin: pass\n",
    "generation/test_utils.py": "class GenerationTesterMixin: pass\n",
    "utils/test_configuration_utils.py": "config_common_kwargs = {}\n",
}


def environment(number: str) -> Path:
    """The Python of an environment with that version of transformers."""
    folder = CACHE / f"transformers-{number}"
    python = folder / "bin" / "python"
    installed = folder / "installed"
    if not installed.exists():
        print(f"installing transformers {number} into {folder}", flush=True)
        venv.create(folder, with_pip=True, clear=True)
        (site,) = folder.glob("lib/python*/site-packages")
        (site / "zz.pth").write_text(sysconfig.get_paths()["purelib"] + "\n", encoding="utf-8")
        command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        if subprocess.run([*command, f"transformers=={number}"]).returncode:
            sys.exit(f"cannot install transformers {number}; see pip's message")
        installed.touch()
    return python


def common_tests() -> Path:
    """A folder with transformers' package of tests, and what it lacks."""
    name = f"transformers-{version('transformers')}"
    folder = CACHE / f"{name}-tests"
    if (folder / "tests" / "__init__.py").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--dest", str(folder)]
    if subprocess.run([*command, name.replace("-", "==")]).returncode:
        sys.exit(f"cannot download the source distribution of {name}; see pip's message")
    with tarfile.open(folder / f"{name}.tar.gz") as tar:
        members = [m for m in tar.getmembers() if m.name.startswith(f"{name}/tests/")]
        for member in members:
            member.name = member.name.removeprefix(f"{name}/")
        tar.extractall(folder, members, filter="data")
    for path, text in STAND_INS.items():
        file = folder / "tests" / path
        file.parent.mkdir(exist_ok=True)
        (file.parent / "__init__.py").touch()
        file.write_text(text, encoding="utf-8")
    (folder / "tests" / "__init__.py").touch()  # written last: all is unpacked
    return folder


def main() -> None:
    """Run the tests; pytest's exit code."""
    arguments = sys.argv[1:]
    if arguments == ["--upstream"]:
        path = os.pathsep.join([str(common_tests()), os.environ.get("PYTHONPATH", "")])
        variables = {**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1"}
        command = [sys.executable, "-m", "pytest", "-q", "-n", "auto", "-p", "no:cacheprovider"]
        command += ["-c", os.devnull, "--rootdir", str(TESTS), "-W", "ignore", str(TESTS)]
        sys.exit(subprocess.run(command, cwd=TESTS, env=variables).returncode)
    python = environment(arguments[0] if arguments else OLDEST)
    command = [str(python), "-m", "pytest", "-q", "-n", "auto", "tests/models/helm"]
    sys.exit(subprocess.run([*command, "tests/recipes/helm"], cwd=ROOT).returncode)


if __name__ == "__main__":
    main()
