"""Options of the hyplora recipe."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import ClassVar, Literal

from beltrami.options import file_name, flag
from beltrami.recipes.config import RunConfig, option
from beltrami.recipes.hyplora.presets import (
    PRESETS,
    TINY,
    LossOn,
    Preset,
    PresetOptions,
    Prompt,
)

TWIN = "lora"
RESIDUAL = "hyplora-residual"
SMOLLM2 = "smollm2"
GENERATED = "generated"
MOST_CURVATURE = 1e6  # as of `HypLoraConfig`, which takes long to import
Task = Literal["arithmetic", "commonsense", "taxonomy"]
Method = Literal[
    "base",
    "full",
    "prefix",
    "series",
    "parallel",
    "lora",
    "lora-gained",
    "rslora",
    "dora",
    "hyplora",
    "hyplora-boost",
    "hyplora-simplified",
    "hyplora-tangent",
    "hyplora-residual",
    "hyplora-learned",
    "hyplora-token",
    "hyplora-mixture",
    "hyplora-auto",
    "hyplora-dora",
    "hyplora-rslora",
    "hyplora-repo",
]
NAMES = {
    "base": "not fine-tuned",
    "full": "full fine-tuning",
    "prefix": "prefix tuning",
    "series": "series adapters",
    "parallel": "parallel adapters",
    "lora": "LoRA",
    "lora-gained": "LoRA, alpha × 1.18",
    "rslora": "rsLoRA",
    "dora": "DoRA",
    "hyplora": "HypLoRA",
    "hyplora-boost": "HypLoRA, boost",
    "hyplora-simplified": "HypLoRA, simplified",
    "hyplora-tangent": "HypLoRA, tangent",
    "hyplora-residual": "HypLoRA, residual norm",
    "hyplora-learned": "HypLoRA, curvature by module",
    "hyplora-token": "HypLoRA, curvature by token",
    "hyplora-mixture": "HypLoRA, mixture",
    "hyplora-auto": "HypLoRA, curvature from data",
    "hyplora-dora": "HypLoRA with DoRA",
    "hyplora-rslora": "HypLoRA with rsLoRA",
    "hyplora-repo": "HypLoRA, published code",
}
LARGEST_TINY = 99  # number in generated problems, by default


@dataclass(frozen=True)
class HypLoraRunConfig(RunConfig):
    """Fine-tune a language model by HypLoRA and by LoRA, and compare their answers.

    By default a small language model is trained on the spot on sums and short stories (a few
    minutes, once) and fine-tuned on generated word problems of one to four steps. Other models and
    questions are taken by name or from files. Rank, alpha, data and seeds are the same for all
    methods; each chooses among the learning rates on its first seed. Prints exact matches of
    generated answers, and the loss. The default takes about half an hour on two cores.

    Example: beltrami run hyplora --methods lora hyplora
    """

    recipe: ClassVar[str] = "hyplora"

    model: str | None = option(None, in_data_digest=True)
    """The language model: "tiny" (trained on the spot), "smollm2" (after `beltrami data get
    smollm2`), a folder in transformers' format, or a name on the hub. "tiny" if not given."""

    task: Task = "arithmetic"
    """What is asked: "arithmetic" has numbers or letters as answers, "commonsense" words,
    "taxonomy" yes or no."""

    data: str | None = option(None, in_data_digest=True)
    """What to train on. Arithmetic: a file of GSM8K, MAWPS, SVAMP, AQuA or LLM-Adapters, or
    "generated" (the default). Commonsense: a file of LLM-Adapters. Taxonomy: as for `beltrami run
    hierarchy`, wordnet-mammals if not given."""

    tests: tuple[Path, ...] = option((), in_data_digest=True)
    """Files to test on, in the same formats. Without: a fifth of the data, at most 500. Questions
    that are also among those to train on are left out."""

    methods: tuple[Method, ...] = option(
        ("base", "lora", "dora", "hyplora", "hyplora-residual"), adds_runs=True
    )
    """Who takes part; LoRA always does, as the twin of all others."""

    curvatures: tuple[float, ...] = option(
        (1.0,), low=0, open_low=True, high=MOST_CURVATURE, adds_runs=True
    )
    """Curvatures c for "hyplora": each is an arm of its own. The paper's sweep is 0.1 0.5 1
    2 (of its K = 1/c)."""

    preset: Preset | None = None
    """Where the options below come from if they are not given. "tiny" is for the model made on the
    spot, "small" for others. Then there are the HypLoRA paper's, with equal alpha ("paper-math",
    "paper-commonsense") or as published, for one model each."""

    rank: int | None = option(None, low=1)
    """Rank of the adapters. tiny and small: 8."""

    alpha: float | None = option(None, low=0, open_low=True)
    """The update is scaled by alpha/rank. tiny and small: 16."""

    hyplora_alpha: float | None = option(None, low=0, open_low=True)
    """Another alpha for HypLoRA; the comparison is not a fair one then."""

    dropout: float | None = option(None, low=0, high=1, open_high=True)
    """Dropout of the adapters' input. tiny and small: 0."""

    targets: tuple[str, ...] | None = None
    """Names of the layers to adapt, or all-linear. tiny and small: all-linear."""

    epochs: float | None = option(None, low=0, open_low=True)
    """Passes over the training data. tiny: 5, small: 3."""

    batch: int | None = option(None, low=1)
    """Questions a step. tiny and small: 16."""

    micro_batch: int | None = option(None, low=1, presentation=True)
    """Questions at a time, if a batch is too large for the memory; gradients add up."""

    learning_rates: tuple[float, ...] | None = option(None, low=0, open_low=True, adds_runs=True)
    """Each method's first seed tries all of them, and the lowest loss on validation answers decides
    for the others. Full fine-tuning takes a tenth of them, prefix tuning ten times them. tiny:
    0.003 0.006, small: 0.0001 0.0003 0.001."""

    warm_up: int | None = option(None, low=0)
    """Steps in which the rate rises; then it falls to 0 in a straight line. tiny and small:
    40."""

    longest: int | None = option(None, low=1)
    """Tokens of a question with its solution; what is longer is cut off at the end, and counted on
    the page. tiny: 256, small: 768."""

    prompt: Prompt | None = None
    """How a question is put: "plain" (the question and a new line), "instruction" (the template of
    Alpaca, which the paper uses), "chat" (the model's own template), "auto": chat where the model
    has a template, else plain."""

    loss_on: LossOn | None = None
    """Which tokens the loss counts: the solution's, or the question's, too. tiny and small:
    solution."""

    beams: int | None = option(None, low=1)
    """Beams of the generation; 1 is greedy. tiny and small: 1."""

    new_tokens: int | None = option(None, low=1)
    """Most tokens of an answer. tiny: 96, small: 400."""

    test_batch: int = option(64, low=1, presentation=True)
    """Questions at a time that are answered."""

    train_size: int | None = option(None, low=1)
    """Take only so many questions to train on; of generated ones 2,400 if not given."""

    test_size: int | None = option(None, low=1)
    """Take only so many of each test; of generated ones 300 if not given."""

    steps: tuple[int, ...] = option((1, 2, 3, 4), low=1)
    """Operations of generated problems; of a taxonomy's questions, edges (the largest counts)."""

    distractors: tuple[int, ...] = (0, 1)
    """Sentences in generated problems that do not matter."""

    largest: int = LARGEST_TINY
    """Number in generated problems."""

    pretraining_steps: int = option(2000, low=1)
    """Steps of the training of "tiny", before anything else."""

    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Dtype of frozen weights and matrix products; "auto": bfloat16 on a GPU. Adapters stay in
    float32, and so do all weights in full fine-tuning."""

    @property
    def chosen(self) -> PresetOptions:
        """The options with the preset's values where none were given."""
        preset = self.preset or ("tiny" if self.model in (None, TINY) else "small")
        given = {field.name: getattr(self, field.name) for field in fields(PresetOptions)}
        return replace(PRESETS[preset], **{k: v for k, v in given.items() if v is not None})

    def check(self) -> None:
        """Raise a `ValueError` that names the option, the value and what would be accepted."""
        super().check()
        for name in ("targets", "learning_rates"):
            values = getattr(self.chosen, name)
            if not values or len(set(values)) < len(values):
                raise ValueError(f"{flag(name)} needs values that differ, got {values}")
        self._check_task()

    def _check_task(self) -> None:
        if self.task == "commonsense" and self.data is None:
            raise ValueError(
                "--task commonsense has no data of its own; give --data FILE, a JSON file with "
                "instruction, output and answer in every record"
            )
        own = self.data not in (None, GENERATED)
        if self.chosen.model == TINY:
            self._check_tiny()
        elif self.pretraining_steps != type(self).pretraining_steps:
            raise ValueError(
                f"--pretraining-steps is about the model made on the spot, and --model "
                f"{self.chosen.model} is another"
            )
        if self.task == "commonsense" and self.data == GENERATED:
            raise ValueError("--task commonsense has no generated data; give --data FILE")
        if self.task == "taxonomy" and self.tests:
            raise ValueError("--tests are files of questions; --task taxonomy makes its own")
        taxonomy = self.task == "taxonomy"
        for name in ("distractors", "largest") if taxonomy else ("steps", "distractors", "largest"):
            if (own or taxonomy) and getattr(self, name) != getattr(type(self), name):
                raise ValueError(
                    f"--{name} is about generated word problems, which are not asked here; leave "
                    "it out"
                )
        if self.curvatures != type(self).curvatures and "hyplora" not in self.methods:
            raise ValueError("--curvatures is for the method hyplora; add it to --methods")

    def _check_tiny(self) -> None:
        """The small model knows no words but those of its own questions."""
        remedy = "give --model smollm2, a folder or a name on the hub"
        if self.task == "commonsense":
            raise ValueError(f"--task commonsense needs a model that knows words; {remedy}")
        if self.task == "arithmetic" and self.data not in (None, GENERATED):
            raise ValueError(
                "the small language model knows no words but those of generated problems; for "
                f"--data {self.data} {remedy}"
            )
        if self.tests:
            raise ValueError(
                "the small language model knows no words but those of generated problems; for "
                f"--tests {self.tests[0]} {remedy}"
            )
        if self.chosen.prompt not in ("auto", "plain"):
            raise ValueError(
                f"the small language model knows no words of --prompt {self.chosen.prompt}; "
                "give --prompt plain"
            )

    def data_name(self) -> str:
        """The model's and the data's name."""
        data = self.data or ("wordnet-mammals" if self.task == "taxonomy" else GENERATED)
        model = Path(self.chosen.model).name
        return file_name(f"{model}-{self.task}-{Path(data).stem}")
