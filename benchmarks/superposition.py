"""A step of many toy models: all in one stack beside one after the other, in one run.

A complete run writes benchmarks/results/superposition_DEVICE.json and the table in
benchmarks/RESULTS.md.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor, nn

from beltrami.models.superposition import (
    FeatureSamples,
    Member,
    ToyAutoencoder,
    ToyStack,
    power_law,
)
from beltrami.recipes.superposition.training import StackTraining
from benchmarks import machine, markers, timed_command
from benchmarks import timings as timing_files
from benchmarks.command import execute
from benchmarks.timed_command import Keep, Suite, TimingOptions

FOLDER = machine.ROOT / "benchmarks/results"
PAGE = machine.ROOT / "benchmarks/RESULTS.md"
ROUNDS = {"cpu": 5, "cuda": 9}
GOALS = {"cpu": 4.0, "cuda": 15.0}  # times as fast as one after the other
OURS, ALONE = "beltrami, one stack", "one after the other"
WIDTHS = (10, 15, 25, 39, 63, 100)
STEPS, WARM = {"cpu": 10, "cuda": 40}, 3
_MANY = 1 << 20  # steps of a schedule that is never at its end


class Options(TimingOptions):
    """Time a step of toy models in a stack, and one model after the other."""


@dataclass(frozen=True)
class Case:
    """The models of one law.

    Args:
        features, batch: n, and samples a step. widths, gammas: a model for each pair.
    """

    features: int
    batch: int
    widths: tuple[int, ...]
    gammas: tuple[float, ...]

    @property
    def title(self) -> str:
        """What `--only` is looked for in."""
        return f"{len(self.widths) * len(self.gammas)} models, batch {self.batch}"

    def members(self) -> list[Member]:
        return [Member(m, gamma) for gamma in self.gammas for m in self.widths]


@dataclass(frozen=True)
class Timing:
    """One competitor: milliseconds of a step of all models, in each round."""

    case: str
    competitor: str
    times: tuple[float, ...]

    @property
    def best(self) -> float:
        """The quickest round: others had to wait for something else."""
        return min(self.times)


def cases(device: str, quick: bool) -> list[Case]:
    """The paper's six widths; on a GPU at all its ten gammas, too."""
    if quick:
        return [Case(50, 32, (3, 5), (-0.5, 0.5))]
    few, ten = (-0.556,), tuple(-1 + 2 * i / 9 for i in range(10))
    small = [Case(1000, 512, WIDTHS, few), Case(1000, 2048, WIDTHS, few)]
    return [*small, Case(1000, 2048, WIDTHS, ten)] if device == "cuda" else small


# --- competitors ----------------------------------------------------------------------------------


def stacked(case: Case, device: str) -> Callable[[], None]:
    """A step of our stack."""
    stack = ToyStack(case.features, case.members()).to(device)
    # As many at once as a round has steps: each round draws once.
    p, chunk = power_law(case.features, 1.0), STEPS[device]
    data = FeatureSamples(p, case.batch, device=device, chunk=chunk)
    training = StackTraining(stack, data, steps=_MANY, warm_up=10)
    done = 0

    def step() -> None:
        nonlocal done
        training.step(done)
        done += 1

    return step


def alone(case: Case, device: str) -> Callable[[], None]:
    """A step of every model by itself, with dense samples of its own, autograd and torch's Adam."""
    p = power_law(case.features, 1.0).to(device, torch.float32)
    models = []
    for member in case.members():
        model = ToyAutoencoder(case.features, member.width).to(device)
        models.append((member, model, torch.optim.Adam(model.parameters(), fused=True)))

    def step() -> None:
        for member, model, adam in models:
            there = torch.rand(case.batch, case.features, device=device) < p
            x = there * (2 * torch.rand(case.batch, case.features, device=device))
            loss = nn.functional.mse_loss(model(x), x)
            adam.zero_grad()
            loss.backward()
            with torch.no_grad():
                _decay(model.weight, member.gamma, 0.001)
            adam.step()

    return step


def _decay(weight: Tensor, gamma: float, rate: float) -> None:
    if gamma >= 0:
        weight.mul_(1 - rate * gamma)
    else:
        length = torch.linalg.vector_norm(weight, dim=1, keepdim=True)
        weight.mul_(1 - rate * gamma * (1 / (length + 1e-8) - 1))


