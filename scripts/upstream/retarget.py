"""Points PEFT's own tests at HypLoRA.

The tests are parametrised by lists and by configs in their marks, or make a `LoraConfig` in their
body. Cases for LoRA become cases for HypLoRA, those of other methods go. Models are looked up by
the names they have on the Hub, which are folders of the working directory here.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

import pytest
from _pytest.mark import ParameterSet
from peft import LoraConfig
from selection import NO_MERGE

from beltrami.peft import HypLoraConfig, HypLoraLayer
from beltrami.peft.config import LORA_NAMES

VARIANTS: dict[str, dict[str, Any]] = {
    "rotation": {},
    "learned": {"learn_curvature": "module"},
    "boost": {"variant": "boost"},
    "tangent": {"variant": "tangent"},
    "mixture": {"curvature": [0.1, 1.0]},
    "dora": {"use_dora": True},
}
MODELS = ("MLP", "EmbConv1D")  # of the custom ones: those of layers that HypLoRA adapts


# -- configs --------------------------------------------------------------------------------------


def in_our_words(kwargs: dict[str, Any]) -> dict[str, Any]:
    """LoRA's arguments under our names."""
    ours = {LORA_NAMES.get(name, name): value for name, value in kwargs.items()}
    if ours.get("bias") == "lora_only":
        ours["bias"] = "hyplora_only"
    return ours


def understand_lora() -> None:
    """Let `HypLoraConfig` take LoRA's words, too: tests write `LoraConfig(lora_alpha=...)`."""
    init = HypLoraConfig.__init__

    @functools.wraps(init)
    def wordy(self: HypLoraConfig, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **in_our_words(kwargs))

    HypLoraConfig.__init__ = wordy  # type: ignore[method-assign]


def alias_lora() -> None:
    """Let tests find A, B and the scaling under LoRA's names."""
    for name, ours in (("lora_A", "A"), ("lora_B", "B"), ("scaling", "scaling")):
        setattr(HypLoraLayer, name, property(operator.attrgetter(f"hyplora_{ours}")))


def converted(value: Any) -> Any:
    """A parameter of a test with HypLoRA for LoRA; a TypeError where HypLoRA lacks an option."""
    if value is LoraConfig:
        return HypLoraConfig
    if type(value) is LoraConfig:
        if not isinstance(value.init_lora_weights, bool):
            raise TypeError(f"{value.init_lora_weights} is a start of LoRA's own")
        default = LoraConfig().to_dict()
        changed = {k: v for k, v in value.to_dict().items() if v != default.get(k)}
        return HypLoraConfig(**changed)
    if isinstance(value, tuple):
        return tuple(converted(v) for v in value)
    return value


def is_lora(value: Any) -> bool:
    """Whether a parameter of a test is LoRA's."""
    if isinstance(value, tuple):
        return any(is_lora(v) for v in value)
    return value is LoraConfig or type(value) is LoraConfig


def is_ours(value: Any) -> bool:
    """Whether a parameter of a test is HypLoRA's."""
    if isinstance(value, tuple | list):
        return any(is_ours(v) for v in value)
    return value is HypLoraConfig or isinstance(value, HypLoraConfig)


def possible(target_modules: Iterable[str] | str, extra: dict[str, Any]) -> bool:
    """Embeddings have no time column and no magnitude."""
    return "emb" not in target_modules or not ("use_dora" in extra or "boost" in extra.values())


# -- lists of cases -------------------------------------------------------------------------------


