"""The `beltrami` command: subcommands from typed dataclasses, so that --help never lies.

Results go to stdout, as a table or, with --json, as one JSON document and nothing else; progress
and errors go to stderr. What the user got wrong ends in one line that names the value and the fix,
and in exit code 2; what the system refuses (a full disk) ends in one line and exit code 1; only a
defect of ours shows a traceback, also with exit code 1.
"""

from __future__ import annotations

import difflib
import inspect
import sys
import warnings
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, TextIO, Union

from beltrami import __version__
from beltrami.cli.console import drop_stdout, print_what_the_encoding_can
from beltrami.cli.errors import FAILURE, INTERRUPTED, OK, USAGE, BadInputError, OutputError
from beltrami.cli.info import InfoCommand
from beltrami.cli.signals import terminated_like_interrupted
from beltrami.diagnosis.config import DiagnoseConfig
from beltrami.diagnosis.explore.config import ExploreConfig
from beltrami.options import TAXONOMY_FORMS
from beltrami.recipes.family.config import FamilyConfig
from beltrami.recipes.forecasting.config import ForecastConfig
from beltrami.recipes.registry import RECIPES

if TYPE_CHECKING:
    from beltrami.cli.data import DataCommand
    from beltrami.cli.diagnose import DiagnoseCommand
    from beltrami.cli.embeddings import ExportCommand, NearestCommand
    from beltrami.cli.explore import ExploreCommand
    from beltrami.cli.family import FamilyCommand
    from beltrami.cli.forecast import ForecastCommand
    from beltrami.cli.run import RunCommand
    from beltrami.cli.runs import CompareCommand, RunsCommand
    from beltrami.cli.tour import TourCommand

    Command = (
        RunCommand
        | RunsCommand
        | CompareCommand
        | NearestCommand
        | ExportCommand
        | DiagnoseCommand
        | ExploreCommand
        | FamilyCommand
        | ForecastCommand
        | TourCommand
        | DataCommand
        | InfoCommand
    )

DESCRIPTION = """Hyperbolic foundation models for PyTorch.

Results go to stdout, progress and errors to stderr. `beltrami --version` prints the version.

Exit codes:
    0   done
    1   failure: of the system, such as a full disk, which one line names, or of beltrami, with
        a traceback; please report the latter with the output of `beltrami info`
    2   bad usage or bad input; the message names the value and the fix
  130   interrupted (Ctrl-C, SIGTERM); finished work is on disk, the message says how to go on"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; the codes are in `beltrami --help`."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    print_what_the_encoding_can()
    try:
        with terminated_like_interrupted(), warnings.catch_warnings():
            _print_notes()
            code = run(arguments)
        sys.stdout.flush()  # now, where a full disk can still be named
        return code
    except BadInputError as error:
        return _fail(f"error: {error}", USAGE)
    except KeyboardInterrupt as interrupt:
        return _fail(str(interrupt) or "Interrupted; nothing was finished.", INTERRUPTED)
    except OutputError as error:
        return _fail(f"error: {error}", FAILURE)
    except BrokenPipeError:  # who read our output went away
        drop_stdout()
        return FAILURE
    except OSError as error:
        drop_stdout()
        where = "" if error.filename else "cannot write to standard output: "
        return _fail(f"error: {where}{error}", FAILURE)
    except Exception:
        import traceback

        traceback.print_exc()
        return _fail(
            "This is a defect of beltrami. Please report it with the lines above and the output "
            "of `beltrami info`.",
            FAILURE,
        )


def run(arguments: Sequence[str]) -> int:
    """Parse and execute; failures are the caller's."""
    if arguments == ["--version"]:
        print(f"beltrami {__version__}")
        return OK
    _refuse_empty_values(arguments)
    try:
        command = parse(arguments or ["--help"])
    except SystemExit as stop:  # tyro has printed help (0) or what is wrong (2)
        return USAGE if stop.code or not arguments else OK
    command.execute()
    return OK


