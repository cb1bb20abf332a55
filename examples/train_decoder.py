"""Train a small hyperbolic decoder on bytes: one process or many, sharded or not.

    python examples/train_decoder.py
    torchrun --standalone --nproc-per-node 2 examples/train_decoder.py
    accelerate launch --config_file examples/accelerate/ddp.yaml examples/train_decoder.py
    accelerate launch --config_file examples/accelerate/fsdp2.yaml examples/train_decoder.py

The loop is `transformers.Trainer`'s; this file has a model, its data and the options. `--batch`
counts the sequences of a step over all processes, so that the same command gives the same model
however many processes run it. docs/past-one-machine.md explains what happens underneath.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import torch
import torch.distributed as dist
import tyro
from rich.console import Console
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset

import beltrami.nn as bnn
from beltrami.geometry import Curvature, Lorentz, shares_curvatures

if TYPE_CHECKING:
    from beltrami.train.trainer import RiemannianTrainer

ROOT = Path(__file__).resolve().parents[1]
BYTES = 256
# The part of the text, at its end, that no training step sees.
_HELD_OUT = 0.1
_WARM_UP = 0.1
FAILURE, USAGE, INTERRUPTED = 1, 2, 130
# In --out, beside the checkpoints: the options of the run, and why it must not go on.
OPTIONS, STOPPED = "options.json", "stopped.txt"
# What a resumed run may change. The rest is part of its checkpoints or of the order of its data:
# torch, for one, takes learning rates and weight decay from the checkpoint without a word.
_FREE = {"out", "resume", "steps", "clip", "fsdp", "cpu", "save_every", "keep", "log_every"}
# Seconds the other processes give the first to speak: a launcher ends all when one has ended.
_PATIENCE = 10.0


@dataclass(frozen=True)
class Options:
    """Train a small hyperbolic decoder on bytes, with transformers.Trainer and accelerate.

    Start it with python (one process), torchrun or accelerate launch (many); see
    docs/past-one-machine.md.
    """

    text: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """What to learn from; by default the pages of this repository."""
    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = Path("runs/decoder")
    """Where checkpoints and the finished model.safetensors go."""
    resume: bool = False
    """Go on from the last checkpoint in --out, if any, with its options; processes may differ."""
    width: int = 64
    """Coordinates of a token."""
    heads: int = 4
    """Attention heads."""
    layers: int = 2
    """Blocks of the decoder."""
    kappa: float = 1.0
    """κ = c·width, of the curvature −c that all layers share, at the start; it is learned."""
    tokens: int = 64
    """Bytes of a sequence."""
    batch: int = 16
    """Sequences of a step over all processes, which must divide it."""
    steps: int = 200
    """Steps of the optimiser."""
    optimiser: Literal["adamw", "sgd"] = "adamw"
    """The Riemannian optimiser: AdamW, or SGD with momentum 0.9."""
    lr: float = 3e-3
    """Highest learning rate: reached after a tenth of the steps, then a cosine down to 0."""
    point_lr: float | None = None
    """That of points, here the rows of the embedding; --lr if not given."""
    curvature_lr: float | None = None
    """That of the curvature; --lr if not given."""
    weight_decay: float = 0.1
    """Of matrices; points, scales and the curvature have none."""
    clip: float = 1.0
    """Largest norm of the gradient; 0 for no clipping."""
    precision: Literal["float32", "bf16", "float64"] = "float32"
    """bf16: float32 parameters under bfloat16 autocast. float64: to compare runs digit by digit."""
    fsdp: bool = False
    """Split parameters and state over the processes (FSDP2); accelerate/fsdp2.yaml says it too."""
    cpu: bool = False
    """Train on the CPU even where there is a GPU."""
    save_every: int = 50
    """Steps between checkpoints."""
    keep: int = 2
    """Checkpoints to keep."""
    log_every: int = 10
    """Steps between lines of the log."""
    seed: int = 0
    """Of the start and of the order of the data."""


class Decoder(nn.Module):
    """Bytes to points, blocks between points, points to scores; one learned curvature."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.curvature = Curvature.natural(
            options.width, options.kappa
        )  # the root owns it: FSDP2 gathers it first
        space = Lorentz(self.curvature)
        self.embedding = bnn.Embedding(BYTES, options.width, manifold=space)
        self.blocks = nn.ModuleList(
            bnn.TransformerBlock(
                options.width,
                options.heads,
                manifold=space,
                causal=True,
            )
            for _ in range(options.layers)
        )
        self.rotary = bnn.Rotary(options.width // options.heads)
        self.norm = bnn.RMSNorm(options.width, manifold=space)
        self.head = bnn.MLR(options.width, BYTES, manifold=space)
        bnn.check_model(self)

    @shares_curvatures
    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        """(B, T) to scores (B, T, 256) and, with labels, their loss: what Trainer asks for."""
        x = self.embedding(input_ids)  # points, (B, T, width)
        rotation = self.rotary.cos_sin(torch.arange(x.shape[1], device=x.device))  # once for all
        for block in self.blocks:
            x = block(x, rotation=rotation)
        scores = self.head(self.norm(x))
        if labels is None:
            return {"logits": scores}
        return {"loss": F.cross_entropy(scores.flatten(0, 1), labels.flatten()), "logits": scores}


class Windows(Dataset[dict[str, Tensor]]):
    """Consecutive pieces of `tokens` bytes, and for each of their bytes the one that follows."""

    def __init__(self, data: Tensor, tokens: int) -> None:
        self.data, self.tokens = data, tokens

    def __len__(self) -> int:
        """Whole pieces only."""
        return max(0, (len(self.data) - 1) // self.tokens)

    def __getitem__(self, i: int) -> dict[str, Tensor]:
        """Piece i."""
        piece = self.data[i * self.tokens : (i + 1) * self.tokens + 1]
        return {"input_ids": piece[:-1], "labels": piece[1:]}


def read(path: Path | None) -> Tensor:
    """The bytes of a file, or of the pages of this repository, (n,) of dtype int64."""
    if path:
        pages = [path]
    else:
        pages = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
        pages = [page for page in pages if page.name != "numerics.md"]  # tables of digits
    missing = [str(page) for page in pages if not page.is_file()]
    if missing:
        raise ValueError(f"there is no file {missing[0]}: give one with --text FILE")
    try:
        data = b"\n".join(page.read_bytes() for page in pages)
    except OSError as error:
        raise ValueError(f"--text cannot be read: {error}") from error
    if not data:
        raise ValueError(f"--text {path} is empty")
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).long()


def split(data: Tensor, tokens: int) -> tuple[Windows, Windows]:
    """Pieces to learn from and pieces to be tested on."""
    kept = int(len(data) * (1 - _HELD_OUT))
    return Windows(data[:kept], tokens), Windows(data[kept:], tokens)


def last_checkpoint(folder: Path) -> Path | None:
    """The newest complete checkpoint: Trainer writes trainer_state.json after all the rest."""
    states = folder.glob("checkpoint-*/trainer_state.json")
    found = [p.parent for p in states if re.fullmatch(r"checkpoint-\d+", p.parent.name)]
    return max(found, key=step_of, default=None)


def step_of(checkpoint: Path) -> int:
    """How far a checkpoint has come."""
    return int(checkpoint.name.rpartition("-")[2])


def flag(name: str) -> str:
    """An option as one types it."""
    return f"--{name.replace('_', '-')}"


def sharded(options: Options) -> bool:
    """Whether FSDP2 is asked for, here or by `accelerate launch`."""
    return options.fsdp or os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true"


def check_numbers(options: Options) -> None:
    """Raise `ValueError` for a number that is out of its range."""
    sizes = ("width", "heads", "layers", "tokens", "batch", "steps")
    for name in (*sizes, "save_every", "keep", "log_every"):
        value = getattr(options, name)
        if value < 1:
            raise ValueError(f"{flag(name)} must be at least 1, got {value}")
    for name in ("lr", "point_lr", "curvature_lr", "weight_decay", "clip"):
        value = getattr(options, name)
        if value is not None and not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{flag(name)} must be a finite number and not negative, got {value}")
    if not 0.01 < options.kappa < 100:
        raise ValueError(f"--kappa must be between 0.01 and 100, got {options.kappa}")
    if not 0 <= options.seed < 2**32:
        raise ValueError(f"--seed must be in [0, 2³²), got {options.seed}")
    if options.width % (2 * options.heads):
        raise ValueError(
            f"--width {options.width} must be a multiple of {2 * options.heads}: --heads "
            f"{options.heads} share it, and each turns its coordinates in pairs"
        )


def check(options: Options, processes: int) -> None:
    """Raise `ValueError` for what the options get wrong."""
    check_numbers(options)
    if options.batch % processes:
        raise ValueError(
            f"--batch {options.batch} does not divide into {processes} processes: "
            f"use a multiple of {processes}"
        )
    if processes == 1 and not options.cpu and torch.cuda.device_count() > 1:
        raise ValueError(
            f"one process sees {torch.cuda.device_count()} GPUs, and Trainer would use "
            "DataParallel, which does not copy a shared curvature: use torchrun --nproc-per-node, "
            "accelerate launch, or CUDA_VISIBLE_DEVICES=0"
        )
    if options.fsdp and "WORLD_SIZE" not in os.environ:
        raise ValueError(
            "--fsdp needs a group of processes, one or more: start it with torchrun --standalone "
            "--nproc-per-node N examples/train_decoder.py --fsdp"
        )
    place = next(folder for folder in (options.out, *options.out.parents) if folder.exists())
    if not place.is_dir():
        raise ValueError(f"--out {options.out} cannot be made: {place} is not a folder")
    stopped = options.out / STOPPED
    if stopped.exists():
        raise ValueError(
            f"this run was stopped, and would stop at the same step again: {stopped} says why. "
            "Begin anew with other options and another --out; or remove that file to go on"
        )


def identity(options: Options, data: Tensor) -> dict[str, Any]:
    """What a run must keep when it is resumed: its options and its text, ready for JSON."""
    kept = {name: value for name, value in asdict(options).items() if name not in _FREE}
    return kept | {"text": hashlib.sha256(data.to(torch.uint8).numpy()).hexdigest()}


def check_resumed(options: Options, data: Tensor) -> None:
    """Raise `ValueError` if the checkpoints in --out are not such that this run can go on."""
    last = last_checkpoint(options.out)
    if last is None:
        return
    if not options.resume:
        raise ValueError(
            f"{options.out} has checkpoints: --resume goes on from the last one, another --out "
            "begins anew"
        )
    if step_of(last) >= options.steps:
        raise ValueError(
            f"--steps {options.steps} is not beyond {last}, so nothing is left to train: give a "
            "larger --steps to go on"
        )
    if any(last.glob("pytorch_model_fsdp*")) != sharded(options):
        wrong = "without FSDP2: leave out" if sharded(options) else "by FSDP2: add"
        raise ValueError(f"{last} was written {wrong} --fsdp, or begin anew with another --out")
    path = options.out / OPTIONS
    try:
        before = dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} should have the options of the run, and cannot be read ({error}): begin anew "
            "with another --out"
        ) from error
    now = identity(options, data)
    changed = [
        "--text had other bytes"
        if name == "text"
        else f"{flag(name)} was {before.get(name)} and is {value}"
        for name, value in now.items()
        if before.get(name) != value
    ]
    if changed:
        raise ValueError(
            f"--resume goes on with the options of {path}, but {', '.join(changed)}: give the old "
            "ones, or begin anew with another --out"
        )


