"""A six-layer decoder trains on bytes in bfloat16 autocast, beside its plain Euclidean twin.

Shows that nothing becomes non-finite: losses, gradients and parameters are looked at in every step,
on the device, and the program fails if one is not finite. Losses on bytes that no training saw are
compared over seeds; they are those of one learning rate, so they do not settle which is better.

A complete run writes benchmarks/results/decoder_training.json and a part of benchmarks/RESULTS.md.
The ablation, each part of the block switched off alone and all together:

    python -m benchmarks.decoder_training --seeds 0 1 2 --systems hyperbolic no-time flat-residual
        dot-attention all-off euclidean
"""

from __future__ import annotations

import contextlib
import json
import math
import statistics
import time
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
# The hyperbolic decoder, with parts of its blocks switched off, and the plain Transformer.
System = Literal["hyperbolic", "no-time", "flat-residual", "dot-attention", "all-off", "euclidean"]
SWITCHES: dict[System, dict[str, Any]] = {
    "hyperbolic": {},
    "no-time": {"time": False},
    "flat-residual": {"residual": "euclidean"},
    "dot-attention": {"score": "dot", "aggregate": "mean"},
    "all-off": {"time": False, "residual": "euclidean", "score": "dot", "aggregate": "mean"},
}
COMPARED: tuple[System, ...] = ("hyperbolic", "euclidean")
BYTES = 256
# What is looked at for values that are not finite.
WATCHED = ("loss", "gradient", "parameter")
# The part of the text, at its end, that is kept for testing, and sequences of a test batch.
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
    lr: float = 1e-3
    """Highest learning rate: reached after 50 steps, then a cosine down to a tenth."""
    weight_decay: float = 0.1
    """Of AdamW; parameters that a layer's `no_weight_decay` names have none."""
    every: int = 50
    """Steps between two readings of losses and flags, each of which waits for the device."""
    compile: bool = False
    """Compile the blocks."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Write the JSON file to this folder, also of a partial run, and leave RESULTS.md alone."""
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
    """Bytes to points, blocks between points, points to scores; one learned curvature."""

    def __init__(self, n: Sizes, **switches: Any) -> None:
        super().__init__()
        self.curvature = Curvature(1.0)
        space = Lorentz(self.curvature)
        self.embedding = bnn.Embedding(BYTES, n.width, manifold=space)
        self.blocks = nn.ModuleList(
            bnn.TransformerBlock(
                n.width, n.heads, manifold=space, causal=True, rotary=True,
                residual_weight=1 / math.sqrt(2 * n.layers), **switches,
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


def split(data: Tensor) -> tuple[Tensor, Tensor]:
    """Bytes to learn from and bytes to be tested on."""
    kept = int(_HELD_OUT * len(data))
    return data[:-kept], data[-kept:]


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
    """One system with one seed: mean losses (nats a byte) of every `every` steps, and its speed.

    `seconds_a_step` is the median over these stretches, `held_out` the loss on unseen bytes.
    """

    system: str
    seed: int
    parameters: int
    losses: tuple[float, ...]
    held_out: float
    seconds_a_step: float
    curvature: float | None


class Trainer:
    """A model with its optimiser and its data."""

    def __init__(self, system: System, seed: int, options: Options, data: Tensor) -> None:
        self.sizes, self.device = options.sizes(), options.device
        self.data, self.unseen = split(data)
        torch.manual_seed(seed)
        self.model = build(system, self.sizes).to(self.device)
        if options.compile:
            for block in self.model.blocks:
                block.compile(fullgraph=True, dynamic=False)
        self.parameters = list(self.model.parameters())
        self.optimiser = torch.optim.AdamW(
            groups(self.model, options.weight_decay), lr=options.lr, betas=(0.9, 0.95), fused=True
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
    def test(self) -> float:
        """The loss on the bytes that were held out, in sequences one after another."""
        self.model.eval()
        whole = len(self.unseen) // (self.sizes.tokens + 1) * (self.sizes.tokens + 1)
        sequences = self.unseen[:whole].view(-1, self.sizes.tokens + 1)
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
    system: System, seed: int, options: Options, data: Tensor, progress: Progress
) -> Training:
    """Train, and raise `NonFiniteError` if a value is not finite at any step."""
    trainer = Trainer(system, seed, options, data)
    name = f"{system}, seed {seed}"
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
        count(model),
        tuple(losses),
        trainer.test(),
        statistics.median(paces),
        curvature,
    )


def progress_bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
    )


# --- report ---------------------------------------------------------------------------------------


def curve(trainings: list[Training], every: int, steps: int) -> tuple[list[str], list[list[str]]]:
    """A row a reading: the loss of each system and seed."""
    header = ["after step", *(f"{t.system}, seed {t.seed}" for t in trainings)]
    rows = []
    for i in range(len(trainings[0].losses)):
        after = min((i + 1) * every, steps)
        rows.append([str(after), *(f"{t.losses[i]:.3f}" for t in trainings)])
    return header, rows


