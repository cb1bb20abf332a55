"""The benchmark of the optimisers: what it counts, how it judges, and that it runs."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.optim import Optimizer

from beltrami.optim import adam
from benchmarks import (
    markers,
    optimisers,
    optimisers_cases,
    optimisers_report,
    optimisers_timing,
)
from benchmarks.optimisers_cases import COMPILED, EAGER, FUSED, Case, Tables
from benchmarks.optimisers_timing import COPY, Timing

TINY = Tables(2, 6, 5)


def without_compiling(case: Case) -> Case:
    """The case on tiny tables, less what would take a compiler's time."""
    kept = tuple(c for c in case.competitors if c.mode != COMPILED)
    return replace(case, tables=TINY, competitors=kept)


# --- cases ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", optimisers_cases.cpu_cases(quick=True), ids=lambda c: c.name)
def test_every_case_runs_and_counts(case: Case) -> None:
    case = without_compiling(case)
    found = optimisers_timing.time_case(case, 2, "cpu", lambda _: None)
    assert [(t.competitor, t.mode) for t in found] == [(c.name, c.mode) for c in case.competitors]
    for t in found:
        assert len(t.times) == 2, t.note
        assert t.best <= t.median
        assert t.state > 0
    by = {t.competitor: t for t in found}
    numbers = 4 * 2 * 6  # one a row, in float32
    table = 4 * 2 * 6 * 5
    assert by["torch Adam"].state == 2 * table
    assert by["torch Adam"].moved == 7 * table
    assert by["RiemannianAdam, Lorentz"].state == table + numbers
    assert by["RiemannianAdam, Lorentz"].moved == 5 * table + 2 * numbers


def test_the_compiled_step_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []
    monkeypatch.setattr(torch, "compile", lambda f: compiled.append(f) or f)
    case = replace(optimisers_cases.cpu_cases(quick=True)[0], tables=TINY)
    modes = [c.mode for c in case.competitors]
    optimisers_timing.time_case(case, 1, "cpu", lambda _: None)
    assert len(compiled) == modes.count(COMPILED) == 2


def test_the_cases_of_a_gpu_can_be_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """All but ours with the fused kernel, which is asked for and refused on a CPU."""
    # Triton's interpreter, which other tests of the same process may have asked for, would do it.
    monkeypatch.setattr(adam, "why_not_fused", lambda device: "no GPU")
    cases = optimisers_cases.cuda_cases(quick=True)
    assert [c.tables.dtype for c in cases] == [torch.float32, torch.bfloat16]
    assert [c.tables.shape for c in optimisers_cases.cuda_cases()] == [
        "128256 × 512, float32",
        "128256 × 512, bfloat16",
    ]
    for case in cases:
        for competitor in case.competitors:
            ours = competitor.name.startswith("Riemannian")
            if ours and competitor.mode == FUSED:
                with pytest.raises(ValueError, match="fused=True, but the Triton kernel cannot"):
                    competitor.build(TINY, "cpu")
                continue
            optimizer = competitor.build(TINY, "cpu")
            assert isinstance(optimizer, Optimizer)
            if ours:
                assert optimizer.param_groups[0]["fused"] is False


def test_a_missing_peer_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "geoopt", None)
    case = without_compiling(optimisers_cases.cpu_cases(quick=True)[1])
    *_, theirs = optimisers_timing.time_case(case, 1, "cpu", lambda _: None)
    assert theirs.note == "geoopt is not installed"
    _, body = optimisers_report.rows(optimisers_report.lines([theirs], "cpu"))
    assert "geoopt is not installed" in body[0]


def test_our_own_failure_is_a_crash() -> None:
    def broken(n: Tables, device: str) -> Optimizer:
        raise ZeroDivisionError

    case = optimisers_cases.cpu_cases(quick=True)[1]
    ours = replace(case.competitors[1], build=broken)
    with pytest.raises(ZeroDivisionError):
        optimisers_timing.time_case(replace(case, competitors=(ours,)), 1, "cpu", lambda _: None)


