"""A six-layer decoder trains on bytes in bfloat16 autocast, beside its plain Euclidean twin.

Shows that nothing becomes non-finite: losses, gradients and parameters are looked at in every step,
on the device, and the program fails if one is not finite. Each system is trained at several
learning rates, the best of them chosen by its loss on validation bytes, and compared on other bytes
that no training saw, over seeds.

A complete run writes benchmarks/results/decoder_training.json and a part of benchmarks/RESULTS.md.
"unit-curvature" is the start this library had before natural units: c = 1, residual weight 1/√(2L).
The ablation, each part of the block switched off alone and all together:

    python -m benchmarks.decoder_training --seeds 0 1 2 --systems hyperbolic no-time flat-residual
        dot-attention all-off euclidean
"""

from __future__ import annotations

import contextlib
import json
import math
import multiprocessing
import os
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional as F

import beltrami.nn as bnn
from beltrami.analysis.intervals import mean_interval
from beltrami.geometry import Curvature, Euclidean, Lorentz
from benchmarks import machine, markers
from benchmarks.command import execute
from benchmarks.layers_cases import plain_block
from benchmarks.layers_timing import no_hidden_waits

FOLDER = machine.ROOT / "benchmarks/results"
PAGE = machine.ROOT / "benchmarks/RESULTS.md"
FILES = {"cpu": "decoder_training.json", "cuda": "decoder_training_cuda.json"}
# The hyperbolic decoder, with its older start, with parts of its blocks switched off, and the plain
# Transformer.
System = Literal[
    "hyperbolic",
    "unit-curvature",
    "no-time",
    "flat-residual",
    "dot-attention",
    "all-off",
    "euclidean",
]
SWITCHES: dict[System, dict[str, Any]] = {
    "hyperbolic": {},
    "unit-curvature": {"natural": False},
    "no-time": {"time": False},
    "flat-residual": {"residual": "euclidean"},
    "dot-attention": {"score": "dot", "aggregate": "mean"},
    "all-off": {"time": False, "residual": "euclidean", "score": "dot", "aggregate": "mean"},
}
SYSTEMS = (*SWITCHES, "euclidean")
COMPARED: tuple[System, ...] = ("hyperbolic", "unit-curvature", "euclidean")
BYTES = 256
# What is looked at for values that are not finite.
WATCHED = ("loss", "gradient", "parameter")
# The part of the text, at its end, that no training sees: its first half is for validation, its
# second for the test; and sequences of a test batch.
_HELD_OUT = 0.1
_TEST_BATCH = 32
# Parameters of the systems may differ by this part.
_TOLERANCE = 0.01
_WARM_UP_STEPS = 50
_LAST_RATE = 0.1