def arguments(options: Options, processes: int) -> dict[str, Any]:
    """The options in the words of `transformers.TrainingArguments`."""
    out: dict[str, Any] = {
        "output_dir": str(options.out),
        "per_device_train_batch_size": options.batch // processes,
        "per_device_eval_batch_size": options.batch // processes,
        # A last, smaller batch would be filled up differently by every number of processes.
        "dataloader_drop_last": True,
        "max_steps": options.steps,
        "optim": "adamw_torch_fused" if options.optimiser == "adamw" else "sgd",
        "optim_args": None if options.optimiser == "adamw" else "momentum=0.9",
        "learning_rate": options.lr,
        "weight_decay": options.weight_decay,
        "lr_scheduler_type": "cosine",
        "warmup_steps": int(_WARM_UP * options.steps),
        "max_grad_norm": options.clip,
        "bf16": options.precision == "bf16",
        "save_steps": options.save_every,
        "save_total_limit": options.keep,
        "logging_steps": options.log_every,
        "seed": options.seed,
        "report_to": [],
        # Gloo, and no GPU: without this, processes on a machine with no GPU would train alone.
        "use_cpu": options.cpu or not torch.accelerator.is_available(),
        "ddp_find_unused_parameters": False,
        "prediction_loss_only": True,
    }
    if options.fsdp:
        out["fsdp"] = True
        out["fsdp_config"] = {
            "version": 2,
            "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "transformer_layer_cls_to_wrap": ["TransformerBlock"],
            "state_dict_type": "SHARDED_STATE_DICT",
        }
    return out


