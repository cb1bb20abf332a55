"""Run PEFT's own tests on HypLoRA, or HypLoRA's on another PEFT.

Usage: python -m scripts.test_upstream [--peft VERSION] [--own] [--keyword EXPRESSION]

PEFT is the installed one, or --peft, which is put into .cache/upstream beside it. PEFT's tests come
from its source distribution, which is fetched once into the same folder. What is run of them, and
what not and why, is said in scripts/upstream. Nothing needs the Hub: models are tiny, random and
made on the spot.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "upstream"
TESTS = ROOT / "scripts" / "upstream"


@dataclass
class Outcome:
    """What became of the tests."""

    passed: int = 0
    skipped: Counter[str] = field(default_factory=Counter)  # by reason
    failed: dict[str, str] = field(default_factory=dict)  # message by name


def fetch(peft: str, cache: Path = CACHE) -> Path:
    """Download PEFT's source distribution, unless it is there already."""
    archive = cache / f"peft-{peft}.tar.gz"
    if not archive.exists():
        print(f"fetching the tests of peft {peft}", flush=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--disable-pip-version-check", "--no-binary", ":all:", "--no-build-isolation"]
        command += ["--dest", str(cache), f"peft=={peft}"]
        if subprocess.run(command).returncode or not archive.exists():
            sys.exit(f"cannot download the source distribution of peft {peft}; see pip's message")
    return archive


def install(peft: str, cache: Path = CACHE) -> Path:
    """Put a version of PEFT, and nothing else, into a folder of its own; the folder."""
    site = cache / f"site-{peft}"
    if not (site / "peft").exists():
        print(f"installing peft {peft} into {site}", flush=True)
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as new:
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
            command += ["--disable-pip-version-check", "--target", f"{new}/site", f"peft=={peft}"]
            if subprocess.run(command).returncode:
                sys.exit(f"cannot install peft {peft}; see pip's message")
            Path(new, "site").replace(site)  # whole or not at all
    return site


def unpack(archive: Path) -> Path:
    """Unpack `tests/` of a source distribution beside it, and return the folder it is in."""
    folder = archive.parent / archive.name.removesuffix(".tar.gz")
    if (folder / "tests" / "__init__.py").exists():
        return folder
    with tarfile.open(archive) as tar:
        prefix = f"{folder.name}/tests/"
        members = [m for m in tar.getmembers() if m.name.startswith(prefix)]
        if not members:
            raise ValueError(f"{archive} has no folder {prefix}")
        tar.extractall(archive.parent, members, filter="data")
    # A package, lest another `tests` on the path be taken for it. Written last: all is unpacked.
    (folder / "tests" / "__init__.py").touch()
    return folder


def run_own(site: Path | None, keyword: str | None) -> int:
    """Run this project's tests of adapters on a PEFT in a folder; pytest's exit code."""
    command = [sys.executable, "-m", "pytest", "-n", "auto", "tests/peft"]
    command += ["-k", keyword] if keyword else []
    return subprocess.run(command, cwd=ROOT, env=_with_path(site)).returncode


def _with_path(*folders: Path | None) -> dict[str, str]:
    """The environment, with folders in front of what Python imports from."""
    path = [*(str(folder) for folder in folders if folder), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in path if p)}


def run(folder: Path, keyword: str | None, site: Path | None = None) -> tuple[int, Outcome]:
    """Run our selection of the tests in a folder; pytest's exit code and what it reported."""
    environment = {
        **_with_path(folder, site),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    environment.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as work:  # the models are saved there
        report = Path(work) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "--tb=short"]
        command += ["-c", str(TESTS / "pytest.ini"), "--rootdir", str(TESTS), "--no-header"]
        command += ["--disable-warnings", f"--junitxml={report}", str(TESTS)]
        command += ["-k", keyword] if keyword else []
        code = subprocess.run(command, cwd=work, env=environment).returncode
        return code, read(report) if report.exists() else Outcome()


def read(report: Path) -> Outcome:
    """Count the outcomes in a JUnit report."""
    found = Outcome()
    for case in ElementTree.parse(report).iter("testcase"):
        bad = [child for child in case if child.tag in ("failure", "error")]
        skipped = case.find("skipped")
        if bad:
            found.failed[case.get("name", "?")] = bad[0].get("message", "").splitlines()[0]
        elif skipped is not None:
            found.skipped[skipped.get("message") or "no reason given"] += 1
        else:
            found.passed += 1
    return found


def table(title: str, outcome: Outcome) -> Table:
    """The counts, the skipped by reason and the failed by name."""
    rows = Table(title=title, title_justify="left")
    rows.add_column("outcome")
    rows.add_column("tests", justify="right")
    rows.add_column("why", overflow="fold")
    rows.add_row("passed", str(outcome.passed), "")
    for reason, count in outcome.skipped.most_common():
        rows.add_row("skipped", str(count), reason)
    for name, message in outcome.failed.items():
        rows.add_row("failed", "1", f"{name}: {message}")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-k", "--keyword", help="run only the tests that match, as pytest's -k")
    parser.add_argument("--peft", metavar="VERSION", help="of PEFT, instead of the installed one")
    parser.add_argument(
        "--own", action="store_true", help="run this project's tests of adapters, not PEFT's"
    )
    told = parser.parse_args()
    peft = told.peft or version("peft")
    site = install(peft) if told.peft else None
    if told.own:
        sys.exit(run_own(site, told.keyword))
    code, outcome = run(unpack(fetch(peft)), told.keyword, site)
    Console().print(table(f"Tests of peft {peft} on HypLoRA", outcome))
    sys.exit(code)


if __name__ == "__main__":
    main()
