from __future__ import annotations

import os
from pathlib import Path

import pytest

from beltrami.data.output_folder import OutputFolder


@pytest.mark.skipif(os.name != "posix", reason="flock is POSIX")
def test_a_second_process_is_refused(tmp_path: Path) -> None:
    folder = OutputFolder(tmp_path)
    refused = pytest.raises(ValueError, match="another process is working in")
    with folder.locked(), refused, folder.locked():
        pass
    with folder.locked():  # and may come when the first has gone
        pass


@pytest.mark.skipif(os.name != "posix", reason="flock is POSIX")
def test_a_file_system_without_locks_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = OutputFolder(tmp_path)
    import fcntl

    def refuse(*args: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with folder.locked():
        pass


def test_folders_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(ValueError, match="is a file; give a folder"):
        OutputFolder(file).check_writable()
    with pytest.raises(ValueError, match="a part of this path is a file"):
        OutputFolder(file / "x").check_writable()

    def refuse(**kwargs: object) -> None:  # as root, a folder without rights is still writable
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    with pytest.raises(ValueError, match=r"cannot be written \(Permission denied\)"):
        OutputFolder(tmp_path).check_writable()


def test_documents_of_something_else_are_refused(tmp_path: Path) -> None:
    folder = OutputFolder(tmp_path)
    assert folder.document("a.json", "ours/1", "diagnosis") is None
    (tmp_path / "a.json").write_text('{"schema": "ours/1", "value": 3}')
    assert folder.document("a.json", "ours/1", "diagnosis") == {"schema": "ours/1", "value": 3}
    for text in ('{"schema": "theirs/1"}', "[1]", "{", ""):
        (tmp_path / "a.json").write_text(text)
        with pytest.raises(ValueError, match="is not a diagnosis; give another --out"):
            folder.document("a.json", "ours/1", "diagnosis")
