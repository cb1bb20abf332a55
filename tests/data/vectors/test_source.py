from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from beltrami.data.vectors import VectorsError, open_vectors
from beltrami.data.vectors.source import refuse_missing_path
from tests.data.vectors.tables import MATRIX, check_reads


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_text_and_paths_and_capital_endings(tmp_path: Path) -> None:
    np.save("a.npy", MATRIX.numpy())
    Path("a.npy").rename("a.NPY")
    for source in ("a.NPY", str(tmp_path / "a.NPY"), Path("a.NPY")):
        check_reads(open_vectors(source))


def test_home_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    np.save("a.npy", MATRIX.numpy())
    check_reads(open_vectors("~/a.npy"))


@pytest.mark.parametrize("name", ["a.edges", "a.obo", "a.json", "a.txt", "data.noun"])
def test_other_files_name_the_endings_we_know(name: str) -> None:
    Path(name).write_text("x")
    with pytest.raises(
        VectorsError, match=rf"{name} is not a table.*we know \.npy \.npz \.safet.*\.c"
    ):
        open_vectors(name)


@pytest.mark.parametrize("name", ["a.bin", "a.pt", "a.pth", "a.pkl"])
def test_pickles_are_refused(name: str) -> None:
    Path(name).write_bytes(b"x")
    with pytest.raises(
        VectorsError, match=rf"{name} may be a pickle, which is never read; save it"
    ):
        open_vectors(name)


@pytest.mark.parametrize(
    "source",
    [
        "data/a.csv",
        "a.npy",
        Path("glove"),
        Path("org/name"),
        "x/y.bin",
        "runs/nosuch",
        "./name",
        "a/b/c",
        "~/no-such-folder-here",
        "here/name",
    ],
)
def test_a_path_that_is_not_there_is_no_name(
    source: str | Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("beltrami.data.vectors.source.open_hub", pytest.fail)
    Path("here").mkdir()
    with pytest.raises(VectorsError, match=f"^{source}: no such file or folder; "):
        open_vectors(source)


def test_a_missing_path_is_answered_with_names_that_are_there() -> None:
    Path("runs/hierarchy-mammals").mkdir(parents=True)
    near = r"runs/hierarchy-mamals: .*; did you mean 'hierarchy-mammals'\?"
    with pytest.raises(VectorsError, match=near):
        open_vectors("runs/hierarchy-mamals")
    with pytest.raises(VectorsError, match=r"runs/x/y: .*; .*runs has 'hierarchy-mammals'"):
        refuse_missing_path("runs/x/y")
    refuse_missing_path("runs/hierarchy-mammals")
    for name in ("org/name", "org/name-2.5", "smollm2"):
        refuse_missing_path(name)


def test_unknown_names_get_a_hint() -> None:
    with pytest.raises(
        VectorsError, match=r"'smolm2' is neither.*did you mean 'smollm2'\? We know"
    ):
        open_vectors("smolm2")
    with pytest.raises(VectorsError, match=r"'qqq' is neither .*glove, files ending in .*org/name"):
        open_vectors("qqq")


@pytest.mark.parametrize("source", ["a\0b", "~nobody-is-called-so/a.npy"])
def test_paths_that_cannot_be(source: str) -> None:
    with pytest.raises(VectorsError):
        open_vectors(source)


def test_choices_that_a_source_does_not_have() -> None:
    np.save("a.npy", MATRIX.numpy())
    Path("a.csv").write_text("x,y\n1,2\n")
    for name in ("a.npy", "a.csv"):
        with pytest.raises(VectorsError, match=rf"{name} is one table; leave tensor=.*'t' away"):
            open_vectors(name, tensor="t")
    for name in ("a.npy", "glove", "org/name", "."):
        with pytest.raises(VectorsError, match=r"label= \(--label\) 'w' names a column of a \.csv"):
            open_vectors(name, label="w")
