"""Options of all recipes; apart from the recipes, so that the command line loads quickly."""

from __future__ import annotations

import dataclasses
import math
import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from beltrami.checks import check_number, check_unique
from beltrami.options import RUNS, file_name, flag, option_words, plain_settings

T = TypeVar("T")
_OPTION = "option"  # key in the metadata of a field


@dataclass(frozen=True)
class Option:
    """What is known of an option beside its type and its default.

    Args:
        adds_runs: other values add training runs to a folder, so --resume may change it; a list
            may not repeat a value.
        presentation: it changes no number.
        in_data_digest: the digest of the data covers it.
        low, high: bounds of a number, or of each number of a list.
        open_low, open_high: whether a bound itself is excluded.
    """

    adds_runs: bool = False
    presentation: bool = False
    in_data_digest: bool = False
    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False

    def check(self, name: str, value: Any, default: Any) -> None:
        """Raise a `ValueError` that names the option, the value and what would be accepted."""
        values = value if isinstance(value, tuple) else (value,)
        if not values and default:
            raise ValueError(f"{name} is empty; give at least one value")
        for item in values:
            if isinstance(item, str | Path):
                _check_text(name, str(item))
            elif self._is_bounded and item is not None:
                bounds = {"open_low": self.open_low, "open_high": self.open_high}
                check_number(name, item, low=self.low, high=self.high, **bounds)
        if self.adds_runs:
            check_unique(name, values)

    @property
    def _is_bounded(self) -> bool:
        return math.isfinite(self.low) or math.isfinite(self.high)


def option(default: T, **known: Any) -> T:
    """A field of a config with what an `Option` says of it.

    >>> epochs: int = option(10, low=1)
    """
    field: T = dataclasses.field(default=default, metadata={_OPTION: Option(**known)})
    return field


@dataclass(frozen=True)
class RunConfig:
    """The options that all recipes share."""

    recipe: ClassVar[str]

    seeds: int = option(3, low=1, adds_runs=True)
    """How many times to repeat everything from another start; intervals need at least 2."""

    out: Path | None = option(None, presentation=True)
    """Folder of the run: config.json, metrics.json, report.html, models and logs. Without it: a
    folder below runs/ named after the recipe and the data."""

    resume: bool = option(False, presentation=True)
    """Go on in a folder that holds a run: finished trainings are kept, an interrupted one continues
    from its last checkpoint. Asking for more seeds or dimensions adds them."""

    fresh: bool = option(False, presentation=True)
    """Start over in a folder that holds a run; what it holds is deleted first."""

    device: Literal["auto", "cpu", "cuda"] = option("auto", presentation=True)
    """Where to train; "auto" takes the GPU when there is one."""

    jobs: int = option(1, low=1, presentation=True)
    """Trainings at the same time, each in a process of its own. Small models are done sooner, and
    the seconds of a training then say little."""

    checkpoint_seconds: float = option(30.0, low=0, presentation=True)
    """Seconds between two checkpoints of a training; 0 writes one after every step."""

    json: bool = option(False, presentation=True)
    """Print metrics.json and the written files' paths on stdout instead of tables."""

    @classmethod
    def known(cls, name: str) -> Option:
        """What is known of an option; a field that overrides a default keeps it."""
        for kind in cls.__mro__:
            field = getattr(kind, "__dataclass_fields__", {}).get(name)
            if field is not None and _OPTION in field.metadata:
                known: Option = field.metadata[_OPTION]
                return known
        return Option()

    def check(self) -> None:
        """Raise a `ValueError` that names the option, the value and what would be accepted."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            self.known(field.name).check(flag(field.name), value, field.default)
        if self.jobs > 1 and os.environ.get("WORLD_SIZE", "1") != "1":
            raise ValueError("--jobs is for one process, and torchrun started several; give one")
        if self.resume and self.fresh:
            raise ValueError("--resume keeps what is there and --fresh deletes it; give one")

    def data_name(self) -> str:
        """What to call the data in the default folder's name."""
        raise NotImplementedError

    @property
    def folder(self) -> Path:
        """Where the run lives."""
        return RUNS / f"{self.recipe}-{self.data_name()}" if self.out is None else self.out

    def settings(self) -> dict[str, Any]:
        """The options that say what is computed, JSON-able."""
        names = (field.name for field in dataclasses.fields(self))
        return plain_settings(self, besides=tuple(n for n in names if self.known(n).presentation))

    def command(self, *, resume: bool = False) -> str:
        """The command line that repeats this run, or continues it."""
        options = option_words(self, besides=("resume", "fresh", "json"))
        words = ["beltrami", "run", self.recipe, *options]
        return shlex.join([*words, "--resume"] if resume else words)


@dataclass(frozen=True)
class TaxonomyConfig(RunConfig):
    """The options of recipes that read a taxonomy."""

    data: str = option("wordnet-mammals", in_data_digest=True)
    """The taxonomy: wordnet-mammals or carnivores (always there), wordnet-nouns, wordnet-verbs,
    ncbi, go-bp, go-mf, go-cc, hpo, icd-10-cm, icd-10 (see `beltrami data`), or the path of your
    own file, of one of the forms above, or WordNet's data.noun."""

    root: str | None = option(None, in_data_digest=True)
    """Take only this node and what is below it; its label."""

    strict: bool = option(False, in_data_digest=True)
    """Refuse a file with repeated edges or several roots, which are otherwise removed and joined,
    with a note."""

    def data_name(self) -> str:
        """The data's name, or its file's, and the root."""
        known = Path(self.data).suffix == "" and "/" not in self.data
        name = self.data if known else Path(self.data).stem
        return file_name(name + (f"-{self.root}" if self.root else ""))


def _check_text(name: str, text: str) -> None:
    """Our files hold UTF-8, and a path may have bytes that are not."""
    if not text:
        raise ValueError(f"{name} is empty; give a name or a path")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(f"{name} is not UTF-8 text: {text!a}; rename the file") from None
