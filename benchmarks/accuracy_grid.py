"""Run every accuracy case over the whole grid, on all cores.

A task is one function at one dtype and radius, over all curvatures and dimensions: large enough to
hide the cost of sending it, small enough for a progress bar that moves.
"""

from __future__ import annotations

import functools
import math
import multiprocessing
import signal
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from tests.accuracy import grid as g
from tests.accuracy.modules import all_cases

# Reference derivatives in 513 dimensions are the expensive part: one draw a cell there.
SAMPLES = {1: 4, 2: 4, 3: 4, 64: 2, 513: 1}
PARTS = ("value", "gradient", "c_gradient")
DTYPE_NAMES = {torch.float32: "float32", torch.float64: "float64"}


@dataclass(frozen=True)
class Axes:
    """The part of the grid to run."""

    radii: tuple[float, ...] = g.RADII
    curvatures: tuple[float, ...] = g.CURVATURES
    dims: tuple[int, ...] = g.DIMS

    @classmethod
    def quick(cls) -> Axes:
        """A corner of the grid that takes a minute or so."""
        return cls(radii=(1e-3, 1.0, 10.0, 40.0), curvatures=(0.1, 10.0), dims=(1, 3, 64))


@dataclass(frozen=True)
class Task:
    """One function at one dtype and radius."""

    module: str
    case: str
    dtype: torch.dtype
    radius: float
    axes: Axes


@dataclass(frozen=True)
class Row:
    """The worst errors of a task, relative and in units of the contract's bound.

    `where` is the (c, dim) of the worst ratio; a NaN, an infinity or an exception is infinite.
    """

    module: str
    case: str
    dtype: str
    radius: float
    cells: int
    value: float
    gradient: float
    c_gradient: float
    value_ratio: float
    gradient_ratio: float
    c_gradient_ratio: float
    where: tuple[float, int]
    error: str = ""

    @property
    def label(self) -> str:
        """The case's name without the module's, which some repeat."""
        return self.case.removeprefix(self.module).lstrip(". ")

    @property
    def ratio(self) -> float:
        """The worst of value and gradients, in units of their bounds."""
        return max(self.value_ratio, self.gradient_ratio, self.c_gradient_ratio)


@functools.cache
def cases() -> dict[str, dict[str, g.Case]]:
    """All cases by module and name."""
    tables = {}
    for module, found in all_cases().items():
        tables[module] = {case.name: case for case in found}
        if len(tables[module]) != len(found):
            raise ValueError(f"cases_{module}.py has two cases of the same name")
    return tables


def tasks(pattern: str, axes: Axes) -> list[Task]:
    """All tasks whose "module case" contains `pattern`."""
    out = []
    for module, table in cases().items():
        for name, case in table.items():
            if pattern not in f"{module} {name}":
                continue
            for dtype in g.DTYPES:
                for radius in axes.radii:
                    task = Task(module, name, dtype, radius, axes)
                    if any(True for _ in case.cells(_cells(task))):
                        out.append(task)
    return out


def _cells(task: Task) -> Iterator[g.Cell]:
    axes = task.axes
    return g.grid((task.radius,), axes.curvatures, axes.dims, (task.dtype,))


def _bounds(case: g.Case, cell: g.Cell) -> tuple[float, float, float]:
    value = case.bound(cell) * cell.eps
    gradient = (case.gradient_bound or case.bound)(cell) * cell.eps
    return value, gradient, gradient


def run_task(task: Task) -> Row:
    case = cases()[task.module][task.case]
    worst, ratios = [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]
    where, message, count = (0.0, 0), "", 0
    radius = task.radius
    for cell in case.cells(_cells(task)):
        count += 1
        radius = cell.radius  # the end of the case's reach, where that lies before the task's
        try:
            measured = g.measure(case, cell, SAMPLES.get(cell.dim, 1))
            errors = [getattr(measured, part) for part in PARTS]
        except Exception as error:  # a cell that raises is a finding, not the end of the run
            errors, message = [math.inf] * 3, f"{type(error).__name__}: {error}"
        bounds = _bounds(case, cell)
        cell_ratios = [e / b for e, b in zip(errors, bounds, strict=True)]
        if max(cell_ratios) >= max(ratios):
            where = (cell.c, cell.dim)
        worst = [max(a, b) for a, b in zip(worst, errors, strict=True)]
        ratios = [max(a, b) for a, b in zip(ratios, cell_ratios, strict=True)]
    dtype = DTYPE_NAMES[task.dtype]
    return Row(
        task.module, task.case, dtype, radius, count, *worst, *ratios, where, message
    )  # fmt: skip


def _start_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends the pool
    torch.set_num_threads(1)


def run(todo: list[Task], jobs: int) -> Iterator[Row]:
    """Rows as they finish. Closing the iterator ends the workers."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(jobs, initializer=_start_worker) as pool:
        yield from pool.imap_unordered(run_task, todo)
