"""What two parts of HypLoRA's kernels gain: the launcher's cache, and the boost's Triton pair.

    python -m benchmarks.adapters_launch --device cuda --only model --commit HASH

times steps in eager mode, without CUDA graphs. Kernels are launched by Triton's `kernel[grid](...)`
or by `beltrami.kernels.launch.launcher`, which keeps compiled kernels; the boosted map runs its
Triton pair or its reference. A part earns its place where the ratio of a model's step is above
1.05. The arms take turns and share their modules. It prints a table in Markdown; all problems take
about three minutes on an H200, the model alone about two.
"""

from __future__ import annotations

import contextlib
import shlex
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal
from unittest.mock import patch

import torch
from torch import nn

from beltrami.kernels.hyplora import boosted_linear
from beltrami.kernels.launch import launcher
from benchmarks import adapters_cases, timings
from benchmarks.adapters_cases import (
    BOOST,
    EAGER,
    LORA,
    MODEL,
    OURS,
    STEP,
    TOKEN,
    Case,
    Linear,
    Model,
    Problem,
)
from benchmarks.adapters_timing import Runner
from benchmarks.command import execute

ROUNDS = {"cpu": 3, "cuda": 30}


@dataclass(frozen=True)
class Options:
    """Compare ways to launch the kernels of HypLoRA, and the boost's kernels with its reference."""

    device: Literal["cpu", "cuda"] = "cuda"
    """Where."""
    only: str = ""
    """Part of a problem's title, such as "model"; all without."""
    rounds: int | None = None
    """How often each competitor has its turn."""
    quick: bool = False
    """Tiny problems, to see that it runs."""
    commit: str = ""
    """The commit to name in the table, where git cannot tell."""


TRITON, CACHED, REFERENCE = "Triton", "cached", "reference"


@dataclass(frozen=True)
class Arm:
    """An adapter, a name of `adapters_cases`, and how its kernels are launched.

    `REFERENCE` is that of the boosted map alone: the kernels around it are cached.
    """

    adapter: str
    way: str = CACHED

    @property
    def name(self) -> str:
        return LORA if self.adapter == LORA else f"{self.adapter}, {self.way}"

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Inside, kernels are launched as this arm says."""
        with contextlib.ExitStack() as changes:
            if self.way == TRITON:
                changes.enter_context(patch.object(launcher, "_launch", _triton_launch))
            elif self.way == REFERENCE:
                no_kernel = patch.object(boosted_linear, "dispatch", lambda *_: None)
                changes.enter_context(no_kernel)
            yield


ARMS = (
    Arm(LORA),
    *(Arm(adapter, way) for adapter in (OURS, BOOST) for way in (TRITON, CACHED)),
    Arm(BOOST, REFERENCE),
)
# Numerator and denominator.
COMPARISONS = (
    (Arm(OURS, TRITON), Arm(OURS)),
    (Arm(BOOST, TRITON), Arm(BOOST)),
    (Arm(BOOST, REFERENCE), Arm(BOOST, TRITON)),
    (Arm(BOOST, REFERENCE), Arm(BOOST)),
)


def _triton_launch(
    kernel: Any, grid: Any, _: int, arguments: tuple[Any, ...], constants: dict[str, Any]
) -> None:
    kernel[grid](*arguments, **constants)


def problems(device: str, quick: bool) -> list[Problem]:
    """Training steps of a model, with many and with few tokens, one token, and a layer."""
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    if quick:
        small = Model(32, 2, 4, 2, 48, 64, 2, 8, dtype, rank=4)
        return [small, _one_token(small), Linear(STEP, 64, 64, 8, 16, dtype)]
    model = Model(2048, 16, 32, 8, 8192, 32000, 8, 1024, dtype)
    return [
        model,
        replace(model, batch=1, tokens=512),
        _one_token(model),
        Linear(STEP, 4096, 4096, 32, 8192, dtype),
        Linear(STEP, 4096, 4096, 32, 512, dtype),
        Linear(TOKEN, 4096, 4096, 32, 1, dtype),
    ]


def _one_token(model: Model) -> Model:
    return replace(model, batch=1, tokens=1, kind=f"{MODEL}, {TOKEN}", backward=False)


def time_problem(problem: Problem, device: str, rounds: int) -> dict[Arm, Runner]:
    """All arms in turns, each adapter made once."""
    case = adapters_cases.build(problem, device)
    build = adapters_cases._model if isinstance(problem, Model) else adapters_cases._layer
    modules: dict[str, nn.Module] = {
        adapter: build(adapter, problem, device)  # type: ignore[arg-type]
        for adapter in (LORA, OURS, BOOST)
    }
    builders = {arm.name: partial(modules.__getitem__, arm.adapter) for arm in ARMS}
    runners = {arm: Runner(Case(problem, builders, case.inputs), arm.name, EAGER) for arm in ARMS}
    for arm, runner in runners.items():
        runner.guarded = False
        runner.steps = 1 if problem.kind == MODEL else 4
        with arm.active():
            runner.prepare()
    for i in range(rounds):
        for arm in ARMS if i % 2 == 0 else reversed(ARMS):
            with arm.active():
                runners[arm].lap()
    return runners


def spread(ratios: Sequence[float]) -> str:
    """Median, and the range without the quarter at each end."""
    first, middle, last = statistics.quantiles(ratios, n=4)
    return f"{middle:.3f} ({first:.3f} to {last:.3f})"


def rows(problem: Problem, runners: dict[Arm, Runner]) -> list[list[str]]:
    """A row for each comparison."""
    table = []
    for slow, quick in COMPARISONS:
        a, b = runners[slow], runners[quick]
        peaks = [f"{r.peak / 1e6:.0f}" if r.peak is not None else "–" for r in (a, b)]
        table.append(
            [
                problem.kind,
                problem.shape,
                f"{slow.name} / {quick.name}",
                f"{statistics.median(a.times):.3f} / {statistics.median(b.times):.3f}",
                f"{min(a.times) / min(b.times):.3f}",
                spread([s / q for s, q in zip(a.times, b.times, strict=True)]),
                f"{statistics.median(runners[Arm(LORA)].times):.3f}",
                " / ".join(peaks),
            ]
        )
    return table


HEADER = (
    "pass",
    "shape",
    "arms",
    "ms, medians",
    "ratio of minima",
    "ratio a round, median (quartiles)",
    "LoRA ms",
    "peak MB",
)


def run(options: Options) -> int:
    if (obstacle := timings.obstacle(options)) is not None:
        print(obstacle, file=sys.stderr)
        return 2
    rounds = options.rounds or (2 if options.quick else ROUNDS[options.device])
    chosen = [p for p in problems(options.device, options.quick) if options.only in p.title]
    command = f"python -m benchmarks.adapters_launch --device {options.device}"
    if options.only:
        command += f" --only {shlex.quote(options.only)}"
    about = timings.describe(options, command, rounds)
    print(
        f"Command: `{command}`. Commit {about['commit']}. {about.get('gpu', about['cpu'])}, torch "
        f"{about['torch']}. {rounds} rounds.\n"
    )
    print(*timings.table(HEADER, []), sep="\n", flush=True)
    for problem in chosen:
        body = rows(problem, time_problem(problem, options.device, rounds))
        print(*timings.table(HEADER, body)[2:], sep="\n", flush=True)
    return 0


if __name__ == "__main__":
    execute(run, Options)
