"""Ratios of layers to their Euclidean counterparts, verdicts on them, and their tables."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Any

from benchmarks.layers_cases import EUCLIDEAN
from benchmarks.layers_timing import MODES, Timing


@dataclass(frozen=True)
class Goal:
    """Largest ratios to Euclidean: of time in the better mode and in the other, of bytes saved."""

    better: float
    other: float
    saved: float | None = None

    def __str__(self) -> str:
        time = f"≤ {self.better}×"
        if self.other != self.better:
            time += f" in the better mode, ≤ {self.other}× in the other"
        return time if self.saved is None else f"{time}; saved ≤ {self.saved}×"


# On a CPU; figures of a GPU have none yet.
GOALS = {"linear": Goal(1.1, 1.1), "block": Goal(1.3, 1.6, 1.2)}


@dataclass(frozen=True)
class Ratio:
    """A competitor's time over that of the Euclidean one in the same mode."""

    best: float
    median: float

    @property
    def worse(self) -> float:
        """The one to judge by."""
        return max(self.best, self.median)

    def __str__(self) -> str:
        return f"{self.best:.2f} / {self.median:.2f}"


@dataclass(frozen=True)
class Line:
    """One competitor of one case, in all modes."""

    case: str
    shape: str
    competitor: str
    timings: dict[str, Timing]
    euclidean: dict[str, Timing]

    def ratio(self, mode: str) -> Ratio | None:
        """Of times; None where a mode was not measured."""
        if mode not in self.timings or mode not in self.euclidean:
            return None
        ours, flat = self.timings[mode], self.euclidean[mode]
        return Ratio(ours.best / flat.best, ours.median / flat.median)

    def bytes_ratio(self, field: str, mode: str) -> float | None:
        """Of "saved", "peak" or "slope"."""
        if mode not in self.timings or mode not in self.euclidean:
            return None
        ours, flat = (getattr(t[mode], field) for t in (self.timings, self.euclidean))
        return ours / flat if ours and flat else None

    def met(self) -> bool | None:
        """Whether the goal of this layer is met; None where it has none, or a mode is missing."""
        goal = GOALS.get(self.case)
        ratios = [r.worse for m in MODES if (r := self.ratio(m)) is not None]
        if goal is None or self.competitor == EUCLIDEAN or len(ratios) < len(MODES):
            return None
        in_time = min(ratios) <= goal.better and max(ratios) <= goal.other
        if goal.saved is None:
            return in_time
        saved = [self.bytes_ratio("saved", m) for m in MODES]
        return in_time and all(r is not None and r <= goal.saved for r in saved)


def lines(timings: list[Timing]) -> list[Line]:
    found = []
    for (case, shape), group in groupby(timings, key=lambda t: (t.case, t.shape)):
        by: dict[str, dict[str, Timing]] = {}
        for t in group:
            by.setdefault(t.competitor, {})[t.mode] = t
        flat = by[EUCLIDEAN]
        found += [Line(case, shape, name, modes, flat) for name, modes in by.items()]
    return found


# --- tables ---------------------------------------------------------------------------------------

Cells = tuple[str, ...]


def _ms(timing: Timing | None) -> str:
    return "–" if timing is None else f"{timing.median:.2f}"


def _mb(value: float | None) -> str:
    return "–" if value is None else f"{value / 1e6:.1f}"


def _times(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}×"


def _mark(met: bool | None) -> str:
    return {None: "", True: "met", False: "**missed**"}[met]


def _bytes(line: Line, field: str, mode: str) -> str:
    timing = line.timings.get(mode)
    value = None if timing is None else getattr(timing, field)
    ratio = line.bytes_ratio(field, mode)
    unit = f"{value:.0f} B/token" if field == "slope" and value is not None else _mb(value)
    return unit if line.competitor == EUCLIDEAN or ratio is None else f"{unit} ({ratio:.2f}×)"