@dataclass(frozen=True)
class Options:
    """Train a hyperbolic decoder and its Euclidean twin on the text of this repository."""

    device: Literal["cpu", "cuda"] = "cpu"
    """Where to train; bfloat16 autocast on both."""
    systems: tuple[System, ...] = COMPARED
    """What to train; those between hyperbolic and euclidean are the ablation of docs/layers.md."""
    width: int | None = None
    """Coordinates of a token: 128 on a cpu, 512 on cuda by default."""
    heads: int | None = None
    """Attention heads: one for every 32 coordinates on a cpu, every 64 on cuda, by default."""
    layers: int = 6
    """Blocks of the decoder."""
    tokens: int | None = None
    """Bytes of a sequence: 64 on a cpu, 256 on cuda by default."""
    batch: int | None = None
    """Sequences of a step."""
    steps: int = 1000
    """Steps of the optimiser."""
    seeds: tuple[int, ...] = (0,)
    """One training of each system a seed; both see the same bytes in the same order."""
    lr: tuple[float, ...] = (1e-3, 3e-3)
    """Highest learning rates to try: reached after 50 steps, then a cosine down to a tenth."""
    weight_decay: float = 0.1
    """Of AdamW; parameters that a layer's `no_weight_decay` names have none."""
    every: int = 50
    """Steps between two readings of losses and flags, each of which waits for the device."""
    compile: bool = False
    """Compile the blocks."""
    jobs: int = 1
    """Trainings at once, each in a process of its own. With more than one no times are shown."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Write the JSON file to this folder, also of a partial run, and leave RESULTS.md alone."""
    resume: bool = False
    """Keep the finished trainings of the file in --out, and do the others."""
    commit: str = ""
    """The commit to name in the file, where git cannot tell."""
    render: bool = False
    """Train nothing, write the tables again from the files in benchmarks/results."""

    @property
    def complete(self) -> bool:
        """Whether all sizes are those that the page shows."""
        given = (self.width, self.heads, self.tokens, self.batch)
        shown = set(COMPARED) <= set(self.systems) and self.layers == 6 and self.steps >= 1000
        return shown and all(n is None for n in given)

    def sizes(self) -> Sizes:
        """The sizes, where not given those of the device."""
        on_gpu = self.device == "cuda"
        width = self.width or (512 if on_gpu else 128)
        heads = self.heads or max(1, width // (64 if on_gpu else 32))
        tokens = self.tokens or (256 if on_gpu else 64)
        return Sizes(width, heads, self.layers, tokens, self.batch or 8)


@dataclass(frozen=True)
class Sizes:
    """Of the model and of a step."""

    width: int
    heads: int
    layers: int
    tokens: int
    batch: int

    def __str__(self) -> str:
        return (
            f"{self.layers} layers, width {self.width}, {self.heads} heads, "
            f"{self.batch} × {self.tokens} bytes a step"
        )


class HyperbolicDecoder(nn.Module):
    """Bytes to points, blocks between points, points to scores; one learned curvature.

    Without `natural`, the older start: c = 1, residual weights 1/√(2L), no gain in the residuals.
    """

    def __init__(self, n: Sizes, *, natural: bool = True, **switches: Any) -> None:
        super().__init__()
        self.curvature = Curvature.natural(n.width) if natural else Curvature(1.0)
        space = Lorentz(self.curvature)
        self.embedding = bnn.Embedding(BYTES, n.width, manifold=space)
        self.blocks = nn.ModuleList(
            bnn.TransformerBlock(
                n.width, n.heads, manifold=space, causal=True, rotary=True,
                residual_weight=1.0 if natural else 1 / math.sqrt(2 * n.layers),
                residual_gain=natural, **switches,
            )
            for _ in range(n.layers)
        )  # fmt: skip
        self.norm = bnn.RMSNorm(n.width, manifold=space)
        self.head = bnn.MLR(n.width, BYTES, manifold=space)
        bnn.check_model(self)

    def forward(self, ids: Tensor) -> Tensor:
        """(B, T) to (B, T, 256)."""
        return _decode(self, ids)


class EuclideanDecoder(nn.Module):
    """The plain Transformer of the same sizes."""

    def __init__(self, n: Sizes) -> None:
        super().__init__()
        flat = Euclidean()
        self.embedding = bnn.Embedding(BYTES, n.width, manifold=flat, radius=math.sqrt(n.width))
        self.blocks = nn.ModuleList(plain_block(n.width, n.heads) for _ in range(n.layers))
        self.norm = bnn.RMSNorm(n.width, manifold=flat)
        self.head = bnn.Linear(n.width, BYTES, manifold=flat)

    def forward(self, ids: Tensor) -> Tensor:
        """(B, T) to (B, T, 256)."""
        return _decode(self, ids)


def _decode(model: HyperbolicDecoder | EuclideanDecoder, ids: Tensor) -> Tensor:
    x = model.embedding(ids)
    for block in model.blocks:
        x = block(x)
    scores: Tensor = model.head(model.norm(x))
    return scores


def build(system: System, n: Sizes) -> HyperbolicDecoder | EuclideanDecoder:
    """A system at its start."""
    if system == "euclidean":
        return EuclideanDecoder(n)
    return HyperbolicDecoder(n, **SWITCHES[system])


def count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def check_matched(counts: dict[str, int]) -> None:
    """Raise `ValueError` unless the systems have the same number of parameters, to 1 percent."""
    if max(counts.values()) > (1 + _TOLERANCE) * min(counts.values()):
        listed = ", ".join(f"{system} {n:,}" for system, n in counts.items())
        raise ValueError(
            f"parameters differ by more than 1 percent ({listed}): use a larger --width"
        )


def text(device: str = "cpu") -> Tensor:
    """Pages and sources of this repository, one after another, as bytes (n,) of dtype int64."""
    root = machine.ROOT
    pages = [root / "README.md", root / "CONTRIBUTING.md", *sorted(root.glob("docs/*.md"))]
    pages = [p for p in pages if p.name != "numerics.md"]  # tables of digits
    sources = sorted(root.glob("src/**/*.py"))
    data = b"\n".join(p.read_bytes() for p in [*pages, *sources])
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).long().to(device)


