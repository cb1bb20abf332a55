"""Ratios of adapters to LoRA, verdicts on HypLoRA, and their tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from benchmarks.adapters_cases import (
    BASE,
    BOOST,
    COMPILED_RANK,
    CURVATURES,
    DORA,
    GRAPHS,
    LEARNED,
    LORA,
    MIXTURE,
    MODEL,
    OURS,
    WRITTEN,
)
from benchmarks.layers_report import Cells, Ratio, where
from benchmarks.layers_timing import Timing

# Largest ratios of HypLoRA to LoRA in the same mode; besides, it has to be ahead of DoRA.
TIME, MODEL_TIME, SAVED = 1.05, 1.03, 1.05
OTHERS = (BASE, DORA, OURS, LEARNED, BOOST, MIXTURE, WRITTEN)


@dataclass(frozen=True)
class Line:
    """All competitors of one case in one mode."""

    case: str
    shape: str
    mode: str
    timings: dict[str, Timing]

    def ratio(self, competitor: str, to: str = LORA) -> Ratio | None:
        """Of times; None where one was not measured."""
        if competitor not in self.timings or to not in self.timings:
            return None
        one, other = self.timings[competitor], self.timings[to]
        return Ratio(one.best / other.best, one.median / other.median)

    def bytes_ratio(self, field: str, competitor: str) -> float | None:
        """Of "saved" or "peak", to LoRA's."""
        if competitor not in self.timings or LORA not in self.timings:
            return None
        one, other = (getattr(self.timings[name], field) for name in (competitor, LORA))
        return one / other if one and other else None

    @property
    def goal(self) -> float:
        """HypLoRA's largest ratio to LoRA's time."""
        return MODEL_TIME if self.case == MODEL else TIME

    def missed(self) -> list[str] | None:
        """Which goals HypLoRA misses; None where it, LoRA or DoRA is missing."""
        to_lora, to_dora = self.ratio(OURS), self.ratio(OURS, DORA)
        if to_lora is None or to_dora is None:
            return None
        saved = self.bytes_ratio("saved", OURS)  # None of a pass that keeps nothing
        found = {
            "time": to_lora.worse > self.goal,
            "saved": saved is not None and saved > SAVED,
            "DoRA": to_dora.worse >= 1,
        }
        return [name for name, bad in found.items() if bad]

    def met(self) -> bool | None:
        """Whether all goals are met; None where there is no verdict."""
        missed = self.missed()
        return None if missed is None else not missed


def lines(timings: list[Timing]) -> list[Line]:
    """One for each case and mode, in the order of measuring."""
    found = []
    for (case, shape), group in groupby(timings, key=lambda t: (t.case, t.shape)):
        by: dict[str, dict[str, Timing]] = {}
        for t in group:
            by.setdefault(t.mode, {})[t.competitor] = t
        found += [Line(case, shape, mode, timed) for mode, timed in by.items()]
    return found


# --- tables ---------------------------------------------------------------------------------------


def _shown(value: object | None) -> str:
    return "–" if value is None else str(value)


def _times(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}×"


def _verdict(line: Line) -> str:
    missed = line.missed()
    if missed is None:
        return ""
    return f"**missed** ({', '.join(missed)})" if missed else "met"


def rows(found: list[Line], *, judged: bool = True) -> tuple[Cells, list[Cells]]:
    """Times: a line a case and mode, ratios to LoRA in it."""
    header: Cells = ("pass", "layer", "mode", "LoRA ms", *OTHERS, "HypLoRA saves")
    header += ("goal", "verdict") * judged
    body = []
    for line in found:
        lora = line.timings.get(LORA)
        cells: Cells = (line.case, line.shape, line.mode)
        cells += ("–" if lora is None else f"{lora.median:.3g}",)
        cells += tuple(_shown(line.ratio(name)) for name in OTHERS)
        cells += (_times(line.bytes_ratio("saved", OURS)),)
        if judged:
            cells += (f"≤ {line.goal}×", _verdict(line))
        body.append(cells)
    return header, body


def memory_rows(found: list[Line], field: str) -> tuple[Cells, list[Cells]]:
    """Bytes "saved" for the backward pass or at the "peak", of the lines that have them."""
    names = [name for name in OTHERS if name != BASE]
    header: Cells = ("pass", "layer", "mode", "LoRA MB", *names)
    body = []
    for line in found:
        lora = line.timings.get(LORA)
        size = None if lora is None else getattr(lora, field)
        if size:
            ratios = tuple(_times(line.bytes_ratio(field, name)) for name in names)
            body.append((line.case, line.shape, line.mode, f"{size / 1e6:.4g}", *ratios))
    return header, body


