"""Which parts of HELM earn their place: each alone, beside a plain Transformer, at several rates.

Every system has the same sizes and sees the same tokens in the same order. The learning rate of
each is the best of those tried. Results are kept, one line of JSON a training, so that a run that
was stopped goes on where it was.

    python -m benchmarks.helm_parts --tokens taxa_8k.bin --out build/parts --device cuda
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import tyro
from torch import Tensor
from torch.nn import functional as F

from beltrami.geometry import Curvature
from beltrami.models.helm import HelmConfig, HelmForCausalLM
from beltrami.optim import create_optimizer

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
    "twin, distance": {**FLAT, "embedding_range": 1.0, "attention_score": "distance"},
    "constant column": {**OFF},
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


@dataclass(frozen=True)
class Options:
    """Train systems and print the best held-out loss of each, in nats a token."""

    tokens: Path
    """A file of uint16 tokens, with a .json of the same name: held_out_first_token, vocab_size."""
    out: Path
    """The folder of results.jsonl; finished trainings in it are not done again."""
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
    part: tuple[int, int] = (0, 1)
    """This process does every n-th system, from the i-th: i n."""
    set: str = "{}"
    """Fields of all configs, as JSON."""


@dataclass
class Result:
    """One training."""

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
    finite: bool


def config_of(name: str, o: Options, vocab: int) -> HelmConfig:
    """The config of a system."""
    return HelmConfig(
        vocab_size=vocab, hidden_size=o.width, intermediate_size=o.hidden,
        num_hidden_layers=o.layers, num_attention_heads=o.width // 64,
        max_position_embeddings=o.length, bos_token_id=0, eos_token_id=0,
        **{**SYSTEMS[name], **json.loads(o.set)},
    )  # fmt: skip


class Data:
    """The text on the device, in two parts."""

    def __init__(self, o: Options) -> None:
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

    def batches(self, o: Options, seed: int, steps: int) -> Any:
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


def train_all(name: str, o: Options, data: Data, done: set[tuple[Any, ...]]) -> Any:
    """All rates and seeds of a system; the compiled model is used again."""
    steps = o.train_tokens // (o.batch * o.length)
    jobs = [(lr, s) for s in o.seeds for lr in o.lr if (name, lr, s, o.layers, o.width) not in done]
    if not jobs:
        return
    config = config_of(name, o, data.vocab)
    torch.manual_seed(0)
    model = HelmForCausalLM(config).to(o.device)
    if name == "constant column":
        tau = math.sqrt(o.width) * (math.sqrt(2) - 1)
        for layer in model.model.layers:
            layer.self_attn.constant = layer.mlp.constant = tau
            for part in (layer.self_attn, layer.mlp):
                for key in ("q", "k", "v", "o", "gate", "up", "down"):
                    if proj := getattr(part, f"{key}_proj", None):
                        part.register_parameter(
                            f"{key}_time",
                            torch.nn.Parameter(torch.zeros(proj.out_features, device=o.device)),
                        )

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
        model.load_state_dict(fresh.state_dict(), strict=False)
        with torch.no_grad():
            for key, p in model.named_parameters():
                if key.endswith("_time"):
                    p.zero_()
        optimizer = create_optimizer(
            model,
            "adamw",
            lr=lr,
            weight_decay=0.1,
            betas=(0.9, 0.95),
            nonfinite="raise" if o.device == "cpu" else "skip",
        )
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
            math.isfinite(last),
        )  # fmt: skip


def main(o: Options) -> None:
    o.out.mkdir(parents=True, exist_ok=True)
    file = o.out / f"results_{o.part[0]}.jsonl"
    done = set()
    for other in o.out.glob("*.jsonl"):
        for line in other.read_text().splitlines():
            r = json.loads(line)
            done.add((r["system"], r["lr"], r["seed"], r["layers"], r["width"]))
    torch.set_float32_matmul_precision("high")
    data = Data(o)
    for name in o.systems[o.part[0] :: o.part[1]]:
        for result in train_all(name, o, data, done):
            with file.open("a") as out:
                out.write(json.dumps(asdict(result)) + "\n")
            print(
                f"{name}: lr {result.lr:g} seed {result.seed}: {result.loss:.4f} (train "
                f"{result.train_loss:.4f}) first {result.first_loss:.3f} {result.seconds:.0f} s + "
                f"{result.compile_seconds:.0f} s, {result.peak_bytes / 2**30:.1f} GiB",
                flush=True,
            )
        torch.compiler.reset()


if __name__ == "__main__":
    main(tyro.cli(Options))