def split(data: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Bytes to learn from, to choose the learning rate by, and to be tested on."""
    unseen = int(_HELD_OUT * len(data))
    train, validation, test = data.split([len(data) - unseen, unseen // 2, unseen - unseen // 2])
    return train, validation, test


def groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Parameter groups for AdamW: what the layers exempt from decay has none."""
    exempt = set()
    for module in model.modules():
        names: set[str] = getattr(module, "no_weight_decay", set)()
        exempt |= {id(p) for name, p in module.named_parameters(recurse=False) if name in names}
    decayed = [p for p in model.parameters() if id(p) not in exempt]
    spared = [p for p in model.parameters() if id(p) in exempt]
    return [
        {"params": decayed, "weight_decay": weight_decay},
        {"params": spared, "weight_decay": 0.0},
    ]


def rate(step: int, steps: int) -> float:
    """Part of the highest learning rate: up in a line, down in a cosine."""
    if step < _WARM_UP_STEPS:
        return (step + 1) / _WARM_UP_STEPS
    done = (step - _WARM_UP_STEPS) / max(1, steps - _WARM_UP_STEPS)
    return _LAST_RATE + (1 - _LAST_RATE) * (1 + math.cos(math.pi * done)) / 2


class Watch:
    """The first step at which something was not finite, kept on the device until it is read."""

    def __init__(self, device: str) -> None:
        self.first = torch.full((len(WATCHED),), torch.iinfo(torch.int64).max, device=device)

    @torch.no_grad()
    def look(self, step: int, loss: Tensor, parameters: list[nn.Parameter]) -> None:
        """Look at the loss, all gradients and all parameters, without waiting for them."""
        gradients = [p.grad for p in parameters if p.grad is not None]
        largest = [torch.nn.utils.get_total_norm(t, math.inf) for t in (gradients, parameters)]
        bad = ~torch.isfinite(torch.stack([loss.detach(), *largest]))
        self.first = torch.where(bad & (self.first > step), step, self.first)

    def read(self) -> dict[str, int]:
        """What was not finite, and since which step."""
        found = dict(zip(WATCHED, self.first.tolist(), strict=True))
        return {name: step for name, step in found.items() if step < torch.iinfo(torch.int64).max}


class NonFiniteError(ArithmeticError):
    """A loss, gradient or parameter that is not finite."""


@dataclass(frozen=True)
class Training:
    """One system, rate and seed: mean losses (nats a byte) of every `every` steps, and its speed.

    `seconds_a_step` is the median over these stretches, `held_out` the loss on the test bytes,
    `validation` that on the bytes by which the learning rate is chosen.
    """

    system: str
    seed: int
    lr: float
    parameters: int
    losses: tuple[float, ...]
    validation: float
    held_out: float
    seconds_a_step: float
    curvature: float | None


class Trainer:
    """A model with its optimiser and its data."""

    def __init__(
        self, system: System, seed: int, lr: float, options: Options, data: Tensor
    ) -> None:
        self.sizes, self.device = options.sizes(), options.device
        self.data, self.validation, self.test = split(data)
        torch.manual_seed(seed)
        self.model = build(system, self.sizes).to(self.device)
        if options.compile:
            torch.compiler.reset()  # else the code of earlier trainings counts to a limit
            for block in self.model.blocks:
                block.compile(fullgraph=True, dynamic=False)
        self.parameters = list(self.model.parameters())
        self.optimiser = torch.optim.AdamW(
            groups(self.model, options.weight_decay), lr=lr, betas=(0.9, 0.95), fused=True
        )
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimiser, lambda step: rate(step, options.steps)
        )
        # All systems draw the same sequences: from a generator that no model uses.
        self.order = torch.Generator(self.device).manual_seed(seed)
        self.window = torch.arange(self.sizes.tokens + 1, device=self.device)
        self.watch = Watch(self.device)

    def step(self, step: int) -> Tensor:
        """One step; returns the loss. On a GPU it may not wait, but for the first, which builds."""
        with no_hidden_waits() if self.device == "cuda" and step else contextlib.nullcontext():
            sequence = self._draw()
            with torch.autocast(self.device, torch.bfloat16):
                scores = self.model(sequence[:, :-1])
            loss = F.cross_entropy(scores.float().flatten(0, 1), sequence[:, 1:].flatten())
            self.optimiser.zero_grad()
            loss.backward()
            self.optimiser.step()
            self.schedule.step()
            self.watch.look(step, loss, self.parameters)
            return loss.detach()

    @torch.no_grad()
    def evaluate(self, data: Tensor) -> float:
        """The loss on bytes that were not learned from, in sequences one after another."""
        self.model.eval()
        whole = len(data) // (self.sizes.tokens + 1) * (self.sizes.tokens + 1)
        sequences = data[:whole].view(-1, self.sizes.tokens + 1)
        total = torch.zeros((), device=self.device)
        for batch in sequences.split(_TEST_BATCH):
            with torch.autocast(self.device, torch.bfloat16):
                scores = self.model(batch[:, :-1])
            total += F.cross_entropy(
                scores.float().flatten(0, 1), batch[:, 1:].flatten(), reduction="sum"
            )
        self.model.train()
        return total.item() / (len(sequences) * self.sizes.tokens)

    def _draw(self) -> Tensor:
        """Sequences from anywhere in the text, (batch, tokens + 1)."""
        places, shape = len(self.data) - self.sizes.tokens, (self.sizes.batch, 1)
        start = torch.randint(places, shape, generator=self.order, device=self.device)
        return self.data[start + self.window]