def rows(found: list[Line], device: str, *, judged: bool = True) -> tuple[Cells, list[Cells]]:
    """A line a layer and competitor; goals are for a CPU."""
    on_gpu = device == "cuda"
    judged = judged and not on_gpu
    header: Cells = ("layer", "competitor")
    for mode in MODES:
        header += (f"{mode} ms", "ratio", f"{mode} saved MB")
        if on_gpu:
            header += (f"{mode} peak MB",)
    header += ("peak growth, eager",) * on_gpu + ("goal", "verdict") * judged
    body = []
    for i, line in enumerate(found):
        new = i == 0 or (found[i - 1].case, found[i - 1].shape) != (line.case, line.shape)
        cells: Cells = (f"{line.case} ({line.shape})" if new else "", line.competitor)
        for mode in MODES:
            ratio = line.ratio(mode)
            shown = "" if line.competitor == EUCLIDEAN else "–" if ratio is None else str(ratio)
            cells += (_ms(line.timings.get(mode)), shown, _bytes(line, "saved", mode))
            if on_gpu:
                cells += (_bytes(line, "peak", mode),)
        if on_gpu:
            cells += (_bytes(line, "slope", MODES[0]),)
        if judged:
            goal = GOALS.get(line.case) if line.competitor != EUCLIDEAN else None
            cells += ("" if goal is None else str(goal), _mark(line.met()))
        body.append(cells)
    return header, body


_MEASURED = {
    "cpu": "Milliseconds of process CPU time on one thread, float32",
    "cuda": "Milliseconds between CUDA events, bfloat16 autocast with float32 parameters, "
    "`set_sync_debug_mode(\"error\")`",
}  # fmt: skip
_PEAK = (
    " *peak* is the highest use of memory during a step above that before it, and its growth is "
    "fitted over three batch sizes."
)


def command(device: str, only: str = "") -> str:
    if device == "cpu" and not only:
        return "make bench-layers"
    return f"python -m benchmarks.layers --device {device}" + (f" --only {only}" if only else "")


def where(document: dict[str, Any]) -> str:
    """Command, commit and hardware of a measurement."""
    machine = document.get("gpu") or f"{document['cpu']}, {document['cores']} cores"
    return (
        f"Command: `{document['command']}`. Commit {document['commit']}. {machine}, "
        f"torch {document['torch']}."
    )


def markdown(timings: list[Timing], document: dict[str, Any]) -> str:
    """A part of RESULTS.md."""
    from benchmarks.numerics_page import table  # loads mpmath, which a GPU machine may not have

    device = document["device"]
    found = lines(timings)
    met = [m for line in found if (m := line.met()) is not None]
    parts = [
        where(document),
        f"{_MEASURED[device]}, curvature −1, forward and backward with gradients of input and "
        f"parameters; median of {document['rounds']} rounds (five times that for linear, norm and "
        f"residual) in which the competitors take turns. "
        f"*ratio* is the time over the Euclidean one in the same mode, of minima / of medians; "
        f"verdicts take the worse. *saved* is what is kept for the backward pass besides the "
        f"parameters.{_PEAK if device == 'cuda' else ''}",
    ]
    if device == "cpu":
        parts.append(f"Goals met: {sum(met)} of {len(met)}.")
    parts.append(table(*rows(found, device)))
    return "\n\n".join(parts)


def summary(documents: list[dict[str, Any]], measured: list[list[Timing]]) -> str:
    """A part of docs/layers.md: each layer's ratios, without the times."""
    from benchmarks.numerics_page import table

    parts = []
    for document, timings in zip(documents, measured, strict=True):
        body = []
        for line in lines(timings):
            if line.competitor == EUCLIDEAN:
                continue
            cells = [line.ratio(m) for m in MODES]
            memory = [line.bytes_ratio("saved", m) for m in MODES]
            body.append(
                (
                    f"{line.case} ({line.shape})",
                    line.competitor,
                    *("–" if r is None else _times(r.worse) for r in cells),
                    " / ".join(_times(r) for r in memory),
                )
            )
        header = ("layer", "manifold", "eager", "compiled", "saved, eager / compiled")
        parts += [where(document), table(header, body)]
    return "\n\n".join(parts)
