"""One process, and the real command under torchrun: two processes on the CPU."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import nn

from beltrami.recipes.hierarchy.config import HierarchyConfig
from beltrami.recipes.registry import create
from beltrami.recipes.runner import run
from beltrami.train.processes import Processes, process_group
from tests.recipes.tiny import Interrupter, TinyConfig, TinyRecipe, Witness

TREE = "b\ta\nc\ta\nd\tb\ne\tb\nf\tc\ng\tc\nh\td\n"


def test_alone_there_is_nothing_to_share() -> None:
    with process_group("cpu") as alone:
        assert alone == Processes(torch.device("cpu"))
        batch = torch.arange(5)
        assert torch.equal(alone.shard(batch), batch)
        assert alone.all_reduce(batch) is batch
        assert alone.broadcast(7) == 7
        assert alone.any_process(True) is True
        metrics = {"a": 0.1, "b": 1 / 3}
        assert alone.mean(metrics) == metrics
        parameter = nn.Parameter(torch.ones(2))
        alone.all_reduce_gradients([parameter])
        assert parameter.grad is None


def test_shares_are_a_partition() -> None:
    batch = torch.arange(7)
    shares = [Processes(torch.device("cpu"), rank, 3).shard(batch) for rank in range(3)]
    assert torch.equal(torch.cat(shares).sort().values, batch)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_bad_input() -> None:
    with (
        pytest.raises(ValueError, match=r"--device cuda needs a GPU.*give --device cpu"),
        process_group("cuda"),
    ):
        pass


def test_more_processes_than_gpus_are_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    with (
        pytest.raises(ValueError, match="for GPU 1, and this machine has 1"),
        process_group("auto"),
    ):
        pass


def torchrun(*arguments: str, **environment: str) -> tuple[int, str, str]:
    """Two processes; ended, with all that they started, after two minutes."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    process = subprocess.Popen(
        [*launcher, "--nproc-per-node", "2", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        start_new_session=True,
    )
    try:
        printed, errors = process.communicate(timeout=120)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    return process.returncode, printed, errors


@pytest.mark.slow
def test_two_processes_find_what_one_finds(tmp_path: Path) -> None:
    """And go on, while they are at it, with a run that one process began."""
    (tmp_path / "tree.tsv").write_text(TREE)
    options = {
        "data": str(tmp_path / "tree.tsv"),
        "models": ("lorentz",),
        "dims": (2,),
        "epochs": 8,
        "batch": 3,
        "pool": 4,
        "learning_rates": (0.1,),
        "checkpoint_seconds": 0.0,
        "seeds": 2,
        "device": "cpu",
    }
    whole = run(create(HierarchyConfig(**options, out=tmp_path / "whole"))).document
    config = HierarchyConfig(**options, out=tmp_path / "two")
    with pytest.raises(KeyboardInterrupt):
        run(create(config), Interrupter(30))
    command = ["-m", "beltrami", "run", "hierarchy", "--data", options["data"], "--seeds", "2"]
    command += ["--models", "lorentz", "--dims", "2", "--epochs", "8", "--batch", "3"]
    command += ["--pool", "4", "--learning-rates", "0.1", "--checkpoint-seconds", "0"]
    command += ["--device", "cpu", "--out", str(config.out), "--resume", "--json"]
    code, printed, errors = torchrun(*command)
    assert code == 0, errors
    found = json.loads(printed)  # one document: only the first process prints
    assert errors.count("found finished") == 1
    assert errors.count("going on at step 5") == 1
    assert found["environment"]["processes"] == 2
    for one, two in zip(whole["trials"], found["trials"], strict=True):
        assert {k: one[k] for k in ("model", "seed", "choice")} == {
            k: two[k] for k in ("model", "seed", "choice")
        }
        assert two["metrics"] == pytest.approx(one["metrics"], rel=1e-9)
    files = Counter(p.name for p in config.folder.glob("trials/*/*"))
    best = ("embedding.json", "embeddings.csv", "embeddings.npz")  # of each model
    assert files == {"model.safetensors": 4, "result.json": 4, **dict.fromkeys(best, 2)}


THREADS_AFTER = """
from pathlib import Path
from beltrami.train.processes import process_group

with process_group("cpu") as processes:
    import torch._dynamo  # as optimisers do

    processes.broadcast(1)
names = [(task / "comm").read_text() for task in Path("/proc/self/task").iterdir()]
if processes.is_main_process:
    print(sum("gloo" in name for name in names))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts threads as Linux tells")
def test_no_thread_of_a_group_outlives_it(tmp_path: Path) -> None:
    """One that is at work when its process ends aborts it, now and then."""
    (tmp_path / "script.py").write_text(THREADS_AFTER)
    code, printed, errors = torchrun(str(tmp_path / "script.py"))
    assert code == 0, errors
    assert printed == "0\n"


@pytest.mark.slow
def test_a_process_that_dies_takes_the_others_along(tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ["run", "tiny", "--seeds", "1", "--rates", "0.1", "--device", "cpu"]
    command = ["-m", "tests.recipes.launched", *options, "--out", str(out)]
    code, printed, errors = torchrun(*command, DIE_AT="3")
    assert code != 0
    assert printed == ""
    assert "defect of beltrami" not in errors
    assert "Continue with: beltrami run tiny" in errors
    assert list(out.glob("trials/*/checkpoint.safetensors"))
    assert not (out / "metrics.json").exists()

    # Refused by the first process, the second does not wait for it.
    code, printed, errors = torchrun(*command)
    assert code != 0
    assert "holds a run already" in errors
    assert "defect of beltrami" not in errors

    witness = Witness()
    run(TinyRecipe(TinyConfig(seeds=1, rates=(0.1,), device="cpu", out=out, resume=True)), witness)
    assert witness.began[0][1] == 2
