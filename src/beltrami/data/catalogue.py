"""The catalogue of data sets and models that `beltrami data` knows, from `files/catalogue.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from beltrami.data.entry import Entry, Kept


class UnknownDataError(ValueError):
    """No data set has this name; the message lists the closest ones."""


def find(name: str | Entry) -> Entry:
    """The entry of that name; an entry, also one of your own, is its own answer."""
    if isinstance(name, Entry):
        return name
    if name in CATALOGUE:
        return CATALOGUE[name]
    close = get_close_matches(name, CATALOGUE, n=3)
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    raise UnknownDataError(f"no data set is called {name!r}; {hint}`beltrami data list` shows all")


def parse_entries(text: str) -> list[Entry]:
    """Entries from the text of a TOML file: tables `entry` with the fields of `Entry`."""
    return [_entry(table) for table in tomllib.loads(text)["entry"]]


def _entry(table: Mapping[str, Any]) -> Entry:
    name = table.get("name", "(an entry without a name)")
    try:
        patterns = tuple(Kept(**file) for file in table["files"])
        lists = {key: tuple(value) for key, value in table.items() if isinstance(value, list)}
        return Entry(**{"sha256": None, "content": None, **table, **lists, "files": patterns})
    except (KeyError, TypeError) as error:
        raise ValueError(f"{name}: not an entry of the catalogue: {error}") from error


def _load() -> Mapping[str, Entry]:
    text = (files("beltrami.data") / "files" / "catalogue.toml").read_text(encoding="utf-8")
    return MappingProxyType({entry.name: entry for entry in parse_entries(text)})


CATALOGUE: Mapping[str, Entry] = _load()
"""Every entry by its name, in the order of `beltrami data list`."""