def custom_cases(rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """All cases of LoRA as rotation, and those of plain layers in the other variants."""
    for name, model, config_class, kwargs in rows:
        known = set(in_our_words(kwargs)) <= set(HypLoraConfig.__dataclass_fields__)
        if config_class is not LoraConfig or model not in MODELS or not known:
            continue
        if not isinstance(kwargs.get("init_lora_weights", True), bool):  # a start of LoRA's own
            continue
        if kwargs.get("trainable_token_indices") or not possible(kwargs["target_modules"], kwargs):
            continue
        for variant, extra in VARIANTS.items():
            targets = kwargs["target_modules"]
            everywhere = set(kwargs) == {"target_modules"} and targets in (
                ["lin0", "lin1"],
                ["emb"],
                ["conv1d"],
            )
            if (everywhere and possible(targets, extra)) or variant == "rotation":
                label = f"{name.replace('LoRA', 'HypLoRA')} {variant}"
                yield label, model, HypLoraConfig, {**in_our_words(kwargs), **extra}


def several_active_cases() -> Iterator[tuple[Any, ...]]:
    """Two adapters on the same layer and on different ones, in all variants."""
    for variant, extra in VARIANTS.items():
        for label, second in (("Same", "lin0"), ("Different", "lin1")):
            first, other = (
                {"target_modules": [layer], "init_weights": False, **extra}
                for layer in ("lin0", second)
            )
            yield f"HypLoRA {variant} {label}", "hyplora", HypLoraConfig, first, other


def mixed_batch_cases() -> Iterator[tuple[Any, ...]]:
    """Two adapters in one batch."""
    for variant, extra in VARIANTS.items():
        first, second = (
            HypLoraConfig(target_modules=["lin0"], init_weights=False, r=r, **extra) for r in (8, 4)
        )
        yield f"HypLoRA {variant}", first, second


def transformer_cases(task: str) -> list[tuple[type, dict[str, Any]]]:
    """The default layers of a transformer, in all variants."""
    common = {"task_type": task, "r": 8, "alpha": 32, "dropout": 0.05, "target_modules": None}
    return [(HypLoraConfig, {**common, **extra}) for extra in VARIANTS.values()]


def compile_cases(backend: str) -> Iterator[tuple[str, tuple[HypLoraConfig, dict[str, Any]]]]:
    """Name, config and options of torch.compile."""
    options = {"torch_compile_backend": backend}
    for variant, extra in VARIANTS.items():
        yield variant, (HypLoraConfig(task_type="CAUSAL_LM", **extra), options)
    for name in ("target_modules", "modules_to_save"):
        config = HypLoraConfig(task_type="CAUSAL_LM", **{name: ["embed_tokens"]})
        yield f"embeddings in {name}", (config, options)


# -- modules of tests -----------------------------------------------------------------------------


def retarget(module: ModuleType) -> None:
    """Point marks, `LoraConfig` and the question of merging of a module's tests at HypLoRA."""
    for thing in list(vars(module).values()):
        if isinstance(thing, type) and thing.__module__ == module.__name__:
            for test in vars(thing).values():
                _retarget_marks(test)
    module.LoraConfig = HypLoraConfig  # type: ignore[attr-defined]
    if hasattr(module, "LoraLayer"):
        module.LoraLayer = HypLoraLayer
    if hasattr(module, "_skip_if_merging_not_supported"):
        module._skip_if_merging_not_supported = skip_merging


def _retarget_marks(test: Any) -> None:
    marks = getattr(test, "pytestmark", [])
    for i, mark in enumerate(marks):
        if mark.name == "parametrize" and any(is_lora(_values(case)) for case in mark.args[1]):
            marks[i] = pytest.mark.parametrize(mark.args[0], list(_ours(mark.args[1]))).mark


def expect_our_names(tests: type) -> None:
    """Let `check_requires_grad` of a class of tests expect our parameters for LoRA's."""
    check = tests.check_requires_grad  # type: ignore[attr-defined]

    def check_ours(self: Any, model: Any, *expected: str) -> None:
        check(self, model, *(_our_name(name) for name in expected))

    tests.check_requires_grad = check_ours  # type: ignore[attr-defined]


def _our_name(parameter: str) -> str:
    flat = re.sub(r"\.lora_embedding_([AB]\..*)", r".hyplora_\1.weight", parameter)
    return flat.replace(".lora_", ".hyplora_")


def drop_marks(tests: type, *names: str) -> None:
    """Take marks of these names off a class's tests."""
    for test in vars(tests).values():
        if hasattr(test, "pytestmark"):
            test.pytestmark = [mark for mark in test.pytestmark if mark.name not in names]


def _values(case: Any) -> Any:
    return case.values if isinstance(case, ParameterSet) else case


def _ours(cases: Iterable[Any]) -> Iterator[Any]:
    for case in cases:
        if not is_lora(_values(case)):
            continue
        try:
            found = converted(_values(case))
        except TypeError:  # an option that HypLoRA does not have
            continue
        yield pytest.param(*found) if isinstance(case, ParameterSet) else found


def skip_merging(model_id: str, config_cls: type, config_kwargs: dict[str, Any]) -> None:
    """In place of PEFT's own: skip unless the variant is LoRA itself."""
    if config_kwargs.get("variant") != "tangent":
        pytest.skip(NO_MERGE)
