"""examples/pretrain_helm.py: one process, and two that shard, are killed and go on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from examples.pretrain_helm import main

ROOT = Path(__file__).resolve().parents[2]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
LAUNCHED = ROOT / "tests/optim/launched.py"
STEPS, HALF = 6, 3
SECONDS = 240


@pytest.fixture(autouse=True)
def _environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Trainer and accelerate leave variables behind; texts are tokenized into a cache."""
    cache = str(tmp_path_factory.getbasetemp() / "corpus-cache")
    with mock.patch.dict(os.environ, BELTRAMI_CACHE=cache):
        yield


@pytest.fixture(name="text", scope="module")
def fixture_text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    lines = (" ".join(str(i * j) for j in range(20)) for i in range(120))
    path.write_text("\n<|endoftext|>\n".join(lines))
    return path


def command(text: Path, out: Path, *more: str, **changes: Any) -> list[str]:
    options = {
        "text": text, "out": out, "vocab-size": 270, "hidden-size": 32, "intermediate-size": 48,
        "num-hidden-layers": 2, "num-attention-heads": 2, "length": 32, "batch": 4,
        "steps": STEPS, "save-every": HALF, "log-every": 1, "held-out": 0.1, "point-lr": 0.01,
        "curvature-lr": 0.05, **changes,
    }  # fmt: skip
    return [*(f"--{name}={value}" for name, value in options.items()), "--cpu", *more]


def losses(out: Path) -> list[float]:
    state = json.loads((out / f"checkpoint-{STEPS}/trainer_state.json").read_text())
    return [row["loss"] for row in state["log_history"] if "loss" in row]


def test_a_model_is_pretrained_resumed_and_loaded(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(text, tmp_path / "whole")) == 0
    said = capsys.readouterr().err
    assert "from the start to step 6" in said
    assert "bits a byte" in said
    found = losses(tmp_path / "whole")
    assert found[-1] < found[0]
    folder = tmp_path / "whole" / "model"
    model, tokenizer = (a.from_pretrained(folder) for a in (AutoModelForCausalLM, AutoTokenizer))
    assert model.config.use_cache
    ids = tokenizer("0 7 14", return_tensors="pt")
    assert model.generate(**ids, max_new_tokens=2).shape[1] == ids["input_ids"].shape[1] + 2

    assert main(command(text, tmp_path / "whole")) == 2
    assert "--resume goes on" in capsys.readouterr().err
    half = tmp_path / "half"
    half.mkdir()
    for name in (f"checkpoint-{HALF}", "options.json", "tokenizer"):
        (tmp_path / "whole" / name).rename(half / name)
    assert main(command(text, half, "--resume", batch=8)) == 2
    assert "--batch is 4, not 8" in capsys.readouterr().err
    assert main(command(text, half, "--resume")) == 0
    assert f"checkpoint-{HALF} to step {STEPS}" in capsys.readouterr().err
    assert losses(half) == found
    again = load_file(half / "model/model.safetensors")
    for name, value in load_file(folder / "model.safetensors").items():
        torch.testing.assert_close(again[name], value, msg=name)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"batch": 3, "accumulate": 2}, "--batch 3 must be a multiple"),
        ({"length": 0}, "--length must be at least 1"),
        ({"batch": 4000}, "--batch asks for 4000"),
        ({"num-attention-heads": 5}, "num_attention_heads=5 must divide hidden_size"),
        ({"tokenizer": "nowhere"}, "nowhere"),
    ],
    ids=str,
)
def test_bad_options_are_said(
    changes: dict[str, Any],
    says: str,
    text: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(command(text, tmp_path, **changes)) == 2
    assert says in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(not dist.is_available(), reason="torch without torch.distributed")
def test_two_processes_that_shard_die_and_go_on_to_the_same_loss(
    text: Path, tmp_path: Path
) -> None:
    assert main(command(text, tmp_path / "one")) == 0
    mark = tmp_path / "died"
    script = [str(LAUNCHED), str(ROOT / "examples/pretrain_helm.py")]
    done = subprocess.run(
        [
            *TORCHRUN, "2", "--max-restarts", "1", *script,
            *command(text, tmp_path / "two", "--resume", "--fsdp"),
        ],
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "SHARD_ON_CPU": "1",
            "DIE_ONCE": f"{HALF + 1}:{mark}",
            # Else torch's restarted processes are told the addresses of the dead ones (#135712).
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        },
        cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    assert mark.exists()
    assert f"checkpoint-{HALF} to step {STEPS}" in done.stderr
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), rel=1e-4)
    two = load_file(tmp_path / "two/model/model.safetensors")
    for name, value in load_file(tmp_path / "one/model/model.safetensors").items():
        torch.testing.assert_close(two[name], value, rtol=1e-2, atol=1e-4, msg=name)
