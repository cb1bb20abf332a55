"""Ratios of optimisers to torch's, verdicts on them, and their tables."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Any

from benchmarks.layers_report import Cells, Ratio
from benchmarks.optimisers_cases import COMPILED, EAGER, FUSED
from benchmarks.optimisers_timing import COPY, Timing

# Largest ratio to the yardstick, by device, case, optimiser and mode.
GOALS = {
    ("cpu", "table", "RiemannianAdam", EAGER): 4.0,
    ("cpu", "table", "RiemannianAdam", COMPILED): 2.0,
    ("cuda", "table", "RiemannianAdamW", FUSED): 1.3,
}


@dataclass(frozen=True)
class Line:
    """One competitor beside the first of its case."""

    device: str
    timing: Timing
    yardstick: Timing
    copy: Timing | None

    @property
    def ratio(self) -> Ratio | None:
        """Of times; None where there are none, and for the yardstick itself."""
        if not self.timing.times or self.timing is self.yardstick or self.timing is self.copy:
            return None
        best = self.timing.best / self.yardstick.best
        return Ratio(best, self.timing.median / self.yardstick.median)

    @property
    def goal(self) -> float | None:
        """The largest ratio that is wanted."""
        name = self.timing.competitor.partition(",")[0]
        return GOALS.get((self.device, self.timing.case, name, self.timing.mode))

    @property
    def met(self) -> bool | None:
        """Whether it is met by the worse of both ratios; None where there is no goal."""
        if self.goal is None or self.ratio is None:
            return None
        return self.ratio.worse <= self.goal

    @property
    def of_copy(self) -> float | None:
        """Bytes that had to be moved a second over those of a copy."""
        if self.copy is None or not self.timing.times:
            return None
        return self.timing.bandwidth / self.copy.bandwidth


def lines(timings: list[Timing], device: str) -> list[Line]:
    found = []
    for _, group in groupby(timings, key=lambda t: (t.case, t.shape)):
        same = list(group)
        copy = next((t for t in same if t.competitor == COPY), None)
        found += [Line(device, t, same[0], copy) for t in same]
    return found


# --- tables ---------------------------------------------------------------------------------------


def rows(found: list[Line], *, judged: bool = True) -> tuple[Cells, list[Cells]]:
    """A line a competitor."""
    on_gpu = any(line.copy for line in found)
    header: Cells = ("parameters", "optimiser", "how", "ms", "ratio", "state MB")
    header += ("of a copy's speed", "host ms") * on_gpu + ("goal", "verdict") * judged
    body = []
    for i, line in enumerate(found):
        t = line.timing
        new = i == 0 or found[i - 1].timing.shape != t.shape
        cells: Cells = (t.shape if new else "", t.competitor, t.mode)
        if not t.times:
            cells += (t.note, *("–",) * (2 + 2 * on_gpu))
        else:
            ratio = "" if line.ratio is None else str(line.ratio)
            cells += (f"{t.median:.3f}" if on_gpu else f"{t.median:.2f}", ratio)
            cells += ("" if t is line.copy else f"{t.state / 1e6:.1f}",)
            if on_gpu:
                share = "" if line.of_copy is None else f"{100 * line.of_copy:.0f}%"
                cells += (share, "" if t.host is None else f"{t.host:.3f}")
        if judged:
            goal = "" if line.goal is None else f"≤ {line.goal}×"
            cells += (goal, {None: "", True: "met", False: "**missed**"}[line.met])
        body.append(cells)
    return header, body


_MEASURED = {
    "cpu": "Milliseconds of process CPU time on one thread, median of {rounds} rounds in which the "
    "competitors take turns.",
    "cuda": "Milliseconds between CUDA events around five steps that were handed to a busy device, "
    "median of {rounds} rounds in which the competitors take turns, under "
    "`set_sync_debug_mode(\"error\")`. *of a copy's speed* is the least a step must read and "
    "write (parameters and state both ways, gradients one way) a second, over the bytes a "
    "second of a copy on the device. *host ms* is what Python takes to hand over a step.",
}  # fmt: skip


def command(device: str, only: str = "", *, quick: bool = False, rounds: int | None = None) -> str:
    """What one types for this measurement; what differs from a complete one is named."""
    if device == "cpu" and not (only or quick or rounds):
        return "make bench-optimisers"
    shown = f"python -m benchmarks.optimisers --device {device}"
    shown += " --quick" * quick
    shown += f' --only "{only}"' if only else ""
    return shown + (f" --rounds {rounds}" if rounds else "")


def where(document: dict[str, Any]) -> str:
    """Command, commit and hardware of a measurement."""
    machine = document.get("gpu") or f"{document['cpu']}, {document['cores']} cores"
    versions = [f"torch {document['torch']}"]
    versions += [f"{name} {document[name]}" for name in ("geoopt", "triton") if name in document]
    return (
        f"Command: `{document['command']}`. Commit {document['commit']}. {machine}, "
        f"{', '.join(versions)}."
    )


def markdown(timings: list[Timing], document: dict[str, Any]) -> str:
    """A part of RESULTS.md."""
    from benchmarks.numerics_page import table  # loads mpmath, which a GPU machine may not have

    found = lines(timings, document["device"])
    met = [line.met for line in found if line.met is not None]
    measured = _MEASURED[document["device"]].format(rounds=document["rounds"])
    parts = [
        where(document),
        f"{measured} *ratio* is the time over that of the first line of a group, of minima / of "
        f"medians; verdicts take the worse. *state* is what the optimiser keeps between steps.",
        f"Goals met: {sum(met)} of {len(met)}.",
        table(*rows(found)),
    ]
    return "\n\n".join(parts)