def build(options: Options) -> RiemannianTrainer:
    """The model, its data and the loop."""
    from transformers import TrainingArguments

    from beltrami.train.trainer import RiemannianTrainer

    processes = int(os.environ.get("WORLD_SIZE", "1"))  # set by torchrun and by accelerate launch
    check(options, processes)
    data = read(options.text)
    check_resumed(options, data)
    learn, test = split(data, options.tokens)
    if min(len(learn), len(test)) < options.batch:
        raise ValueError(
            f"the text is too short: it has {len(learn)} pieces of --tokens {options.tokens} to "
            f"learn from and {len(test)} to test on, and --batch asks for {options.batch} of each"
        )
    torch.manual_seed(options.seed)  # the same start in every process
    model = Decoder(options)
    if options.precision == "float64":
        model.double()
    args = TrainingArguments(**arguments(options, processes))
    if args.world_size != processes:
        raise ValueError(
            f"{processes} processes were started, and accelerate sees {args.world_size}: is a "
            "backend for this device missing? --cpu uses gloo"
        )
    trainer = RiemannianTrainer(
        model,
        args,
        train_dataset=learn,
        eval_dataset=test,
        point_lr=options.point_lr,
        curvature_lr=options.curvature_lr,
    )
    if sharded(options) and not trainer.is_fsdp_enabled:
        raise ValueError(
            "FSDP2 was asked for, but accelerate shards over GPUs only, and on a CPU would train "
            "unsharded without a word: leave out --fsdp, and use examples/accelerate/ddp.yaml"
        )
    return trainer


