"""What the commands of this folder share: options from a dataclass, an exit status, Ctrl-C."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

import tyro

Options = TypeVar("Options")


def execute(
    run: Callable[[Options], int], options: type[Options], lost: str = "nothing was written"
) -> None:
    """Parse the command line, run and exit; `lost` says what Ctrl-C leaves behind."""
    try:
        sys.exit(run(tyro.cli(options)))
    except KeyboardInterrupt:
        print(f"interrupted; {lost}", file=sys.stderr)
        sys.exit(130)
