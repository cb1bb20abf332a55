from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from beltrami.cli.app import parse
from beltrami.options import RUNS
from beltrami.recipes.config import RunConfig
from beltrami.recipes.registry import RECIPES
from tests.recipes.tiny import TinyConfig


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seeds": 0}, "--seeds must be at least 1, got 0"),
        ({"checkpoint_seconds": -1.0}, "--checkpoint-seconds must be at least 0, got -1"),
        ({"checkpoint_seconds": float("nan")}, "got nan"),
        ({"resume": True, "fresh": True}, "give one"),
        ({"out": Path("a\udcffb")}, r"--out is not UTF-8 text: 'a\udcffb'"),
        ({"word": "a\udcff"}, "--word is not UTF-8"),
    ],
)
def test_bad_options_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="--") as error:
        replace(TinyConfig(), **changes).check()
    assert message in str(error.value)


def test_where_a_run_lives() -> None:
    assert TinyConfig().folder == RUNS / "tiny-line"
    assert TinyConfig(out=Path("x")).folder == Path("x")


def test_settings_are_what_the_numbers_depend_on() -> None:
    config = TinyConfig(out=Path("x"), resume=True, device="cpu", json=True, rates=(0.5,))
    assert config.settings() == {
        "seeds": 3, "steps": 4, "rates": [0.5], "diverges_from": 1e9, "word": "words",
    }  # fmt: skip


def reparsed(config: RunConfig, *, resume: bool = False) -> RunConfig:
    words = shlex.split(config.command(resume=resume))
    assert words[0] == "beltrami"
    found: RunConfig = parse(words[1:]).config  # type: ignore[union-attr]
    return found


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"seeds": 5, "out": Path("-a folder/it's=[x]"), "device": "cpu"},
        {"rates": (1e-9, 0.1), "word": "--resume", "checkpoint_seconds": 0.5},
        {"word": "two\nlines $HOME", "fresh": True, "json": True},
    ],
)
def test_the_command_repeats_the_run(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RECIPES, TinyConfig, "tests.recipes.tiny:TinyRecipe")
    config = replace(TinyConfig(), **changes)
    plain = replace(config, fresh=False, json=False)  # a repetition asks for neither
    assert reparsed(config) == plain
    assert reparsed(config, resume=True) == replace(plain, resume=True)