def parse(arguments: Sequence[str]) -> Command:
    """The subcommand that the arguments ask for; exits as tyro does on --help and on bad usage."""
    arguments = list(arguments)
    import tyro
    from tyro.conf import DisallowNone, FlagCreatePairsOff, subcommand

    from beltrami.cli.data import ACTIONS, DataCommand
    from beltrami.cli.diagnose import DiagnoseCommand
    from beltrami.cli.embeddings import ExportCommand, NearestCommand
    from beltrami.cli.explore import ExploreCommand
    from beltrami.cli.family import FamilyCommand
    from beltrami.cli.forecast import ForecastCommand
    from beltrami.cli.run import run_command, summary_and_example
    from beltrami.cli.runs import CompareCommand, RunsCommand
    from beltrami.cli.tour import TourCommand

    recipe = arguments[1] if arguments[:1] == ["run"] and len(arguments) > 1 else ""
    table: dict[str, tuple[Any, type | None]] = {
        "run": (run_command(recipe), None),
        "runs": (RunsCommand, None),
        "compare": (CompareCommand, None),
        "nearest": (NearestCommand, None),
        "export": (ExportCommand, None),
        "diagnose": (DiagnoseCommand, DiagnoseConfig),
        "explore": (ExploreCommand, ExploreConfig),
        "family": (FamilyCommand, FamilyConfig),
        "forecast": (ForecastCommand, ForecastConfig),
        "tour": (TourCommand, None),
        "data": (DataCommand, None),
        "info": (InfoCommand, None),
    }
    recipes = [kind.recipe for kind in RECIPES]
    _check_command(arguments, {"": [*table], "run": recipes, "data": ACTIONS})
    commands = []
    for name, (command, config) in table.items():
        about = inspect.getdoc(config or command) or ""
        if arguments[0] != name:
            about = summary_and_example(about)
        elif name in ("diagnose", "explore"):
            about += TAXONOMY_FORMS
        commands.append(Annotated[command, subcommand(name, description=about)])
    any_command: Any = Union[tuple(commands)]  # noqa: UP007
    parsed: Command = tyro.cli(
        any_command,
        prog="beltrami",
        description=DESCRIPTION,
        args=arguments,
        config=(DisallowNone, FlagCreatePairsOff),
    )
    return parsed


def _check_command(arguments: Sequence[str], names: Mapping[str, Sequence[str]]) -> None:
    """Refuse a command that is not there, with the name that is most like it."""
    for group, word in zip(["", arguments[0]], arguments, strict=False):
        known = names.get(group, ())
        if known and not word.startswith("-") and word.replace("_", "-") not in known:
            typed = f"beltrami {group}".rstrip()
            recipes = {} if group else {name: f"beltrami run {name}" for name in names["run"]}
            whole = recipes | {name: f"{typed} {name}" for name in known}
            near = difflib.get_close_matches(word, whole, 1)
            hint = f"Did you mean `{whole[near[0]]}`? " if near else ""
            raise BadInputError(
                f"`{typed} {word}` is not a command. {hint}There are {', '.join(known)}.\n"
                f"See `{typed} --help`."
            )


def _refuse_empty_values(arguments: Sequence[str]) -> None:
    """An empty path would silently mean the current folder."""
    for before, argument in pairwise(["", *arguments]):
        name, equals, value = argument.partition("=")
        if not argument or (name.startswith("--") and equals and not value):
            raise BadInputError(f"{name or before or 'an argument'} is empty; give a value")


def _print_notes() -> None:
    """What a reader changed in the user's data is a line on stderr; other warnings are Python's."""
    from beltrami.cli.run import is_main_process
    from beltrami.data.text import DataWarning

    show, printed = warnings.showwarning, set[str]()

    def show_note(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if issubclass(category, DataWarning):
            if str(message) not in printed:  # a file may be read twice
                print(f"note: {message}", file=sys.stderr)
            printed.add(str(message))
        else:
            show(message, category, filename, lineno, file, line)

    warnings.simplefilter("always" if is_main_process() else "ignore", DataWarning)
    warnings.showwarning = show_note


def _fail(message: str, code: int) -> int:
    print(message, file=sys.stderr)
    return code