def train(
    system: System, seed: int, lr: float, options: Options, data: Tensor, progress: Progress
) -> Training:
    """Train, and raise `NonFiniteError` if a value is not finite at any step."""
    trainer = Trainer(system, seed, lr, options, data)
    name = f"{system}, lr {lr:g}, seed {seed}"
    bar = progress.add_task(name, total=options.steps)
    losses, paces = [], []
    for first in range(0, options.steps, options.every):
        last = min(first + options.every, options.steps)
        total, start = torch.zeros((), device=options.device), time.perf_counter()
        for step in range(first, last):
            total += trainer.step(step)
            progress.advance(bar)
        losses.append(total.item() / (last - first))
        paces.append((time.perf_counter() - start) / (last - first))
        if bad := trainer.watch.read():
            where = ", ".join(f"{what} since step {at}" for what, at in bad.items())
            raise NonFiniteError(f"{name}: not finite: {where}")
        progress.update(bar, description=f"{name}: {losses[-1]:.3f}")
    model = trainer.model
    curvature = model.curvature.value.item() if isinstance(model, HyperbolicDecoder) else None
    return Training(
        system,
        seed,
        lr,
        count(model),
        tuple(losses),
        trainer.evaluate(trainer.validation),
        trainer.evaluate(trainer.test),
        statistics.median(paces),
        curvature,
    )


def train_all(
    options: Options, data: Tensor, console: Console, finished: list[Training]
) -> Iterator[Training]:
    """All trainings but the finished ones, each as it ends, with a progress bar."""
    done = {(t.system, t.seed, t.lr) for t in finished}
    left = [
        (system, seed, lr)
        for seed in options.seeds
        for lr in options.lr
        for system in options.systems
        if (system, seed, lr) not in done
    ]
    with progress_bar(console) as progress:
        if options.jobs == 1:
            for system, seed, lr in left:
                yield train(system, seed, lr, options, data, progress)
            return
        bar = progress.add_task("trainings", total=len(left))
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(options.jobs, mp_context=spawn) as pool:
            pending = [pool.submit(_train_alone, *trial, options) for trial in left]
            try:
                for future in as_completed(pending):
                    yield future.result()
                    progress.advance(bar)
            except BaseException:  # also Ctrl-C: what has not begun does not begin
                pool.shutdown(wait=False, cancel_futures=True)
                raise


def _train_alone(system: System, seed: int, lr: float, options: Options) -> Training:
    """One training in a process of its own, with its share of the cores."""
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // options.jobs))
    quiet = Console(quiet=True)
    return train(system, seed, lr, options, text(options.device), progress_bar(quiet))


def finished_trainings(options: Options) -> list[Training]:
    """Those of an interrupted run with the same options, from the file in --out."""
    if not options.resume:
        return []
    if options.out is None:
        raise ValueError("--resume needs --out, the folder with the trainings to keep")
    path = options.out / FILES[options.device]
    if not path.exists():
        return []
    about, trainings = read(path)
    now = describe(options, text())
    changed = [
        f"{name} was {about.get(name)} and is {now[name]}"
        for name in ("sizes", "steps", "every", "weight_decay", "compile", "bytes", "jobs")
        if about.get(name) != now[name]
    ]
    if changed:
        raise ValueError(f"--resume: {path} is of another run, {', '.join(changed)}")
    return trainings


def progress_bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
    )


# --- report ---------------------------------------------------------------------------------------


