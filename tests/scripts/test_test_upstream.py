import io
import tarfile
from pathlib import Path

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
