from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from beltrami.cli import data as module
from beltrami.cli import main
from beltrami.data import catalogue
from beltrami.data.cache import cache_folder
from beltrami.data.catalogue import CATALOGUE
from beltrami.data.entry import show_bytes
from tests.data.packages import DATA, FILE_NAMES, FakeClients, clients, toy

__all__ = ["clients"]


@pytest.fixture
def served(clients: FakeClients, monkeypatch: pytest.MonkeyPatch) -> FakeClients:
    """A catalogue of one toy, which npm serves."""
    entry, archive = toy("npm", caution="handle [bold]with care[/bold]")
    clients.serve("npm", archive)
    for place in (catalogue, module):
        monkeypatch.setattr(place, "CATALOGUE", {"toy": entry})
    return clients


def test_get_then_path(served: FakeClients, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "path", "toy"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "beltrami data get toy" in printed.err
    assert main(["data", "get", "toy"]) == 0
    printed = capsys.readouterr()
    folder = cache_folder() / "data" / "toy"
    assert printed.out == f"toy: {folder}\n"
    assert "downloading npm toy 1.0" in printed.err
    assert main(["data", "path", "toy"]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{folder}\n"  # nothing else, for scripts
    assert printed.err == ""
    assert main(["data", "get", "toy", "--check"]) == 0
    assert "all files are intact" in capsys.readouterr().err


def test_list_of_all(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BELTRAMI_CACHE", str(tmp_path / "none"))
    monkeypatch.setenv("COLUMNS", "160")
    assert main(["data", "list"]) == 0
    table = capsys.readouterr().out
    for entry in CATALOGUE.values():
        assert entry.name in table
        assert entry.package in table
    assert "yes" not in table
    assert not (tmp_path / "none").exists()


def test_list_says_what_is_installed(
    served: FakeClients, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["cache"] == str(cache_folder())
    assert [entry["name"] for entry in listed["data"]] == ["toy"]
    assert listed["data"][0]["installed"] is None
    main(["data", "get", "toy"])
    capsys.readouterr()
    assert main(["data", "list"]) == 0
    table = capsys.readouterr().out
    assert "yes" in table
    assert "*" in table  # a caution
    assert "…" not in table
    assert main(["data", "list", "toy", "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["data"]
    assert entry["installed"] == str(cache_folder() / "data" / "toy")
    assert entry["licence"] == "free"


def test_everything_about_one(served: FakeClients, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "list", "toy"]) == 0
    text = capsys.readouterr().out
    for word in (
        "handle [bold]with care[/bold]",
        "npm pack --ignore-scripts toy@1.0",
        "words.txt: words",
        "sha256",
    ):
        assert word in text


def test_an_unverified_entry_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    entry, _ = toy("npm", sha256=None, unverified="not fetched yet")
    for place in (catalogue, module):
        monkeypatch.setattr(place, "CATALOGUE", {"toy": entry})
    assert main(["data", "list"]) == 0
    assert "not verified" in " ".join(capsys.readouterr().out.split())
    assert main(["data", "list", "toy"]) == 0
    assert "not fetched yet" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["get", "wordnet"], "no data set is called 'wordnet'"),
        (["path", "wordnet"], "no data set is called 'wordnet'"),
        (["list", "wordnet"], "no data set is called 'wordnet'"),
        (["get"], "name a data set"),
        (["get", "toy", "toy", "--archive", "f"], "--archive is for one data set, got 2"),
        (["get", "toy", "--archive", "nowhere.whl"], "--archive nowhere.whl: no such file"),
        (["get", "toy", "--archive", __file__], "test_data.py: not npm toy 1.0"),
        (["get", "toy", "--archive="], "--archive is empty"),
        ([], "list, get, path"),
    ],
)
def test_bad_input_is_named(
    arguments: list[str],
    message: str,
    served: FakeClients,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["data", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in " ".join(printed.err.split())
    assert "Traceback" not in printed.err
    assert served.calls() == []


def test_an_archive_instead_of_a_network(
    served: FakeClients, capsys: pytest.CaptureFixture[str]
) -> None:
    file = served.folder / "shelf-npm" / FILE_NAMES["npm"]
    assert main(["data", "get", "toy", "--archive", str(file)]) == 0
    assert served.calls() == []
    assert (cache_folder() / "data/toy/words.txt").read_bytes() == DATA["words.txt"]


def test_offline_is_one_error_with_the_way_out(
    served: FakeClients, capsys: pytest.CaptureFixture[str]
) -> None:
    served.serve("npm", b"", before="echo 'npm error network no route' >&2; exit 1")
    assert main(["data", "get", "toy"]) == 1
    error = capsys.readouterr().err
    assert "error: toy: npm failed: network no route\nBy hand, on any machine: npm pack" in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("failure", "code", "shown"),
    [
        (OSError(errno.EROFS, "Read-only file system"), 1, "{cache}: Read-only file system\nSet"),
        (OSError(errno.ENOSPC, "No space left on device"), 1, "{cache}: No space left on device"),
        (KeyboardInterrupt(), 130, "Continue with: beltrami data get toy"),
    ],
)
def test_what_the_system_refuses(
    failure: BaseException,
    code: int,
    shown: str,
    served: FakeClients,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr("beltrami.data.fetch.unpack", fail)
    assert main(["data", "get", "toy"]) == code
    error = capsys.readouterr().err
    assert shown.format(cache=cache_folder()) in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--help"], ["list", "get", "path", "BELTRAMI_CACHE", "licences"]),
        (["get", "--help"], ["--archive", "--check", "never installed or run"]),
        (["list", "--help"], ["--json", "licence"]),
        (["path", "--help"], ["nothing else", "exit code 2"]),
    ],
)
def test_help_explains(
    arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", *arguments]) == 0
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for word in words:
        assert word in text


def test_the_guide_lists_the_catalogue() -> None:
    guide = (Path(__file__).parents[2] / "docs/data.md").read_text(encoding="utf-8")
    rows = [line for line in guide.splitlines() if line.startswith("| `") and "/`" not in line]
    assert [row for row in rows if "$" not in row] == [
        f"| `{e.name}` | {e.title} | {show_bytes(e.size)} | {e.licence} |"
        for e in CATALOGUE.values()
    ]


def test_show_counts_the_nodes_of_each_rank(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "cats.csv"
    file.write_text("family,genus,species\nFelidae,Felis,catus\nFelidae,Panthera,leo\n")
    assert main(["data", "show", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "name": "cats",
        "nodes": 5,
        "edges": 4,
        "roots": 1,
        "leaves": 2,
        "depth": 2,
        "ranks": {"family": 1, "genus": 2, "species": 2},
    }
    assert main(["data", "show", str(file), "--root", "Felis"]) == 0
    shown = capsys.readouterr().out
    assert "genus: 1" in shown
    assert "family" not in shown
    assert main(["data", "show", str(file), "--ranks", "family", "species"]) == 0
    assert "genus" not in capsys.readouterr().out
    assert main(["data", "show", str(file), "--ranks", "family", "tribe"]) == 2
    assert "there is no column 'tribe'" in capsys.readouterr().err
    assert main(["data", "show", "carnivores"]) == 0
    assert "ranks" not in capsys.readouterr().out


def test_what_a_reader_changed_is_one_line_on_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "t.csv"
    file.write_text("b;a\nb;a\nd;c\n")
    assert main(["data", "show", str(file), "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["nodes"] == 5
    repeated, joined = printed.err.splitlines()
    assert repeated.startswith(f"note: {file}: 1 edge is repeated")
    assert joined == f"note: {file}: 2 roots ('a', 'c') are joined under '(root)'"
    assert main(["data", "show", str(file), "--strict"]) == 2
    assert "leave strict= (--strict) away" in capsys.readouterr().err
    for command in (["run", "hierarchy", "--data"], ["run", "cones", "--data"], ["explore"]):
        assert main([*command, str(file), "--strict"]) == 2
        assert "1 edge is repeated" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["data show", "data", "run levels", "diagnose", "explore"])
def test_help_shows_the_forms_of_a_taxonomy(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command.split(), "--help"]) == 0
    text = capsys.readouterr().out
    for form in ("animal/cat/lion", "animal > cat > lion", "family,genus,species", "lion,cat"):
        assert form in text
