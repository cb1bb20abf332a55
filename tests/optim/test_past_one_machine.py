"""transformers.Trainer with many processes gives the model of one: docs/past-one-machine.md."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch import Tensor

pytest.importorskip("transformers", reason='needs transformers: pip install "beltrami[llm]"')
pytest.importorskip("accelerate", reason='needs accelerate: pip install "beltrami[llm]"')

from beltrami.train.trainer import RiemannianTrainer
from examples.train_decoder import (
    OPTIONS,
    STOPPED,
    Options,
    build,
    identity,
    last_checkpoint,
    main,
    read,
    run,
)
from tests.optim.launched import shard_on_cpu
from tests.optim.processes import assert_same, picture, together

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples/train_decoder.py"
LAUNCHED = ROOT / "tests/optim/launched.py"
DDP = ROOT / "examples/accelerate/ddp.yaml"
FSDP2 = ROOT / "examples/accelerate/fsdp2.yaml"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
ACCELERATE = [sys.executable, "-m", "accelerate.commands.launch", "--config_file"]
SECONDS = 240
STEPS, HALF = 6, 3

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not dist.is_available(), reason="torch without torch.distributed"),
]


@pytest.fixture(autouse=True)
def _environment() -> Iterator[None]:
    """Trainer and accelerate leave variables behind, by which the next one would be led."""
    with mock.patch.dict(os.environ):
        yield


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> Options:
    """A training of some seconds in float64; a batch that 1, 2 and 3 processes can share."""
    folder = tmp_path_factory.mktemp("text")
    text = folder / "text"
    text.write_text(" ".join(str(i * i) for i in range(300)))
    return Options(
        text=text, out=folder / "single", width=10, heads=1, layers=2, tokens=12, batch=6,
        steps=STEPS, save_every=HALF, log_every=1, lr=0.01, curvature_lr=0.1, clip=0.5,
        precision="float64", cpu=True,
    )  # fmt: skip


@pytest.fixture(scope="module")
def single(options: Options) -> dict[str, Tensor]:
    """Parameters and state of the optimiser after training in this process."""
    return trained(options)


def trained(options: Options, checkpoint: Path | None = None) -> dict[str, Tensor]:
    trainer = build(options)
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    return picture(trainer.accelerator.unwrap_model(trainer.model), bare(trainer.optimizer))


def bare(optimiser: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Ours, out of accelerate's wrapper."""
    return getattr(optimiser, "optimizer", optimiser)


# --- what each process does -----------------------------------------------------------------------


def sharded(options: Options, checkpoint: Path | None = None) -> dict[str, Tensor]:
    shard_on_cpu()
    trainer = build(options)
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    names = [n for n, p in trainer.model.named_parameters() if not hasattr(p, "placements")]
    assert not names, f"not split: {names}"
    return picture(trainer.model, bare(trainer.optimizer))


def refused(options: Options) -> dict[str, str]:
    with pytest.raises(ValueError) as error:
        build(options)
    return {"message": str(error.value)}


# --- Trainer and accelerate -----------------------------------------------------------------------


def test_ddp_is_one_process_and_so_is_what_resumes_it(
    options: Options, single: dict[str, Tensor], tmp_path: Path
) -> None:
    """Two processes, and one that goes on from the checkpoint of the two."""
    two = replace(options, out=tmp_path / "two")
    for found in together(2, trained, tmp_path, two):
        assert_same(found, single)
    one = replace(options, out=tmp_path / "one")
    assert_same(trained(one, two.out / f"checkpoint-{HALF}"), single)


def test_fsdp2_is_one_process_and_so_is_what_resumes_it(
    options: Options, single: dict[str, Tensor], tmp_path: Path
) -> None:
    """Two processes write a checkpoint in parts, one and three go on from it."""
    two = replace(options, fsdp=True, out=tmp_path / "two")
    for found in together(2, sharded, tmp_path, two):
        assert_same(found, single)
    checkpoint = two.out / f"checkpoint-{HALF}"
    for part in ("pytorch_model_fsdp_0", "optimizer_0"):
        assert len(list((checkpoint / part).glob("*.distcp"))) == 2
    for processes in (1, 3):
        other = replace(two, out=tmp_path / str(processes))
        for found in together(processes, sharded, tmp_path, other, checkpoint):
            assert_same(found, single)


