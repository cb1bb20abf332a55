"""The benchmarks of the layers: what they count, how they judge, and that they run."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch
from rich.console import Console
from torch import nn

import beltrami.nn as bnn
from benchmarks import (
    decoder_training,
    layers,
    layers_cases,
    layers_report,
    layers_timing,
    markers,
)
from benchmarks.layers_cases import EUCLIDEAN, FIXED, LEARNED, Sizes
from benchmarks.layers_timing import Timing

ROOT = Path(__file__).resolve().parents[2]
TINY = Sizes(width=16, heads=2, tokens=6, batch=2)


# --- cases ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", layers_cases.BUILDERS)
def test_every_case_runs_and_counts(name: str) -> None:
    case = layers_cases.build(name, TINY)
    found = layers_timing.time_case(case, 2, lambda _: None, modes=("eager",))
    assert [t.competitor for t in found] == list(case.competitors)
    for t in found:
        assert len(t.times) == 2
        assert t.best <= t.median
    if name != "residual":  # the Euclidean one keeps nothing
        assert all(t.saved > 0 for t in found)


def test_ours_have_time_columns_that_are_not_zero() -> None:
    case = layers_cases.build("block", TINY)
    for competitor, module in case.competitors.items():
        columns = [p for n, p in module.named_parameters() if n.endswith("time_weight")]
        assert len(columns) == (0 if competitor == EUCLIDEAN else 4)
        assert all(p.abs().max() > 0 for p in columns)


def test_the_learned_curvature_is_registered_once() -> None:
    module = layers_cases.build("block", TINY).competitors[LEARNED]
    names = [n for n, _ in module.named_parameters() if "curvature" in n]
    assert names == ["curvature.raw"]


def test_the_mlp_is_that_of_the_block() -> None:
    n = layers_cases.CPU[0]
    mlp = layers_cases.build("mlp", n).competitors[FIXED]
    block = layers_cases.build("block", n).competitors[FIXED]
    assert isinstance(block, bnn.TransformerBlock)
    assert mlp.hidden == block.mlp.hidden


def test_saved_counts_activations_and_not_parameters() -> None:
    case = layers_cases.build("linear", TINY)
    (flat, *_) = layers_timing.time_case(case, 1, lambda _: None, modes=("eager",))
    assert flat.saved == 4 * TINY.batch * TINY.tokens * TINY.width  # the input


def test_a_gpu_has_the_block_at_two_widths() -> None:
    blocks = [sizes.width for name, sizes in layers_cases.names("cuda", False) if name == "block"]
    assert blocks == [1024, 2048]
    assert all(s.width // s.heads == 64 for s in layers_cases.CUDA)


def test_a_slope_is_that_of_the_line() -> None:
    assert layers_timing.slope([1, 2, 4], [13.0, 16.0, 22.0]) == pytest.approx(3)


# --- verdicts -------------------------------------------------------------------------------------


def timing(competitor: str, mode: str, ms: list[float], saved: int = 100) -> Timing:
    return Timing("block", "shape", competitor, mode, tuple(ms), saved, peak=10 * saved)


def measured(eager: list[float], compiled: list[float], saved: int = 100) -> list[Timing]:
    return [
        timing(EUCLIDEAN, "eager", [1.0, 1.0, 1.0]),
        timing(EUCLIDEAN, "compiled", [0.5, 0.5, 0.5]),
        timing(FIXED, "eager", eager, saved),
        timing(FIXED, "compiled", compiled, saved),
    ]


@pytest.mark.parametrize(
    ("eager", "compiled", "saved", "met"),
    [
        ([1.5, 1.5, 1.5], [0.6, 0.6, 0.6], 110, True),
        ([1.2, 1.2, 1.2], [0.75, 0.75, 0.75], 110, True),  # either mode may be the better one
        ([1.7, 1.7, 1.7], [0.6, 0.6, 0.6], 110, False),  # the other mode
        ([1.5, 1.5, 1.5], [0.7, 0.7, 0.7], 110, False),  # the better mode
        ([1.5, 1.5, 1.5], [0.6, 0.6, 0.6], 130, False),  # bytes
        ([1.0, 1.7, 1.7], [0.6, 0.6, 0.6], 110, False),  # one lucky round does not help
    ],
)
def test_the_block_is_judged_by_its_worse_ratio(
    eager: list[float], compiled: list[float], saved: int, met: bool
) -> None:
    flat, ours = layers_report.lines(measured(eager, compiled, saved))
    assert flat.met() is None
    assert ours.met() is met


def test_a_mode_that_is_missing_has_no_verdict() -> None:
    found = [t for t in measured([1.0], [0.5]) if t.mode == "eager"]
    assert layers_report.lines(found)[1].met() is None


def test_ratios_compare_the_same_mode() -> None:
    (_, ours) = layers_report.lines(measured([1.5, 2.0, 3.0], [0.5, 1.0, 1.5]))
    assert str(ours.ratio("eager")) == "1.50 / 2.00"
    assert str(ours.ratio("compiled")) == "1.00 / 2.00"


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_tables_are_rectangular(device: str) -> None:
    header, body = layers_report.rows(layers_report.lines(measured([1.0], [0.5])), device)
    assert {len(row) for row in body} == {len(header)}
    assert ("verdict" in header) == (device == "cpu")
    assert ("eager peak MB" in header) == (device == "cuda")


# --- pages ----------------------------------------------------------------------------------------

ABOUT = {"commit": "abc", "cpu": "a CPU", "cores": "2", "torch": "2", "rounds": 3}


def page(path: Path, *names: str) -> Path:
    parts = [f"<!-- generated: {n} -->\nold\n<!-- end: {n} -->" for n in names]
    path.write_text("\n\n".join(parts))
    return path


def test_measurements_come_back_and_join_the_pages(tmp_path: Path) -> None:
    results = page(tmp_path / "RESULTS.md", "layers cpu", "layers cuda")
    guide = page(tmp_path / "layers.md", "layers cost")
    found = measured([1.5, 1.6, 1.7], [0.6, 0.6, 0.6])
    for device in ("cpu", "cuda"):
        about = {**ABOUT, "device": device, "command": layers_report.command(device)}
        if device == "cuda":
            about["gpu"] = "a GPU"
        layers.write(found, about, tmp_path)
    assert layers.read(tmp_path / "layers.json")[1] == found
    assert layers.render(tmp_path, results, guide) == ["cpu", "cuda"]
    cpu, cuda = (markers.read(results, f"layers {d}") for d in ("cpu", "cuda"))
    assert "Command: `make bench-layers`. Commit abc. a CPU, 2 cores" in cpu
    assert "Goals met: 1 of 1." in cpu
    assert "a GPU" in cuda
    assert "Goals" not in cuda
    assert markers.read(guide, "layers cost").count("1.60×") == 2  # of medians, the worse


def test_the_pages_have_a_place_for_the_tables() -> None:
    results = ROOT / "benchmarks/RESULTS.md"
    for device in ("cpu", "cuda"):
        assert markers.read(results, f"layers {device}")
        assert markers.read(results, f"decoder training {device}")
    assert markers.read(ROOT / "docs/layers.md", "layers cost")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (layers.Options(rounds=0), "--rounds must be at least 1, got 0"),
        (layers.Options(only="nothing"), "no case matches 'nothing'"),
        (layers.Options(device="cuda"), "--device cuda needs a GPU"),
    ],
)
def test_bad_options_are_told(
    options: layers.Options, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if options.device == "cuda" and torch.cuda.is_available():
        pytest.skip("has a GPU")
    threads = torch.get_num_threads()
    try:
        assert layers.run(options) == 2
    finally:
        torch.set_num_threads(threads)
    assert message in capsys.readouterr().out


# --- the decoder ----------------------------------------------------------------------------------

SMALL = decoder_training.Options(
    width=96, heads=2, layers=1, tokens=8, batch=2, steps=6, every=4, seeds=(0,), lr=(1e-3,)
)


@pytest.mark.slow
def test_both_decoders_train_on_the_same_bytes(tmp_path: Path) -> None:
    data = decoder_training.text()
    with decoder_training.progress_bar(Console(quiet=True)) as progress:
        trainings = [
            decoder_training.train(s, 0, 1e-3, SMALL, data, progress)
            for s in decoder_training.COMPARED
        ]
    ours, older, flat = trainings
    assert len(ours.losses) == 2  # steps 1 to 4, and 5 and 6
    assert all(math.isfinite(x) for t in trainings for x in t.losses)
    for training, start in ((ours, 1 / 96), (older, 1.0)):
        assert training.curvature is not None
        assert 0 < abs(training.curvature / start - 1) < 0.1  # it learned
    assert flat.curvature is None

    results = page(tmp_path / "RESULTS.md", "decoder training cpu", "decoder training cuda")
    about = decoder_training.describe(SMALL, data)
    decoder_training.write(trainings, about, tmp_path)
    assert decoder_training.read(tmp_path / "decoder_training.json")[1] == trainings
    assert decoder_training.render(tmp_path, results) == ["cpu"]
    assert "finite at every step" in markers.read(results, "decoder training cpu")


@pytest.mark.slow
def test_two_trainings_with_one_seed_are_equal() -> None:
    data = decoder_training.text()
    with decoder_training.progress_bar(Console(quiet=True)) as progress:
        first, second = (
            decoder_training.train("hyperbolic", 3, 1e-3, SMALL, data, progress) for _ in range(2)
        )
    assert first.losses == second.losses


@pytest.mark.parametrize("width", [128, 512])
def test_systems_have_as_many_parameters(width: int) -> None:
    sizes = decoder_training.Sizes(width, width // 32, 6, 64, 8)
    with torch.device("meta"):
        flat = decoder_training.build("euclidean", sizes)
        ours = decoder_training.build("hyperbolic", sizes)
    counts = {"hyperbolic": decoder_training.count(ours), "euclidean": decoder_training.count(flat)}
    decoder_training.check_matched(counts)
    with pytest.raises(ValueError, match="more than 1 percent"):
        decoder_training.check_matched({**counts, "euclidean": counts["hyperbolic"] * 98 // 100})


@pytest.mark.parametrize("system", decoder_training.SWITCHES)
def test_each_system_of_the_ablation_starts(system: decoder_training.System) -> None:
    model = decoder_training.build(system, SMALL.sizes())
    scores = model(torch.randint(256, (2, 8)))
    assert scores.shape == (2, 8, 256)
    scores.logsumexp(-1).sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_the_text_is_bytes() -> None:
    data = decoder_training.text()
    assert len(data) > 100_000
    assert 0 <= int(data.min()) <= int(data.max()) < 256


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("what", decoder_training.WATCHED)
def test_the_watch_sees_a_value_that_is_not_finite(what: str, value: float) -> None:
    parameters = [nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(2, 2))]
    for p in parameters:
        p.grad = torch.ones_like(p)
    watch = decoder_training.Watch("cpu")
    watch.look(0, torch.ones(()), parameters)
    assert watch.read() == {}
    loss = torch.tensor(value if what == "loss" else 1.0)
    with torch.no_grad():
        if what == "gradient":
            parameters[1].grad[0, 1] = value
        elif what == "parameter":
            parameters[1][1, 0] = value
    watch.look(1, loss, parameters)
    watch.look(2, torch.ones(()), parameters)
    assert watch.read() == {what: 1}


def test_a_training_that_breaks_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(system: decoder_training.System, n: decoder_training.Sizes) -> nn.Module:
        model = decoder_training.HyperbolicDecoder(n)
        nn.init.constant_(model.head.weight, math.nan)
        return model

    monkeypatch.setattr(decoder_training, "build", broken)
    with (
        decoder_training.progress_bar(Console(quiet=True)) as progress,
        pytest.raises(decoder_training.NonFiniteError, match="loss since step 0"),
    ):
        decoder_training.train("hyperbolic", 0, 1e-3, SMALL, decoder_training.text(), progress)


def test_what_the_layers_exempt_is_not_decayed() -> None:
    model = decoder_training.build("hyperbolic", SMALL.sizes())
    decayed, spared = decoder_training.groups(model, 0.1)
    names = {id(p): n for n, p in model.named_parameters()}
    assert len(decayed["params"]) + len(spared["params"]) == len(names)
    assert spared["weight_decay"] == 0
    ends = {names[id(p)].rpartition(".")[2] for p in spared["params"]}
    assert {"raw", "log_weight", "log_scale", "offset"} <= ends
    assert "embedding.weight" in {names[id(p)] for p in spared["params"]}


def test_the_learning_rate_rises_and_falls() -> None:
    rates = [decoder_training.rate(s, 1000) for s in range(1000)]
    assert rates[0] < rates[25] < rates[49] == 1.0
    assert rates[50:] == sorted(rates[50:], reverse=True)
    assert rates[-1] == pytest.approx(0.1, abs=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (decoder_training.Options(steps=0), "--steps must be at least 1, got 0"),
        (decoder_training.Options(seeds=()), "--seeds needs at least one"),
        (decoder_training.Options(lr=(0.0,)), "--lr must be finite and above 0, got 0.0"),
        (decoder_training.Options(lr=(1e-3, 1e-3)), "--lr has a value twice"),
        (decoder_training.Options(resume=True), "--resume needs --out"),
        (decoder_training.Options(width=32), "use a larger --width"),
    ],
)
def test_bad_training_options_are_told(
    options: decoder_training.Options, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert decoder_training.run(options) == 2
    assert message in capsys.readouterr().out.replace("\n", " ")


@pytest.mark.parametrize("module", [layers, decoder_training], ids=lambda m: m.__name__)
def test_stored_results_are_what_the_code_reads(module: ModuleType) -> None:
    """So that --render works on what a GPU sent back."""
    for name in module.FILES.values():
        path = module.FOLDER / name
        if path.exists():
            about, measurements = module.read(path)
            assert measurements
            assert about["commit"] != "unknown"


def test_comparison_is_paired_by_seed() -> None:
    """The interval of the difference is that of the differences, not of the two means."""

    def training(
        system: str, seed: int, held_out: float, lr: float = 1e-3, validation: float = 1.0
    ) -> decoder_training.Training:
        return decoder_training.Training(
            system, seed, lr, 1, (1.0,), validation, held_out, 0.1, None
        )

    trainings = [
        training(system, seed, 2.0 + seed + gain)
        for seed in range(3)
        for system, gain in (("hyperbolic", -0.5), ("euclidean", 0.0))
    ]
    # A rate that is better on the test bytes, but not on those that choose.
    trainings += [training("hyperbolic", seed, 0.1, lr=3e-3, validation=1.1) for seed in range(3)]
    header, rows = decoder_training.comparison(trainings)
    assert header[0] == "system"
    assert rows[0] == ["hyperbolic", "0.001", "2.500 ± 2.484", "−0.500 ± 0.000"]
    assert rows[1] == ["euclidean", "0.001", "3.000 ± 2.484", ""]


@pytest.mark.slow
def test_an_interrupted_comparison_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Finished trainings are kept, not done again; those of other options are refused."""
    one = replace(SMALL, out=tmp_path, systems=("euclidean",))
    assert decoder_training.run(one) == 0
    (first,) = decoder_training.read(tmp_path / "decoder_training.json")[1]
    both = replace(one, systems=("hyperbolic", "euclidean"), resume=True)
    assert decoder_training.run(both) == 0
    trainings = decoder_training.read(tmp_path / "decoder_training.json")[1]
    assert {t.system for t in trainings} == {"hyperbolic", "euclidean"}
    assert first in trainings  # with its times, so it was not trained again
    assert decoder_training.run(replace(both, steps=7)) == 2
    assert "steps was 6 and is 7" in capsys.readouterr().out.replace("\n", " ")


def test_the_test_bytes_are_not_learned_from() -> None:
    data = torch.arange(1000)
    train, validation, test = decoder_training.split(data)
    assert (len(validation), len(test)) == (50, 50)
    assert torch.equal(torch.cat([train, validation, test]), data)
