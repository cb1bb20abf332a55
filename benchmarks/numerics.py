"""The accuracy grid: every function against mpmath, and beside geoopt and HypLL.

Exits 1 when a cell exceeds the numerics contract or is not finite. A complete run writes
benchmarks/results/numerics.json and docs/numerics.md; a partial one writes only where --write says.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import torch
import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from benchmarks import accuracy_grid, machine, numerics_page
from benchmarks.accuracy_grid import Axes, Row
from benchmarks.command import execute

RESULTS = machine.ROOT / "benchmarks/results/numerics.json"
PAGE = machine.ROOT / "docs/numerics.md"
SHOWN = 25

PeerRows = list[dict[str, object]]


@dataclass(frozen=True)
class Options:
    """Measure every geometry function against mpmath on the full grid."""

    quick: bool = False
    """A small part of the grid, a minute or so: for a look, not for the record."""
    only: Annotated[str, tyro.conf.arg(metavar="PATTERN")] = ""
    """Only functions whose "module name" contains this, for example "lorentz dist"."""
    jobs: int = os.cpu_count() or 1
    """Worker processes, one thread each."""
    skip_peers: bool = False
    """Leave out geoopt and HypLL."""
    write: Path | None = None
    """Write numerics.json and numerics.md to this folder, also from a partial run."""

    @property
    def complete(self) -> bool:
        """Whether the run covers all that the page shows."""
        return not (self.quick or self.only or self.skip_peers)


def progress_bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )


def measure_grid(options: Options, axes: Axes, console: Console) -> list[Row]:
    todo = accuracy_grid.tasks(options.only, axes)
    order = {(t.module, t.case): i for i, t in enumerate(todo)}
    rows = []
    with progress_bar(console) as progress:
        bar = progress.add_task("accuracy grid", total=len(todo))
        for row in accuracy_grid.run(todo, options.jobs):
            rows.append(row)
            progress.update(bar, advance=1, description=f"{row.module} {row.case}")
    rows.sort(key=lambda r: order[r.module, r.case])
    return numerics_page.by_module(rows)


def measure_peers(options: Options, console: Console) -> PeerRows:
    from benchmarks import accuracy_peers  # loads geoopt and HypLL

    torch.set_num_threads(1)
    todo = [
        (what, dtype)
        for model in ("lorentz", "poincare")
        for dtype in (torch.float32, torch.float64)
        for what in accuracy_peers.COMPARISONS
        if what.model == model and options.only in f"{what.model} {what.label}"
    ]
    rows: PeerRows = []
    with progress_bar(console) as progress:
        bar = progress.add_task("beside geoopt and HypLL", total=len(todo))
        for what, dtype in todo:
            rows += [asdict(row) for row in accuracy_peers.measure(what, dtype)]
            progress.advance(bar)
    return rows


def show(rows: list[Row], console: Console) -> None:
    table = Table("function", "dtype", title="largest error over its bound, by function")
    for radius in sorted({r.radius for r in rows}):
        table.add_column(f"{radius:g}", justify="right")
    radii = sorted({r.radius for r in rows})
    cases: dict[tuple[str, str, str], dict[float, Row]] = {}
    for r in rows:
        cases.setdefault((r.module, r.label, r.dtype), {})[r.radius] = r
    for (module, case, dtype), found in cases.items():
        cells = [_shade(found[r].ratio) if r in found else "" for r in radii]
        table.add_row(f"{module} {case}", dtype, *cells)
    console.print(table)


def _shade(ratio: float) -> str:
    text = "NaN" if not math.isfinite(ratio) else f"{ratio:.2f}"
    return f"[red]{text}[/red]" if not ratio <= 1 else text


def show_failures(rows: list[Row], console: Console) -> list[Row]:
    failed = sorted((r for r in rows if not r.ratio <= 1), key=lambda r: -r.ratio)
    for r in failed[:SHOWN]:
        ratios = f"{r.value_ratio:.2g} / {r.gradient_ratio:.2g} / {r.c_gradient_ratio:.2g}"
        place = f"r={r.radius:g} c={r.where[0]:g} dim={r.where[1]}"
        console.print(
            f"[red]exceeds[/red] {r.module} {r.label} {r.dtype} {place}: "
            f"{ratios} times its bound (value / gradient / c-gradient) {r.error}"
        )
    if len(failed) > SHOWN:
        console.print(f"... and {len(failed) - SHOWN} more")
    return failed


def _rounded(x: object) -> object:
    """Three digits; strings for what JSON has no number for."""
    if isinstance(x, float):
        return float(f"{x:.3g}") if math.isfinite(x) else "nan"
    if isinstance(x, list | tuple):
        return [_rounded(v) for v in x]
    return x


def write(rows: list[Row], peers: PeerRows, axes: Axes, results: Path, page: Path) -> None:
    from benchmarks import accuracy_peers

    about = machine.describe("geoopt", "hypll", "mpmath")
    columns = [name for name in Row.__dataclass_fields__ if name != "error"]
    document = {
        "command": "make bench-numerics",
        **about,
        "columns": columns,
        "rows": [[_rounded(getattr(r, name)) for name in columns] for r in rows],
        "peer_radii": accuracy_peers.RADII,
        "peers": [{k: _rounded(v) for k, v in row.items()} for row in peers],
    }
    lines = json.dumps(document, ensure_ascii=False).replace("], [", "],\n[")
    results.parent.mkdir(parents=True, exist_ok=True)
    results.write_text(lines.replace("}, {", "},\n{") + "\n", encoding="utf-8")

    versions = f"geoopt {about['geoopt']}, HypLL {about['hypll']}, torch {about['torch']}"
    samples = ", ".join(f"{n} inputs at d = {d}" for d, n in accuracy_grid.SAMPLES.items())
    parts = [
        numerics_page.CONTRACT.format(status=numerics_page.status(rows)),
        numerics_page.PEERS.format(
            samples=accuracy_peers.SAMPLES, dim=accuracy_peers.DIM, versions=versions
        ),
        numerics_page.peer_tables(peers, accuracy_peers.RADII),
        numerics_page.GRID.format(
            curvatures=_listing(axes.curvatures), dims=_listing(axes.dims), samples=samples
        ),
        numerics_page.summary(rows),
        numerics_page.grid_tables(rows),
    ]
    page.write_text("\n\n".join(p.strip() for p in parts) + "\n", encoding="utf-8")


def _listing(values: tuple[float, ...]) -> str:
    return "{" + ", ".join(f"{v:g}" for v in values) + "}"


def run(options: Options) -> int:
    console = Console()
    if options.jobs < 1:
        console.print(f"--jobs must be at least 1, got {options.jobs}")
        return 2
    axes = Axes.quick() if options.quick else Axes()
    rows = measure_grid(options, axes, console)
    if not rows:
        console.print(f"no function matches {options.only!r}")
        return 2
    peers = [] if options.skip_peers else measure_peers(options, console)
    show(rows, console)
    failed = show_failures(rows, console)
    if options.write is not None:
        options.write.mkdir(parents=True, exist_ok=True)
        write(rows, peers, axes, options.write / RESULTS.name, options.write / PAGE.name)
    elif options.complete:
        write(rows, peers, axes, RESULTS, PAGE)
    cells = sum(r.cells for r in rows)
    verdict = f"{len(failed)} of {len(rows)} rows exceed their bound" if failed else "all in bounds"
    console.print(f"{len(rows)} rows, {cells} cells: {verdict}")
    return 1 if failed else 0


if __name__ == "__main__":
    execute(run, Options)
