"""Which parts of HELM earn their place: each alone, beside a plain Transformer, at several rates.

Every system has the same sizes and sees the same tokens in the same order, sequences of one long
text. The learning rate of each is the best of those tried. A line of JSON is written for each
training, so that a run that was stopped goes on where it was. The tokens are made where the text
is; the table of benchmarks/RESULTS.md is written from these lines.

    python -m benchmarks.helm_parts prepare --data taxa --tokens build/taxa_8k.bin
    python -m benchmarks.helm_parts train --tokens build/taxa_8k.bin --device cuda
    python -m benchmarks.helm_parts render
"""

from __future__ import annotations

import json
import math
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
import tyro
from torch import Tensor
from torch.nn import functional as F

from beltrami.data.corpus import TokenCorpus, documents, train_tokenizer
from beltrami.geometry import Curvature
from beltrami.models.helm import HelmConfig, HelmForCausalLM
from beltrami.optim import RiemannianAdamW, param_groups
from benchmarks import machine, markers
from benchmarks.command import execute

RESULTS = machine.ROOT / "benchmarks/results/helm_parts.jsonl"
PAGE = machine.ROOT / "benchmarks/RESULTS.md"
_HELD_OUT = 0.02

# A curved model without any hyperbolic part: a Transformer whose embedding has variance 1.
OFF: dict[str, Any] = {
    "residual": "euclidean",
    "learn_residual": False,
    "attention_score": "dot",
    "attention_aggregate": "mean",
    "time_columns": "none",
    "embedding": "flat",
    "embedding_range": 1.0,
    "logits": "linear",
}
FLAT: dict[str, Any] = {"geometry": "euclidean"}
SYSTEMS: dict[str, dict[str, Any]] = {
    "twin": {**FLAT},
    "twin, embedding 1": {**FLAT, "embedding_range": 1.0},
    "twin, zero outputs": {**FLAT, "embedding_range": 1.0, "zero_init_outputs": True},
    "twin, qk-norm": {**FLAT, "embedding_range": 1.0, "qk_norm": True},
    "twin, learned residual": {**FLAT, "embedding_range": 1.0, "learn_residual": True},
    "twin, leaky residual": {
        **FLAT, "embedding_range": 1.0, "residual_weight": 1 / 0.94, "residual_scale": 1.94,
    },
    "twin, biases": {
        **FLAT, "embedding_range": 1.0, "attention_bias": True, "mlp_bias": True,
    },
    "twin, fast biases": {
        **FLAT, "embedding_range": 1.0, "attention_bias": True, "mlp_bias": True,
    },
    "twin, distance": {**FLAT, "embedding_range": 1.0, "attention_score": "distance"},
    "residual": {**OFF, "residual": "lorentz", "learn_residual": True},
    "residual, fixed weight": {**OFF, "residual": "lorentz"},
    "residual, sum": {**OFF, "residual": "lorentz", "learn_residual": True, "residual_scale": 2.0},
    "boost": {**OFF, "residual": "boost", "learn_residual": True},
    "distance": {**OFF, "attention_score": "distance"},
    "centroid": {**OFF, "attention_aggregate": "centroid"},
    "distance, centroid": {
        **OFF, "attention_score": "distance", "attention_aggregate": "centroid",
    },
    "times of outputs": {**OFF, "time_columns": "outputs"},
    "times of all": {**OFF, "time_columns": "all"},
    "hyperplanes": {**OFF, "time_columns": "hyperplane"},
    "radius": {**OFF, "radius_input": True},
    "points": {**OFF, "embedding": "points"},
    "mlr": {**OFF, "logits": "mlr"},
    "all": {},
    "all, radius": {"radius_input": True},
    "all, dot": {"attention_score": "dot"},
    "all, dot mean": {"attention_score": "dot", "attention_aggregate": "mean"},
    "all, linear": {"logits": "linear"},
    "all, no times": {"time_columns": "none"},
    "all, times of all": {"time_columns": "all"},
    "all, hyperplanes": {"time_columns": "hyperplane"},
    "all, boost": {"residual": "boost"},
    "all, flat residual": {"residual": "euclidean"},
    "all, flat rows": {"embedding": "flat", "embedding_range": 1.0},
}  # fmt: skip


