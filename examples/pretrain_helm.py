r"""Pretrain a HELM language model on a text: one process or many, sharded or not.

    python examples/pretrain_helm.py --text stdlib --steps 200
    torchrun --standalone --nproc-per-node 8 examples/pretrain_helm.py --precision bf16 --compile
    torchrun --standalone --nproc-per-node 8 examples/pretrain_helm.py --precision bf16 --fsdp
    accelerate launch --config_file examples/accelerate/ddp.yaml examples/pretrain_helm.py
    accelerate launch --config_file examples/accelerate/fsdp2.yaml \
        --fsdp_transformer_layer_cls_to_wrap HelmDecoderLayer examples/pretrain_helm.py

The loop is `transformers.Trainer`'s with a Riemannian optimiser. `--batch` counts the sequences of
a step over all processes, so the same command gives the same model however many run it. The
finished folder is an ordinary one of transformers:

    import beltrami.models.helm
    model = AutoModelForCausalLM.from_pretrained("runs/helm/model")
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import torch
import torch.distributed as dist
import tyro
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

from beltrami.data.corpus import (
    TokenCorpus,
    bits_per_byte,
    documents,
    load_tokenizer,
    pack,
    train_tokenizer,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from beltrami.models.helm import HelmForCausalLM
    from beltrami.train.trainer import RiemannianTrainer

OPTIONS = "options.json"  # in --out, beside the checkpoints
# What a resumed run may change; the rest is part of its checkpoints or of the order of its data.
_FREE = {"out", "resume", "steps", "accumulate", "compile", "checkpointing", "cpu", "save_every",
         "keep", "log_every", "report_to"}  # fmt: skip


@dataclass(frozen=True)
class Options:
    """Pretrain a HELM language model with transformers.Trainer and accelerate."""

    text: str = "stdlib"
    """"stdlib" (Python's library), a file, a folder, JSON lines, parquet, or a saved dataset."""
    field: str = "text"
    """Where the text is in JSON lines and tables."""
    tokenizer: str | None = None
    """A folder, a tokenizer.json, or a name on the hub; by default one is trained on the text."""
    vocab_size: int = 8192
    """Of the tokenizer that is trained."""
    held_out: float = 0.02
    """The part of the text, by documents, that no step sees and the end reports on."""
    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = Path("runs/helm")
    """Where checkpoints, the tokenizer and the finished model go."""
    resume: bool = False
    """Go on from the last checkpoint in --out, if any, with its options."""

    hidden_size: int = 256
    """This and the next are fields of HelmConfig."""
    intermediate_size: int = 704
    num_hidden_layers: int = 4
    num_attention_heads: int = 4
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    geometry: Literal["lorentz", "euclidean"] = "lorentz"
    """"euclidean" is the twin, exactly Llama."""
    curvature: float = 1.0
    learn_curvature: Literal["no", "model", "layer"] = "model"
    logits: Literal["linear", "mlr", "distance"] | None = None
    tie_word_embeddings: bool = False
    z_loss: float = 0.0

    length: int = 512
    """Tokens of a sequence; documents are packed into it and do not see each other."""
    batch: int = 16
    """Sequences of a step over all processes and micro-batches, which must divide it."""
    accumulate: int = 1
    """Micro-batches of a step."""
    steps: int = 200
    """Steps of the optimiser."""
    lr: float = 1e-3
    """Highest learning rate: reached after --warmup of the steps, then a cosine down to 0."""
    point_lr: float | None = None
    """That of points, such as the rows of the embedding; --lr if not given."""
    curvature_lr: float | None = None
    """That of curvatures; --lr if not given."""
    scale_lr: float | None = None
    """That of logarithms of scales, such as the temperatures of attention; --lr if not given."""
    warmup: float = 0.05
    """The part of the steps in which the learning rate rises."""
    weight_decay: float = 0.1
    """Of matrices; points, scales and curvatures have none."""
    clip: float = 1.0
    """Largest norm of the gradient; 0 for no clipping."""
    precision: Literal["float32", "bf16"] = "float32"
    """bf16: float32 parameters under bfloat16 autocast."""
    compile: bool = False
    """Compile the blocks; worth its start-up time on a GPU."""
    checkpointing: bool = False
    """Compute activations again in the backward pass, for memory."""
    fsdp: bool = False
    """Split parameters and state over the processes (FSDP2)."""
    cpu: bool = False
    """Train on the CPU even where there is a GPU."""
    save_every: int = 100
    """Steps between checkpoints."""
    keep: int = 2
    """Checkpoints to keep."""
    log_every: int = 10
    """Steps between lines of the log."""
    report_to: tuple[str, ...] = ()
    """What else the log goes to, such as tensorboard or wandb."""
    seed: int = 0
    """Of the start, the held-out documents and the order of the data."""


def check(options: Options, processes: int) -> None:
    """Raise `ValueError` for what the options get wrong before anything is computed."""
    for name in ("length", "batch", "accumulate", "steps", "save_every", "keep", "log_every"):
        if getattr(options, name) < 1:
            raise ValueError(f"{flag(name)} must be at least 1, got {getattr(options, name)}")
    if options.batch % (processes * options.accumulate):
        raise ValueError(
            f"--batch {options.batch} must be a multiple of {processes} processes times "
            f"--accumulate {options.accumulate}"
        )
    if options.fsdp and "WORLD_SIZE" not in os.environ:
        raise ValueError("--fsdp needs a group of processes, one or more: start it with torchrun")
    last = last_checkpoint(options.out)
    if last is None:
        return
    if not options.resume:
        raise ValueError(
            f"{options.out} has checkpoints: --resume goes on from the last one, another --out "
            "begins anew"
        )
    if step_of(last) >= options.steps:
        raise ValueError(f"{last} is the end already: give more than --steps {options.steps}")
    before = json.loads((options.out / OPTIONS).read_text(encoding="utf-8"))
    for name, value in identity(options).items():
        if before.get(name) != value:
            raise ValueError(
                f"--resume goes on with the options of {options.out / OPTIONS}, where {flag(name)} "
                f"is {before.get(name)}, not {value}; another --out begins anew"
            )


def identity(options: Options) -> dict[str, Any]:
    """The options that a run keeps when it is resumed."""
    return {name: value for name, value in asdict(options).items() if name not in _FREE}


def last_checkpoint(folder: Path) -> Path | None:
    """The newest complete checkpoint: Trainer writes trainer_state.json after all the rest."""
    found = [path.parent for path in folder.glob("checkpoint-*/trainer_state.json")]
    return max((p for p in found if re.search(r"-\d+$", p.name)), key=step_of, default=None)


def step_of(checkpoint: Path) -> int:
    """How far a checkpoint has come."""
    return int(checkpoint.name.rpartition("-")[2])


def flag(name: str) -> str:
    """An option as one types it."""
    return f"--{name.replace('_', '-')}"


def tokenizer_of(options: Options, alone: Any) -> PreTrainedTokenizerFast:
    """The tokenizer that is given; or one of this text, which the first process trains and saves.

    `alone` is a context in which the first process runs before the others.
    """
    if options.tokenizer is not None:
        return load_tokenizer(options.tokenizer)
    folder = options.out / "tokenizer"
    with alone:
        if not (folder / "tokenizer_config.json").is_file():
            texts = documents(options.text, field=options.field)
            train_tokenizer(texts, options.vocab_size).save_pretrained(str(folder))
        return load_tokenizer(folder)


def model_of(options: Options, tokenizer: PreTrainedTokenizerFast) -> HelmForCausalLM:
    """The same model in every process, with a loss that never has all logits in memory."""
    from beltrami.models.helm import HelmConfig, HelmForCausalLM

    fields = {
        name: getattr(options, name)
        for name in (
            "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
            "num_key_value_heads", "head_dim", "geometry", "curvature", "learn_curvature",
            "logits", "tie_word_embeddings", "z_loss",
        )
    }  # fmt: skip
    torch.manual_seed(options.seed)
    model = HelmForCausalLM(
        HelmConfig(
            vocab_size=len(tokenizer),
            max_position_embeddings=options.length,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            fused_loss=True,
            use_cache=False,  # with a cache, packed documents would see those before them
            **fields,
        )
    )
    if options.compile:
        for layer in model.model.layers:
            layer.compile()
    return model


def arguments(options: Options, processes: int) -> dict[str, Any]:
    """The options in the words of `transformers.TrainingArguments`."""
    words: dict[str, Any] = {
        "output_dir": str(options.out),
        "per_device_train_batch_size": options.batch // (processes * options.accumulate),
        "per_device_eval_batch_size": options.batch // (processes * options.accumulate),
        "gradient_accumulation_steps": options.accumulate,
        "dataloader_drop_last": True,
        "max_steps": options.steps,
        "optim": "adamw_torch_fused",
        "adam_beta2": 0.95,
        "learning_rate": options.lr,
        "weight_decay": options.weight_decay,
        "lr_scheduler_type": "cosine",
        "warmup_steps": int(options.warmup * options.steps),
        "max_grad_norm": options.clip,
        "bf16": options.precision == "bf16",
        "gradient_checkpointing": options.checkpointing,
        "save_steps": options.save_every,
        "save_total_limit": options.keep,
        "logging_steps": options.log_every,
        "seed": options.seed,
        "report_to": list(options.report_to),
        # Gloo, and no GPU: without this, processes on a machine with no GPU would train alone.
        "use_cpu": options.cpu or not torch.accelerator.is_available(),
        "prediction_loss_only": True,
    }
    if options.fsdp:
        words["fsdp"] = True
        words["fsdp_config"] = {
            "version": 2,
            "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "transformer_layer_cls_to_wrap": ["HelmDecoderLayer"],
            "state_dict_type": "SHARDED_STATE_DICT",
        }
    return words


def run(options: Options) -> None:
    """Tokenize, train, and report on the held-out documents."""
    from transformers import TrainingArguments

    from beltrami.train.trainer import RiemannianTrainer

    processes = int(os.environ.get("WORLD_SIZE", "1"))  # set by torchrun and by accelerate launch
    check(options, processes)
    args = TrainingArguments(**arguments(options, processes))
    tokenizer = tokenizer_of(options, args.main_process_first(local=False))
    corpus = TokenCorpus.build(options.text, tokenizer, field=options.field)
    learn, test = corpus.split(options.held_out, options.seed)
    rows, test_rows = (pack(part, options.length, seed=options.seed) for part in (learn, test))
    if len(rows) < options.batch:
        raise ValueError(
            f"the text has {len(rows)} sequences of --length {options.length}, --batch asks for "
            f"{options.batch}"
        )
    trainer = RiemannianTrainer(
        model_of(options, tokenizer),
        args,
        train_dataset=rows,
        eval_dataset=test_rows,
        point_lr=options.point_lr,
        curvature_lr=options.curvature_lr,
        scale_lr=options.scale_lr,
    )
    if options.fsdp and not trainer.is_fsdp_enabled:
        raise ValueError("accelerate shards over GPUs only: leave out --fsdp on a CPU")
    begin = last_checkpoint(options.out) if options.resume else None
    if trainer.is_world_process_zero():
        options.out.mkdir(parents=True, exist_ok=True)
        text = json.dumps(identity(options), indent=1)
        (options.out / OPTIONS).write_text(text + "\n", encoding="utf-8")
        print(
            f"{corpus.n_tokens:,} tokens, {trainer.model.num_parameters():,} parameters, "
            f"{begin or 'from the start'} to step {options.steps}",
            file=sys.stderr,
        )
    trainer.train(resume_from_checkpoint=str(begin) if begin else None)
    save(trainer, tokenizer, options.out / "model")
    if len(test_rows) >= options.batch:
        report(trainer, test)


def save(trainer: RiemannianTrainer, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write the whole model and its tokenizer, also where every process holds a part of it."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    whole = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = get_model_state_dict(model, options=whole)  # every process takes part
    if trainer.is_world_process_zero():
        model.config.use_cache = True
        model.save_pretrained(folder, state_dict=state)
        tokenizer.save_pretrained(str(folder))
        model.config.use_cache = False


def report(trainer: RiemannianTrainer, test: TokenCorpus) -> None:
    """Loss of the held-out documents, a token and a byte."""
    loss = trainer.evaluate()["eval_loss"]
    if trainer.is_world_process_zero():
        predicted = test.n_tokens - len(test)  # all but the first of each document
        bits = bits_per_byte(loss * predicted, test.n_bytes)
        print(
            f"held-out documents: loss {loss:.4f}, perplexity {math.exp(loss):.2f}, about "
            f"{bits:.3f} bits a byte",
            file=sys.stderr,
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and run; returns the exit status."""
    first = os.environ.get("RANK", "0") == "0"
    options = tyro.cli(Options, args=arguments, console_outputs=first)
    try:
        run(options)
    except ValueError as error:
        if first:
            print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    status = main()
    if dist.is_initialized():
        if status == 0:
            dist.barrier()  # nobody leaves while another still talks to it
        dist.destroy_process_group()
    sys.exit(status)
