"""Kill a run at every point where it writes, resume each, and print what was found.

    python -m tests.recipes.killed FOLDER

A run that is killed is a forked process, so that torch is imported once. Nothing waits for the
disk: a killed process, unlike a power cut, loses nothing that it has written. Prints one JSON
object: the numbers of an uninterrupted run, and those of every resumed one, each with its files.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import beltrami.recipes.runner as runner
from tests.recipes.tiny import TinyConfig, TinyRecipe, numbers


def run(out: Path) -> None:
    runner.run(TinyRecipe(TinyConfig(seeds=1, steps=2, out=out, resume=True)))


def killed_at(event: int, out: Path) -> bool:
    """Run until the nth event of a write: begun, written, renamed. False: it ended before."""
    child = os.fork()
    if child == 0:
        left = event

        def counted(function: Callable[..., Any], before: bool) -> Callable[..., Any]:
            def wrapped(*args: Any, **kwargs: Any) -> Any:
                nonlocal left
                result = None if before else function(*args, **kwargs)
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return function(*args, **kwargs) if before else result

            return wrapped

        tempfile.mkstemp = counted(tempfile.mkstemp, before=False)
        os.fsync = counted(os.fsync, before=True)  # of nothing, see below
        Path.replace = counted(Path.replace, before=False)  # type: ignore[method-assign]
        run(out)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def finished(out: Path) -> dict[str, Any]:
    run(out)
    files = sorted(str(p.relative_to(out)) for p in out.rglob("*") if "logs" not in p.parts)
    found = json.loads((out / "metrics.json").read_text())
    return {"numbers": numbers(found), "files": files}


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    os.fsync = lambda handle: None
    sys.modules["torch.utils.tensorboard"] = None  # type: ignore[assignment]  # has its own test
    whole = finished(folder / "whole")
    results = []
    event = 1
    while killed_at(event, folder / str(event)):
        results.append(finished(folder / str(event)))
        event += 1
    print(json.dumps({"whole": whole, "resumed": results}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
