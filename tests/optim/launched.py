"""Runs a script as a launcher would, after changes that tests ask for in the environment.

SHARD_ON_CPU=1      let accelerate shard on a CPU (see `shard_on_cpu`).
DIE_ONCE=STEP:FILE  the process of highest rank dies at that step, unless FILE exists; it makes it.
INTERRUPT_AT=STEP   every process sends itself SIGINT before that step, as Ctrl-C does.
BREAK_AT=STEP       every process has a loss of NaN at that step.

    torchrun --nproc-per-node 2 tests/optim/launched.py SCRIPT [ARGUMENTS]
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
from pathlib import Path
from typing import Any


def shard_on_cpu() -> None:
    """Let accelerate use FSDP2 on a CPU.

    It turns a group of processes into FSDP only if they hold accelerators: a list of device types
    in `AcceleratorState.__init__`, which leaves CPUs out, and then trains with DDP without a word.
    All that follows, `fully_shard`, the exchange of the optimiser's parameters, checkpoints, works
    on a CPU with gloo. So for that one moment the group is called one of XPUs; the device is known
    by then, and stays the CPU.
    """
    from accelerate import PartialState
    from accelerate.utils import DistributedType
    from transformers import Trainer

    create = Trainer.create_accelerator_and_postprocess

    def create_for_cpu(self: Any) -> None:
        state = PartialState._shared_state
        assert state["distributed_type"] == DistributedType.MULTI_CPU
        state["distributed_type"] = DistributedType.MULTI_XPU
        create(self)
        assert self.is_fsdp_enabled
        assert self.accelerator.is_fsdp2
        assert self.accelerator.device.type == "cpu"

    Trainer.create_accelerator_and_postprocess = create_for_cpu


def die_once(step: int, mark: Path) -> None:
    """Let the last process end without a farewell before it takes a step, the first time."""
    from transformers import Trainer

    train = Trainer.training_step

    def train_or_die(self: Any, *args: Any, **kwargs: Any) -> Any:
        last = self.args.process_index == self.args.world_size - 1
        if last and self.state.global_step == step and not mark.exists():
            mark.touch()
            os._exit(1)
        return train(self, *args, **kwargs)

    Trainer.training_step = train_or_die


def interrupt_at(step: int) -> None:
    """Press Ctrl-C, so to say, before a step."""
    from transformers import Trainer

    train = Trainer.training_step
    signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background ignore it

    def train_or_stop(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.state.global_step == step:
            os.kill(os.getpid(), signal.SIGINT)
        return train(self, *args, **kwargs)

    Trainer.training_step = train_or_stop


def break_at(step: int) -> None:
    """Let the loss of a step be NaN, also when the batch is run again to find out why."""
    from transformers import Trainer

    compute = Trainer.compute_loss

    def compute_or_break(self: Any, *args: Any, **kwargs: Any) -> Any:
        loss = compute(self, *args, **kwargs)
        return loss * float("nan") if self.state.global_step == step else loss

    Trainer.compute_loss = compute_or_break


if __name__ == "__main__":
    if os.environ.get("SHARD_ON_CPU"):
        shard_on_cpu()
    if wish := os.environ.get("DIE_ONCE"):
        when, _, where = wish.partition(":")
        die_once(int(when), Path(where))
    if wish := os.environ.get("INTERRUPT_AT"):
        interrupt_at(int(wish))
    if wish := os.environ.get("BREAK_AT"):
        break_at(int(wish))
    sys.argv = sys.argv[1:]
    sys.path[0] = str(Path(sys.argv[0]).parent)  # as if the script had been started itself
    runpy.run_path(sys.argv[0], run_name="__main__")
