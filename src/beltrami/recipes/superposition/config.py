"""Options of the superposition recipe, and its presets.

The preset "small" is for two cores. Those of the paper (Liu, Liu and Gore, arXiv 2505.10465) are of
the scripts published with it: "paper" is the grid of 1,000 features, of which one --laws and one
--densities at a time are one panel; "paper-large" is the experiment with 10,240 features.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import ClassVar, Literal, get_args

from beltrami.checks import check_unique
from beltrami.options import file_name, flag
from beltrami.recipes.config import RunConfig, option
from beltrami.recipes.superposition.laws import law_title

Readout = Literal["linear", "bent", "margin", "distance", "busemann"]
TWIN: Readout = "linear"
CURVED: tuple[Readout, ...] = ("distance", "busemann")
HALVES = {r: "half" if r == TWIN else f"half-{r}" for r in get_args(Readout)}  # half the steps
FEWEST_WIDTHS = 3
MOST_CURVED = 100.0  # of hidden states up to 8 long, √c·8 = 80: e⁸⁰ is still a float32
NAMES = {r: r for r in get_args(Readout)}
NAMES |= {"distance": "hyperbolic distance", "busemann": "Busemann"}
NAMES |= {half: f"{NAMES[r]}, half the steps" for r, half in HALVES.items()}
NAMES |= {HALVES[TWIN]: "half the steps"}

Preset = Literal["small", "paper", "paper-large"]


@dataclass(frozen=True)
class PresetOptions:
    """What a preset gives where the command line does not; see `SuperpositionConfig`."""

    features: int = 400
    widths: tuple[int, ...] = (6, 10, 16, 25, 40)
    gammas: tuple[float, ...] = (-0.556, 0.333)
    laws: tuple[str, ...] = ("power:1", "exponential:40")
    steps: int = 16000
    batch: int = 512
    learning_rate: float = 0.01
    warm_up: float = 0.1


PAPER = PresetOptions(
    features=1000,
    widths=(10, 15, 25, 39, 63, 100),
    gammas=tuple(round(-1 + 2 * i / 9, 3) for i in range(10)),
    laws=("power:1",),
    steps=20000,
    batch=2048,
)
PRESETS: dict[str, PresetOptions] = {
    "small": PresetOptions(),
    "paper": PAPER,
    "paper-large": replace(
        PAPER,
        features=10240,
        widths=tuple(2**k for k in range(3, 11)),
        gammas=(-1.0, 0.1),
        laws=("power:1.2", "linear", "exponential:400"),
        steps=40000,
        batch=8192,
        warm_up=0.05,
    ),
}
LARGE = "paper-large"  # has rates that depend on the width


@dataclass(frozen=True)
class SuperpositionConfig(RunConfig):
    """Measure how the loss of a toy model falls with its width, and whether superposition is why.

    Samples have a few of many features; an auto-encoder with fewer dimensions than features is to
    give them back. Weight decay (--gammas above 0) leaves most features out: the loss is what was
    left out, and its exponent depends on the data. Rows that are drawn to length 1 (below 0)
    keep all features in superposition: the loss is their overlap, by the paper about 1/m. All
    widths and gammas of a law are trained at once. The default takes about ten minutes on two
    cores.

    Example: beltrami run superposition --laws power:1
    """

    recipe: ClassVar[str] = "superposition"

    jobs: int = 2
    """Stacks that are trained side by side, each in a process of its own and on a CPU by one
    thread, which is as quick as several for matrices of this size."""

    preset: Preset = "small"
    """What the options below are where they are not given: small, or the paper's grid and its
    experiment with many features, which are meant for a GPU."""

    laws: tuple[str, ...] | None = option(None, adds_runs=True)
    """How frequent features are: power:EXPONENT, linear, exponential:SCALE, counts:FILE (the
    numbers of the column that its head line calls count or frequency, or else at the ends of its
    lines), each a comparison of its own. (preset small: power:1 exponential:40)"""

    densities: tuple[float, ...] = option((0.0,), low=0, high=1, adds_runs=True)
    """How dense samples are, each again a comparison: 0 is one feature a sample on average, at 1
    the most frequent is in all of them."""

    features: int | None = option(None, low=1)
    """Features, n. (preset small: 400)"""

    widths: tuple[int, ...] | None = None
    """Dimensions of the models, m, three at least. (preset small: 6 10 16 25 40)"""

    gammas: tuple[float, ...] | None = None
    """Weight decay where 0 or more; below 0, how fast the lengths of rows are drawn to 1. (preset
    small: -0.556 0.333)"""

    unit: bool = False
    """One more regime, in which all rows have length 1."""

    readouts: tuple[Readout, ...] = option((TWIN,), adds_runs=True)
    """How features are read of a hidden state, with as many parameters: distance and busemann are
    those of hyperbolic space, bent and margin flat controls that are as nonlinear. They take three
    to ten times as long as linear."""

    curvature: float = option(1.0, low=0, high=MOST_CURVED, open_low=True)
    """c of the curvature -c, for the read-outs that have one; points of larger ones leave
    float32."""

    check_steps: bool = True
    """Whether models are also trained with half the steps: what that changes, more steps may change
    as well."""

    steps: int | None = option(None, low=1)
    """Steps of a training. (preset small: 16000)"""

    batch: int | None = option(None, low=1)
    """Samples a step. (preset small: 512)"""

    learning_rate: float | None = option(None, low=0, open_low=True)
    """At its highest; it rises in the first steps and falls to 5 % along a cosine. (0.01; preset
    paper-large: falls with the width)"""

    warm_up: float | None = option(None, low=0, high=1, open_high=True)
    """Share of the steps in which the rate rises. (preset small: 0.1)"""

    tf32: bool = False
    """On a GPU, multiply matrices on tensor cores: factors are rounded to 11 bits. Meant for the
    preset paper-large; compare a law with and without before you believe it."""

    @property
    def chosen(self) -> PresetOptions:
        """The options with the preset's values where none were given."""
        given = {field.name: getattr(self, field.name) for field in fields(PresetOptions)}
        return replace(PRESETS[self.preset], **{k: v for k, v in given.items() if v is not None})

    def check(self) -> None:
        """Raise a `ValueError` that names the option, the value and what would be accepted."""
        super().check()
        chosen = self.chosen
        for name in ("laws", "widths", "gammas"):
            values = getattr(chosen, name)
            if not values and not (name == "gammas" and self.unit):
                raise ValueError(f"{flag(name)} is empty; give at least one")
            check_unique(flag(name), values)
        for law in chosen.laws:
            law_title(law)
        widths, n = chosen.widths, chosen.features
        if len(widths) < FEWEST_WIDTHS or min(widths) < 1 or max(widths) >= n:
            raise ValueError(
                f"--widths must be {FEWEST_WIDTHS} or more, each at least 1 and below the {n} "
                f"features, got {' '.join(map(str, widths))}"
            )
        if not all(map(math.isfinite, chosen.gammas)):
            raise ValueError(f"--gammas must be finite numbers, got {chosen.gammas}")
        if len({f"{gamma:g}" for gamma in chosen.gammas}) < len(chosen.gammas):
            raise ValueError(f"--gammas must differ in their first six digits, got {chosen.gammas}")
        if self.check_steps and chosen.steps < 2:
            raise ValueError("--steps 1 has no half; give --no-check-steps")

    def data_name(self) -> str:
        """The preset and the laws."""
        return file_name("-".join([self.preset, *self.chosen.laws]))