def save(trainer: RiemannianTrainer, path: Path) -> None:
    """Write the whole model to one file, also where every process holds a part of it."""
    from safetensors.torch import save_file
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    whole = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = get_model_state_dict(trainer.model, options=whole)  # every process takes part
    if trainer.is_world_process_zero():
        save_file({name: value.contiguous() for name, value in state.items()}, path)


def run(options: Options) -> int:
    """Train, save, test; returns the exit status."""
    missing = [folder for folder in (options.out, *options.out.parents) if not folder.exists()]
    try:
        trainer = build(options)
    except ValueError as error:
        for folder in missing:  # what Trainer may have made by then
            with contextlib.suppress(OSError):
                folder.rmdir()
        let_the_first_speak()
        say(str(error))
        return USAGE
    except KeyboardInterrupt:
        return interrupted(options)
    try:
        return train(trainer, options)
    except KeyboardInterrupt:
        return interrupted(options)


def train(trainer: RiemannianTrainer, options: Options) -> int:
    """From the start, or from the last checkpoint, to the finished file."""
    from beltrami.train.finite import NonFiniteLossError

    main = trainer.is_world_process_zero()
    begin = last_checkpoint(options.out) if options.resume else None
    if main:
        if begin is None:
            kept = identity(options, read(options.text))
            (options.out / OPTIONS).write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        kind = "FSDP2" if trainer.is_fsdp_enabled else "DDP" if trainer.args.world_size > 1 else ""
        where = f"{trainer.args.world_size} × {trainer.args.device.type} {kind}".strip()
        say(f"{where}: {begin or 'from the start'} to step {options.steps}")
    try:
        trainer.train(resume_from_checkpoint=str(begin) if begin else None)
    except NonFiniteLossError as error:
        # The file is for restarts by a launcher, which would train up to here again and again.
        if main:
            (options.out / STOPPED).write_text(f"{error}\n", encoding="utf-8")
            say(f"{error}\n--resume goes on only once {options.out / STOPPED} is removed.")
        let_the_first_speak()
        return FAILURE
    path = options.out / "model.safetensors"
    save(trainer, path)
    loss = trainer.evaluate()["eval_loss"]
    if main:
        say(f"loss on unseen bytes {loss:.4f}; wrote {path}")
    return 0


def leave(code: int) -> NoReturn:
    """End this process, and the group where all has gone well.

    Without a look back: DDP keeps threads of the group, and one that outlives the interpreter now
    and then aborts the process, after all is written.
    """
    if dist.is_initialized() and code == 0:
        dist.barrier()  # nobody leaves while another still talks to it
        dist.destroy_process_group()
    sys.stdout.flush()
    sys.stderr.flush()
    if "WORLD_SIZE" in os.environ:
        os._exit(code)
    sys.exit(code)


def interrupted(options: Options) -> int:
    """Say after Ctrl-C what is left; returns the exit status."""
    last = last_checkpoint(options.out)
    if is_first():
        say(
            f"interrupted: --resume goes on from {last}"
            if last
            else "interrupted before a checkpoint"
        )
    return INTERRUPTED


def is_first() -> bool:
    """Whether this is the process that speaks; known before the processes know each other."""
    return os.environ.get("RANK", "0") == "0"


def let_the_first_speak() -> None:
    """Wait in the other processes: the launcher ends them when the first has spoken and ended."""
    if not is_first():
        time.sleep(_PATIENCE)


def say(text: str) -> None:
    """A line for a person, beside the progress bar."""
    Console(stderr=True).print(text, markup=False, highlight=False, soft_wrap=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and run; returns the exit status."""
    try:
        options = tyro.cli(Options, args=arguments, console_outputs=is_first())
    except SystemExit as stop:
        if stop.code:
            let_the_first_speak()
        raise
    return run(options)


if __name__ == "__main__":
    leave(main())
