"""HypLoRA as a PEFT tuner."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from peft.tuners.tuners_utils import BaseTuner, BaseTunerLayer
from peft.utils import (
    TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING,
    AuxiliaryTrainingWrapper,
    ModulesToSaveWrapper,
    get_quantization_kwargs,
    resolve_quantization_backend,
)
from peft.utils.other import get_pattern_key
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from beltrami import nn as bnn
from beltrami.geometry import Lorentz
from beltrami.peft.calibration import LinearFit
from beltrami.peft.config import HypLoraConfig
from beltrami.peft.layer import (
    MERGE_MODES,
    HypLoraEmbedding,
    HypLoraLayer,
    HypLoraLinear,
    HypLoraLorentzLinear,
    MergeMode,
)
from beltrami.peft.projections import LearnedCurvature
from beltrami.peft.registration import PREFIX
from beltrami.peft.residual_norm import ResidualNorm

# PEFT 0.20 saves biases by names of its own methods.
BIASES_ARE_SAVED = hasattr(BaseTuner, "_get_learnable_bias_state_dict")

logger = logging.getLogger(__name__)

# What adapters must agree in to be combined.
SAME_IN_ALL = (
    "variant",
    "curvature",
    "curvature_pattern",
    "max_radius",
    "reference",
    "fan_in_fan_out",
    "layers_to_transform",
    "layers_pattern",
    "exclude_modules",
)

SUPPORTED = (
    "nn.Linear (also quantised), Conv1D of transformers, nn.Embedding, and beltrami.nn.Linear on "
    "Lorentz points"
)


class HypLoraModel(BaseTuner):
    """A model with HypLoRA adapters; made by `get_peft_model(model, HypLoraConfig(...))`."""

    prefix: str = PREFIX
    tuner_layer_cls = HypLoraLayer
    target_module_mapping = TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING

    # -- injection --------------------------------------------------------------------------------

    def _check_new_adapter_config(self, config: HypLoraConfig) -> None:
        super()._check_new_adapter_config(config)
        if config.bias != "none" and not BIASES_ARE_SAVED:
            raise ValueError(
                f"bias={config.bias!r}: this PEFT would train biases and not save them; upgrade to "
                "peft 0.21, or use bias='none' and modules_to_save"
            )
        others = [c for c in self.peft_config.values() if c is not config]
        if config.bias != "none" and others:
            raise ValueError(
                f"{type(self).__name__} supports only 1 adapter with bias, got bias="
                f"{config.bias!r} beside other adapters; set bias to 'none' for all of them"
            )

    def _create_and_replace(
        self,
        peft_config: HypLoraConfig,
        adapter_name: str,
        target: nn.Module,
        target_name: str,
        parent: nn.Module,
        current_key: str,
        **_: Any,
    ) -> None:
        if current_key is None:
            raise ValueError("Current Key shouldn't be `None`")
        config = peft_config
        settings = self._settings(config, adapter_name, current_key)
        if isinstance(target, HypLoraLayer):
            target.update_layer(adapter_name, config, **settings)
            layer: HypLoraLayer = target
        else:
            layer = self._create_new_module(config, adapter_name, target, **settings)
            if adapter_name not in self.active_adapters:
                layer.requires_grad_(False)
            self._replace_module(parent, target_name, layer, target)
        if config.learn_curvature == "layer" and settings["shared"] is None:
            owners = self.__dict__.setdefault("_curvature_owners", {})
            owners[adapter_name, _block(current_key)] = layer.hyplora_curvature[adapter_name]

    def inject_adapter(self, model: nn.Module, adapter_name: str, *args: Any, **kwargs: Any) -> Any:
        """Inject as PEFT does, and warn of curvature patterns that match no layer."""
        done = super().inject_adapter(model, adapter_name, *args, **kwargs)
        config = self.peft_config[adapter_name]
        patterns = config.curvature_pattern.keys()
        adapted = [
            name
            for name, layer in model.named_modules()
            if isinstance(layer, HypLoraLayer) and adapter_name in layer.hyplora_A
        ]
        used = {get_pattern_key([pattern], name) for pattern in patterns for name in adapted}
        if unused := sorted(set(patterns) - used):
            warnings.warn(
                "The following curvature_pattern keys did not match any targeted module and were "
                f"ignored: {unused}.",
                RuntimeWarning,
                stacklevel=2,
            )
        return done

    def _settings(self, config: HypLoraConfig, adapter_name: str, key: str) -> dict[str, Any]:
        """Settings of one layer, by the patterns that match its name."""
        rank = config.rank_pattern.get(get_pattern_key(config.rank_pattern.keys(), key), config.r)
        alpha_key = get_pattern_key(config.alpha_pattern.keys(), key)
        curvature_key = get_pattern_key(config.curvature_pattern.keys(), key)
        curvatures = config.curvatures
        if curvature_key in config.curvature_pattern:
            curvatures = (config.curvature_pattern[curvature_key],)
        owners: dict[Any, LearnedCurvature] = self.__dict__.get("_curvature_owners", {})
        shared = None
        if config.learn_curvature == "layer":
            shared = owners.get((adapter_name, _block(key)))
        return {
            "r": rank,
            "alpha": config.alpha_pattern.get(alpha_key, config.alpha),
            "curvatures": curvatures,
            "shared": shared,
            "residual": self._residual_norm(config, key),
            "inference_mode": config.inference_mode,
            **get_quantization_kwargs(self.model),
        }

    def _residual_norm(self, config: HypLoraConfig, key: str) -> ResidualNorm | None:
        """What the block of a layer makes known of its residual stream."""
        if config.norm_source != "residual":
            return None
        if getattr(getattr(self.model, "config", None), "is_encoder_decoder", False):
            raise ValueError(
                'norm_source="residual" is not for models with an encoder and a decoder: tokens of '
                'cross-attention come from another stream; use norm_source="input"'
            )
        recorders: dict[str, ResidualNorm] = self.__dict__.setdefault("_residual_norms", {})
        name = _block(key)
        if name not in recorders:
            block = self.model.get_submodule(name)
            recorders[name] = ResidualNorm(name, block, config.modules_to_save or ())
        return recorders[name]

    def delete_adapter(self, adapter_name: str) -> None:
        """Delete an adapter from all layers."""
        super().delete_adapter(adapter_name)
        owners = self.__dict__.get("_curvature_owners", {})
        for key in [key for key in owners if key[0] == adapter_name]:
            del owners[key]
        if not any(c.norm_source == "residual" for c in self.peft_config.values()):
            self._remove_residual_norms()

    def _remove_residual_norms(self) -> None:
        for recorder in self.__dict__.pop("_residual_norms", {}).values():
            recorder.remove()

    @staticmethod
    def _create_new_module(
        config: HypLoraConfig, adapter_name: str, target: nn.Module, **settings: Any
    ) -> Any:
        base = target.get_base_layer() if isinstance(target, BaseTunerLayer) else target
        if getattr(base, "_hf_tp_plan", None) is not None:
            raise ValueError(
                "HypLoRA does not know tensor parallelism: the norms it needs would be of parts of "
                "a token. Load the model without a tp_plan"
            )
        if isinstance(base, nn.Embedding):
            return HypLoraEmbedding(target, adapter_name, config, **settings)
        if isinstance(base, bnn.Linear) and isinstance(base.manifold, Lorentz):
            return HypLoraLorentzLinear(target, adapter_name, config, **settings)
        transposed = isinstance(base, Conv1D)
        if transposed != config.fan_in_fan_out and isinstance(base, nn.Linear | Conv1D):
            how = "(in, out)" if transposed else "(out, in)"
            warnings.warn(
                f"fan_in_fan_out is set to {transposed}: a {type(base).__name__} stores its weight "
                f"as {how}",
                stacklevel=2,
            )
            config.fan_in_fan_out = transposed
        if isinstance(base, nn.Linear | Conv1D):
            return HypLoraLinear(target, adapter_name, config, **settings)
        backend = resolve_quantization_backend(
            base, get_apply_tensor_subclass=settings.get("get_apply_tensor_subclass")
        )
        if backend is not None and backend.layer_type == "linear":
            return HypLoraLinear(target, adapter_name, config, **settings)
        raise TypeError(
            f"HypLoRA cannot adapt a {type(base).__name__}; it adapts {SUPPORTED}. Choose other "
            "target_modules, or name the layer in exclude_modules"
        )

    # -- mixed batches ----------------------------------------------------------------------------

    @contextmanager
    def _enable_peft_forward_hooks(self, *args: Any, **kwargs: Any) -> Iterator[None]:
        names: Sequence[str] | None = kwargs.pop("adapter_names", None)
        if names is None:
            yield
            return
        if self.training:
            raise ValueError("Cannot pass `adapter_names` when the model is in training mode.")
        known = {name for layer in self._layers() for name in layer.hyplora_A}
        unknown = sorted(set(names) - known - {"__base__"})
        if unknown:
            raise ValueError(
                f"Trying to infer with non-existing adapter(s): {', '.join(unknown)}; there are "
                f"{', '.join(sorted(known))}"
            )
        rows = _rows_of(args, kwargs)
        if rows is not None and rows != len(names):
            raise ValueError(
                "Length of `adapter_names` should be the same as the number of inputs, but got "
                f"{len(names)} and {rows} respectively."
            )
        # Our layers see for themselves how many beams a row has; PEFT's wrappers want to be told.
        beams = kwargs.get("num_beams") or 1
        repeated = [name for name in names for _ in range(beams)]
        encoder = self.model.get_encoder() if hasattr(self.model, "get_encoder") else None
        inside = set(encoder.modules()) if encoder is not None and encoder is not self.model else ()
        handles = []
        for module in self.modules():
            if isinstance(module, HypLoraLayer | AuxiliaryTrainingWrapper):
                once = isinstance(module, HypLoraLayer) or module in inside
                hook = partial(_with_adapter_names, adapter_names=names if once else repeated)
                handles.append(module.register_forward_pre_hook(hook, with_kwargs=True))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _layers(self) -> Iterator[Any]:
        return (m for m in self.model.modules() if isinstance(m, HypLoraLayer))

    # -- merging ----------------------------------------------------------------------------------

    @torch.no_grad()
    def calibrate(
        self,
        batches: Iterable[Any],
        *,
        adapter_names: list[str] | None = None,
        forward: Callable[[nn.Module, Any], Any] | None = None,
    ) -> dict[str, LinearFit]:
        """Measure, on a user's own tokens, which linear map each adapter is nearest to.

        Args:
            batches: of what the model takes: dicts of tensors, tuples or tensors. They are moved to
                the model's device. A few thousand tokens are enough; those that an
                `attention_mask` leaves out do not count.
            adapter_names: the active ones if None.
            forward: how to run the model on a batch, if it is not `model(**batch)`.

        Returns: for each layer's name (with `:adapter` behind it where there are several) the gain
            it would be merged with and the relative error of doing so.
        """
        names = self.active_adapters if adapter_names is None else adapter_names
        layers = [layer for layer in self._layers() if any(n in layer.hyplora_A for n in names)]
        training, active = self.model.training, list(self.active_adapters)
        trained = [(p, p.requires_grad) for p in self.model.parameters()]
        if any(layer.merged for layer in layers):
            raise ValueError("adapters are merged; unmerge_adapter() before calibrate()")
        device = next(self.model.parameters()).device
        self.model.eval()
        for layer in layers:
            layer.observing = True
            for name in names:
                layer.hyplora_calibration.pop(name, None)
        try:
            if list(names) != active:
                self.set_adapter(list(names), inference_mode=True)
            for batch in batches:
                moved = _moved(batch, device)
                mask = moved.get("attention_mask") if isinstance(moved, Mapping) else None
                for layer in layers:
                    layer.observed_tokens = mask
                _run(self.model, moved, forward)
        finally:
            for layer in layers:
                layer.observing, layer.observed_tokens = False, None
            if list(names) != active:
                self.set_adapter(active)
            for parameter, requires_grad in trained:
                parameter.requires_grad_(requires_grad)
            self.model.train(training)
        return self._fits(names)

    def _fits(self, names: Sequence[str]) -> dict[str, LinearFit]:
        fits = {}
        for key, layer in self.model.named_modules():
            if isinstance(layer, HypLoraLayer):
                for name in names:
                    if name in layer.hyplora_calibration:
                        label = key if len(names) == 1 else f"{key}:{name}"
                        fits[label] = layer.fit(name)
        if not fits:
            raise ValueError("calibration saw no tokens: there were no batches, or no layer ran")
        return fits

    def merge_and_unload(
        self,
        progressbar: bool = False,
        safe_merge: bool = False,
        adapter_names: list[str] | None = None,
        merge_mode: MergeMode = "error",
    ) -> nn.Module:
        """The base model with the adapters in its weights, as nearly as that can be.

        Args:
            progressbar, safe_merge, adapter_names: as in PEFT.
            merge_mode: "error" refuses, but for the tangent variant; "calibrated" needs
                `calibrate(batches)` before; "tangent" is right for short tokens.
        """
        with self._merging(merge_mode, adapter_names, keep=False):
            merged: nn.Module = super().merge_and_unload(progressbar, safe_merge, adapter_names)
        return merged

    def merge_adapter(
        self,
        adapter_names: list[str] | None = None,
        safe_merge: bool = False,
        merge_mode: MergeMode = "error",
    ) -> None:
        """Merge and keep the adapters, so that `unmerge_adapter` can take them out again."""
        with self._merging(merge_mode, adapter_names):
            super().merge_adapter(adapter_names, safe_merge)

    @contextmanager
    def _merging(
        self, mode: MergeMode, names: list[str] | None, *, keep: bool = True
    ) -> Iterator[None]:
        """Tell all layers the mode, and whether to keep what they were for `unmerge`.

        Nothing is changed in any if one cannot be merged.
        """
        if mode not in MERGE_MODES:
            raise ValueError(f"merge_mode must be one of {MERGE_MODES}, got {mode!r}")
        layers = list(self._layers())
        chosen = self.active_adapters if names is None else names
        for layer in layers:
            layer.check_mergeable([n for n in chosen if n in layer.hyplora_A], mode)
        bases = [layer.get_base_layer() for layer in layers]
        bare = [base for base in bases if getattr(base, "bias", None) is None]
        for layer in layers:
            layer.merge_mode, layer.keeps_weight = mode, keep
        try:
            yield
        finally:
            for layer in layers:
                layer.merge_mode, layer.keeps_weight = "error", True
        if mode == "calibrated":
            self._report(layers, chosen)
        if given := sum(getattr(base, "bias", None) is not None for base in bare):
            logger.warning(
                "%d layers that had no bias have one now: what boost adds at x = 0. Whoever loads "
                "a checkpoint of this model must have these biases, too (Llama's config has "
                "attention_bias and mlp_bias for that), or they are left out",
                given,
            )

    def _report(self, layers: list[Any], names: Sequence[str]) -> None:
        errors = [x.fit(n).residual for x in layers for n in names if n in x.hyplora_calibration]
        if not errors:  # all of them linear
            return
        logger.warning(
            "merged with calibrated gains: the merged updates differ from the adapters' by %.1f "
            "percent on average, %.1f percent in the worst layer",
            100 * sum(errors) / len(errors),
            100 * max(errors),
        )
        if any(layer.quantization_backend is not None for layer in layers):
            logger.warning(
                "the merged weights were quantised again: what that loses comes on top, and for 4 "
                "bits may be most of an update"
            )

    def _unload_and_optionally_merge(self, *args: Any, **kwargs: Any) -> nn.Module:
        model: nn.Module = super()._unload_and_optionally_merge(*args, **kwargs)
        self._remove_residual_norms()
        return model

    # -- combining --------------------------------------------------------------------------------

    def add_weighted_adapter(
        self,
        adapters: list[str],
        weights: list[float],
        adapter_name: str,
        combination_type: str = "cat",
        **refused: Any,
    ) -> None:
        """A new adapter whose B·A is the weighted sum of those of others.

        The *matrices* are combined, and the new adapter's gain is that of the sum; outputs do not
        add up, as they would for LoRA. All must have the same variant and the same fixed curvature.

        Args:
            adapters, weights: what to sum.
            adapter_name: of the new one.
            combination_type: "cat" puts A and B side by side, exactly; "linear" sums A and B apart,
                for equal ranks. Those that decompose the weight (svd and its like) are refused.
        """
        if combination_type not in ("cat", "linear") or refused:
            raise ValueError(
                f"combination_type {combination_type!r} {sorted(refused) or ''} is not for "
                "HypLoRA: singular values of B·A say nothing of an update that is not linear. Use "
                "cat or linear"
            )
        if adapter_name in self.peft_config:
            raise ValueError(f"there is an adapter {adapter_name!r} already")
        if len(adapters) != len(weights) or not adapters:
            raise ValueError(
                f"give one weight an adapter, got {len(adapters)} adapters and {len(weights)} "
                "weights"
            )
        unknown = sorted(set(adapters) - set(self.peft_config))
        if unknown:
            raise ValueError(f"there is no adapter {', '.join(unknown)}")
        shared = sum(
            sum(a in wrapper.modules_to_save for a in adapters) > 1
            for wrapper in self.modules()
            if isinstance(wrapper, ModulesToSaveWrapper)
        )
        if shared:
            raise ValueError(
                "Cannot add weighted adapters if they target the same module with modules_to_save, "
                f"but found {shared} such instance(s)."
            )
        config = self._combined_config(adapters, combination_type)
        self.peft_config[adapter_name] = config
        self.inject_adapter(self.model, adapter_name)
        for layer in self._layers():
            if adapter_name in layer.hyplora_A:
                _combine(layer, adapters, weights, adapter_name, combination_type)
        self.set_adapter(self.active_adapters)

    def _combined_config(self, adapters: list[str], how: str) -> HypLoraConfig:
        configs = [self.peft_config[a] for a in adapters]
        first = configs[0]
        if any(
            c.variant == "boost" or c.learn_curvature != "no" or len(c.curvatures) > 1
            for c in configs
        ):
            raise ValueError(
                "only adapters of fixed, single curvature and without time columns can be combined"
            )
        if any(c.rank_pattern or c.use_dora or c.norm_source != "input" for c in configs):
            raise ValueError(
                "adapters with a rank_pattern, use_dora or another norm_source than the input "
                "cannot be combined"
            )
        for name in SAME_IN_ALL:
            options = [getattr(c, name) for c in configs]
            if any(option != options[0] for option in options):
                raise ValueError(f"adapters of different {name} cannot be combined: {options}")
        ranks = [c.r for c in configs]
        if how == "linear" and len(set(ranks)) > 1:
            raise ValueError(f"linear needs equal ranks, got {ranks}; use cat")
        r = sum(ranks) if how == "cat" else ranks[0]
        targets: set[str] = set()
        for c in configs:
            if not isinstance(c.target_modules, set | list):
                raise ValueError("combining needs target_modules that are lists of names")
            targets |= set(c.target_modules)
        # Scaled as the first is: a scale inside the gain would not be the same as one outside.
        share = r / (first.r**0.5 if first.use_rslora else first.r)
        alphas = {name: alpha * share or r for name, alpha in first.alpha_pattern.items()}
        values = {**first.to_dict(), "r": r, "target_modules": sorted(targets)}
        values.update(alpha=first.alpha * share or float(r), alpha_pattern=alphas)
        values.update(use_rslora=False, inference_mode=True)
        for gone in ("peft_type", "auto_mapping", "peft_version"):
            values.pop(gone, None)
        return HypLoraConfig(**values)


@torch.no_grad()
def _combine(layer: Any, adapters: list[str], weights: list[float], name: str, how: str) -> None:
    down, up = layer.hyplora_A[name].weight, layer.hyplora_B[name].weight
    down.zero_()
    up.zero_()
    start = 0
    for adapter, weight in zip(adapters, weights, strict=True):
        if adapter not in layer.hyplora_A:
            continue
        a, b = layer.hyplora_A[adapter].weight, layer.hyplora_B[adapter].weight
        factor = weight * layer.hyplora_scaling[adapter] / layer.hyplora_scaling[name]
        if how == "cat":
            down[start : start + len(a)] = a * factor
            up[:, start : start + len(a)] = b
            start += len(a)
        else:
            root = abs(factor) ** 0.5
            down += root * a
            up += (root if factor > 0 else -root) * b


def _block(key: str) -> str:
    """The name of the block a layer is in: everything up to its first number."""
    match = re.match(r"((?:[^.]+\.)*?\d+)\.", key)
    return match.group(1) if match else ""


def _rows_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int | None:
    """How many rows a model is called with; None where that is unknown."""
    given = [*args, *(kwargs.get(name) for name in ("input_ids", "inputs_embeds", "inputs"))]
    return next((len(x) for x in given if isinstance(x, Tensor) and x.ndim > 0), None)


def _with_adapter_names(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], adapter_names: Sequence[str]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return args, {**kwargs, "adapter_names": adapter_names}


def _moved(batch: Any, device: torch.device) -> Any:
    if isinstance(batch, Tensor):
        return batch.to(device)
    if isinstance(batch, Mapping):
        return {k: _moved(v, device) for k, v in batch.items()}
    if isinstance(batch, list | tuple):
        return type(batch)(_moved(v, device) for v in batch)
    return batch


def _run(model: nn.Module, batch: Any, forward: Callable[[nn.Module, Any], Any] | None) -> None:
    if forward is not None:
        forward(model, batch)
    elif isinstance(batch, Mapping):
        model(**batch)
    elif isinstance(batch, list | tuple):
        model(*batch)
    else:
        model(batch)
