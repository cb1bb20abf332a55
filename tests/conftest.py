"""Shared by all tests: one thread a worker, seeds, and what is done without a GPU."""

from __future__ import annotations

import collections
import os
import signal

import hypothesis
import pytest
import torch

# Tests run side by side, one worker a core; threads inside them would only get in the way.
torch.set_num_threads(1)

# A shell lets what it starts with & ignore Ctrl-C, and so would every process of a test.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Fused kernels run in Triton's interpreter where there is no GPU. It must be asked for before
# anything imports Triton, as PEFT does, which the modules of tests import.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# On CI a failure must be one of the change, not of the draw; elsewhere every run explores anew.
hypothesis.settings.register_profile("ci", derandomize=True, deadline=None)
hypothesis.settings.register_profile("local", deadline=None)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "local")
hypothesis.settings.register_profile("quick", deadline=None, max_examples=10)

QUICK_CASES = 4  # of a test, with --quick


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick",
        action="store_true",
        help=f"leave out slow tests, and of a test all but {QUICK_CASES} cases",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--quick"):
        hypothesis.settings.load_profile("quick")


def few_cases(items: list[pytest.Item]) -> list[pytest.Item]:
    """Every test that is not slow, with cases spread evenly over all that it has."""
    tests = collections.defaultdict(list)
    for item in items:
        if "slow" not in item.keywords:
            tests[item.nodeid.partition("[")[0]].append(item)
    return [item for cases in tests.values() for item in cases[:: -(-len(cases) // QUICK_CASES)]]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--quick"):
        chosen = few_cases(items)
        config.hook.pytest_deselected(items=list(set(items) - set(chosen)))
        items[:] = chosen
    if torch.cuda.is_available():
        return
    skip = pytest.mark.skip(reason="needs a CUDA device: run `make test-gpu` on a machine with one")
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(skip)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
