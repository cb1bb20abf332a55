"""Tables of the race: pairs a second, and what each competitor reaches in a given time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from beltrami.analysis.intervals import Interval, mean_interval
from benchmarks.hierarchies_timing import Finish, Speed

Cells = tuple[str, ...]
# In how many CPU-seconds the recipe is to reach what, over all seeds.
GOAL_SECONDS, GOAL_MAP, GOAL_RANK = 60.0, 0.94, 1.2
PUBLISHED = "Nickel and Kiela (2017): MAP 0.927, mean rank 1.26"


@dataclass(frozen=True)
class Place:
    """One competitor at one budget, over its seeds."""

    finishes: tuple[Finish, ...]

    @property
    def first(self) -> Finish:
        """The first seed's."""
        return self.finishes[0]

    @property
    def note(self) -> str:
        """Why there is no result."""
        return next((f.note for f in self.finishes if f.note), "")

    def mean(self, key: str) -> Interval:
        """Of a number, over seeds."""
        return mean_interval([getattr(f, key) for f in self.finishes])


def places(finishes: Sequence[Finish]) -> list[Place]:
    return [
        Place(tuple(group))
        for _, group in groupby(finishes, key=lambda f: (f.budget, f.competitor, f.how))
    ]


def goal_met(finishes: Sequence[Finish]) -> bool | None:
    """Whether the recipe's means are as good as wanted in the time wanted; None if not raced."""
    ours = [p for p in places(finishes) if p.first.competitor.startswith("beltrami, recipe")]
    within = [p for p in ours if p.mean("seconds").mean <= GOAL_SECONDS]
    if not within:
        return None
    best = max(within, key=lambda p: p.first.budget)
    return best.mean("map").mean >= GOAL_MAP and best.mean("mean_rank").mean <= GOAL_RANK


# --- tables ---------------------------------------------------------------------------------------


def speed_rows(speeds: Sequence[Speed]) -> tuple[Cells, list[Cells]]:
    header: Cells = ("who", "how", "pairs a second", "slowest to quickest round", "recipe is")
    body: list[Cells] = []
    first = next((s for s in speeds if s.competitor.startswith("beltrami, recipe")), None)
    for s in speeds:
        if not s.rates:
            body.append((s.competitor, s.how, s.note, "–", "–"))
            continue
        ratio = ""
        if first is not None and first.rates and s is not first:
            ratio = f"{first.median / s.median:.1f}× as fast"
        spread = f"{min(s.rates):,.0f} to {max(s.rates):,.0f}"
        body.append((s.competitor, s.how, f"{s.median:,.0f}", spread, ratio))
    return header, body


def race_rows(finishes: Sequence[Finish]) -> tuple[Cells, list[Cells]]:
    header: Cells = ("CPU-seconds", "who", "how", "epochs", "MAP", "mean rank", "seeds")
    body: list[Cells] = []
    for place in places(finishes):
        f = place.first
        if place.note:
            body.append((f"{f.budget:g}", f.competitor, f.how, place.note, "–", "–", "–"))
            continue
        body.append(
            (
                f"{place.mean('seconds').mean:.1f} of {f.budget:g}",
                f.competitor,
                f.how,
                f"{place.mean('epochs').mean:,.0f}",
                place.mean("map").format(3),
                place.mean("mean_rank").format(2),
                str(len(place.finishes)),
            )
        )
    return header, body


def command(
    only: str = "",
    *,
    quick: bool = False,
    rounds: int | None = None,
    seeds: int | None = None,
    budgets: Sequence[float] | None = None,
) -> str:
    """What one types for this measurement; what differs from a complete one is named."""
    if not (only or quick or rounds or seeds or budgets):
        return "make bench-hierarchies"
    shown = "python -m benchmarks.hierarchies" + " --quick" * quick
    shown += f' --only "{only}"' if only else ""
    shown += f" --rounds {rounds}" if rounds else ""
    shown += f" --seeds {seeds}" if seeds else ""
    return shown + (f" --budgets {' '.join(f'{b:g}' for b in budgets)}" if budgets else "")


def markdown(speeds: Sequence[Speed], finishes: Sequence[Finish], document: dict[str, Any]) -> str:
    """A part of RESULTS.md."""
    from benchmarks.numerics_page import table

    versions = [f"torch {document['torch']}"]
    versions += [f"{name} {document[name]}" for name in ("geoopt", "gensim") if name in document]
    verdict = {
        None: "The goal was not raced for",
        True: "The goal is met",
        False: "The goal is **missed**",
    }[goal_met(finishes)]
    parts = [
        f"Command: `{document['command']}`. Commit {document['commit']}. {document['cpu']}, "
        f"{document['cores']} cores, {', '.join(versions)}.",
        f"{document['data']}: {document['nodes']:,} nodes, {document['pairs']:,} pairs of a node "
        f"and an ancestor, {document['dimensions']} dimensions, float64, one thread. Pairs a "
        f"second of process CPU time, median of {document['rounds']} rounds in which the "
        "competitors take turns.",
        table(*speed_rows(speeds)),
        "Each from the start for a budget of CPU-seconds, then all pairs are ranked; where there "
        "are several seeds, mean ± 95% t-interval. Nobody but the recipe lowers its learning rate "
        f"at the end. {verdict}: MAP ≥ {GOAL_MAP:g} and mean rank ≤ {GOAL_RANK:g} within "
        f"{GOAL_SECONDS:g} CPU-seconds. Published, after 300 epochs: {PUBLISHED}.",
        table(*race_rows(finishes)),
    ]
    return "\n\n".join(parts)