def facts(trainings: list[Training]) -> list[str]:
    """A sentence a training."""
    out = []
    for t in trainings:
        learned = "" if t.curvature is None else f", learned curvature −{t.curvature:.3f}"
        out.append(
            f"{t.system}, seed {t.seed}: {t.parameters:,} parameters, last loss "
            f"{t.losses[-1]:.3f}, {1e3 * t.seconds_a_step:.0f} ms a step{learned}"
        )
    return out


def comparison(trainings: list[Training]) -> tuple[list[str], list[list[str]]]:
    """A row a system: its loss on unseen bytes, and its difference from the Euclidean one.

    Means over seeds with 95% t-intervals, the difference seed by seed.
    """
    by_system: dict[str, dict[int, float]] = {}
    for t in trainings:
        by_system.setdefault(t.system, {})[t.seed] = t.held_out
    flat = by_system.get("euclidean", {})
    rows = []
    for system, losses in by_system.items():
        paired = [loss - flat[seed] for seed, loss in losses.items() if seed in flat]
        difference = "" if system == "euclidean" or not paired else _interval(paired)
        rows.append([system, _interval(list(losses.values())), difference])
    return ["system", "loss on unseen bytes", "difference from euclidean"], rows


def _interval(values: list[float]) -> str:
    return mean_interval(values).format()


def markdown(document: dict[str, Any], trainings: list[Training]) -> str:
    from benchmarks.numerics_page import table  # loads mpmath, which a GPU machine may not have

    where = document.get("gpu") or f"{document['cpu']}, {document['cores']} cores"
    readings = curve(trainings, document["every"], document["steps"])
    shown = readings[1][:: max(1, len(readings[1]) // 10)]
    if readings[1][-1] not in shown:
        shown.append(readings[1][-1])
    return "\n\n".join(
        [
            f"Command: `{document['command']}`. Commit {document['commit']}. {where}, "
            f"torch {document['torch']}.",
            f"{document['sizes']}, {document['steps']} steps of AdamW in bfloat16 autocast on "
            f"{document['bytes']:,} bytes of this repository. Every loss, gradient and parameter "
            f"was finite at every step. Losses in nats a byte, mean of {document['every']} steps:",
            table(readings[0], shown),
            f"On the {_HELD_OUT:.0%} of the bytes that were held out, {_seeds(trainings)}:",
            table(*comparison(trainings)),
            "\n".join(f"- {line}" for line in facts(trainings)),
        ]
    )


def _seeds(trainings: list[Training]) -> str:
    n = len({t.seed for t in trainings})
    return "one seed" if n == 1 else f"{n} seeds, 95% intervals"


def show(trainings: list[Training], options: Options, console: Console) -> None:
    for title, (header, rows) in (
        ("loss, nats a byte", curve(trainings, options.every, options.steps)),
        (f"held out, {_seeds(trainings)}", comparison(trainings)),
    ):
        table = Table(title=title)
        for name in header:
            table.add_column(name, justify="right")
        for row in rows:
            table.add_row(*row)
        console.print(table)
    for line in facts(trainings):
        console.print(line)


def describe(options: Options, data: Tensor) -> dict[str, Any]:
    command = "make bench-decoder"
    given = [f"--device {options.device}"] if options.device != "cpu" else []
    if options.systems != COMPARED:
        given.append(f"--systems {' '.join(options.systems)}")
    if options.seeds != Options.seeds:
        given.append(f"--seeds {' '.join(map(str, options.seeds))}")
    given += ["--compile"] if options.compile else []
    if given:
        command = f"python -m benchmarks.decoder_training {' '.join(given)}"
    about: dict[str, Any] = {
        "command": command,
        "device": options.device,
        "sizes": str(options.sizes()),
        "steps": options.steps,
        "every": options.every,
        "lr": options.lr,
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
    path.write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
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
    for name in ("width", "heads", "layers", "tokens", "batch", "steps", "every"):
        value = getattr(options, name)
        if value is not None and value < 1:
            return f"--{name} must be at least 1, got {value}"
    for name in ("seeds", "systems"):
        if not getattr(options, name):
            return f"--{name} needs at least one"
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
    except ValueError as error:
        console.print(str(error))
        return 2
    console.print(f"{sizes}, {options.steps} steps, {len(data):,} bytes of text")
    trainings = []
    try:
        with progress_bar(console) as progress:
            for seed in options.seeds:
                for system in options.systems:
                    trainings.append(train(system, seed, options, data, progress))
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
    execute(run, Options, lost="with --out, finished trainings are in its file")
