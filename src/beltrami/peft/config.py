"""Options of HypLoRA: `LoraConfig` with a geometry."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from peft.config import PeftConfig

from beltrami.peft.registration import PEFT_TYPE

Variant = Literal["rotation", "boost", "tangent", "simplified"]
Learned = Literal["no", "module", "layer", "token"]
NormSource = Literal["input", "residual"]
Reference = Literal["paper", "repo"]

LOADING = """This is a HypLoRA adapter. `import beltrami.peft` first, which registers the method;
without it loading raises `KeyError: 'HYPLORA'`.

```python
import beltrami.peft  # pip install "beltrami[peft]"
from peft import AutoPeftModel
```
"""
FORMAT = 1  # of adapter_config.json; raised when an older beltrami would misread a newer file
CURVATURE_BOUNDS = (1e-3, 1e3)  # of a learned curvature
MOST_CURVATURE = 1e6  # of one that is not learned; its products with norms are to be float32
LORA_NAMES = {"lora_alpha": "alpha", "lora_dropout": "dropout", "init_lora_weights": "init_weights"}

BOOST_RADIUS = 40.0  # cosh of it squared is still a float32


@dataclass
class HypLoraConfig(PeftConfig):
    """HypLoRA, to be handed to `get_peft_model` where a `LoraConfig` would be.

    The update of a layer is `g(x)·B·A·x·alpha/r`: LoRA's, times one number a token that depends on
    the norms of x and of its update. See `docs/peft.md` for the derivation.

    Args:
        r: the rank.
        alpha: the update is multiplied by alpha/r, or alpha/√r with `use_rslora`.
        dropout: of the adapter's input (embeddings have none).
        target_modules: names of the layers to adapt, a regular expression, or "all-linear". Known
            architectures have a default. Linear layers, quantised or not, GPT-2's Conv1D,
            embeddings and, by name, `beltrami.nn.Linear` on Lorentz points can be adapted.
        exclude_modules: names or a regular expression of layers to leave alone.
        variant: "rotation" multiplies space parts; "boost" also has a time column on A and on B;
            "simplified" goes through stereographic projections instead of exp and log; "tangent" is
            LoRA itself, the ablation.
        curvature: c of the space of sectional curvature −c that an update passes through, in units
            in which a token of mean square 1 has length 1. The paper's K is 1/c. Several make a
            mixture, weighed for each token by a small router. Layers that are hyperbolic themselves
            bring their own.
        learn_curvature: "no", "module" (each adapted layer its own), "layer" (all adapted layers of
            a block share one), or "token" (each layer has its own, and a small map of the token
            moves it).
        curvature_pattern: other curvatures by regular expression of the layer's name, as in
            `rank_pattern`.
        norm_source: whose norm the gain depends on: the layer's own "input", or the "residual"
            stream that the last normalisation before the layer has seen. RMSNorm makes all inputs
            of a layer equally long; the residual stream still has the norms the paper speaks of.
            Its length 1 is the geometric mean of the first batch in training.
        max_radius: tokens with √c·norm above it get the gain of one at this radius. The gain grows
            like an exponential; without a bound (None) a few outliers own the gradient. The
            simplified variant has 1.9 as its own, and reference="repo" 12.
        reference: "paper" is the map as it is written there; "repo" is that of the code published
            with it, for comparison (variants rotation and simplified, one curvature).
        use_rslora: scale by alpha/√r.
        use_dora: learn the length of each row of the adapted weight apart from its direction.
        rank_pattern, alpha_pattern: other ranks and alphas by regular expression of the name.
        bias: which biases are trained: "none", "all" or "hyplora_only".
        fan_in_fan_out: whether weights are stored (in, out), as GPT-2's Conv1D does.
        init_weights: True starts with B = 0, so that the model is unchanged. False is for tests.
        modules_to_save: layers that are trained and saved whole.
        layers_to_transform, layers_pattern: numbers of the blocks to adapt, and their name.
        trainable_token_indices: is not supported; the field is there because TRL reads it.
        hyplora_format: of the file this was read from.
    """

    r: int = 8
    alpha: float = 16.0
    dropout: float = 0.0
    target_modules: list[str] | str | None = None
    exclude_modules: list[str] | str | None = None
    variant: Variant = "rotation"
    curvature: float | list[float] = 1.0
    learn_curvature: Learned = "no"
    curvature_pattern: dict[str, float] = field(default_factory=dict)
    norm_source: NormSource = "input"
    max_radius: float | None = 5.0
    reference: Reference = "paper"
    use_rslora: bool = False
    use_dora: bool = False
    rank_pattern: dict[str, int] = field(default_factory=dict)
    alpha_pattern: dict[str, float] = field(default_factory=dict)
    bias: Literal["none", "all", "hyplora_only"] = "none"
    fan_in_fan_out: bool = False
    init_weights: bool = True
    modules_to_save: list[str] | None = None
    layers_to_transform: list[int] | int | None = None
    layers_pattern: list[str] | str | None = None
    trainable_token_indices: None = None
    hyplora_format: int = FORMAT

    def __post_init__(self) -> None:
        super().__post_init__()
        self.peft_type = PEFT_TYPE
        if isinstance(self.target_modules, list):
            self.target_modules = set(self.target_modules)  # type: ignore[assignment]
        if isinstance(self.exclude_modules, list):
            self.exclude_modules = set(self.exclude_modules)  # type: ignore[assignment]
        self.check()

    def save_pretrained(self, save_directory: str, **kwargs: Any) -> None:
        """Write the config and, into PEFT's model card beside it, what loading needs."""
        super().save_pretrained(save_directory, **kwargs)
        for folder in (Path(save_directory), Path(save_directory).parent):  # of a named adapter
            card, config = folder / "README.md", folder / "adapter_config.json"
            if config.is_file() and PEFT_TYPE not in config.read_text(encoding="utf-8"):
                continue  # another adapter's folder, of which this one is inside
            text = card.read_text(encoding="utf-8") if card.is_file() else ""
            head, end, body = text.partition("\n---\n")
            if "library_name: peft" in head and LOADING not in body:
                card.write_text(f"{head}{end}\n{LOADING}\n{body}", encoding="utf-8")

    @property
    def curvatures(self) -> tuple[float, ...]:
        """The curvature, or those of the mixture."""
        c = self.curvature
        return tuple(c) if isinstance(c, list | tuple) else (c,)

    def check(self) -> None:
        """Raise a `ValueError` or `TypeError` that names the field and what would be accepted."""
        if not _is_number(self.hyplora_format) or self.hyplora_format > FORMAT:
            raise ValueError(
                f"this adapter was saved in format {self.hyplora_format} by a newer beltrami; this "
                f"one reads up to {FORMAT}. Upgrade beltrami to load it"
            )
        for name, kind in (
            ("variant", Variant),
            ("learn_curvature", Learned),
            ("norm_source", NormSource),
            ("reference", Reference),
        ):
            if getattr(self, name) not in get_args(kind):
                choices = ", ".join(get_args(kind))
                raise ValueError(f"{name} must be one of {choices}, got {getattr(self, name)!r}")
        if self.bias not in ("none", "all", "hyplora_only"):
            raise ValueError(f"bias must be none, all or hyplora_only, got {self.bias!r}")
        if not isinstance(self.init_weights, bool):
            raise ValueError(
                f"init_weights must be True or False, got {self.init_weights!r}: starts that put "
                "a part of the weight into the adapter (PiSSA, OLoRA) need an update that is linear"
            )
        self._check_numbers()
        self._check_combinations()

    def _check_numbers(self) -> None:
        ranks = {"r": self.r, **{f"rank_pattern[{k!r}]": v for k, v in self.rank_pattern.items()}}
        for name, r in ranks.items():
            if isinstance(r, bool) or not isinstance(r, int) or r < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, got {r!r}")
        pattern = self.curvature_pattern
        curvatures = [("curvature", c) for c in self.curvatures]
        curvatures += [(f"curvature_pattern[{k!r}]", c) for k, c in pattern.items()]
        low, high = CURVATURE_BOUNDS
        for name, c in curvatures:
            if not _is_number(c):
                raise ValueError(f"{name} must be a positive number, got {c!r}")
            if c <= 0:
                raise ValueError(
                    f"{name} must be positive, got {c}; for no curvature at all use "
                    'variant="tangent", which is LoRA'
                )
            if c > MOST_CURVATURE:
                raise ValueError(f"{name} must be at most {MOST_CURVATURE:g}, got {c}")
            if self.learn_curvature != "no" and not low < c < high:
                raise ValueError(
                    f"{name} must lie between {low:g} and {high:g} to be learned, got {c}"
                )
        if not self.curvatures:
            raise ValueError("curvature is empty; give a number, or several for a mixture")
        alphas = {"alpha": self.alpha}
        alphas |= {f"alpha_pattern[{k!r}]": v for k, v in self.alpha_pattern.items()}
        for name, alpha in alphas.items():
            if not _is_number(alpha):
                raise ValueError(f"{name} must be a finite number, got {alpha!r}")
        if not _is_number(self.dropout) or not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, got {self.dropout!r}")
        if self.max_radius is not None and not (
            _is_number(self.max_radius) and self.max_radius > 0
        ):
            raise ValueError(f"max_radius must be positive, or None, got {self.max_radius!r}")

    def _check_combinations(self) -> None:
        several = len(self.curvatures) > 1
        if self.reference == "repo":
            if self.variant not in ("rotation", "simplified"):
                raise ValueError(
                    f'reference="repo" has no variant {self.variant!r}; the published code has '
                    "rotation and simplified"
                )
            if several or self.learn_curvature == "token" or self.norm_source != "input":
                raise ValueError(
                    'reference="repo" takes one curvature and norm_source="input", '
                    f"got {self.curvature}, {self.learn_curvature!r}, {self.norm_source!r}"
                )
        if several and self.learn_curvature == "token":
            raise ValueError(
                'learn_curvature="token" is for one curvature; a mixture already weighs its own '
                "for each token"
            )
        if several and self.curvature_pattern:
            raise ValueError("curvature_pattern is for one curvature; a mixture has several")
        if self.learn_curvature == "layer" and self.curvature_pattern:
            raise ValueError(
                'learn_curvature="layer" gives all layers of a block one curvature, and '
                'curvature_pattern layers of their own; use learn_curvature="module"'
            )
        if several and self.variant in ("boost", "tangent"):
            raise ValueError(
                f"a mixture of curvatures is for rotation and simplified, got {self.variant!r}"
            )
        if self.variant == "tangent" and self.learn_curvature != "no":
            raise ValueError(
                'variant="tangent" has no curvature to learn; use learn_curvature="no"'
            )
        if self.variant == "boost" and self.learn_curvature == "token":
            raise ValueError('learn_curvature="token" is not for variant="boost"')
        if self.variant == "boost" and (self.max_radius is None or self.max_radius > BOOST_RADIUS):
            raise ValueError(
                f'variant="boost" needs a max_radius of at most {BOOST_RADIUS:g}: its time '
                f"coordinate grows like an exponential, got {self.max_radius}"
            )
        if self.trainable_token_indices is not None:
            raise ValueError(
                "trainable_token_indices is not supported by HypLoRA; use modules_to_save"
            )
        if isinstance(self.target_modules, str) and self.target_modules != "all-linear":
            for name in ("layers_to_transform", "layers_pattern"):
                if getattr(self, name) is not None:
                    raise ValueError(
                        f"{name} cannot be used when target_modules is a regular expression, "
                        f"got {self.target_modules!r}"
                    )
        if self.layers_pattern and self.layers_to_transform is None:
            raise ValueError("layers_pattern needs layers_to_transform: which layers it is about")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _naming_ours(made: Callable[..., None]) -> Callable[..., None]:
    """A constructor that says what LoRA's names are called here."""

    @functools.wraps(made)
    def init(self: HypLoraConfig, *args: Any, **kwargs: Any) -> None:
        if theirs := [name for name in LORA_NAMES if name in kwargs]:
            renamed = ", ".join(f"{name} is called {LORA_NAMES[name]}" for name in theirs)
            raise TypeError(f"HypLoraConfig has other names than LoraConfig: {renamed}")
        made(self, *args, **kwargs)

    return init


HypLoraConfig.__init__ = _naming_ours(HypLoraConfig.__init__)  # type: ignore[method-assign]
