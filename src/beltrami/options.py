"""Options of commands: their checks, their names, and the command line that repeats them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from beltrami.checks import check_integer, check_unique

RUNS = Path("runs")  # where commands write without --out
TAXONOMY_FORMS = """

A taxonomy of your own is an OBO file or of one of these forms, with
columns separated by tabs, commas or semicolons. Repeated edges are
removed and several roots joined, with a note; --strict refuses them.
    child and parent    child,parent    (a header or none)
                        cat,            (a root)
                        lion,cat
    a column a rank     family,genus,species
                        Felidae,Panthera,leo
    a column a level    level 1,level 2,level 3
                        animal,cat,lion
    paths               animal/cat/lion
                        animal > cat > lion
    indented text       animal
                          cat
                            lion
    JSON                [["lion", "cat"], ["cat", "animal"]]
                        {"name": "cat", "children": [...]}
    Newick              (lion,tiger)cat;"""


def check_counts(config: object, *names: str) -> None:
    """Refuse options below 1; those that are None were not given."""
    for name in names:
        if (value := getattr(config, name)) is not None:
            check_integer(flag(name), value)


def check_no_repeats(config: object, *names: str) -> None:
    """Refuse lists that name something twice."""
    for name in names:
        check_unique(flag(name), getattr(config, name))


def refuse_given(config: Any, names: Sequence[str], why: str) -> None:
    """Refuse options that would be ignored: those that are not what they are by default."""
    defaults = type(config)()
    for name in names:
        if getattr(config, name) != getattr(defaults, name):
            raise ValueError(f"{flag(name)} does not apply: {why}")


def flag(name: str) -> str:
    """An option's name on the command line."""
    return "--" + name.replace("_", "-")


def file_name(text: str) -> str:
    """A text made fit for the name of a folder."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text)


def plain_settings(config: Any, *, besides: tuple[str, ...]) -> dict[str, Any]:
    """The options of a config by name, JSON-able, without those named in `besides`."""
    return {
        field.name: _plain(getattr(config, field.name))
        for field in dataclasses.fields(config)
        if field.name not in besides
    }


def option_words(config: Any, *, besides: tuple[str, ...]) -> list[str]:
    """The words that say, on a command line, where a config differs from its defaults."""
    words: list[str] = []
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name in besides or value == field.default:
            continue
        name = flag(field.name)
        if isinstance(value, bool):
            words.append(name if value else f"--no-{name[2:]}")
        elif isinstance(value, tuple):
            words += [name, *map(str, value)]
        else:
            words.append(f"{name}={value}")  # with "=": a path may start with "-"
    return words


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    return [_plain(v) for v in value] if isinstance(value, tuple) else value
