"""transformers.Trainer with many processes gives the model of one: docs/past-one-machine.md."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch import Tensor

pytest.importorskip("transformers", reason='needs transformers: pip install "beltrami[llm]"')
pytest.importorskip("accelerate", reason='needs accelerate: pip install "beltrami[llm]"')

from examples.train_decoder import Options, build, run
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
        ({"fsdp": True}, "distributed"),
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
    assert run(replace(options, out=tmp_path, **wrong)) == 2  # type: ignore[arg-type]
    assert message in capsys.readouterr().err


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
    done = tmp_path / "checkpoint-3"
    done.mkdir()
    (done / "trainer_state.json").touch()
    assert run(replace(options, out=tmp_path)) == 2
    assert "--resume goes on" in capsys.readouterr().err


def test_the_page_names_tests_that_exist() -> None:
    page = (ROOT / "docs/past-one-machine.md").read_text(encoding="utf-8")
    named = set(re.findall(r"::(test_\w+)", page))
    files = ("test_past_one_machine.py", "test_sharded.py")
    sources = [(ROOT / "tests/optim" / name).read_text(encoding="utf-8") for name in files]
    defined = set(re.findall(r"^def (test_\w+)", "\n".join(sources), re.MULTILINE))
    assert named
    assert named <= defined
