"""What `make test-quick` leaves out."""

from __future__ import annotations

from types import SimpleNamespace

from tests.conftest import QUICK_CASES, few_cases


def item(name: str, *keywords: str) -> SimpleNamespace:
    return SimpleNamespace(nodeid=f"tests/test_a.py::{name}", keywords=keywords)


def test_slow_tests_and_most_cases_are_left_out() -> None:
    cases = [item(f"test_many[{i}]") for i in range(10)]
    others = [item("test_alone"), item("test_few[a]"), item("test_few[b]")]
    chosen = few_cases([*cases, item("test_long", "slow"), *others])
    assert chosen == [*cases[::3], *others]
    assert len(cases[::3]) == QUICK_CASES