# --- verdicts -------------------------------------------------------------------------------------


def timing(competitor: str, mode: str, ms: list[float], moved: int = 100) -> Timing:
    return Timing("table", "shape", competitor, mode, tuple(ms), 10, moved)


@pytest.mark.parametrize(
    ("device", "name", "mode", "ms", "met"),
    [
        ("cpu", "RiemannianAdam, Lorentz", EAGER, [3.9, 3.9, 3.9], True),
        ("cpu", "RiemannianAdam, Lorentz", EAGER, [3.0, 4.1, 4.1], False),  # the median
        ("cpu", "RiemannianAdam, Poincaré", EAGER, [4.1, 4.1, 4.1], False),
        ("cpu", "RiemannianAdam, Poincaré", COMPILED, [1.9, 1.9, 1.9], True),
        ("cpu", "RiemannianAdam, Lorentz", COMPILED, [2.1, 2.1, 2.1], False),
        ("cpu", "RiemannianSGD with momentum, Lorentz", EAGER, [9.0, 9.0, 9.0], None),
        ("cuda", "RiemannianAdamW, Lorentz", FUSED, [1.2, 1.2, 1.2], True),
        ("cuda", "RiemannianAdamW, Lorentz", FUSED, [1.4, 1.4, 1.4], False),
        ("cuda", "RiemannianAdamW, Lorentz", EAGER, [9.0, 9.0, 9.0], None),
    ],
)
def test_goals(device: str, name: str, mode: str, ms: list[float], met: bool | None) -> None:
    timings = [timing("torch", "foreach", [1.0, 1.0, 1.0]), timing(name, mode, ms)]
    first, line = optimisers_report.lines(timings, device)
    assert first.met is None
    assert first.ratio is None
    assert line.met is met
    assert line.ratio is not None
    assert line.ratio.median == ms[1]


def test_speed_is_compared_with_a_copy() -> None:
    timings = [
        timing("torch AdamW", FUSED, [2.0], moved=700),
        timing("RiemannianAdamW, Lorentz", FUSED, [1.5], moved=500),
        timing(COPY, "", [0.5], moved=200),
    ]
    found = optimisers_report.lines(timings, "cuda")
    assert [line.of_copy for line in found] == pytest.approx([0.875, 500 / 1.5 / 400, 1.0])
    header, body = optimisers_report.rows(found)
    assert {len(row) for row in body} == {len(header)}
    assert body[0][header.index("of a copy's speed")] == "88%"
    assert found[2].ratio is None


# --- files and pages ------------------------------------------------------------------------------


def page(path: Path) -> Path:
    parts = [
        f"<!-- generated: optimisers {d} -->\n<!-- end: optimisers {d} -->" for d in ("cpu", "cuda")
    ]
    path.write_text("\n".join(parts) + "\n")
    return path


@pytest.mark.parametrize("device", optimisers.FILES)
def test_what_is_written_is_read_and_shown(device: str, tmp_path: Path) -> None:
    host = 0.25 if device == "cuda" else None
    timings = [
        timing("torch", "foreach", [1.0, 2.0]),
        replace(timing("RiemannianAdam, Lorentz", EAGER, [1.5, 2.5]), host=host),
        Timing("table", "shape", "peer", EAGER, (), note="is not installed"),
    ]
    if device == "cuda":
        timings.append(timing(COPY, "", [0.5, 0.5]))
    about = optimisers.describe(optimisers.Options(commit="abc"), 2) | {"device": device}
    optimisers.write(timings, about, tmp_path)
    assert optimisers.read(tmp_path / optimisers.FILES[device])[1] == timings
    results = page(tmp_path / "RESULTS.md")
    assert optimisers.render(tmp_path, results) == [device]
    text = markers.read(results, f"optimisers {device}")
    assert "Commit abc" in text
    assert "RiemannianAdam, Lorentz" in text
    assert "is not installed" in text