def best_rates(trainings: list[Training]) -> dict[str, float]:
    """The learning rate of each system with the least mean validation loss."""
    losses: dict[str, dict[float, list[float]]] = {}
    for t in trainings:
        losses.setdefault(t.system, {}).setdefault(t.lr, []).append(t.validation)
    return {
        system: min(of_rate, key=lambda lr: statistics.fmean(of_rate[lr]))
        for system, of_rate in losses.items()
    }


def at_best_rates(trainings: list[Training]) -> list[Training]:
    best = best_rates(trainings)
    return [t for t in trainings if t.lr == best[t.system]]


def curve(trainings: list[Training], every: int, steps: int) -> tuple[list[str], list[list[str]]]:
    """A row a reading: the loss of each system and seed."""
    header = ["after step", *(f"{t.system}, seed {t.seed}" for t in trainings)]
    rows = []
    for i in range(len(trainings[0].losses)):
        after = min((i + 1) * every, steps)
        rows.append([str(after), *(f"{t.losses[i]:.3f}" for t in trainings)])
    return header, rows


def facts(trainings: list[Training], jobs: int) -> list[str]:
    """A sentence a training; its time only if it ran alone."""
    out = []
    for t in trainings:
        learned = "" if t.curvature is None else f", learned curvature −{t.curvature:.3g}"
        pace = f", {1e3 * t.seconds_a_step:.0f} ms a step" if jobs == 1 else ""
        out.append(
            f"{t.system}, lr {t.lr:g}, seed {t.seed}: {t.parameters:,} parameters, last loss "
            f"{t.losses[-1]:.3f}{pace}{learned}"
        )
    return out


def comparison(trainings: list[Training]) -> tuple[list[str], list[list[str]]]:
    """A row a system: its best rate, its test loss there, its difference from the Euclidean one.

    Means over seeds with 95% t-intervals, the difference seed by seed.
    """
    rates = best_rates(trainings)
    by_system: dict[str, dict[int, float]] = {}
    for t in at_best_rates(trainings):
        by_system.setdefault(t.system, {})[t.seed] = t.held_out
    flat = by_system.get("euclidean", {})
    rows = []
    for system, losses in by_system.items():
        paired = [loss - flat[seed] for seed, loss in losses.items() if seed in flat]
        difference = "" if system == "euclidean" or not paired else _interval(paired)
        rows.append([system, f"{rates[system]:g}", _interval(list(losses.values())), difference])
    return ["system", "learning rate", "test loss", "difference from euclidean"], rows


def _interval(values: list[float]) -> str:
    return mean_interval(values).format()


