"""Verdicts on timings and their tables, for the terminal and for RESULTS.md."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from rich.table import Table

from benchmarks.numerics_page import number, table
from benchmarks.speed_cases import COUNTERPARTS, EUCLIDEAN, OURS
from benchmarks.speed_timing import MODES, PASSES, Timing

# The goals: ahead of every peer, each in its best mode, on these; and close to Euclidean on one.
AHEAD = {"lorentz": {"exp0", "log0", "log", "transport"}, "poincare": None}  # None: all
CLOSE = ("lorentz", "dist")
CLOSE_FACTOR = 2.5


@dataclass(frozen=True)
class Verdict:
    """One operation and pass: each library's best mode, and whether the goal is met."""

    model: str
    name: str
    which: str
    best: dict[str, tuple[float, str]]
    goal: str
    met: bool | None


def _best(timings: list[Timing], library: str, which: str) -> tuple[float, str] | None:
    found = [(t.time(which), t.mode) for t in timings if t.library == library]
    return min(((ms, mode) for ms, mode in found if ms is not None), default=None)


def _has_goal(model: str, name: str) -> bool:
    names = AHEAD[model]
    return names is None or name in names


def _libraries(timings: list[Timing]) -> list[str]:
    return list(dict.fromkeys(t.library for t in timings))


def judge(timings: list[Timing]) -> list[Verdict]:
    out = []
    for (model, name), group in groupby(timings, key=lambda t: (t.model, t.name)):
        same = list(group)
        for which in PASSES:
            best = {lib: b for lib in _libraries(same) if (b := _best(same, lib, which))}
            goal, met = "", None
            if (model, name) == CLOSE:
                goal, met = f"≤ {CLOSE_FACTOR}× Euclidean, compiled", _close(same, which)
            elif _has_goal(model, name):
                others = [b[0] for lib, b in best.items() if lib not in (OURS, EUCLIDEAN)]
                goal, met = "ahead of all", all(best[OURS][0] < ms for ms in others)
            out.append(Verdict(model, name, which, best, goal, met))
    return out


def _compiled(same: list[Timing], library: str, which: str) -> float | None:
    found = [t.time(which) for t in same if t.library == library and t.mode == "compiled"]
    return found[0] if found else None


def _close(same: list[Timing], which: str) -> bool | None:
    ours, flat = _compiled(same, OURS, which), _compiled(same, EUCLIDEAN, which)
    return ours <= CLOSE_FACTOR * flat if ours is not None and flat is not None else None


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}" if value < 10 else f"{value:.1f}"


def _mb(value: int | None) -> str:
    return "–" if value is None else f"{value / 1e6:.1f}"


def _mark(met: bool | None) -> str:
    return {None: "", True: "met", False: "**missed**"}[met]


Cells = tuple[str, ...]
HEADER: Cells = (
    "operation", "library", "eager fwd", "eager fwd+bwd", "compiled fwd", "compiled fwd+bwd",
    "fwd+bwd over Euclidean", "saved MB", "note",
)  # fmt: skip


def timing_rows(timings: list[Timing]) -> list[Cells]:
    """A line an operation and library; the ratio compares best modes."""
    rows = []
    for (_, name), group in groupby(timings, key=lambda t: (t.model, t.name)):
        same = list(group)
        flat = _best(same, EUCLIDEAN, PASSES[1])
        for i, library in enumerate(_libraries(same)):
            modes = {t.mode: t for t in same if t.library == library}
            best = _best(same, library, PASSES[1])
            times = [_ms(modes[m].time(w)) for m in MODES for w in PASSES]
            ratio = f"{best[0] / flat[0]:.2f}×" if best and flat else "–"
            saved = " / ".join(_mb(modes[m].saved) for m in MODES)
            notes = [f"{m}: {modes[m].note}" for m in MODES if modes[m].note]
            if library == EUCLIDEAN:
                notes = [COUNTERPARTS[name][1]]
            first = f"{name} ({same[0].shape})" if i == 0 else ""
            rows.append((first, library, *times, ratio, saved, "; ".join(dict.fromkeys(notes))))
    return rows