def test_training_moves_everything(options: Options, single: dict[str, Tensor]) -> None:
    """The comparisons above would hold for a model that does not train."""
    start = build(replace(options, out=options.out / "start")).model
    for name, p in start.named_parameters():
        assert not torch.equal(p, single[name]), f"{name} was not trained"


# --- the command line -----------------------------------------------------------------------------


def command(options: Options, out: Path, *more: str) -> list[str]:
    given = {
        "text": options.text, "out": out, "width": options.width, "heads": options.heads,
        "layers": options.layers, "tokens": options.tokens, "batch": options.batch,
        "steps": options.steps, "save-every": options.save_every, "lr": options.lr,
        "curvature-lr": options.curvature_lr, "clip": options.clip,
        "precision": options.precision,
    }  # fmt: skip
    return [*(f"--{name}={value}" for name, value in given.items()), "--cpu", *more]


def start(parts: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        parts,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def assert_model(
    out: Path, single: dict[str, Tensor], done: subprocess.CompletedProcess[str]
) -> None:
    assert done.returncode == 0, done.stderr[-4000:]
    model = load_file(out / "model.safetensors")
    assert_same(model, {name: value for name, value in single.items() if " " not in name})


@pytest.mark.parametrize(
    ("launcher", "says"),
    [
        ([sys.executable], "1 × cpu:"),
        ([*TORCHRUN, "2"], "2 × cpu DDP:"),
        ([*ACCELERATE, str(DDP)], "2 × cpu DDP:"),
    ],
    ids=["python", "torchrun", "accelerate"],
)
def test_launchers(
    launcher: list[str], says: str, options: Options, single: dict[str, Tensor], tmp_path: Path
) -> None:
    done = start([*launcher, str(EXAMPLE), *command(options, tmp_path)])
    assert_model(tmp_path, single, done)
    assert says in done.stderr


@pytest.mark.parametrize(
    ("launcher", "more"),
    [([*TORCHRUN, "2"], ["--fsdp"]), ([*ACCELERATE, str(FSDP2)], [])],
    ids=["torchrun", "accelerate"],
)
def test_launchers_with_fsdp2(
    launcher: list[str],
    more: list[str],
    options: Options,
    single: dict[str, Tensor],
    tmp_path: Path,
) -> None:
    arguments = [str(LAUNCHED), str(EXAMPLE), *command(options, tmp_path, *more)]
    done = start([*launcher, *arguments], SHARD_ON_CPU="1")
    assert_model(tmp_path, single, done)
    assert "2 × cpu FSDP2:" in done.stderr
    assert (tmp_path / f"checkpoint-{STEPS}/pytorch_model_fsdp_0/.metadata").is_file()


def test_two_nodes(options: Options, single: dict[str, Tensor], tmp_path: Path) -> None:
    """Two agents of torchrun, as on two machines; they meet through a file instead of a port."""
    meeting = ["--rdzv-backend", "c10d", "--rdzv-id", "test", "--rdzv-conf", "store_type=file"]
    meeting += ["--rdzv-endpoint", str(tmp_path / "meeting"), "--local-addr", "127.0.0.1"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2"]
    script = [str(EXAMPLE), *command(options, tmp_path)]
    parts = [*torchrun, "--nproc-per-node", "1", *meeting, *script]
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(start, [parts, parts]))
    for node in done:
        assert_model(tmp_path, single, node)
    assert "2 × cpu DDP:" in done[0].stderr + done[1].stderr


def test_a_process_dies_and_all_go_on(
    options: Options, single: dict[str, Tensor], tmp_path: Path
) -> None:
    """torchrun starts them again, and they find the last checkpoint."""
    mark = tmp_path / "died"
    launcher = [*TORCHRUN, "2", "--max-restarts", "1", str(LAUNCHED), str(EXAMPLE)]
    done = start(
        [*launcher, *command(options, tmp_path, "--resume", "--fsdp")],
        SHARD_ON_CPU="1",
        DIE_ONCE=f"{HALF + 1}:{mark}",
        # Else torch's restarted processes are told the addresses of the dead ones (#135712).
        TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1",
    )
    assert_model(tmp_path, single, done)
    assert mark.exists()
    assert "from the start" in done.stderr
    assert f"checkpoint-{HALF} to step {STEPS}" in done.stderr


def test_a_loss_that_is_not_finite_stops_restarts(options: Options, tmp_path: Path) -> None:
    """torchrun cannot be told not to start again, but what it starts does not train again."""
    done = start(
        [
            *TORCHRUN, "2", "--max-restarts", "1", str(LAUNCHED), str(EXAMPLE),
            *command(options, tmp_path, "--resume"),
        ],
        BREAK_AT=str(HALF + 1),
        TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1",
    )  # fmt: skip
    assert done.returncode != 0
    assert done.stderr.count("2 × cpu DDP:") == 1
    assert done.stderr.count(f"training stopped at step {HALF + 2}") == 1
    assert done.stderr.count("this run was stopped, and would stop at the same step again") == 1
    assert f"training stopped at step {HALF + 2}" in (tmp_path / STOPPED).read_text()


def test_an_interrupted_run_goes_on(
    options: Options, single: dict[str, Tensor], tmp_path: Path
) -> None:
    """By SIGINT, that is Ctrl-C."""
    script = [str(LAUNCHED), str(EXAMPLE), *command(options, tmp_path)]
    done = start([sys.executable, *script], INTERRUPT_AT=str(HALF + 1))
    assert done.returncode == 130
    assert f"interrupted: --resume goes on from {tmp_path}/checkpoint-{HALF}" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "model.safetensors").exists()
    assert run(replace(options, out=tmp_path, resume=True)) == 0
    model = load_file(tmp_path / "model.safetensors")
    assert_same(model, {name: value for name, value in single.items() if " " not in name})