def markdown(document: dict[str, Any], trainings: list[Training]) -> str:
    from benchmarks.numerics_page import table  # loads mpmath, which a GPU machine may not have

    where = document.get("gpu") or f"{document['cpu']}, {document['cores']} cores"
    tried = " ".join(f"{lr:g}" for lr in sorted({t.lr for t in trainings}))
    best = at_best_rates(trainings)
    readings = curve(best, document["every"], document["steps"])
    shown = readings[1][:: max(1, len(readings[1]) // 10)]
    if readings[1][-1] not in shown:
        shown.append(readings[1][-1])
    return "\n\n".join(
        [
            f"Command: `{document['command']}`. Commit {document['commit']}. {where}, "
            f"torch {document['torch']}.",
            f"{document['sizes']}, {document['steps']} steps of AdamW in bfloat16 autocast on "
            f"{document['bytes']:,} bytes of this repository. Every loss, gradient and parameter "
            f"was finite at every step. Learning rates tried: {tried}; what follows is at the best "
            "of them, by the loss on validation bytes. Training losses in nats a byte, mean of "
            f"{document['every']} steps:",
            table(readings[0], shown),
            f"On test bytes, {_seeds(trainings)}:",
            table(*comparison(trainings)),
            "\n".join(f"- {line}" for line in facts(best, document["jobs"])),
        ]
    )


def _seeds(trainings: list[Training]) -> str:
    n = len({t.seed for t in trainings})
    return "one seed" if n == 1 else f"{n} seeds, 95% intervals"


def show(trainings: list[Training], options: Options, console: Console) -> None:
    best = at_best_rates(trainings)
    for title, (header, rows) in (
        ("training loss, nats a byte", curve(best, options.every, options.steps)),
        (f"test loss, {_seeds(trainings)}", comparison(trainings)),
    ):
        table = Table(title=title)
        for name in header:
            table.add_column(name, justify="right")
        for row in rows:
            table.add_row(*row)
        console.print(table)
    for line in facts(best, options.jobs):
        console.print(line)


def describe(options: Options, data: Tensor) -> dict[str, Any]:
    command = "make bench-decoder"
    given = [f"--device {options.device}"] if options.device != "cpu" else []
    if options.systems != COMPARED:
        given.append(f"--systems {' '.join(options.systems)}")
    if options.seeds != Options.seeds:
        given.append(f"--seeds {' '.join(map(str, options.seeds))}")
    if options.lr != Options.lr:
        given.append(f"--lr {' '.join(f'{lr:g}' for lr in options.lr)}")
    given += ["--compile"] if options.compile else []
    if given and options.jobs > 1:
        given.append(f"--jobs {options.jobs}")
    if given:
        command = f"python -m benchmarks.decoder_training {' '.join(given)}"
    about: dict[str, Any] = {
        "command": command,
        "device": options.device,
        "sizes": str(options.sizes()),
        "steps": options.steps,
        "every": options.every,
        "weight_decay": options.weight_decay,
        "compile": options.compile,
        "jobs": options.jobs,
        "bytes": len(data),
        **machine.describe(),
    }
    if options.commit:
        about["commit"] = options.commit
    if options.device == "cuda":
        about["gpu"] = torch.cuda.get_device_name()
    return about


def write(trainings: list[Training], about: dict[str, Any], folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILES[about["device"]]
    document = {**about, "trainings": [asdict(t) for t in trainings]}
    whole = path.with_suffix(".tmp")
    whole.write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    whole.replace(path)
    return path


def read(path: Path) -> tuple[dict[str, Any], list[Training]]:
    about = json.loads(path.read_text(encoding="utf-8"))
    trainings = [Training(**{**t, "losses": tuple(t["losses"])}) for t in about.pop("trainings")]
    return about, trainings


def render(folder: Path = FOLDER, page: Path = PAGE) -> list[str]:
    """Write the tables of all stored runs; returns the devices found."""
    found = {d: read(folder / name) for d, name in FILES.items() if (folder / name).exists()}
    for device, (about, trainings) in found.items():
        markers.replace(page, f"decoder training {device}", markdown(about, trainings))
    return list(found)


def problem(options: Options) -> str:
    """What is wrong with the options, if anything."""
    if options.device == "cuda" and not torch.cuda.is_available():
        return "--device cuda needs a GPU, and torch sees none"
    for name in ("width", "heads", "layers", "tokens", "batch", "steps", "every", "jobs"):
        value = getattr(options, name)
        if value is not None and value < 1:
            return f"--{name} must be at least 1, got {value}"
    for name in ("seeds", "systems", "lr"):
        values = getattr(options, name)
        if not values:
            return f"--{name} needs at least one"
        if len(set(values)) < len(values):
            return f"--{name} has a value twice: {' '.join(map(str, values))}"
    for lr in options.lr:
        if not (math.isfinite(lr) and lr > 0):
            return f"--lr must be finite and above 0, got {lr}"
    return ""


def run(options: Options) -> int:
    console = Console()
    if options.render:
        console.print(f"wrote the tables of: {', '.join(render()) or 'no run'}")
        return 0
    if wrong := problem(options):
        console.print(wrong)
        return 2
    sizes, data = options.sizes(), text(options.device)
    about = describe(options, data)
    try:
        check_matched({system: count(build(system, sizes)) for system in options.systems})
        trainings = finished_trainings(options)
    except ValueError as error:
        console.print(str(error))
        return 2
    console.print(f"{sizes}, {options.steps} steps, {len(data):,} bytes of text")
    try:
        for training in train_all(options, data, console, trainings):
            trainings.append(training)
            trainings.sort(key=lambda t: (t.seed, t.lr, SYSTEMS.index(t.system)))
            if options.out is not None:  # what is done is not lost with the rest
                write(trainings, about, options.out)
    except NonFiniteError as error:
        console.print(f"[red]{error}[/red]")
        return 1
    show(trainings, options, console)
    console.print("every loss, gradient and parameter was finite at every step")
    if options.out is not None:
        console.print(f"wrote {options.out / FILES[options.device]}")
    elif options.complete:
        path = write(trainings, about, FOLDER)
        render()
        console.print(f"wrote {path.relative_to(machine.ROOT)} and RESULTS.md")
    return 0


if __name__ == "__main__":
    execute(run, Options, lost="with --out, --resume goes on with the rest")