COMPETITORS = {OURS: stacked, ALONE: alone}


# --- measuring ------------------------------------------------------------------------------------


def measure(options: Options, rounds: int, console: Console, keep: Keep[Timing]) -> list[Timing]:
    chosen = [c for c in cases(options.device, options.quick) if options.only in c.title]
    found: list[Timing] = []
    with console.status("starting") as status:
        for case in chosen:
            status.update(case.title)
            steps = {who: make(case, options.device) for who, make in COMPETITORS.items()}
            for step in steps.values():
                _time(step, WARM, options.device)
            times: dict[str, list[float]] = {who: [] for who in steps}
            for _ in range(rounds):  # in turns, so that all see the same machine
                for who, step in steps.items():
                    times[who].append(_time(step, STEPS[options.device], options.device))
            found += [Timing(case.title, who, tuple(all_)) for who, all_ in times.items()]
            keep(found)
    return found


def _time(step: Callable[[], None], count: int, device: str) -> float:
    """Milliseconds of a step: of one thread on the CPU, until it is done on a GPU."""
    clock = time.perf_counter if device == "cuda" else time.process_time
    if device == "cuda":
        torch.cuda.synchronize()
    start = clock()
    for _ in range(count):
        step()
    if device == "cuda":
        torch.cuda.synchronize()
    return 1e3 * (clock() - start) / count


def rows(timings: list[Timing], device: str) -> tuple[list[str], list[list[str]]]:
    header = ["models", "who", "ms a step, best", "median", "beltrami is", ""]
    ours = {t.case: t.best for t in timings if t.competitor == OURS}
    body = []
    for t in timings:
        ratio = t.best / ours[t.case] if t.competitor == ALONE and t.case in ours else None
        body.append(
            [
                t.case,
                t.competitor,
                f"{t.best:.2f}",
                f"{statistics.median(t.times):.2f}",
                "" if ratio is None else f"{ratio:.1f}× as fast",
                "" if ratio is None else ("met" if ratio >= GOALS[device] else "**missed**"),
            ]
        )
    return header, body


def show(timings: list[Timing], options: Options, console: Console) -> None:
    header, body = rows(timings, options.device)
    timing_files.show("A step of toy models", header, body, 2, console)


def describe(options: Options, rounds: int) -> dict[str, Any]:
    only = f" --only '{options.only}'" if options.only else ""
    device = " --device cuda" if options.device == "cuda" else ""
    return timing_files.describe(
        options, f"python -m benchmarks.superposition{device}{only}", rounds
    )


def write(timings: list[Timing], about: dict[str, Any], folder: Path) -> Path:
    rounded = [{**asdict(t), "times": [round(ms, 4) for ms in t.times]} for t in timings]
    return timing_files.write(rounded, about, folder / _file(about["device"]))


def _file(device: str) -> str:
    return f"superposition_{device}.json"


def markdown(timings: list[Timing], about: dict[str, Any]) -> str:
    device = about["device"]
    header, body = rows(timings, device)
    where = about["gpu"] if device == "cuda" else f"{about['cpu'].split(' @')[0]}, one thread"
    lines = [
        f"Command: `{about['command']}`. Commit {about['commit']}. {where}, torch "
        f"{about['torch']}.",
        "",
        f"Milliseconds of a training step of all models, {about['rounds']} rounds in turns. "
        f"*{OURS}* shares its samples; *{ALONE}* draws dense ones for each, and has autograd and "
        f"torch's fused Adam. Goal: {GOALS[device]:.0f} times as fast.",
        "",
        *timing_files.table(header, body),
    ]
    return "\n".join(lines)


def render(folder: Path = FOLDER, page: Path = PAGE) -> list[str]:
    """Write the tables of the stored measurements; returns the devices found."""
    found = [device for device in ROUNDS if (folder / _file(device)).exists()]
    for device in found:
        about, timings = timing_files.read(folder / _file(device), Timing)
        markers.replace(page, f"superposition {device}", markdown(timings, about))
    return found


def missed(timings: list[Timing], options: Options) -> int:
    _, body = rows(timings, options.device)
    return timing_files.missed(body)


def run(options: Options) -> int:
    suite = Suite(ROUNDS, "RESULTS.md", FOLDER, measure, show, describe, write, render, missed)
    return timed_command.run(options, suite)


if __name__ == "__main__":
    execute(run, Options)
