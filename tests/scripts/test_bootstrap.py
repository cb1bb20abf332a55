from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from scripts import bootstrap


class Project:
    """A project folder with nothing in it, whose .venv is two files and whose pip is a list."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.created: list[dict[str, object]] = []
        self.installed: list[str] = []
        self.has_pip = True
        self.pip_code = 0
        self.version = sys.version
        self.ensurepip_works = True

    def create(self, folder: Path, **options: object) -> None:
        self.created.append(options)
        if not self.ensurepip_works:
            raise subprocess.CalledProcessError(1, "ensurepip")
        python = folder / "bin/python"
        python.parent.mkdir(parents=True, exist_ok=True)
        python.unlink(missing_ok=True)
        python.touch()
        self.has_pip, self.version = True, sys.version

    def run(self, command: list[str], **options: object) -> SimpleNamespace:
        if not Path(command[0]).exists():
            raise FileNotFoundError(command[0])
        if command[1] == "-c":
            return SimpleNamespace(returncode=0 if self.has_pip else 1, stdout=self.version)
        assert not (self.root / ".venv/.beltrami-stamp").exists()
        self.installed.append(command[-1].partition("[")[2].rstrip("]"))
        return SimpleNamespace(returncode=self.pip_code)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    fake = Project(tmp_path)
    for name in bootstrap.SOURCES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    move(monkeypatch, tmp_path)
    monkeypatch.setattr(bootstrap.venv, "create", fake.create)
    monkeypatch.setattr(bootstrap.subprocess, "run", fake.run)
    return fake


def move(monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    monkeypatch.setattr(bootstrap, "ROOT", root)
    monkeypatch.setattr(bootstrap, "VENV", root / ".venv")
    monkeypatch.setattr(bootstrap, "PYTHON", root / ".venv/bin/python")
    monkeypatch.setattr(bootstrap, "STAMP", root / ".venv/.beltrami-stamp")


def test_the_first_call_builds_and_the_second_does_nothing(project: Project) -> None:
    bootstrap.main({"dev"})
    bootstrap.main({"dev"})
    assert (len(project.created), project.installed) == (1, ["dev"])


def test_more_extras_join_the_old_ones(project: Project) -> None:
    bootstrap.main({"dev"})
    bootstrap.main({"docs"})
    bootstrap.main({"dev"})
    assert (len(project.created), project.installed) == (1, ["dev", "dev,docs"])


def test_changed_sources_install_again_into_the_same_environment(project: Project) -> None:
    bootstrap.main({"dev"})
    (project.root / "constraints.txt").write_text("torch==3")
    bootstrap.main({"dev"})
    assert (len(project.created), project.installed) == (1, ["dev", "dev"])


@pytest.mark.parametrize("stamp", ["", "\n", "half"])
def test_a_damaged_stamp_counts_as_none(project: Project, stamp: str) -> None:
    bootstrap.main({"dev"})
    (project.root / ".venv/.beltrami-stamp").write_text(stamp)
    bootstrap.main({"dev"})
    assert (len(project.created), project.installed) == (1, ["dev", "dev"])


def test_an_environment_without_pip_is_made_anew(project: Project) -> None:
    project.create(project.root / ".venv")
    project.has_pip = False
    bootstrap.main({"dev"})
    assert project.created[1]["clear"] is True
    assert project.installed == ["dev"]


def test_a_dangling_python_is_replaced(project: Project) -> None:
    bootstrap.main({"dev"})
    python = project.root / ".venv/bin/python"
    python.unlink()
    python.symlink_to(project.root / "gone")
    bootstrap.main({"dev"})
    assert len(project.created) == 2
    assert python.exists()


def test_another_python_rebuilds_even_without_a_stamp(project: Project) -> None:
    project.create(project.root / ".venv")
    project.version = "3.10.0"
    bootstrap.main({"dev"})
    assert len(project.created) == 2


def test_a_moved_folder_rebuilds(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bootstrap.main({"dev"})
    elsewhere = tmp_path.rename(tmp_path.with_name("elsewhere"))
    project.root = elsewhere
    move(monkeypatch, elsewhere)
    bootstrap.main({"dev"})
    assert (len(project.created), project.installed) == (2, ["dev", "dev"])


def test_a_failed_install_leaves_no_stamp(project: Project) -> None:
    bootstrap.main({"dev"})
    project.pip_code = 1
    with pytest.raises(SystemExit, match=r"pip exit code 1"):
        bootstrap.main({"bench"})
    project.pip_code = 0
    bootstrap.main({"dev"})
    assert project.installed == ["dev", "bench,dev", "dev"]


def test_a_missing_ensurepip_is_named(project: Project) -> None:
    project.ensurepip_works = False
    with pytest.raises(SystemExit, match=r"ensurepip.*python3-venv"):
        bootstrap.main({"dev"})
    assert project.installed == []


def test_an_environment_behind_a_link_is_left_alone(project: Project, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (tmp_path / ".venv").symlink_to(other)
    with pytest.raises(SystemExit, match=r"\.venv is a link to .*other"):
        bootstrap.main({"dev"})
    assert project.created == []
