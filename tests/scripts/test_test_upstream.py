import io
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from scripts import test_upstream as upstream

REPORT = """<testsuites><testsuite>
<testcase name="a"/>
<testcase name="b"><skipped message="cannot be merged"/></testcase>
<testcase name="c"><failure message="no&#10;more">trace</failure></testcase>
<testcase name="d"><error message="broken"/></testcase>
</testsuite></testsuites>"""


def archive_of(folder: Path, names: list[str]) -> Path:
    archive = folder / "peft-1.2.3.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = 1
            tar.addfile(member, io.BytesIO(b"#"))
    return archive


def test_only_the_tests_are_unpacked(tmp_path: Path) -> None:
    archive = archive_of(tmp_path, ["peft-1.2.3/src/peft.py", "peft-1.2.3/tests/test_x.py"])
    folder = upstream.unpack(archive)
    assert {p.name for p in folder.iterdir()} == {"tests"}
    assert {p.name for p in (folder / "tests").iterdir()} == {"test_x.py", "__init__.py"}


def test_an_archive_that_leaves_its_folder_is_refused(tmp_path: Path) -> None:
    archive = archive_of(tmp_path, ["peft-1.2.3/tests/../../../evil.py"])
    with pytest.raises(tarfile.OutsideDestinationError):
        upstream.unpack(archive)


def test_an_archive_without_tests_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no folder"):
        upstream.unpack(archive_of(tmp_path, ["peft-1.2.3/src/peft.py"]))


def test_what_is_there_is_not_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = archive_of(tmp_path, [])
    monkeypatch.setattr(upstream.subprocess, "run", lambda *_: pytest.fail("it was fetched"))
    assert upstream.fetch("1.2.3", tmp_path) == archive


def test_another_peft_is_put_beside_the_installed_one_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = []

    def pip(command: list[str]) -> subprocess.CompletedProcess[bytes]:
        commands.append(command)
        target = Path(command[command.index("--target") + 1])
        (target / "peft").mkdir(parents=True)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(upstream.subprocess, "run", pip)
    site = upstream.install("1.2.3", tmp_path / "cache")
    assert upstream.install("1.2.3", tmp_path / "cache") == site
    assert (site / "peft").is_dir()
    (command,) = commands
    assert command[-1] == "peft==1.2.3"
    assert "--no-deps" in command
    assert [p.name for p in (tmp_path / "cache").iterdir()] == [site.name]


def test_a_peft_that_cannot_be_had_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = subprocess.CompletedProcess([], 1)
    monkeypatch.setattr(upstream.subprocess, "run", lambda _: failed)
    with pytest.raises(SystemExit, match=r"cannot install peft 9\.9"):
        upstream.install("9.9", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_own_tests_are_run_on_that_peft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def pytest_run(command: list[str], **told: Any) -> subprocess.CompletedProcess[bytes]:
        calls.append((command, told))
        return subprocess.CompletedProcess(command, 3)

    monkeypatch.setattr(upstream.subprocess, "run", pytest_run)
    assert upstream.run_own(tmp_path, "merge") == 3
    ((command, told),) = calls
    assert command[-3:] == ["tests/peft", "-k", "merge"]
    assert told["env"]["PYTHONPATH"].split(os.pathsep)[0] == str(tmp_path)


def test_outcomes_are_counted_and_shown(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    outcome = upstream.read(report)
    assert outcome.passed == 1
    assert outcome.skipped == {"cannot be merged": 1}
    assert outcome.failed == {"c": "no", "d": "broken"}
    console = Console(file=io.StringIO(), width=100)
    console.print(upstream.table("PEFT", outcome))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "cannot be merged" in shown
    assert "d: broken" in shown
