"""Options of the helm recipe."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import ClassVar, Literal

from beltrami.checks import check_choice
from beltrami.options import file_name
from beltrami.recipes.config import RunConfig, option

HELM, TWIN = "lorentz", "euclidean"
# What of the full model each ablation takes away.
ABLATIONS = {
    "no-times": {"time_columns": "none"},
    "flat-residual": {"residual": "euclidean"},
    "flat-attention": {"attention_score": "dot", "attention_aggregate": "mean"},
}
NAMES = {
    HELM: "HELM",
    TWIN: "Euclidean twin",
    "no-times": "HELM without time columns",
    "flat-residual": "HELM, Euclidean residual",
    "flat-attention": "HELM, Euclidean attention",
}


@dataclass(frozen=True)
class PresetOptions:
    """The options that a preset gives where the command line does not; see `HelmRunConfig`."""

    vocab_size: int = 2048
    layers: int = 2
    width: int = 128
    heads: int = 2
    mlp: int = 512
    length: int = 128
    batch: int = 8
    tokens: int = 300_000
    held_out: int = 50_000
    learning_rates: tuple[float, ...] = (4e-3, 8e-3)
    compile: bool = False


PRESETS = {
    "quick": PresetOptions(),
    "gpu": PresetOptions(
        16_384, 8, 512, 8, 1408, 1024, 32, 100_000_000, 500_000, (2.5e-3, 4e-3, 6.5e-3), True
    ),
}


@dataclass(frozen=True)
class HelmRunConfig(RunConfig):
    """Train a hyperbolic language model (HELM) and its Euclidean twin on one text.

    Both have as many parameters (within 1 percent; the twin is a Llama) and see the same tokens in
    the same order. Each chooses its learning rate by the loss on validation documents; what is
    reported is measured on test documents, which neither has seen. Prints losses in nats a token
    and bits per byte. The default takes about five minutes on two cores; on a GPU it is the preset
    gpu.

    Example: beltrami run helm --data my_texts.jsonl --ablation
    """

    recipe: ClassVar[str] = "helm"

    data: str = option("stdlib", in_data_digest=True)
    """The text: "stdlib" (the source of Python's standard library, 10 MB), "taxa" (descriptions of
    taxa, after `beltrami data get ncbi-taxonomy`), or a path: a text with lines <|endoftext|>
    between documents, .jsonl, .parquet, or a folder of such files."""

    field: str = option("text", in_data_digest=True)
    """Where the text is in JSON lines and tables."""

    tokenizer: str | None = option(None, in_data_digest=True)
    """A byte-level tokenizer: a folder, a tokenizer.json, or a name on the hub. Without: one is
    trained on the text."""

    vocab_size: int | None = option(None, low=258, in_data_digest=True)
    """Tokens of the tokenizer that is trained. quick: 2,048, gpu: 16,384."""

    preset: Literal["quick", "gpu"] | None = None
    """Where the options that are not given come from: "quick" (the default on a CPU) or "gpu" (the
    default on a GPU: 42 million parameters)."""

    ablation: bool = option(False, adds_runs=True)
    """Also train HELM without its time columns, with Euclidean residuals, and with Euclidean
    attention, at HELM's learning rate."""

    layers: int | None = option(None, low=1)
    """Blocks. quick: 2, gpu: 8."""

    width: int | None = option(None, low=1)
    """Coordinates of a token. quick: 128, gpu: 512."""

    heads: int | None = option(None, low=1)
    """Attention heads. quick: 2, gpu: 8."""

    mlp: int | None = option(None, low=16)
    """Width of the twin's MLP; HELM's is chosen to give it as many parameters. quick: 512, gpu:
    1408."""

    length: int | None = option(None, low=2)
    """Tokens of a row. quick: 128, gpu: 1,024."""

    batch: int | None = option(None, low=1)
    """Rows a step. quick: 8, gpu: 32."""

    tokens: int | None = option(None, low=1)
    """Tokens to train on; a smaller text is read several times. quick: 300,000, gpu: 100
    million."""

    held_out: int | None = option(None, low=1)
    """Tokens of validation documents, and of test documents, at most a twentieth of the text each.
    quick: 50,000, gpu: 500,000."""

    learning_rates: tuple[float, ...] | None = option(None, low=0, open_low=True, adds_runs=True)
    """Each model's first seed tries all of them; the lowest loss on validation documents decides
    for the other seeds. quick: 0.004 0.008, gpu: 0.0025 0.004 0.0065."""

    curvature_lr: float | None = option(None, low=0, open_low=True)
    """Learning rate of curvatures, if not the model's."""

    scale_lr: float | None = option(None, low=0, open_low=True)
    """Learning rate of residual weights and attention temperatures, if not the model's."""

    learn_curvature: Literal["no", "model", "layer"] = "model"
    """Which curvatures HELM learns: none, one for all layers, or one a layer."""

    document_masks: bool = True
    """Tokens attend to their own document only, and documents are packed into rows. Without: the
    text is one stream that is cut into rows."""

    compile: bool | None = None
    """Compile blocks by torch.compile on a GPU. quick: no, gpu: yes."""

    @property
    def chosen(self) -> PresetOptions:
        """The options with the preset's values where none were given."""
        preset = self.preset
        if preset is None:
            import torch  # which would slow down --help

            on_gpu = self.device != "cpu" and torch.cuda.is_available()
            preset = "gpu" if on_gpu else "quick"
        given = {field.name: getattr(self, field.name) for field in fields(PresetOptions)}
        return replace(PRESETS[preset], **{k: v for k, v in given.items() if v is not None})

    def check(self) -> None:
        """Raise a `ValueError` that names the option, the value and what would be accepted."""
        super().check()
        check_choice("--preset", self.preset, (None, *PRESETS))
        if self.tokenizer is not None and self.vocab_size is not None:
            raise ValueError(
                f"--vocab-size {self.vocab_size} is of a tokenizer that is trained on the text, "
                f"and --tokenizer {self.tokenizer} is another; give one of the two"
            )
        chosen = self.chosen
        if chosen.width % chosen.heads:
            raise ValueError(f"--heads {chosen.heads} must divide --width {chosen.width}")
        if chosen.tokens < chosen.batch * chosen.length:
            raise ValueError(
                f"--tokens {chosen.tokens:,} is less than one step of {chosen.batch} rows of "
                f"{chosen.length} tokens; give at least {chosen.batch * chosen.length:,}"
            )

    def data_name(self) -> str:
        """The data's name, or its file's."""
        return file_name(Path(self.data).name.partition(".")[0] or "text")
