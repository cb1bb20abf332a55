"""What `beltrami family` can be told; apart from the work, so that the command line is quick."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from beltrami.options import RUNS, check_counts, check_no_repeats, option_words, plain_settings

_PRESENTATION = ("out", "fresh", "json", "batch", "device")
_FEWEST_TOKENS = 2  # of a text with a prediction


@dataclass(frozen=True)
class FamilyConfig:
    """Measure models of several widths: how much their output rows overlap, and their losses.

    A MODEL is what `beltrami diagnose` takes: a folder or a name of transformers, a .safetensors
    or .gguf file, smollm2, or any table of vectors. Its output table is measured (lm_head, or the
    token embedding of a model that ties both), and the mean squared overlap is fitted against the
    width as a power law. With --texts, which needs models of transformers, so is the loss, as
    A/width^alpha plus an offset for each family and each file of texts.

    Writes family.json and report.html. A model that is finished is not measured again for the same
    content and options, whatever the others are.

    Example: beltrami family pythia-70m pythia-160m --texts text.txt
    """

    models: tuple[str, ...] = ()
    """What to measure, at least one."""

    texts: tuple[Path, ...] = ()
    """Texts whose loss to measure: text files with one a line, or JSON lines with "text", each a
    data set of its own."""

    families: tuple[str, ...] = ()
    """Which family each model belongs to, in their order; without it what its config says."""

    count: int = 1000
    """How many of each of --texts to take, the first ones."""

    longest: int = 2048
    """Tokens of a text that are read at most."""

    dtype: Literal["float32", "bfloat16"] = "float32"
    """In which models compute their losses."""

    batch: int = 8
    """Texts that a model reads at once at most; it does not change the numbers."""

    device: Literal["auto", "cpu", "cuda"] = "cpu"
    """Where models compute their losses; "auto" takes the GPU when there is one."""

    pairs: int = 200_000
    """Pairs of rows that are drawn for the distribution of overlaps; means are over all pairs."""

    seed: int = 0
    """Of the draw."""

    out: Path | None = None
    """Folder for family.json, report.html and what was measured; without it runs/family."""

    fresh: bool = False
    """Measure everything anew."""

    json: bool = False
    """Print family.json and the files' paths on stdout instead of a table."""

    def check(self) -> None:
        """Raise a `ValueError` that names the option, the value and what would be accepted."""
        if not self.models:
            raise ValueError("name at least one model")
        check_no_repeats(self, "models")
        check_counts(self, "count", "batch", "pairs")
        if self.longest < _FEWEST_TOKENS:
            raise ValueError(f"--longest must be at least {_FEWEST_TOKENS}, got {self.longest}")
        if self.families and len(self.families) != len(self.models):
            raise ValueError(
                f"--families names {len(self.families)} families for {len(self.models)} models; "
                "give one a model, in their order"
            )
        for path in self.texts:
            if not path.is_file():
                raise ValueError(f"--texts {path} is not a file")
        check_no_repeats(self, "texts")
        names = [path.stem for path in self.texts]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(
                f"--texts has two files that are both called {twice[0]!r}; rename one of them"
            )

    @property
    def folder(self) -> Path:
        """Where the measurements go."""
        return RUNS / "family" if self.out is None else self.out

    def settings(self) -> dict[str, Any]:
        """The options that say what is computed, JSON-able."""
        return plain_settings(self, besides=_PRESENTATION)

    def command(self) -> str:
        """The command line that repeats this."""
        options = option_words(self, besides=("models", "fresh", "json"))
        return shlex.join(["beltrami", "family", *self.models, *options])