# What the rate of biases is multiplied by: that of a time column's effect at |x|² = 384, which is
# √384·(√2 − 1).
FAST_BIASES = {"twin, fast biases": 8.1}


@dataclass(frozen=True)
class Prepare:
    """Tokenise a text with a vocabulary of its own, into one file of numbers."""

    tokens: Path
    """The file to write; facts about it go into a .json of the same name."""
    data: str = "taxa"
    """The text: taxa, stdlib or a path."""
    vocab_size: int = 8192
    """Words of the vocabulary."""


@dataclass(frozen=True)
class Train:
    """Train systems at several learning rates."""

    tokens: Path
    """The file that `prepare` wrote."""
    out: Path = RESULTS
    """Where a line a training is added; what stands there is not done again."""
    systems: tuple[str, ...] = tuple(SYSTEMS)
    """Which systems."""
    lr: tuple[float, ...] = (2.5e-3, 4e-3, 6.5e-3)
    """Learning rates to try."""
    seeds: tuple[int, ...] = (0,)
    """Seeds of weights and of the order of the text."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where to train, in bfloat16 autocast on cuda."""
    layers: int = 6
    """Blocks."""
    width: int = 384
    """Coordinates of a token."""
    hidden: int = 1024
    """Hidden width of the MLP."""
    length: int = 512
    """Tokens of a sequence."""
    batch: int = 32
    """Sequences of a step."""
    train_tokens: int = 20_000_000
    """Tokens to train on."""
    compile: bool = True
    """Compile blocks and loss."""
    commit: str = ""
    """The commit to name, where git cannot tell."""


@dataclass(frozen=True)
class Render:
    """Write the table of benchmarks/RESULTS.md."""


@dataclass
class Result:
    """One training; losses in nats a token, curvatures over their start."""

    system: str
    lr: float
    seed: int
    layers: int
    width: int
    tokens: int
    loss: float
    train_loss: float
    first_loss: float
    parameters: int
    seconds: float
    compile_seconds: float
    peak_bytes: int
    curvatures: dict[str, float]
    scales: dict[str, float]
    commit: str
    hardware: str


def config_of(name: str, o: Train, vocab: int) -> HelmConfig:
    """The config of a system."""
    return HelmConfig(
        vocab_size=vocab, hidden_size=o.width, intermediate_size=o.hidden,
        num_hidden_layers=o.layers, num_attention_heads=o.width // 64,
        max_position_embeddings=o.length, bos_token_id=0, eos_token_id=0,
        **SYSTEMS[name],
    )  # fmt: skip


class Data:
    """The text on the device, in two parts."""

    def __init__(self, o: Train) -> None:
        facts = json.loads(o.tokens.with_suffix(".json").read_text())
        tokens = torch.from_numpy(np.fromfile(o.tokens, dtype=np.uint16).astype(np.int32))
        border = facts["held_out_first_token"]
        self.vocab = facts["vocab_size"]
        self.train = tokens[:border].to(o.device)
        held = tokens[border:]
        rows = len(held) // (o.length + 1)
        self.held = held[: rows * (o.length + 1)].view(rows, o.length + 1).to(o.device)
        self.window = torch.arange(o.length + 1, device=o.device)
        self.rows = (border - 1) // o.length

    def batches(self, o: Train, seed: int, steps: int) -> Any:
        """Sequences, each once an epoch, (batch, length + 1)."""
        order: Tensor = torch.empty(0, dtype=torch.int64)
        generator = torch.Generator().manual_seed(seed)
        for _ in range(steps):
            while len(order) < o.batch:
                order = torch.cat([order, torch.randperm(self.rows, generator=generator)])
            rows, order = order[: o.batch].to(o.device), order[o.batch :]
            yield self.train[rows[:, None] * o.length + self.window].long()


