"""Gromov's δ beside numpy and hypdelta, in one run.

A complete run writes benchmarks/results/gromov.json and the table in benchmarks/RESULTS.md.
hypdelta comes with the `bench` extra; without it, its lines say so.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console

from beltrami.report.lines import Series, line_chart
from beltrami.report.picture import Picture
from benchmarks import gromov_cases, machine, markers, timed_command
from benchmarks import timings as timing_files
from benchmarks.command import execute
from benchmarks.gromov_cases import ALL, BY_ROWS, EVERY, EVERY_PLAIN, MOST, NUMPY, OURS, PEER, SEEN
from benchmarks.timed_command import Keep, Suite, TimingOptions

FOLDER = machine.ROOT / "benchmarks/results"
PAGE = machine.ROOT / "benchmarks/RESULTS.md"
FILES = {"cpu": "gromov.json", "cuda": "gromov_cuda.json"}
DRAWN = "gromov.svg"
ROUNDS = {"cpu": 3, "cuda": 2}
GOAL = 20.0  # times as fast as each of the others, at 1500 points
GOAL_SECONDS = 120  # on a GPU, at 50,000 points
ABSENT = "not installed"


class Options(TimingOptions):
    """Time Gromov's δ beside numpy and hypdelta."""


@dataclass(frozen=True)
class Timing:
    """One competitor on one problem: milliseconds of each round, MiB added, and δ."""

    case: str
    points: int
    competitor: str
    times: tuple[float, ...]
    mib: float
    delta: float

    @property
    def median(self) -> float:
        """The middle round; infinite if there was none."""
        return statistics.median(self.times) if self.times else float("inf")


def measure(options: Options, rounds: int, console: Console, keep: Keep[Timing]) -> list[Timing]:
    found: list[Timing] = []
    problems = gromov_cases.problems(options.quick, options.device)
    chosen = [p for p in problems if options.only in p.title]
    with console.status("starting") as status:
        for i, problem in enumerate(chosen):
            for who in problem.competitors:
                status.update(f"[{i + 1}/{len(chosen)}] {problem.title}: {who}")
                found.append(_timed(problem, who, rounds, options.device))
            keep(found)
    return found


def _timed(problem: gromov_cases.Problem, who: str, rounds: int, device: str) -> Timing:
    if who == PEER and not _peer_version():
        return Timing(problem.kind, problem.points, who, (), 0.0, 0.0)
    # One thread for all; numba asks its own variable.
    one = {"NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    words = [who, problem.kind, str(problem.points), str(rounds), device]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gromov_cases", *words],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **one},
        cwd=machine.ROOT,
    )
    told = json.loads(done.stdout.splitlines()[-1])
    return Timing(
        problem.kind, problem.points, who, tuple(told["times"]), told["mib"], told["delta"]
    )


def _peer_version() -> str:
    try:
        return version(PEER)
    except PackageNotFoundError:
        return ""


def rows(timings: list[Timing], device: str = "cpu") -> tuple[list[str], list[list[str]]]:
    header = ["distances of", "points", "who", "ms", "MiB", "beltrami is", "δ", ""]
    ours = {(t.case, t.points): t.median for t in timings if t.competitor == OURS}
    body = []
    for t in timings:
        place = [t.case, f"{t.points:,}", t.competitor]
        if not t.times:
            body.append([*place, ABSENT, "", "", "", ""])
            continue
        beside = t.competitor not in (OURS, ALL) and (t.case, t.points) in ours
        ratio = t.median / ours[t.case, t.points] if beside else None
        verdict = {True: "met", False: "**missed**", None: ""}[_met(t, ratio, device)]
        body.append(
            [
                *place,
                f"{t.median:,.0f}",
                f"{t.mib:,.0f}",
                "" if ratio is None else f"{ratio:,.0f}× as fast",
                f"{t.delta:.4f}",
                verdict,
            ]
        )
    return header, body


def _met(timing: Timing, ratio: float | None, device: str) -> bool | None:
    if device == "cuda":
        judged = timing.competitor == OURS and timing.points == MOST
        return timing.median < 1e3 * GOAL_SECONDS if judged else None
    if ratio is None or timing.points != SEEN:
        return None
    return ratio >= GOAL


def show(timings: list[Timing], options: Options, console: Console) -> None:
    header, body = rows(timings, options.device)
    where = "on one thread" if options.device == "cpu" else "on a GPU"
    timing_files.show(f"Gromov's δ {where}", header, body, 3, console)


def describe(options: Options, rounds: int) -> dict[str, Any]:
    only = f" --only '{options.only}'" if options.only else ""
    device = " --device cuda" if options.device == "cuda" else ""
    whole = not (only or device)
    command = "make bench-gromov" if whole else f"python -m benchmarks.gromov{device}{only}"
    about = timing_files.describe(options, command, rounds)
    beside = options.device == "cpu" and _peer_version()
    return {**about, **({PEER: beside} if beside else {})}


