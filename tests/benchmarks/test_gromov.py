"""The benchmark of δ: that all competitors find the same, how they are judged, that it runs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks import gromov, gromov_cases, markers
from benchmarks.gromov import Options, Timing, rows
from benchmarks.gromov_cases import BY_ROWS, EVERY, MOST, NUMPY, OURS, PEER, SEEN, Problem


@pytest.mark.parametrize("kind", [*gromov_cases.DIMENSIONS, gromov_cases.TREE, gromov_cases.CURVED])
def test_all_find_the_same(kind: str) -> None:
    d = gromov_cases.distances(kind, 30)
    ours, *others = (gromov_cases.solver(who, d)() for who in (OURS, NUMPY, BY_ROWS))
    assert others == pytest.approx([ours, ours], abs=1e-12)
    assert gromov_cases.solver(gromov_cases.ALL, d)() >= ours - 1e-12


def test_the_peer_finds_the_same() -> None:
    pytest.importorskip("hypdelta", reason="hypdelta comes with the bench extra")
    d = gromov_cases.distances(gromov_cases.NOISE, 30)
    found = gromov_cases.solver(PEER, d)()
    assert found == pytest.approx(gromov_cases.solver(OURS, d)())


def test_what_a_process_tells() -> None:
    told = gromov_cases.measure(OURS, gromov_cases.FLAT, 20, 3)
    assert len(told["times"]) == 3
    assert told["mib"] >= 0
    assert told["delta"] > 0


def test_who_meets_the_goal() -> None:
    ours = Timing("noise", SEEN, OURS, (10.0, 12.0, 11.0), 5.0, 1.0)
    slow = Timing("noise", SEEN, BY_ROWS, (300.0,), 5.0, 1.0)
    quick = Timing("noise", SEEN, NUMPY, (30.0,), 5.0, 1.0)
    absent = Timing("noise", SEEN, PEER, (), 0.0, 0.0)
    small = Timing("noise", 10, BY_ROWS, (1.0,), 5.0, 1.0)
    _, body = rows([ours, slow, quick, absent, small])
    assert [row[-1] for row in body] == ["", "met", "**missed**", "", ""]
    assert body[1][5] == "27× as fast"
    assert body[3][3] == "not installed"
    assert gromov.missed([ours, slow, quick], Options()) == 1


@pytest.mark.slow
def test_a_run_from_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem(gromov_cases.FLAT, 12, (OURS, BY_ROWS))
    monkeypatch.setattr(gromov_cases, "problems", lambda quick, device: [problem])
    assert gromov.run(Options(quick=True, out=tmp_path)) == 0
    page = tmp_path / "page.md"
    page.write_text("<!-- generated: gromov cpu -->\n<!-- end: gromov cpu -->\n")
    assert gromov.render(tmp_path, page) == ["cpu"]
    text = markers.read(page, "gromov cpu")
    assert "| 2 dimensions | 12 | beltrami |" in text
    assert "(gromov.svg)" in text
    assert "numpy, a row at a time" in (tmp_path / "gromov.svg").read_text(encoding="utf-8")
    assert gromov.render(tmp_path / "nothing", page) == []


def test_a_gpu_is_judged_by_its_seconds() -> None:
    quick = Timing("noise", MOST, OURS, (119e3,), 5.0, 1.0)
    slow = Timing("tree", MOST, OURS, (121e3,), 5.0, 1.0)
    every = Timing("noise", MOST, EVERY, (238e3,), 5.0, 1.0)
    _, body = rows([quick, slow, every], "cuda")
    assert [row[-1] for row in body] == ["met", "**missed**", ""]
    assert body[2][5] == "2× as fast"


def test_every_triple_finds_the_same() -> None:
    d = gromov_cases.distances(gromov_cases.NOISE, 30)
    ours = gromov_cases.solver(OURS, d)()
    assert gromov_cases.solver(gromov_cases.EVERY_PLAIN, d)() == pytest.approx(ours, abs=1e-12)


def test_a_page_of_a_gpu(tmp_path: Path) -> None:
    about = {"device": "cuda", "command": "c", "commit": "d", "gpu": "G", "torch": "2", "rounds": 2}
    gromov.write([Timing("noise", MOST, OURS, (9e3, 8e3), 5.0, 1.0)], about, tmp_path)
    page = tmp_path / "page.md"
    page.write_text("<!-- generated: gromov cuda -->\n<!-- end: gromov cuda -->\n")
    assert gromov.render(tmp_path, page) == ["cuda"]
    assert "| noise | 50,000 | beltrami | 8,500 |" in markers.read(page, "gromov cuda")


def test_a_gpu_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert gromov.run(Options(device="cuda")) == 2
    assert "needs a GPU" in capsys.readouterr().out