def test_bad_options_are_told_once(options: Options, tmp_path: Path) -> None:
    done = start([*TORCHRUN, "2", str(EXAMPLE), *command(options, tmp_path / "new", "--seed=-1")])
    assert done.stderr.count("--seed must be in") == 1
    assert "exitcode  : 2" in done.stderr
    assert not re.search(r'train_decoder\.py", line', done.stderr), "a traceback of ours"
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("bad", ["--lr=-1", "--nonsense"])
def test_other_processes_wait_until_the_first_has_spoken(
    bad: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the launcher, which ends all when one has ended, could end the one that speaks."""
    waited = []
    monkeypatch.setattr(time, "sleep", lambda _: waited.append(capsys.readouterr().err))
    arguments = [bad, f"--out={tmp_path / 'new'}"]
    assert status(arguments) == 2
    assert not waited
    assert bad.partition("=")[0] in capsys.readouterr().err
    monkeypatch.setenv("RANK", "1")
    assert status(arguments) == 2
    assert waited == [""]


def status(arguments: list[str]) -> int | str | None:
    """The exit status of a command line, however it comes about."""
    try:
        return main(arguments)
    except SystemExit as stop:
        return stop.code


@pytest.mark.parametrize("by", ["option", "configuration"])
def test_accelerate_does_not_shard_on_a_cpu(
    by: str, options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If this fails, accelerate has learned it, and `shard_on_cpu` can go."""
    if by == "configuration":  # what `accelerate launch` says to the processes
        monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
        monkeypatch.setenv("FSDP_VERSION", "2")
        found = refused(replace(options, out=tmp_path / "out"))
    else:
        (found,) = together(1, refused, tmp_path, replace(options, out=tmp_path / "out", fsdp=True))
    assert "accelerate shards over GPUs only" in found["message"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"batch": 0}, "--batch must be at least 1"),
        ({"text": Path("nowhere")}, "there is no file nowhere"),
        ({"tokens": 10_000}, "the text is too short"),
        ({"batch": 18}, "13 to test on, and --batch asks for 18 of each"),
        ({"fsdp": True}, "start it with torchrun"),
        ({"lr": -1.0}, "--lr must be a finite number and not negative, got -1.0"),
        ({"lr": math.nan}, "--lr must be a finite number and not negative, got nan"),
        ({"point_lr": -1.0}, "--point-lr must be a finite number"),
        ({"curvature_lr": math.inf}, "--curvature-lr must be a finite number"),
        ({"weight_decay": -1.0}, "--weight-decay must be a finite number"),
        ({"clip": -1.0}, "--clip must be a finite number"),
        ({"clip": math.nan}, "--clip must be a finite number"),
        ({"kappa": 0.0}, "--kappa must be between 0.01 and 100, got 0.0"),
        ({"seed": -1}, "--seed must be in [0, 2³²), got -1"),
        ({"heads": 3}, "--width 10 must be a multiple of 6"),
        ({"keep": 0}, "--keep must be at least 1"),
    ],
    ids=str,
)
def test_what_the_example_refuses(
    wrong: dict[str, object],
    message: str,
    options: Options,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "runs/new"
    assert run(replace(options, out=out, **wrong)) == 2  # type: ignore[arg-type]
    assert message in capsys.readouterr().err
    assert not out.parent.exists(), "a folder was left behind"


def test_a_late_refusal_leaves_no_folder(
    options: Options,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Trainer has made it by then."""
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    monkeypatch.setenv("FSDP_VERSION", "2")
    assert run(replace(options, out=tmp_path / "runs/new")) == 2
    assert "accelerate shards over GPUs only" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("out", ["file", "file/below"])
def test_out_is_a_file(
    out: str, options: Options, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert run(replace(options, out=tmp_path / out)) == 2
    assert f"{tmp_path / 'file'} is not a folder" in capsys.readouterr().err


def test_an_empty_text(
    options: Options, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "empty"
    text.touch()
    assert run(replace(options, out=tmp_path / "out", text=text)) == 2
    assert f"--text {text} is empty" in capsys.readouterr().err


def test_a_text_may_have_any_name(tmp_path: Path) -> None:
    """The page that is left out by default can be asked for."""
    page = tmp_path / "numerics.md"
    page.write_bytes(b"digits")
    assert bytes(read(page).tolist()) == b"digits"
    assert b"# Numerics" not in bytes(read(None).tolist())


def test_a_batch_that_does_not_divide(
    options: Options,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert run(replace(options, out=tmp_path)) == 2
    assert "use a multiple of 4" in capsys.readouterr().err


def test_checkpoints_are_not_overwritten(
    options: Options, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begun(options, tmp_path)
    assert run(replace(options, out=tmp_path)) == 2
    assert "--resume goes on" in capsys.readouterr().err


# --- going on -------------------------------------------------------------------------------------


def begun(options: Options, out: Path, step: int = HALF) -> Path:
    """What a run leaves that was broken off, as far as it is looked at before training."""
    done = out / f"checkpoint-{step}"
    done.mkdir(parents=True)
    (done / "trainer_state.json").touch()
    kept = identity(options, read(options.text))
    (out / OPTIONS).write_text(json.dumps(kept), encoding="utf-8")
    return done


def test_other_folders_are_no_checkpoints(tmp_path: Path) -> None:
    for name in ("checkpoint-old", "checkpoint-3", "checkpoint-12", "checkpoint-20"):
        (tmp_path / name).mkdir()
        if name != "checkpoint-20":  # which was being written
            (tmp_path / name / "trainer_state.json").touch()
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-12"
    assert last_checkpoint(tmp_path / "nowhere") is None


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"width": 12}, "--width was 10 and is 12"),
        ({"lr": 0.02}, "--lr was 0.01 and is 0.02"),
        ({"point_lr": 0.02}, "--point-lr was None and is 0.02"),
        ({"weight_decay": 0.2, "seed": 3}, "--weight-decay was 0.1 and is 0.2, --seed was 0 and"),
        ({"text": EXAMPLE}, "--text had other bytes"),
        ({"steps": HALF}, f"--steps {HALF} is not beyond"),
        ({"steps": HALF - 1}, "nothing is left to train"),
    ],
    ids=str,
)
def test_what_cannot_change_when_a_run_goes_on(
    changed: dict[str, object],
    message: str,
    options: Options,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    begun(options, tmp_path)
    assert run(replace(options, out=tmp_path, resume=True, **changed)) == 2  # type: ignore[arg-type]
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("text", [None, "", "3", "[1]"])
def test_a_run_without_its_options(
    text: str | None, options: Options, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begun(options, tmp_path)
    path = tmp_path / OPTIONS
    path.unlink() if text is None else path.write_text(text)
    assert run(replace(options, out=tmp_path, resume=True)) == 2
    assert f"{path} should have the options of the run" in capsys.readouterr().err


def test_a_checkpoint_of_fsdp2_is_for_fsdp2(
    options: Options,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And one of DDP is not."""
    (begun(options, tmp_path / "sharded") / "pytorch_model_fsdp_0").mkdir()
    assert run(replace(options, out=tmp_path / "sharded", resume=True)) == 2
    assert "was written by FSDP2: add --fsdp" in capsys.readouterr().err
    begun(options, tmp_path / "whole")
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert run(replace(options, out=tmp_path / "whole", resume=True, fsdp=True)) == 2
    assert "was written without FSDP2: leave out --fsdp" in capsys.readouterr().err


def test_what_may_change_when_a_run_goes_on(options: Options, tmp_path: Path) -> None:
    """A moved text, more steps, another clipping; and the finished file is of the last step."""
    text = tmp_path / "moved"
    text.write_bytes(read_bytes(options))
    first = replace(options, out=tmp_path / "out")
    assert run(first) == 0
    before = load_file(first.out / "model.safetensors")
    assert run(replace(first, text=text, resume=True, steps=2 * STEPS, clip=0.0)) == 0
    after = load_file(first.out / "model.safetensors")
    assert any(not torch.equal(after[name], value) for name, value in before.items())


def read_bytes(options: Options) -> bytes:
    assert options.text is not None
    return options.text.read_bytes()


def test_a_stopped_run_goes_on_only_when_told(
    options: Options,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    short = replace(options, out=tmp_path, steps=HALF + 1)
    with monkeypatch.context() as patch:
        patch.setattr(RiemannianTrainer, "compute_loss", broken_after(HALF))
        assert run(short) == 1
    mark = tmp_path / STOPPED
    assert f"once {mark} is removed" in capsys.readouterr().err
    again = replace(short, resume=True)
    assert run(again) == 2
    assert f"{mark} says why" in capsys.readouterr().err
    mark.unlink()
    assert run(again) == 0
    assert (tmp_path / "model.safetensors").exists()


def broken_after(step: int) -> Callable[..., Tensor]:
    compute = RiemannianTrainer.compute_loss

    def compute_or_break(self: RiemannianTrainer, *args: Any, **kwargs: Any) -> Tensor:
        loss: Tensor = compute(self, *args, **kwargs)
        return loss * math.nan if self.state.global_step == step else loss

    return compute_or_break


def test_the_model_is_saved_before_it_is_tested(
    options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: RiemannianTrainer) -> None:
        raise RuntimeError("the test failed")

    monkeypatch.setattr(RiemannianTrainer, "evaluate", fail)
    with pytest.raises(RuntimeError, match="the test failed"):
        run(replace(options, out=tmp_path, steps=1))
    assert (tmp_path / "model.safetensors").exists()


def test_the_page_names_tests_that_exist() -> None:
    page = (ROOT / "docs/past-one-machine.md").read_text(encoding="utf-8")
    named = set(re.findall(r"::(test_\w+)", page))
    files = ("test_past_one_machine.py", "test_sharded.py")
    sources = [(ROOT / "tests/optim" / name).read_text(encoding="utf-8") for name in files]
    defined = set(re.findall(r"^def (test_\w+)", "\n".join(sources), re.MULTILINE))
    assert named
    assert named <= defined
