"""Options of `beltrami diagnose`; apart from the work, so that the command line is quick."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from beltrami.checks import check_integer
from beltrami.options import RUNS, file_name, option_words, plain_settings

EMBEDDED = "wordnet-mammals"  # without an argument
FEWEST = 20  # points in a sample, below which the test has no power
Kind = Literal["auto", "vectors", "distances", "edges"]
Part = Literal[
    "tree-likeness",
    "curvature",
    "products",
    "pictures",
    "vectors",
    "superposition",
    "words",
    "prompts",
]
PARTS: tuple[Part, ...] = get_args(Part)
# Superposition takes minutes and more memory than all others for the tables of large models, and
# may need another file of a model on the hub: it is computed when it is asked for.
USUAL: tuple[Part, ...] = tuple(part for part in PARTS if part != "superposition")
FILES = ("frequencies", "texts", "task")
_PRESENTATION = ("out", "fresh", "json")


@dataclass(frozen=True)
class DiagnoseConfig:
    """Say how tree-like data are, beside noise, trees, spheres and random graphs of their size.

    SOURCE is a table of vectors (.npy .npz .safetensors .csv .tsv .parquet), a model of
    transformers (a folder or a name on the hub, whose token embeddings are taken), one of smollm2,
    minilm, wordllama and glove (after `beltrami data get NAME`), a matrix of distances, an edge
    list, or a hierarchy that `beltrami run hierarchy` knows. Without it: the mammals of WordNet.
    The part "superposition" is about a model's output table (lm_head) where it has one of its own.

    Writes diagnosis.json and report.html. A part that is finished is not computed again for the
    same content and options.

    Example: beltrami diagnose my_vectors.csv --label name
    """

    source: str = EMBEDDED
    """What to look at."""

    kind: Kind = "auto"
    """What SOURCE is; "auto" goes by its ending, and takes a square matrix that looks like
    distances for distances."""

    metric: Literal["euclidean", "angle"] = "euclidean"
    """How far vectors are apart."""

    only: tuple[Part, ...] = USUAL
    """Which parts to compute, of those that the source allows; "superposition" must be asked
    for."""

    sample: int = 1000
    """Points that are compared with each other at once."""

    repeats: int = 5
    """How many samples; of data that are no more than one, how many base points."""

    seed: int = 0
    """Seed of all draws."""

    tensor: str = ""
    """Which tensor or array of a file that has several."""

    strict: bool = False
    """Refuse a taxonomy with repeated edges or several roots, which are otherwise removed and
    joined, with a note."""

    label: str = ""
    """Which column of a table has the labels."""

    besides: tuple[str, ...] = ()
    """Columns of numbers in a CSV or parquet file that are not dimensions of its vectors."""

    frequencies: Path | None = None
    """A CSV or TSV file of label and count; without it, and with `beltrami[words]`, the English
    words of wordfreq."""

    texts: Path | None = None
    """Prompts for a model of transformers, each of whose tokens are points: a text file with one a
    line, or JSON lines with "prompt" and, where it is known, "correct" (true or false)."""

    task: Path | None = None
    """Questions with answers, in the format of GSM8K, MAWPS, SVAMP, AQuA or LLM-Adapters: the model
    answers them, and whether it is right is compared with δ."""

    prompts: int = 200
    """How many of --texts or --task to take, the first ones."""

    of: Literal["embeddings", "states"] = "embeddings"
    """What of a model to look at: its token embeddings, or the hidden states of --texts."""

    layer: int = -1
    """Layer of the prompts' hidden states; 0 are the token embeddings, -1 is the last."""

    out: Path | None = None
    """Folder for diagnosis.json and report.html; without it runs/diagnose-SOURCE."""

    fresh: bool = False
    """Compute everything anew."""

    json: bool = False
    """Print diagnosis.json and the files' paths on stdout instead of a table."""

    def check(self) -> None:
        """Raise a `ValueError` that names the option, the value and what would be accepted."""
        check_integer("--sample", self.sample, FEWEST)
        check_integer("--repeats", self.repeats, 2)  # for an interval
        check_integer("--prompts", self.prompts)
        if not self.only:
            raise ValueError(f"--only is empty; give some of {', '.join(PARTS)}")
        if self.of == "states" and (
            self.kind not in ("auto", "vectors") or self.tensor or self.label or self.besides
        ):
            raise ValueError(
                "--of states is of a model: --kind, --tensor, --label and --besides do not apply"
            )
        if self.texts and self.task:
            raise ValueError("--texts and --task both name prompts; give one")
        for option in FILES:
            path = getattr(self, option)
            if path is not None and not path.is_file():
                raise ValueError(f"--{option} {path} is not a file")

    @property
    def folder(self) -> Path:
        """Where the diagnosis goes."""
        if self.out is not None:
            return self.out
        name = file_name(Path(self.source).name).strip("._") or "source"
        if self.of == "states":
            name += f"-layer{self.layer}"
        return RUNS / f"diagnose-{name}"

    def settings(self) -> dict[str, Any]:
        """The options that say what is computed, JSON-able."""
        return plain_settings(self, besides=_PRESENTATION)

    def command(self) -> str:
        """The command line that repeats this."""
        source = [self.source] if self.source != EMBEDDED else []
        options = option_words(self, besides=("source", "fresh", "json"))
        return shlex.join(["beltrami", "diagnose", *source, *options])
