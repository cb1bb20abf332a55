"""The benchmarks of the adapters: what they build, how they judge, and that they run."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from benchmarks import (
    adapters,
    adapters_cases,
    adapters_kernels,
    adapters_report,
    adapters_timing,
    markers,
)
from benchmarks.adapters_cases import (
    BASE,
    BOOST,
    COMPARED,
    COMPILED,
    DORA,
    EAGER,
    FORWARD,
    GRAPHS,
    LEARNED,
    LORA,
    MIXTURE,
    MODEL,
    OURS,
    STEP,
    TOKEN,
    WRITTEN,
    Linear,
    Model,
)
from benchmarks.layers_timing import Timing

ROOT = Path(__file__).resolve().parents[2]
EVERYONE = [BASE, LORA, DORA, OURS, LEARNED, BOOST, MIXTURE, WRITTEN]
TINY = Linear(STEP, 12, 20, 4, 6, torch.float64)


# --- cases ----------------------------------------------------------------------------------------


def built(name: str, problem: Linear = TINY) -> nn.Module:
    return adapters_cases.build(problem).builders[name]()


def test_written_out_is_hyplora() -> None:
    x = adapters_cases.build(TINY).inputs
    ours, literal, lora, base = (built(n)(x) for n in (OURS, WRITTEN, LORA, BASE))
    torch.testing.assert_close(ours, literal, rtol=1e-7, atol=1e-9)
    assert (ours - base).abs().max() > 1e-3
    assert (ours - lora).abs().max() > 1e-3


@pytest.mark.parametrize("name", EVERYONE)
def test_only_the_adapter_is_trained_in_the_dtype_of_the_base(name: str) -> None:
    module = built(name)
    assert {p.dtype for p in module.parameters()} == {TINY.dtype}
    trained = {n for n, p in module.named_parameters() if p.requires_grad}
    assert not any("base" in n for n in trained)
    assert bool(trained) == (name != BASE)
    assert all(p.abs().max() > 0 for n, p in module.named_parameters() if "curvature" not in n)


def test_all_have_the_same_matrices() -> None:
    found = []
    for name in EVERYONE[1:]:
        by = dict(built(name).named_parameters())
        (a,) = (p for n, p in by.items() if "lora_A" in n and "time" not in n)
        (b,) = (p for n, p in by.items() if "lora_B" in n and "time" not in n)
        found.append((a, b))
    assert all(torch.equal(a, found[0][0]) and torch.equal(b, found[0][1]) for a, b in found)


def test_a_pass_without_gradients_is_in_evaluation_mode() -> None:
    assert built(LORA).training
    case = adapters_cases.build(replace(TINY, kind=TOKEN, tokens=1))
    assert not case.builders[LORA]().training
    assert not case.inputs.requires_grad


def test_saved_leaves_parameters_out() -> None:
    found = adapters_timing.time_case(adapters_cases.build(TINY), 2, lambda _: None)
    saved = {t.competitor: t.saved for t in found}
    number, tokens = 8, TINY.tokens
    assert list(saved) == EVERYONE
    assert saved[BASE] == 0  # its weight is frozen: the input is not needed
    assert saved[LORA] == number * tokens * (TINY.inputs + TINY.rank)
    assert saved[LORA] < saved[OURS] < saved[WRITTEN]
    assert all(len(t.times) == 2 and t.mode == EAGER for t in found)


def test_a_device_has_three_shapes_and_ranks_and_a_model() -> None:
    for device, compiled, graphs in (
        ("cpu", [], []),
        ("cuda", [STEP] * 3 + [FORWARD, TOKEN], [STEP, TOKEN]),
    ):
        *linears, model = adapters_cases.problems(device, quick=False)
        assert [p.kind for p in linears] == [STEP] * 9 + [FORWARD] * 9 + [TOKEN] * 9
        assert [p.kind for p in linears if COMPILED in p.modes] == compiled
        assert [p.kind for p in linears if GRAPHS in p.modes] == graphs
        assert isinstance(model, Model)
        assert (COMPILED in model.modes) == (device == "cuda")
        titles = [p.title for p in (*linears, model)]
        assert len(set(titles)) == len(titles) == 28


def test_those_compared_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[bool, bool]] = []

    def fake(module: nn.Module, *, whole: bool, recorded: bool) -> nn.Module:
        asked.append((whole, recorded))
        return module

    monkeypatch.setattr(adapters_timing, "compiled", fake)
    case = adapters_cases.build(replace(TINY, modes=(EAGER, COMPILED, GRAPHS)))
    found = adapters_timing.time_case(case, 1, lambda _: None)
    for mode in (COMPILED, GRAPHS):
        assert [t.competitor for t in found if t.mode == mode] == list(COMPARED)
    # Graph breaks are only allowed to others.
    wholes = (False, False, True)
    assert asked == [(whole, recorded) for recorded in (False, True) for whole in wholes]


def test_graphs_are_recorded_by_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[str | None] = []
    monkeypatch.setattr(torch, "compile", lambda module, **how: modes.append(how["mode"]))
    for recorded in (False, True):
        adapters_cases.compiled(nn.Linear(2, 2), whole=True, recorded=recorded)
    assert modes == [None, "reduce-overhead"]


def test_graphs_are_explained_where_there_are_some() -> None:
    timed = [timing(who, [1.0, 1.0]) for who in (LORA, DORA, OURS)]
    recorded = [replace(t, mode=GRAPHS) for t in timed]
    about = {"device": "cuda", "rounds": 2, "command": "c", "commit": "0", "torch": "2", "gpu": "g"}
    assert "reduce-overhead" not in adapters_report.markdown(timed, about)
    assert "reduce-overhead" in adapters_report.markdown(timed + recorded, about)


def test_blocks_of_a_model_are_compiled_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = []
    monkeypatch.setattr(nn.Module, "compile", lambda self, **_: blocks.append(type(self).__name__))
    small = adapters_cases.problems("cpu", quick=True)[-1]
    adapters_cases.compiled(adapters_cases.build(small).builders[OURS](), whole=False)
    assert blocks == ["LlamaDecoderLayer"] * 2


# --- verdicts -------------------------------------------------------------------------------------


def timing(competitor: str, ms: list[float], saved: int = 100, kind: str = STEP) -> Timing:
    return Timing(kind, "shape", competitor, EAGER, tuple(ms), saved, peak=10 * saved)


def measured(ours: list[float], saved: int = 100, kind: str = STEP) -> list[Timing]:
    return [
        timing(LORA, [1.0, 1.0, 1.0], 100 * (saved > 0), kind),
        timing(DORA, [1.04, 1.04, 1.04], 3 * saved, kind),
        timing(OURS, ours, saved, kind),
    ]


@pytest.mark.parametrize(
    ("ours", "saved", "kind", "missed"),
    [
        ([1.02, 1.02, 1.02], 104, STEP, []),
        ([1.02, 1.02, 1.02], 0, TOKEN, []),  # nothing is kept, nothing is judged
        ([1.02, 1.02, 1.02], 104, MODEL, []),
        ([1.035, 1.035, 1.035], 104, STEP, []),
        ([1.035, 1.035, 1.035], 104, MODEL, ["time"]),  # a model has less room
        ([1.04, 1.04, 1.04], 104, STEP, ["DoRA"]),  # as fast is not faster
        ([1.0, 1.2, 1.2], 104, STEP, ["time", "DoRA"]),  # one lucky round does not help
        ([1.02, 1.02, 1.02], 106, STEP, ["saved"]),
    ],
)
def test_hyplora_is_judged_by_its_worse_ratio(
    ours: list[float], saved: int, kind: str, missed: list[str]
) -> None:
    (line,) = adapters_report.lines(measured(ours, saved, kind))
    assert line.missed() == missed
    assert line.met() is (not missed)


@pytest.mark.parametrize("gone", [LORA, DORA, OURS])
def test_without_one_of_them_there_is_no_verdict(gone: str) -> None:
    found = [t for t in measured([1.0]) if t.competitor != gone]
    assert adapters_report.lines(found)[0].met() is None


def test_modes_are_compared_with_themselves() -> None:
    slow = measured([1.5, 2.0, 3.0])
    quick = [replace(t, mode=COMPILED, times=(0.5,)) for t in slow]
    eager, compiled = adapters_report.lines(slow + quick)
    assert str(eager.ratio(OURS)) == "1.50 / 2.00"
    assert str(compiled.ratio(OURS)) == "1.00 / 1.00"
    assert eager.ratio(BOOST) is None


def test_tables_are_rectangular() -> None:
    found = adapters_report.lines(measured([1.02, 1.02, 1.02]) + measured([1.5], 0, TOKEN))
    header, body = adapters_report.rows(found)
    assert {len(row) for row in body} == {len(header)}
    assert [row[-1] for row in body] == ["met", "**missed** (time, DoRA)"]
    assert "verdict" not in adapters_report.rows(found, judged=False)[0]
    for field in ("saved", "peak"):
        header, body = adapters_report.memory_rows(found, field)
        assert [len(row) for row in body] == [len(header)]  # a token keeps nothing


# --- pages and the command ------------------------------------------------------------------------


def page(path: Path, *names: str) -> Path:
    parts = [f"<!-- generated: {n} -->\nold\n<!-- end: {n} -->" for n in names]
    path.write_text("\n\n".join(parts))
    return path


def test_measurements_come_back_and_join_the_pages(tmp_path: Path) -> None:
    results = page(tmp_path / "RESULTS.md", "adapters cpu", "adapters cuda")
    guide = page(tmp_path / "peft.md", "adapters cost")
    found = measured([1.02, 1.02, 1.02]) + measured([1.03, 1.04, 1.04], kind=MODEL)
    about = {"commit": "abc", "cpu": "a CPU", "cores": "2", "torch": "2", "rounds": 3, "peft": "1"}
    for device, more in (("cpu", {}), ("cuda", {"gpu": "a GPU"})):
        command = adapters_report.command(device)
        adapters.write(found, {**about, **more, "device": device, "command": command}, tmp_path)
    assert adapters.read(tmp_path / "adapters.json")[1] == found
    assert adapters.render(tmp_path, results, guide) == ["cpu", "cuda"]
    cpu, cuda = (markers.read(results, f"adapters {d}") for d in ("cpu", "cuda"))
    assert "Command: `make bench-adapters`. Commit abc. a CPU, 2 cores" in cpu
    assert "Beside peft 1." in cpu
    assert "Lines that meet them all: 1 of 2." in cpu
    assert "a GPU" in cuda
    assert ("highest use of memory" in cpu, "highest use of memory" in cuda) == (False, True)
    assert markers.read(guide, "adapters cost").count("| 1.02× |") == 2


def test_a_summary_has_the_range_over_shapes() -> None:
    wide = [replace(t, shape="other") for t in measured([1.5, 1.5, 1.5])]
    about = {"command": "c", "commit": "abc", "gpu": "a GPU", "torch": "2"}
    text = adapters_report.summary([about], [measured([1.0, 1.0, 1.0]) + wide])
    assert "| 1.00–1.50× |" in text


def test_a_quick_run_from_end_to_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    assert adapters.run(adapters.Options(quick=True, out=tmp_path, commit="abc")) == 0
    assert "adapters.json" in capsys.readouterr().out
    about, found = adapters.read(tmp_path / "adapters.json")
    assert about["commit"] == "abc"
    assert {"peft", "transformers", "torch"} <= set(about)
    lines = adapters_report.lines(found)
    assert [line.case for line in lines] == [STEP, FORWARD, TOKEN, MODEL]
    for line in lines:
        assert list(line.timings) == (list(COMPARED) if line.case == MODEL else EVERYONE)
        assert line.met() is not None


def test_every_case_is_kept_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)

    def once(*_: object) -> list[Timing]:
        path = tmp_path / "adapters.json"
        if path.exists() and len(json.loads(path.read_text())["timings"]) == 6:
            raise RuntimeError("the machine is gone")
        return measured([1.0])

    monkeypatch.setattr(adapters_timing, "time_case", once)
    with pytest.raises(RuntimeError, match="gone"):
        adapters.run(adapters.Options(quick=True, out=tmp_path))
    assert len(adapters.read(tmp_path / "adapters.json")[1]) == 6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (adapters.Options(rounds=0), "--rounds must be at least 1, got 0"),
        (adapters.Options(only="nothing"), "no case matches 'nothing'"),
        (adapters.Options(device="cuda"), "--device cuda needs a GPU"),
    ],
)
def test_bad_options_are_told(
    options: adapters.Options,
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    if options.device == "cuda" and torch.cuda.is_available():
        pytest.skip("has a GPU")
    assert adapters.run(options) == 2
    assert message in capsys.readouterr().out


def test_help_loads_no_peft() -> None:
    code = (
        "import sys, benchmarks.adapters as a, tyro\n"
        "try: tyro.cli(a.Options, args=['--help'])\n"
        "except SystemExit as e: assert not e.code\n"
        "assert 'peft' not in sys.modules"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "--only" in told.stdout


def test_stored_results_are_what_the_code_reads() -> None:
    """So that --render works on what a GPU sent back."""
    for name in adapters.FILES.values():
        path = adapters.FOLDER / name
        if path.exists():
            about, measurements = adapters.read(path)
            assert measurements
            assert about["commit"] != "unknown"


# --- kernels --------------------------------------------------------------------------------------


def test_operations_of_a_pass_are_counted() -> None:
    case = adapters_cases.build(TINY)
    found = adapters_kernels.measured(case, LORA, EAGER, 3)
    products = {name: times for name, times, _ in found.kernels}
    assert products["aten::mm"] == 8  # three forwards, five backwards
    assert found.busy > 0
    assert found.milliseconds > 0
    times = [ms for _, _, ms in found.kernels]
    assert times == sorted(times, reverse=True)
    shown = adapters_kernels.table("a step", [found], 2)
    assert shown.row_count == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"only": "leap"}, "no problem has 'leap'"),
        ({"competitors": ("X",)}, "has no X"),
        ({"rounds": 0}, "--rounds must be at least 1"),
    ],
)
def test_kernels_of_what_is_not_there(
    changes: dict, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    told = {"device": "cpu", "only": "step", "quick": True, **changes}
    assert adapters_kernels.run(adapters_kernels.Options(**told)) == 2
    assert message in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_kernels_of_a_gpu_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert adapters_kernels.run(adapters_kernels.Options()) == 2
    assert "needs a GPU" in capsys.readouterr().err