def test_the_published_tables_are_those_of_the_files(tmp_path: Path) -> None:
    published = optimisers.PAGE.read_text(encoding="utf-8")
    copy = tmp_path / "RESULTS.md"
    copy.write_text(published, encoding="utf-8")
    assert optimisers.render(page=copy) == list(optimisers.FILES)
    assert copy.read_text(encoding="utf-8") == published


@pytest.mark.parametrize("device", optimisers.FILES)
def test_stored_results_are_complete(device: str) -> None:
    """At full size, with all competitors and rounds: neither --quick nor --only nor --rounds."""
    about, timings = optimisers.read(optimisers.FOLDER / optimisers.FILES[device])
    assert about["commit"] != "unknown"
    assert about["command"] == optimisers_report.command(device)
    assert about["rounds"] == optimisers.ROUNDS[device]
    expected = [
        (case.name, case.tables.shape, c.name, c.mode)
        for case in optimisers_cases.cases(device)
        for c in case.competitors
    ]
    found = [t for t in timings if t.competitor != COPY]
    assert [(t.case, t.shape, t.competitor, t.mode) for t in found] == expected
    for t in timings:
        peer = t.competitor.startswith(optimisers_cases.GEOOPT)
        assert len(t.times) == about["rounds"] or (peer and t.note), t.competitor


@pytest.mark.parametrize(
    ("options", "published", "command"),
    [
        (optimisers.Options(), True, "make bench-optimisers"),
        (optimisers.Options(rounds=31), True, "make bench-optimisers"),
        (
            optimisers.Options(rounds=1),
            False,
            "python -m benchmarks.optimisers --device cpu --rounds 1",
        ),
        (
            optimisers.Options(quick=True),
            False,
            "python -m benchmarks.optimisers --device cpu --quick",
        ),
        (
            optimisers.Options(device="cuda", only="bfloat16", rounds=3),
            False,
            'python -m benchmarks.optimisers --device cuda --only "bfloat16" --rounds 3',
        ),
    ],
    ids=["full", "usual rounds", "rounds", "quick", "only"],
)
def test_only_a_complete_run_is_published(
    options: optimisers.Options,
    published: bool,
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And a command says in what a run differs from a complete one."""
    threads = torch.get_num_threads()
    timings = [timing("torch", "foreach", [1.0]), timing("RiemannianAdam, Lorentz", EAGER, [1.5])]
    rendered = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    monkeypatch.setattr(optimisers.machine, "ROOT", tmp_path)
    monkeypatch.setattr(optimisers, "FOLDER", tmp_path / "results")
    monkeypatch.setattr(optimisers, "measure", lambda *_: timings)
    monkeypatch.setattr(optimisers, "render", lambda: rendered.append(True))
    try:
        assert optimisers.run(options) == 0
        assert optimisers.run(replace(options, out=tmp_path / "out")) == 0
    finally:
        torch.set_num_threads(threads)
    file = optimisers.FILES[options.device]
    assert optimisers.read(tmp_path / "out" / file)[0]["command"] == command
    assert (tmp_path / "results" / file).exists() == bool(rendered) == published


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (optimisers.Options(rounds=0), "--rounds must be at least 1, got 0"),
        (optimisers.Options(only="nothing"), "no case matches 'nothing'"),
        (optimisers.Options(device="cuda"), "--device cuda needs a GPU"),
    ],
)
def test_bad_options_are_told(
    options: optimisers.Options, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if options.device == "cuda" and torch.cuda.is_available():
        pytest.skip("has a GPU")
    threads = torch.get_num_threads()
    try:
        assert optimisers.run(options) == 2
    finally:
        torch.set_num_threads(threads)
    assert message in capsys.readouterr().out


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")  # the compiler's, and that the mode is a prototype
def test_the_cases_of_a_gpu_run() -> None:
    for case in optimisers_cases.cuda_cases(quick=True):
        *found, copy = optimisers_timing.time_case(case, 2, "cuda", lambda _: None)
        assert copy.competitor == COPY
        for t in found:
            assert t.times or "geoopt" in t.competitor
            assert t.host is not None or not t.times
