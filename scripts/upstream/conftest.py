"""Makes the models, and selects what is HypLoRA's among PEFT's tests."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import models
import pytest
import retarget
import selection
import tests.testing_utils
import torch

torch.set_num_threads(1)
warnings.filterwarnings("ignore")


class _Everything(dict[str, int]):
    """PEFT's list of what was fetched from the Hub already, so that it stays offline."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> int:
        return 0


def pytest_configure() -> None:
    tests.testing_utils._HUB_MODEL_ACCESSES = _Everything()
    retarget.understand_lora()
    retarget.alias_lora()
    models.save_all(Path.cwd())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    chosen, others = [], []
    for item in items:
        name = getattr(item, "originalname", item.name)
        callspec: Any = getattr(item, "callspec", None)
        parameters = list(callspec.params.values()) if callspec else []
        ours = retarget.is_ours(parameters) or name in selection.LORA_TESTS
        (chosen if ours else others).append(item)
        reason = selection.reason_to_skip(item.name)
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))
    config.hook.pytest_deselected(items=others)
    items[:] = chosen
