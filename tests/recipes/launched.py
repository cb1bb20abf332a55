"""The command with the tiny recipe, as a launcher starts it.

    torchrun --nproc-per-node 2 -m tests.recipes.launched run tiny ...

DIE_AT=STEP   the process of highest rank ends without a farewell before that step.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from beltrami.cli import main
from beltrami.recipes.registry import RECIPES
from beltrami.train.session import Session
from tests.recipes.tiny import TinyConfig


def die_at(step: int) -> None:
    made = Session.step

    def made_or_dead(self: Session, done: int, **values: Any) -> None:
        if done == step and self.processes.rank == self.processes.world_size - 1:
            os._exit(9)
        made(self, done, **values)

    Session.step = made_or_dead  # type: ignore[method-assign]


if __name__ == "__main__":
    RECIPES[TinyConfig] = "tests.recipes.tiny:TinyRecipe"
    if wish := os.environ.get("DIE_AT"):
        die_at(int(wish))
    sys.exit(main())
