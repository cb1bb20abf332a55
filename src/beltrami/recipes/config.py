"""What every recipe can be told; apart from the recipes, so that the command line loads quickly."""

from __future__ import annotations

import dataclasses
import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

RUNS = Path("runs")
# What does not change the numbers.
PRESENTATION = (
    "out",
    "resume",
    "fresh",
    "device",
    "checkpoint_seconds",
    "json",
    "jobs",
    "micro_batch",
    "test_batch",
)
IN_DIGEST = ("data", "root", "model", "tests")  # what the data's digest says better


@dataclass(frozen=True)
class RunConfig:
    """The options that all recipes share."""

    recipe: ClassVar[str]
    # Options that only add trials to a run, so that --resume may change them.
    adding: ClassVar[tuple[str, ...]] = (
        "seeds",
        "dims",
        "models",
        "layers",
        "shares",
        "learning_rates",
    )

    seeds: int = 3
    """How many times to repeat everything from another start; intervals need at least 2."""

    out: Path | None = None
    """Folder of the run: config.json, metrics.json, report.html, models and logs. Without it: a
    folder below runs/ named after the recipe and the data."""

    resume: bool = False
    """Go on in a folder that holds a run: finished trials are kept, a broken-off one continues
    from its last checkpoint. Asking for more seeds or dimensions adds them."""

    fresh: bool = False
    """Start over in a folder that holds a run; what it holds is deleted first."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train; "auto" takes the GPU when there is one."""

    jobs: int = 1
    """Trials that are trained side by side, each in a process of its own. Small models are done
    sooner, and the seconds of a trial then say little."""

    checkpoint_seconds: float = 30.0
    """Seconds between two checkpoints of a training; 0 writes one after every step."""

    json: bool = False
    """Print metrics.json and the written files' paths on stdout instead of tables."""

    def check(self) -> None:
        """Raise a `ValueError` that names the option, the value and what would be accepted."""
        if self.seeds < 1:
            raise ValueError(f"--seeds must be at least 1, got {self.seeds}")
        if self.jobs < 1:
            raise ValueError(f"--jobs must be at least 1, got {self.jobs}")
        if self.jobs > 1 and os.environ.get("WORLD_SIZE", "1") != "1":
            raise ValueError("--jobs is for one process, and torchrun started several; give one")
        if self.resume and self.fresh:
            raise ValueError("--resume keeps what is there and --fresh deletes it; give one")
        if not self.checkpoint_seconds >= 0:  # false for nan, too
            raise ValueError(
                f"--checkpoint-seconds must be 0 or more, got {self.checkpoint_seconds:g}"
            )
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            for one in value if isinstance(value, tuple) else (value,):
                if isinstance(one, str | Path) and not _is_text(str(one)):
                    raise ValueError(
                        f"{_option(field.name)} is not UTF-8 text: {str(one)!a}; rename the file"
                    )

    def data_name(self) -> str:
        """What to call the data in the default folder's name."""
        raise NotImplementedError

    @property
    def folder(self) -> Path:
        """Where the run lives."""
        return RUNS / f"{self.recipe}-{self.data_name()}" if self.out is None else self.out

    def settings(self) -> dict[str, Any]:
        """The options that say what is computed, JSON-able."""
        return plain_settings(self, besides=PRESENTATION)

    def command(self, *, resume: bool = False) -> str:
        """The command line that repeats this run, or continues it."""
        options = option_words(self, besides=("resume", "fresh", "json"))
        words = ["beltrami", "run", self.recipe, *options]
        return shlex.join([*words, "--resume"] if resume else words)


def plain_settings(config: Any, *, besides: tuple[str, ...]) -> dict[str, Any]:
    """The options of a config by name, JSON-able, without some."""
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
        option = _option(field.name)
        if isinstance(value, bool):
            words.append(option if value else f"--no-{option[2:]}")
        elif isinstance(value, tuple):
            words += [option, *map(str, value)]
        else:
            words.append(f"{option}={value}")  # with "=": a path may start with "-"
    return words


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _is_text(value: str) -> bool:
    """Whether our files can hold it; a path may have bytes that are no text."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    return [_plain(v) for v in value] if isinstance(value, tuple) else value