def rate(step: int, steps: int) -> float:
    """Share of the learning rate: up in a line over 5 percent, down in a cosine to a tenth."""
    warm = max(1, steps // 20)
    if step < warm:
        return (step + 1) / warm
    return 0.55 + 0.45 * math.cos(math.pi * (step - warm) / max(1, steps - warm))


def train_all(
    name: str, o: Train, data: Data, done: set[tuple[Any, ...]], about: dict[str, Any]
) -> Iterator[Result]:
    """All rates and seeds of a system; the compiled model is used again."""
    steps = o.train_tokens // (o.batch * o.length)
    size = (o.layers, o.width, o.train_tokens)
    jobs = [(lr, s) for s in o.seeds for lr in o.lr if (name, lr, s, *size) not in done]
    if not jobs:
        return
    config = config_of(name, o, data.vocab)
    torch.manual_seed(0)
    model = HelmForCausalLM(config).to(o.device)

    def loss_of(h: Tensor, targets: Tensor) -> Tensor:
        scores = model.word_scores(h, model.lm_head)
        return F.cross_entropy(scores.float().flatten(0, 1), targets.flatten())

    if o.compile:
        for layer in model.model.layers:
            layer.compile(dynamic=False)
        loss_of = torch.compile(loss_of, dynamic=False)

    def forward(batch: Tensor) -> Tensor:
        with torch.autocast(o.device, torch.bfloat16, enabled=o.device == "cuda"):
            h = model.model(batch[:, :-1], use_cache=False).last_hidden_state
            return loss_of(h, batch[:, 1:])

    for lr, seed in jobs:
        torch.manual_seed(seed)
        fresh = HelmForCausalLM(config)
        model.load_state_dict(fresh.state_dict())
        groups = parameter_groups(model, lr, FAST_BIASES.get(name, 1.0))
        optimizer = RiemannianAdamW(groups, lr=lr, betas=(0.9, 0.95))
        base = [g["lr"] for g in optimizer.param_groups]
        if o.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        begin = time.perf_counter()
        compile_seconds, first = 0.0, math.nan
        recent: list[Tensor] = []
        for step, batch in enumerate(data.batches(o, seed, steps)):
            for group, b in zip(optimizer.param_groups, base, strict=True):
                group["lr"] = b * rate(step, steps)
            loss = forward(batch)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if step == 0:
                first = loss.item()
            if step == 4:
                compile_seconds = time.perf_counter() - begin
            if step >= steps - 100:
                recent.append(loss.detach())
        last = torch.stack(recent).mean().item()
        seconds = time.perf_counter() - begin - compile_seconds
        model.eval()
        with torch.no_grad():
            held = torch.stack(
                [forward(b.long()) * len(b) for b in data.held.split(o.batch) if len(b) == o.batch]
            )
        model.train()
        count = len(data.held) // o.batch * o.batch
        yield Result(
            name, lr, seed, o.layers, o.width, o.train_tokens, held.sum().item() / count, last,
            first, model.num_parameters(), seconds, compile_seconds,
            torch.cuda.max_memory_allocated() if o.device == "cuda" else 0,
            {
                n: m.value.item() / m.init
                for n, m in model.named_modules()
                if isinstance(m, Curvature)
            },
            {n: p.exp().mean().item() for n, p in model.named_parameters() if "log_" in n},
            o.commit or about["commit"], about["hardware"],
        )  # fmt: skip


def parameter_groups(model: HelmForCausalLM, lr: float, bias_factor: float) -> list[dict[str, Any]]:
    """Those of the library; biases with a rate of their own."""
    groups = param_groups(model, weight_decay=0.1, lr=lr)
    fast = []
    for group in groups:
        biases = [pair for pair in group["params"] if pair[0].endswith(".bias")]
        if bias_factor != 1 and biases:
            group["params"] = [pair for pair in group["params"] if not pair[0].endswith(".bias")]
            fast.append({**group, "params": biases, "lr": bias_factor * lr})
    return groups + fast


def prepare(o: Prepare) -> int:
    """Write tokens of the training part, then of the held-out part, as uint16."""
    if not 0 < o.vocab_size < 1 << 16:
        raise SystemExit(f"--vocab-size must be below 65536, got {o.vocab_size}")
    corpus = TokenCorpus.build(o.data, train_tokenizer(documents(o.data), o.vocab_size))
    parts = [np.concatenate(list(part)) for part in corpus.split(_HELD_OUT, seed=0)]
    o.tokens.parent.mkdir(parents=True, exist_ok=True)
    np.concatenate(parts).astype(np.uint16).tofile(o.tokens)
    facts = {"vocab_size": o.vocab_size, "held_out_first_token": len(parts[0])}
    o.tokens.with_suffix(".json").write_text(json.dumps(facts))
    return 0


def train(o: Train) -> int:
    """Train what is not in the results yet."""
    o.out.parent.mkdir(parents=True, exist_ok=True)
    done = {key_of(line) for line in read(o.out)}
    torch.set_float32_matmul_precision("high")
    data = Data(o)
    hardware = torch.cuda.get_device_name() if o.device == "cuda" else machine.processor()
    about = {"commit": machine.commit(), "hardware": f"{hardware}, torch {torch.__version__}"}
    for name in o.systems:
        for result in train_all(name, o, data, done, about):
            with o.out.open("a") as out:
                out.write(json.dumps(asdict(result)) + "\n")
            print(
                f"{name}: lr {result.lr:g} seed {result.seed}: {result.loss:.4f} (train "
                f"{result.train_loss:.4f}) first {result.first_loss:.3f} {result.seconds:.0f} s + "
                f"{result.compile_seconds:.0f} s, {result.peak_bytes / 2**30:.1f} GiB",
                flush=True,
            )
        torch.compiler.reset()
    return 0


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def key_of(line: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(line[k] for k in ("system", "lr", "seed", "layers", "width", "tokens"))


def render() -> int:
    """Write one table a size."""
    groups: dict[tuple[int, ...], dict[str, list[dict[str, Any]]]] = defaultdict(dict)
    lines = read(RESULTS)
    for line in lines:
        size = (line["layers"], line["width"], line["tokens"])
        groups[size].setdefault(line["system"], []).append(line)
    text = []
    for (layers, width, tokens), systems in sorted(groups.items()):
        text.append(
            f"{layers} layers, width {width}, {tokens / 1e6:.0f} M tokens:\n\n"
            "| system | parameters | best rate | loss, by seed | mean | at other rates | end |\n"
            "|---|---|---|---|---|---|---|"
        )
        text.extend(row(name, of_system) for name, of_system in systems.items())
        text.append("")
    hardware = sorted({line["hardware"] for line in lines})
    commits = sorted({line["commit"] for line in lines})
    text.append(
        "Command: `python -m benchmarks.helm_parts train --device cuda`, on the tokens of "
        f"`prepare`. {', '.join(hardware)}. Commits {', '.join(commits)}."
    )
    markers.replace(PAGE, "helm parts", "\n".join(text))
    return 0


def row(name: str, lines: list[dict[str, Any]]) -> str:
    """A system's row; its best rate is that of the lowest loss on the first seed."""
    by_rate: dict[float, list[dict[str, Any]]] = defaultdict(list)
    for line in sorted(lines, key=lambda line: line["seed"]):
        by_rate[line["lr"]].append(line)
    losses = {lr: [line["loss"] for line in of_rate] for lr, of_rate in by_rate.items()}
    shown = {lr: ", ".join(f"{x:.3f}" for x in values) for lr, values in losses.items()}
    best = min(by_rate, key=lambda lr: losses[lr][0])
    others = "; ".join(f"{shown[lr]} at {lr:g}" for lr in sorted(by_rate) if lr != best)
    first = by_rate[best][0]
    curvature = first["curvatures"].get("model.curvature")
    weights = [w for key, w in first["scales"].items() if key.endswith("log_weight")]
    ends = [f"c {curvature:.2f}"] if curvature not in (None, 1.0) else []
    ends += [f"w {min(weights):.2f} to {max(weights):.2f}"] if weights else []
    return (
        f"| {name} | {first['parameters'] / 1e6:.2f} M | {best:g} | {shown[best]} | "
        f"{statistics.mean(losses[best]):.3f} | {others} | {', '.join(ends)} |"
    )


Command = (
    Annotated[Prepare, tyro.conf.subcommand("prepare")]
    | Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Render, tyro.conf.subcommand("render")]
)


def main(command: Prepare | Train | Render) -> int:
    """Run the command."""
    if isinstance(command, Prepare):
        return prepare(command)
    return train(command) if isinstance(command, Train) else render()


if __name__ == "__main__":
    execute(main, Command, "finished trainings are kept")  # type: ignore[arg-type]