def verdict_rows(verdicts: list[Verdict]) -> tuple[Cells, list[Cells]]:
    libraries = list(dict.fromkeys(lib for v in verdicts for lib in v.best))
    rows = []
    for v in verdicts:
        times = [f"{_ms(v.best[k][0])} ({v.best[k][1]})" if k in v.best else "–" for k in libraries]
        rows.append((f"{v.model} {v.name}", v.which, *times, v.goal, _mark(v.met)))
    return ("operation", "pass", *libraries, "goal", "verdict"), rows


def rich_tables(timings: list[Timing], verdicts: list[Verdict]) -> list[Table]:
    def build(title: str, header: Cells, rows: list[Cells]) -> Table:
        out = Table(title=title)
        for i, name in enumerate(header):
            out.add_column(name, justify="left" if i < 2 else "right")
        for row in rows:
            out.add_row(*(cell.replace("**missed**", "[red]missed[/red]") for cell in row))
        return out

    tables = []
    for model, group in groupby(timings, key=lambda t: t.model):
        tables.append(build(f"{model}, ms on one thread", HEADER, timing_rows(list(group))))
    tables.append(build("goals, each library in its best mode", *verdict_rows(verdicts)))
    return tables


# --- RESULTS.md ----------------------------------------------------------------------------------


def markdown(timings: list[Timing], about: dict[str, str], rounds: int, numerics: Path) -> str:
    verdicts = judge(timings)
    met = [v.met for v in verdicts if v.met is not None]
    header, rows = verdict_rows(verdicts)
    parts = [
        f"Command: `make bench`. Commit {about['commit']}. {about['cpu']}, {about['cores']} cores, "
        f"torch {about['torch']}, geoopt {about['geoopt']}, HypLL {about['hypll']}.",
        f"Milliseconds of process CPU time on one thread, float32, curvature −1, points at radii "
        f"0.05 to 3; minimum over {rounds} rounds in which the competitors take turns. *fwd* runs "
        f"under `no_grad`, *fwd+bwd* includes gradients of all inputs. *saved MB* is what is kept "
        f"for the backward pass besides the inputs, eager / compiled.",
        f"Goals met: {sum(bool(m) for m in met)} of {len(met)}.",
        table(header, rows),
    ]
    for model, group in groupby(timings, key=lambda t: t.model):
        parts += [f"### {model}", table(HEADER, timing_rows(list(group)))]
    parts += ["### What accuracy costs", accuracy_cost(timings, numerics)]
    return "\n\n".join(parts)


def accuracy_cost(timings: list[Timing], numerics: Path) -> str:
    """Our Lorentz distance against geoopt's acosh form: the price, and what it buys."""
    dist = [t for t in timings if (t.model, t.name) == CLOSE]
    by = {(t.library, t.mode): t for t in dist}
    sentences = []
    for mode in MODES:
        ours, acosh = by.get((OURS, mode)), by.get(("geoopt", mode))
        flat = by.get((EUCLIDEAN, mode))
        if ours and acosh and flat and ours.both and acosh.both and flat.both:
            sentences.append(
                f"{mode}, {ours.both / acosh.both:.2f} times geoopt's acosh form and "
                f"{ours.both / flat.both:.2f} times the Euclidean distance"
            )
    price = "The accurate Lorentz distance costs, forward and backward: " + "; ".join(sentences)
    return f"{price}. {_what_it_buys(numerics)}"


def _what_it_buys(numerics: Path) -> str:
    link = "[the numerics page](../docs/numerics.md)"
    if not numerics.exists():
        return f"What that form gets wrong is on {link}."
    document = json.loads(numerics.read_text(encoding="utf-8"))
    radii = [float(r) for r in document["peer_radii"]]

    def error(function: str, library: str, radius: float) -> str:
        for row in document["peers"]:
            key = (row["model"], row["dtype"], row["function"], row["library"])
            if key == ("lorentz", "float32", function, library):
                value = row["errors"][radii.index(radius)]
                return "NaN" if value == "nan" else number(value)
        return "–"

    compare: Callable[[str, float], str] = lambda f, r: (  # noqa: E731
        f"{error(f, 'geoopt', r)} against {error(f, OURS, r)}"
    )
    return (
        f"In float32 the acosh form is wrong by a relative {compare('dist, far', 1e-3)} for points "
        f"at radius 0.001, {compare('dist, near', 0.1)} for near pairs at radius 0.1 and "
        f"{compare('dist, near', 10.0)} at radius 10; its gradient there by "
        f"{compare('∇dist, near', 10.0)}. All radii and functions are on {link}."
    )