def write(timings: list[Timing], about: dict[str, Any], folder: Path) -> Path:
    rounded = [
        {**asdict(t), "times": [round(ms, 3) for ms in t.times], "mib": round(t.mib, 1)}
        for t in timings
    ]
    return timing_files.write(rounded, about, folder / FILES[about["device"]])


def markdown(timings: list[Timing], about: dict[str, Any]) -> str:
    header, body = rows(timings, about["device"])
    explained = _explained_on_gpu if about["device"] == "cuda" else _explained
    lines = [
        *explained(about),
        "",
        *timing_files.table(header, body),
    ]
    if absent := _not_measured(timings, about["device"]):
        lines += ["", f"Not measured: {'; '.join(absent)}."]
    return "\n".join(lines)


def _not_measured(timings: list[Timing], device: str) -> list[str]:
    """Problems of the whole benchmark that an interrupted one did not reach."""
    seen = {(t.case, t.points, t.competitor) for t in timings}
    return [
        f"{who}, {problem.title}"
        for problem in gromov_cases.problems(False, device)
        for who in problem.competitors
        if (problem.kind, problem.points, who) not in seen
    ]


def _explained(about: dict[str, Any]) -> list[str]:
    versions = ", ".join(f"{name} {about[name]}" for name in ("torch", PEER) if name in about)
    return [
        f"Command: `{about['command']}`. Commit {about['commit']}. {about['cpu'].split(' @')[0]}, "
        f"{about['cores']} cores, {versions}.",
        "",
        f"Milliseconds of process CPU time on one thread, median of {about['rounds']} rounds; "
        "memory is what the first of them added to a process that held the distances. δ at the "
        f"first point, but for *{ALL}*. *{NUMPY}* writes the (max, min) product as one expression, "
        f"whose n³ numbers are 27 GB at n = 1500; *{BY_ROWS}* is the same row by row. Goal: "
        f"{GOAL:.0f} times as fast as the others at {SEEN:,} points.",
    ]


def _explained_on_gpu(about: dict[str, Any]) -> list[str]:
    return [
        f"Command: `{about['command']}`. Commit {about['commit']}. {about['gpu']}, "
        f"torch {about['torch']}.",
        "",
        f"Milliseconds until δ at the first point is known, median of {about['rounds']} rounds, in "
        f"float32; memory beside the distances. *{EVERY}* leaves no pair out: the kernel "
        f"`row_gaps` alone; *{EVERY_PLAIN}* is the same in torch's operations. Goal: below "
        f"{GOAL_SECONDS} seconds at {MOST:,} points.",
        *(["", about["note"]] if "note" in about else []),
    ]


def scaling(timings: list[Timing]) -> str:
    """Milliseconds by the number of points, of the kind that was measured at most sizes, as SVG."""
    sizes: dict[str, set[int]] = {}
    for t in timings:
        sizes.setdefault(t.case, set()).add(t.points)
    kind = max(sizes, key=lambda case: len(sizes[case]))
    lines = []
    for who in (OURS, ALL, PEER, NUMPY, BY_ROWS):
        found = {
            t.points: t.median for t in timings if (t.competitor, t.case) == (who, kind) and t.times
        }
        if found:
            points = sorted(found)
            lines.append(Series(who, [float(n) for n in points], [found[n] for n in points]))
    return line_chart(
        lines,
        title=f"δ of points in {kind}",
        description="Milliseconds of one thread by the number of points.",
        x_label="Points",
        y_label="Milliseconds",
        x_log=True,
        y_log=True,
    )


def render(folder: Path = FOLDER, page: Path = PAGE) -> list[str]:
    """Write the tables of the stored measurements; returns the devices found."""
    found = [device for device, name in FILES.items() if (folder / name).exists()]
    for device in found:
        about, timings = timing_files.read(folder / FILES[device], Timing)
        text = markdown(timings, about)
        if device == "cpu":
            picture = Picture(scaling(timings)).save(folder / DRAWN)
            where = os.path.relpath(picture, page.parent)
            text += f"\n\n![Milliseconds by the number of points]({where})"
        markers.replace(page, f"gromov {device}", text)
    return found


def missed(timings: list[Timing], options: Options) -> int:
    _, body = rows(timings, options.device)
    return timing_files.missed(body)


def run(options: Options) -> int:
    suite = Suite(ROUNDS, "RESULTS.md", FOLDER, measure, show, describe, write, render, missed)
    return timed_command.run(options, suite)


if __name__ == "__main__":
    execute(run, Options)