_MEASURED = {
    "cpu": "Milliseconds of process CPU time on one thread, float32",
    "cuda": "Milliseconds between CUDA events, bfloat16, ours with "
    "`set_sync_debug_mode(\"error\")`",
}  # fmt: skip
_COMPILED = (
    f" Layers are compiled at rank {COMPILED_RANK}, for inference at the first shape alone; of the "
    "model, its blocks are compiled, one code for all."
)


_GRAPHS = (
    ' *CUDA graphs* is `torch.compile(mode="reduce-overhead")`: nothing waits for kernels to be '
    "started."
)


def command(device: str, only: str = "") -> str:
    if device == "cpu" and not only:
        return "make bench-adapters"
    name = f"'{only}'" if " " in only else only
    return f"python -m benchmarks.adapters --device {device}" + (f" --only {name}" if only else "")


def made(document: dict[str, Any]) -> str:
    """Command, commit, hardware and versions of a measurement."""
    versions = [f"{name} {document[name]}" for name in ("peft", "transformers") if name in document]
    return " ".join([where(document), *([f"Beside {', '.join(versions)}."] if versions else [])])


def markdown(timings: list[Timing], document: dict[str, Any]) -> str:
    """A part of RESULTS.md."""
    from benchmarks.numerics_page import table  # loads mpmath, which a GPU machine may not have

    device = document["device"]
    found = lines(timings)
    met = [m for line in found if (m := line.met()) is not None]
    mixed = ", ".join(str(c) for c in CURVATURES)
    parts = [
        made(document),
        f"{_MEASURED[device]}; median of {document['rounds']} rounds in which the competitors take "
        f"turns. *step* is forward and backward of a frozen layer without bias, with gradients of "
        f"its input and of the adapter; *forward* and *one token* run in inference mode; *model* "
        f"is a step of a Llama with random weights whose linear layers are all adapted, from "
        f"tokens to the gradients of the loss, that of the embedded tokens included. Adapters have "
        f"the base's dtype, and all the same A and B. Ratios are times over LoRA's in the same "
        f"line, of minima / of medians; verdicts take the worse. *three c* is a mixture of "
        f"curvatures {mixed}. *written out* makes all points of the five steps from exp to log, "
        f"one after the other."
        f"{_COMPILED if device == 'cuda' else ''}"
        f"{_GRAPHS if any(line.mode == GRAPHS for line in found) else ''}",
        *([document["note"]] if "note" in document else []),
        f"Goals of HypLoRA: at most {TIME}× LoRA's time ({MODEL_TIME}× in the model), at most "
        f"{SAVED}× of what LoRA keeps for the backward pass, and faster than DoRA. Lines that meet "
        f"them all: {sum(met)} of {len(met)}.",
        table(*rows(found)),
        "What is kept for the backward pass besides the parameters, over what LoRA keeps:",
        table(*memory_rows(found, "saved")),
    ]
    if device == "cuda":
        parts += [
            "The highest use of memory during a pass above that before it, over LoRA's:",
            table(*memory_rows(found, "peak")),
        ]
    return "\n\n".join(parts)


def _range(found: list[Line], value: Callable[[Line], float | None]) -> str:
    values = [v for line in found if (v := value(line)) is not None]
    if not values:
        return "–"
    low, high = (f"{v:.2f}" for v in (min(values), max(values)))
    return f"{low}×" if low == high else f"{low}–{high}×"


def _worse(name: str) -> Callable[[Line], float | None]:
    def value(line: Line) -> float | None:
        ratio = line.ratio(name)
        return None if ratio is None else ratio.worse

    return value


def _saved(name: str) -> Callable[[Line], float | None]:
    return lambda line: line.bytes_ratio("saved", name)


def summary(documents: list[dict[str, Any]], measured: list[list[Timing]]) -> str:
    """A part of docs/peft.md: the range of each pass's ratios over shapes and ranks."""
    from benchmarks.numerics_page import table

    parts = []
    shown = (OURS, LEARNED, BOOST, MIXTURE, DORA, WRITTEN)
    header = ("pass", "mode", *shown, "HypLoRA saves", "DoRA saves")
    for document, timings in zip(documents, measured, strict=True):
        groups: dict[tuple[str, str], list[Line]] = {}
        for line in lines(timings):
            groups.setdefault((line.case, line.mode), []).append(line)
        body = []
        for (case, mode), group in groups.items():
            cells = tuple(_range(group, _worse(name)) for name in shown)
            cells += tuple(_range(group, _saved(name)) for name in (OURS, DORA))
            body.append((case, mode, *cells))
        noted = [document["note"]] if "note" in document else []
        parts += [made(document), *noted, table(header, body)]
    return "\n\n".join(parts)
