"""Layers with HypLoRA adapters beside them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, Literal

import torch
from peft.tuners.tuners_utils import BaseTunerLayer, _get_in_out_features, check_adapters_to_merge
from peft.utils import quantization_extra_repr, resolve_quantization_backend
from peft.utils.quantization_utils import ForwardOnlyQuantizationBackend
from torch import Tensor, nn

from beltrami.geometry import lorentz
from beltrami.kernels.hyplora.adapted_linear import adapted_linear
from beltrami.kernels.launch.dtypes import cast, under_autocast, upcast
from beltrami.peft.calibration import Calibration, LinearFit
from beltrami.peft.config import HypLoraConfig
from beltrami.peft.gains import AdapterMap, Curvatures
from beltrami.peft.projections import (
    CurvatureRouter,
    DownLookup,
    DownProjection,
    LearnedCurvature,
    Magnitude,
    ResidualUnit,
    Seen,
    UpProjection,
)
from beltrami.peft.residual_norm import ResidualNorm

MergeMode = Literal["error", "tangent", "calibrated"]
MERGE_MODES = ("error", "tangent", "calibrated")
RANDOM_START = 0.02  # standard deviation of B where init_weights is False


class HypLoraLayer(BaseTunerLayer, nn.Module):
    """What adapted layers of all kinds have in common.

    Everything of an adapter is kept under its name: A and B, curvatures, the router of a mixture,
    magnitudes.

    Args:
        base_layer: what is adapted.
        adapter_name, config, settings: of the first adapter, see `update_layer`.
    """

    # PEFT's, whose types are not read.
    get_base_layer: Any
    get_base_weight: Any
    set_base_weight: Any
    set_adapter: Any
    active_adapters: Any
    merged: Any
    disable_adapters: Any
    _cast_input_dtype: Any
    _get_embed_scale: Any
    _move_adapter_to_device_of_base_layer: Any

    adapter_layer_names = (
        "hyplora_A",
        "hyplora_B",
        "hyplora_curvature",
        "hyplora_router",
        "hyplora_magnitude",
        "hyplora_unit",
    )
    other_param_names = (
        "hyplora_dropout",
        "hyplora_scaling",
        "hyplora_unscaled",
        "hyplora_alone",
        "hyplora_fixed_curvature",
        "hyplora_shared_curvature",
        "hyplora_residual_norm",
        "hyplora_calibration",
    )

    def __init__(
        self, base_layer: nn.Module, adapter_name: str, config: HypLoraConfig, **settings: Any
    ) -> None:
        nn.Module.__init__(self)
        self.base_layer: Any = base_layer
        self.quantization_backend = resolve_quantization_backend(
            self.get_base_layer(),
            get_apply_tensor_subclass=settings.get("get_apply_tensor_subclass"),
        )
        self.hyplora_A: Any = nn.ModuleDict()
        self.hyplora_B: Any = nn.ModuleDict()
        self.hyplora_curvature: Any = nn.ModuleDict()
        self.hyplora_router: Any = nn.ModuleDict()
        self.hyplora_magnitude: Any = nn.ModuleDict()
        self.hyplora_unit: Any = nn.ModuleDict()
        self.hyplora_dropout = nn.ModuleDict()
        self.hyplora_scaling: dict[str, float] = {}
        self.hyplora_unscaled: dict[str, float] = {}
        self.hyplora_alone: dict[str, bool] = {}  # whether it is a gain and nothing else
        self.hyplora_fixed_curvature: dict[str, tuple[float, ...]] = {}
        # In tuples, so that another layer's module is not registered here, too.
        self.hyplora_shared_curvature: dict[str, tuple[LearnedCurvature]] = {}
        self.hyplora_residual_norm: dict[str, ResidualNorm] = {}
        self.hyplora_calibration: dict[str, Calibration] = {}
        self._calibrated_at: dict[str, tuple[tuple[int, int], ...]] = {}
        self.observing = False
        self.observed_tokens: Tensor | None = None  # which of a batch's count; None is all
        self.merge_mode: MergeMode = "error"  # what merge() does when PEFT calls it
        self.keeps_weight = True  # for unmerge()
        self._disable_adapters = False
        self.merged_adapters: list[str] = []
        self._unmerged: tuple[Tensor, Tensor | None] | None = None
        self.cast_input_dtype_enabled = True
        sizes = _get_in_out_features(self.get_base_layer())
        if None in sizes:
            raise TypeError(f"HypLoRA cannot adapt a {type(self.get_base_layer()).__name__}")
        self.in_features: int = sizes[0]
        self.out_features: int = sizes[1]
        self.fan_in_fan_out = config.fan_in_fan_out
        self._active_adapter = adapter_name
        self.update_layer(adapter_name, config, **settings)

    # -- adapters ---------------------------------------------------------------------------------

    def update_layer(
        self,
        adapter_name: str,
        config: HypLoraConfig,
        *,
        r: int,
        alpha: float,
        curvatures: tuple[float, ...],
        shared: LearnedCurvature | None = None,
        residual: ResidualNorm | None = None,
        inference_mode: bool = False,
        **_: Any,
    ) -> None:
        """Add an adapter.

        Args:
            adapter_name: its name.
            config: what all layers are told; what is different for this one follows.
            r, alpha, curvatures: of this layer.
            shared: another layer's learned curvature to use.
            residual: where the norm of the residual stream is found.
            inference_mode: whether its parameters are frozen.
        """
        self._check(config)
        for name in self.adapter_layer_names + self.other_param_names:
            if adapter_name in getattr(self, name):  # of an adapter that is replaced
                del getattr(self, name)[adapter_name]
        down, up = self._projections(config, r)
        self.hyplora_A[adapter_name], self.hyplora_B[adapter_name] = down, up
        dropout = nn.Dropout(config.dropout) if config.dropout else nn.Identity()
        self.hyplora_dropout[adapter_name] = dropout
        scaling = alpha / (math.sqrt(r) if config.use_rslora else r)
        self.hyplora_scaling[adapter_name] = self.hyplora_unscaled[adapter_name] = scaling
        self.hyplora_fixed_curvature[adapter_name] = curvatures
        if shared is not None:
            self.hyplora_shared_curvature[adapter_name] = (shared,)
        elif config.learn_curvature != "no":
            self.hyplora_curvature[adapter_name] = LearnedCurvature(curvatures)
        if len(curvatures) > 1 or config.learn_curvature == "token":
            self.hyplora_router[adapter_name] = CurvatureRouter(r, len(curvatures))
        if residual is not None:
            self.hyplora_residual_norm[adapter_name] = residual
            self.hyplora_unit[adapter_name] = ResidualUnit()
        if config.use_dora:
            self.hyplora_magnitude[adapter_name] = Magnitude(self.out_features)
        self.hyplora_alone[adapter_name] = (
            config.variant in ("rotation", "simplified")
            and config.reference == "paper"
            and adapter_name not in self.hyplora_router
            and residual is None
            and not config.use_dora
        )
        self._reset(adapter_name, random=not config.init_weights)
        self._move_adapter_to_device_of_base_layer(adapter_name)
        if config.use_dora:
            self._start_magnitude(adapter_name)
        self.set_adapter(self.active_adapters, inference_mode=inference_mode)

    def _check(self, config: HypLoraConfig) -> None:
        """Refuse what this kind of layer cannot do."""

    def _map(self, config: HypLoraConfig) -> AdapterMap:
        return AdapterMap(
            config.variant, config.reference, math.sqrt(self.in_features), config.max_radius
        )

    def _projections(self, config: HypLoraConfig, r: int) -> tuple[nn.Module, UpProjection]:
        down = DownProjection(self.in_features, r, time=config.variant == "boost")
        return down, UpProjection(r, self.out_features, self._map(config))

    def _reset(self, adapter: str, *, random: bool) -> None:
        for name in ("hyplora_A", "hyplora_curvature", "hyplora_router", "hyplora_unit"):
            if adapter in getattr(self, name):
                getattr(self, name)[adapter].reset_parameters()
        self.hyplora_B[adapter].reset_parameters(RANDOM_START if random else 0.0)

    def set_scale(self, adapter: str, scale: float) -> None:
        """Multiply an adapter's update by this, whatever it was multiplied by before."""
        if adapter in self.hyplora_scaling:
            self.hyplora_scaling[adapter] = scale * self.hyplora_unscaled[adapter]

    def scale_layer(self, scale: float) -> None:
        """Multiply the active adapters' updates."""
        for adapter in self.active_adapters:
            if adapter in self.hyplora_scaling:
                self.hyplora_scaling[adapter] *= scale

    def unscale_layer(self, scale: float | None = None) -> None:
        """Undo `scale_layer(scale)`, or all of them if None."""
        for adapter in self.active_adapters:
            if adapter in self.hyplora_scaling:
                now = self.hyplora_scaling[adapter]
                self.hyplora_scaling[adapter] = (
                    self.hyplora_unscaled[adapter] if scale is None else now / scale
                )

    def keep_components(
        self, adapter: str, components: Tensor | None = None, **former: Tensor
    ) -> None:
        """Lower an adapter's rank: of the r columns of B and rows of A only these remain.

        The scale of its update stays what it was. Optimisers do not know the new parameters.
        `kept` is the former name of `components`.
        """
        if "kept" in former:
            warnings.warn("kept= is called components= now", DeprecationWarning, stacklevel=2)
            components = former.pop("kept")
        if components is None or former:
            raise TypeError("keep_components takes an adapter and the numbers of what remains")
        for name in ("hyplora_A", "hyplora_B", "hyplora_router"):
            if adapter in getattr(self, name):
                getattr(self, name)[adapter].keep(components)
        self.hyplora_calibration.pop(adapter, None)

    def curvatures(self, adapter: str) -> tuple[float | Tensor, ...]:
        """The curvatures of an adapter now."""
        if adapter in self.hyplora_shared_curvature:
            values: tuple[Tensor, ...] = self.hyplora_shared_curvature[adapter][0]()
            return values
        if adapter in self.hyplora_curvature:
            learned: tuple[Tensor, ...] = self.hyplora_curvature[adapter]()
            return learned
        return self.hyplora_fixed_curvature[adapter]

    # -- forward ----------------------------------------------------------------------------------

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """The base layer, and what the active adapters make of it."""
        names: Sequence[str] | None = kwargs.pop("adapter_names", None)
        if names is not None and self.merged:
            raise ValueError(
                "Cannot pass `adapter_names` when there are merged adapters, please call "
                "`unmerge_adapter` first."
            )
        if self.disable_adapters or self.merged:
            if self.disable_adapters and self.merged:
                self.unmerge()
            plain: Tensor = self.base_layer(x, *args, **kwargs)
            return plain
        active: list[str] = self.active_adapters
        if len(active) == 1 and names is None and not args and not kwargs:
            whole = self._in_one(active[0], x)
            if whole is not None:
                return whole
        seen: list[tuple[str, Any]] = []
        for adapter in active if names is None else ():
            if adapter in self.hyplora_A:
                x, part = self._see(adapter, x)
                seen.append((adapter, part))
        base: Tensor = self.base_layer(x, *args, **kwargs)
        if self.quantization_backend is not None:
            base = self.quantization_backend.maybe_clone_base_result(base)
        if names is not None:
            return self._mixed(x, base, names)
        result = base
        for adapter, part in seen:
            result = self._adapted(adapter, part, result, base)
        return result

    def _in_one(self, adapter: str, x: Tensor) -> Tensor | None:
        """The base layer and one adapter in one operation; None where something sees the parts."""
        return None

    def _mixed(self, x: Tensor, base: Tensor, names: Sequence[str]) -> Tensor:
        """A batch whose rows have adapters of their own; "__base__" is none.

        A row may be several here: of beams, or of tokens where a model puts them side by side.
        """
        copies, left = divmod(len(x), len(names))
        if left or not copies:
            raise ValueError(
                "Length of `adapter_names` should be the same as the number of inputs, but got "
                f"{len(names)} and {len(x)} respectively."
            )
        names = [name for name in names for _ in range(copies)]  # those of one row lie together
        result = base.clone()
        for adapter in dict.fromkeys(names):
            if adapter in self.hyplora_A:
                rows = torch.tensor(
                    [i for i, name in enumerate(names) if name == adapter], device=x.device
                )
                _, part = self._see(adapter, x[rows], rows)
                result[rows] = self._adapted(adapter, part, base[rows], base[rows])
        return result

    def _see(self, adapter: str, x: Tensor, rows: Tensor | None = None) -> tuple[Tensor, Any]:
        """x for what is made of it after this, and what `_adapted` is to know of it.

        Args:
            adapter: its name.
            x: the layer's input.
            rows: which rows of the batch they are, if not all.
        """
        down = self.hyplora_A[adapter]
        given = self._cast_input_dtype(x, down.weight.dtype)
        dropout = self.hyplora_dropout[adapter]
        # An identity takes microseconds to call, which is as long as small layers take.
        dropped = given if isinstance(dropout, nn.Identity) else dropout(given)
        after, seen = down(dropped)
        if adapter in self.hyplora_residual_norm:
            seen = seen._replace(n2=self._residual(adapter, given, rows))
        return (after if dropped is x else x), seen

    def _adapted(self, adapter: str, seen: Any, result: Tensor, base: Tensor) -> Tensor:
        """A result with one adapter's update.

        Args:
            adapter: its name.
            seen: what `_see` found.
            result: what to add to. base: what the base layer made of its input.
        """
        u, n2, time_in = seen
        curvatures = self._curvatures(adapter, u)
        if self.observing:
            self._observe(adapter, u, n2, curvatures, time_in)
        up, scaling = self.hyplora_B[adapter], self.hyplora_scaling[adapter]
        if adapter not in self.hyplora_magnitude:
            out: Tensor = up(u, n2, curvatures, time_in, scaling=scaling, add_to=result)
            return out
        bias = getattr(self.get_base_layer(), "bias", None)
        whole: Tensor = up(u, n2, curvatures, time_in, scaling=scaling, add_to=result)
        factor: Tensor = self.hyplora_magnitude[adapter](self._row_lengths(adapter))
        factor, whole = factor.to(result.dtype), whole.to(result.dtype)
        return factor * whole if bias is None else factor * (whole - bias) + bias

    def _residual(self, adapter: str, x: Tensor, rows: Tensor | None) -> Tensor:
        """|x|² as it would be if x were as long as the residual stream."""
        mean_square = self.hyplora_residual_norm[adapter].of(x, rows)
        in_unit: Tensor = self.hyplora_unit[adapter](mean_square)
        return in_unit * self.in_features

    def _curvatures(self, adapter: str, u: Tensor) -> Curvatures:
        values = self.curvatures(adapter)
        if adapter not in self.hyplora_router:
            return Curvatures(values)
        routed = self.hyplora_router[adapter](u)
        if len(values) > 1:
            return Curvatures(values, weights=routed)
        return Curvatures(values, factor=routed)

    # -- DoRA -------------------------------------------------------------------------------------

    def _start_magnitude(self, adapter: str) -> None:
        magnitude = self.hyplora_magnitude[adapter].weight
        if magnitude.device.type != "meta":
            magnitude.data.copy_(self._row_lengths(adapter))

    @torch.no_grad()
    def _row_lengths(self, adapter: str) -> Tensor:
        """The length of each row of W + s·B·A, without making B·A: in r columns."""
        base = self._rows_of(self.get_base_weight()).float()
        a, b = self.hyplora_A[adapter].weight.float(), self.hyplora_B[adapter].weight.float()
        s = self.hyplora_scaling[adapter]
        squares = base.square().sum(-1)
        squares += 2 * s * ((base @ a.mT) * b).sum(-1) + s * s * ((b @ (a @ a.mT)) * b).sum(-1)
        return torch.where(squares > 0, squares, 0.0).sqrt()

    def _rows_of(self, weight: Tensor) -> Tensor:
        """A base weight as (out, in)."""
        return weight

    # -- merging ----------------------------------------------------------------------------------

    def _observe(
        self,
        adapter: str,
        u: Tensor,
        n2: Tensor,
        curvatures: Curvatures,
        time_in: Tensor | None,
    ) -> None:
        up = self.hyplora_B[adapter]
        boost = up.adapter_map.variant == "boost"
        z, _ = up.adapter_map.coefficients(
            u, n2, curvatures, up.weight, time_in=time_in, time_out=up.time_weight
        )
        if (mask := self.observed_tokens) is not None and mask.shape == u.shape[:-1]:
            u, z = u[mask.bool()], z[mask.bool()]
        seen = self.hyplora_calibration.setdefault(adapter, Calibration(bias=boost))
        seen.see(u, z)
        self._calibrated_at[adapter] = self._versions(adapter)

    def fit(self, adapter: str) -> LinearFit:
        """What `calibrate` has found about an adapter."""
        if adapter not in self.hyplora_calibration:
            raise ValueError(
                f"adapter {adapter!r} is not calibrated: call calibrate(dataloader) before merging "
                'with merge_mode="calibrated"'
            )
        if self._calibrated_at[adapter] != self._versions(adapter):
            raise ValueError(
                f"adapter {adapter!r} has changed since it was calibrated: call "
                "calibrate(dataloader) again"
            )
        up = self.hyplora_B[adapter]
        return self.hyplora_calibration[adapter].fit(up.weight, _wide_weight(up))

    def _versions(self, adapter: str) -> tuple[tuple[int, int], ...]:
        """Different after any change of the adapter's parameters."""
        modules = [getattr(self, name) for name in self.adapter_layer_names]
        held = [p for m in modules if adapter in m for p in m[adapter].parameters()]
        return tuple((id(p), p._version) for p in held)

    def get_delta_weight(self, adapter: str, mode: MergeMode = "error") -> Tensor:
        """The weight nearest to an adapter, as the base layer stores it; see `merge`."""
        return self._as_stored(self._linear_part(adapter, mode)[0])

    def _linear_part(self, adapter: str, mode: MergeMode) -> tuple[Tensor, Tensor | None]:
        """(out, in), and an output bias if there is one."""
        down, up = self.hyplora_A[adapter], self.hyplora_B[adapter]
        a, b, s = down.weight.float(), up.weight.float(), self.hyplora_scaling[adapter]
        variant = up.adapter_map.variant
        self._check_linear(adapter, mode)
        if variant == "tangent":
            return s * (b @ a), None
        if mode == "calibrated":
            fit = self.fit(adapter)
            offset = None if fit.offset is None else s * fit.offset.float()
            return s * fit.gain * (b @ a), offset
        if variant == "boost":
            jacobian, offset = self._boost_at_origin(adapter)
            return s * (jacobian @ a), s * offset
        return s * (b @ a), None

    def _check_linear(self, adapter: str, mode: MergeMode) -> None:
        adapter_map = self.hyplora_B[adapter].adapter_map
        if adapter_map.variant == "tangent":
            return
        if mode == "error":
            raise ValueError(
                "HypLoRA cannot be merged exactly: its gain differs from token to token. Keep the "
                'adapter beside the model, or accept an approximation: merge_mode="calibrated" '
                'after calibrate(dataloader), or merge_mode="tangent"'
            )
        if mode == "tangent" and adapter_map.reference == "repo":
            raise ValueError('reference="repo" is not smooth at the origin; merge it "calibrated"')
        if mode == "calibrated":
            self.fit(adapter)

    @torch.enable_grad()
    def _boost_at_origin(self, adapter: str) -> tuple[Tensor, Tensor]:
        """Boost's derivative in u at x = 0, (out, r), and its value there."""
        down, up = self.hyplora_A[adapter], self.hyplora_B[adapter]
        curvatures = Curvatures(tuple(_detached(c) for c in self.curvatures(adapter)))
        zero = up.weight.new_zeros(1, 1, dtype=torch.float32)

        def value(u: Tensor) -> Tensor:
            z, weight = up.adapter_map.coefficients(
                u.unsqueeze(0),
                zero,
                curvatures,
                up.weight.detach().float(),
                time_in=down.time_weight.detach().float(),
                time_out=up.time_weight.detach().float(),
            )
            out: Tensor = (z @ weight.mT)[0]
            return out

        start = up.weight.new_zeros(up.r, dtype=torch.float32)
        jacobian = torch.autograd.functional.jacobian(value, start)
        assert isinstance(jacobian, Tensor)
        return jacobian, value(start).detach()

    def _as_stored(self, weight: Tensor) -> Tensor:
        """(out, in) in the base layer's layout."""
        return weight

    def check_mergeable(self, adapters: Sequence[str], mode: MergeMode) -> None:
        """Raise a `ValueError` that says why if these adapters cannot be merged in this mode."""
        backend = self.quantization_backend
        if backend is not None and not backend.supports_merge:
            raise ValueError(f"{backend.backend_name} layers cannot be merged into")
        for adapter in adapters:
            self._check_linear(adapter, mode)

    def merge(
        self,
        safe_merge: bool = False,
        adapter_names: list[str] | None = None,
        merge_mode: MergeMode | None = None,
    ) -> None:
        """Merge adapters into the base layer, as nearly as a weight can.

        Args:
            safe_merge: whether to look for NaN in the result before it is taken.
            adapter_names: the active ones if None.
            merge_mode: "error" refuses, but for the tangent variant, which is exact; "tangent"
                takes the derivative at the origin; "calibrated" the best gain on calibration data.
                None is what the model was told.
        """
        mode = self.merge_mode if merge_mode is None else merge_mode
        if mode not in MERGE_MODES:
            raise ValueError(f"merge_mode must be one of {MERGE_MODES}, got {mode!r}")
        names = [n for n in check_adapters_to_merge(self, adapter_names) if n in self.hyplora_A]
        if not names:
            return
        self.check_mergeable(names, mode)
        backend = self.quantization_backend
        with torch.no_grad():
            weight, bias = self.get_base_weight(), getattr(self.get_base_layer(), "bias", None)
            before = (weight.clone(), None if bias is None else bias.data.clone())
            merged, new_bias = weight.float(), None if bias is None else bias.data.float()
            for name in names:
                merged, new_bias = self._with(name, merged, new_bias, mode)
            if safe_merge and not torch.isfinite(merged).all():
                raise ValueError(
                    f"NaNs detected in the merged weights. The adapter {', '.join(names)} seems to "
                    "be broken"
                )
            if self._unmerged is None and backend is None and self.keeps_weight:
                self._unmerged = before
            self.set_base_weight(merged.to(weight.dtype))
            self._set_bias(new_bias, weight.dtype)
        self.merged_adapters.extend(names)

    def _with(
        self, adapter: str, weight: Tensor, bias: Tensor | None, mode: MergeMode
    ) -> tuple[Tensor, Tensor | None]:
        linear, offset = self._linear_part(adapter, mode)
        factor: Tensor | None = None
        if adapter in self.hyplora_magnitude:
            factor = self.hyplora_magnitude[adapter](self._row_lengths(adapter)).float()
        whole = self._rows_of(weight) + linear.to(weight.device)
        if factor is not None:
            whole = factor[:, None] * whole
            offset = None if offset is None else factor * offset
        if offset is not None:
            bias = offset if bias is None else bias + offset
        return self._as_stored(whole), bias

    def _set_bias(self, bias: Tensor | None, dtype: torch.dtype) -> None:
        base = self.get_base_layer()
        if bias is None:
            return
        if getattr(base, "bias", None) is None:
            base.bias = nn.Parameter(bias.to(dtype), requires_grad=False)
        else:
            base.bias.data = bias.to(base.bias.dtype)

    def unmerge(self) -> None:
        """Put the base layer back as it was, to the last digit."""
        if not self.merged:
            warnings.warn("Already unmerged. Nothing to do.", stacklevel=2)
            return
        if self.quantization_backend is not None:
            raise ValueError(
                f"a {self.quantization_backend.backend_name} layer was quantised again when it was "
                "merged into; what it was before is lost. Load the base model again"
            )
        assert self._unmerged is not None
        weight, bias = self._unmerged
        base = self.get_base_layer()
        self.set_base_weight(weight.to(base.weight))  # the model may have been moved or cast since
        if bias is not None:
            base.bias.data = bias.to(base.bias)
        elif getattr(base, "bias", None) is not None:
            base.bias = None
        self._unmerged = None
        self.merged_adapters.clear()

    def extra_repr(self) -> str:
        """The quantisation, if there is one."""
        text: str = quantization_extra_repr(self)
        return text


class HypLoraLinear(HypLoraLayer):
    """An adapted linear layer, quantised or not, or GPT-2's Conv1D."""

    def _check(self, config: HypLoraConfig) -> None:
        backend = self.quantization_backend
        if config.use_dora and isinstance(backend, ForwardOnlyQuantizationBackend):
            raise ValueError(
                "use_dora needs the lengths of the rows of the weight, which a "
                f"{backend.backend_name} layer does not give; use use_dora=False"
            )

    def _in_one(self, adapter: str, x: Tensor) -> Tensor | None:
        if not self.hyplora_alone.get(adapter) or self.observing:
            return None
        # Past nn.Module's own look-up, which takes a microsecond each: this is all that small
        # layers wait for.
        modules = self._modules
        base: Any = modules["base_layer"]
        down: Any = modules["hyplora_A"]._modules[adapter]  # type: ignore[union-attr]
        up: Any = modules["hyplora_B"]._modules[adapter]  # type: ignore[union-attr]
        dropout: Any = modules["hyplora_dropout"]._modules[adapter]  # type: ignore[union-attr]
        if type(base) is not nn.Linear or not (_is_bare(base) and _is_bare(down) and _is_bare(up)):
            return None
        if dropout.training and not isinstance(dropout, nn.Identity):
            return None
        if nn.modules.module._has_any_global_hook() or "bias" not in base._parameters:
            return None
        weight: Any = base._parameters["weight"]
        a: Any = down._parameters["weight"]
        if not x.dtype == weight.dtype == a.dtype or under_autocast(x):
            return None
        adapter_map = up.adapter_map
        return adapted_linear(
            x,
            weight,
            base._parameters["bias"],
            a,
            up._parameters["weight"],
            self.curvatures(adapter)[0] / adapter_map.unit**2,
            scaling=self.hyplora_scaling[adapter],
            cap=adapter_map.variant_cap,
            stereographic=adapter_map.variant == "simplified",
        )

    def _rows_of(self, weight: Tensor) -> Tensor:
        return weight.mT if self.fan_in_fan_out else weight

    def _as_stored(self, weight: Tensor) -> Tensor:
        return weight.mT.contiguous() if self.fan_in_fan_out else weight


class HypLoraEmbedding(HypLoraLayer):
    """An adapted embedding.

    Its input, a token number, has no norm. The gain takes that of the vector the base layer finds,
    which is where norms differ most from token to token.
    """

    def _check(self, config: HypLoraConfig) -> None:
        for name, wanted in (("variant", "boost"), ("norm_source", "residual")):
            if getattr(config, name) == wanted:
                raise ValueError(f'{name}="{wanted}" is not for embeddings; exclude them')
        if config.use_dora:
            raise ValueError("use_dora is not for embeddings; exclude them")

    def _map(self, config: HypLoraConfig) -> AdapterMap:
        unit = math.sqrt(self.out_features)  # of the vectors, which are what the norms are of
        return AdapterMap(config.variant, config.reference, unit, config.max_radius)

    def _projections(self, config: HypLoraConfig, r: int) -> tuple[nn.Module, UpProjection]:
        padding = getattr(self.get_base_layer(), "padding_idx", None)
        down = DownLookup(self.in_features, r, padding)
        return down, UpProjection(r, self.out_features, self._map(config))

    def _reset(self, adapter: str, *, random: bool) -> None:
        super()._reset(adapter, random=random)
        self.hyplora_B[adapter].reset_parameters(1.0)  # as LoRA: it is A that starts at 0
        if random:
            nn.init.normal_(self.hyplora_A[adapter].weight, std=RANDOM_START)

    def _see(self, adapter: str, x: Tensor, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return x, self.hyplora_A[adapter](x)

    def _adapted(self, adapter: str, seen: Tensor, result: Tensor, base: Tensor) -> Tensor:
        u = seen
        scale = self._get_embed_scale()
        n2 = base.detach().float().square().sum(-1, keepdim=True)
        n2 = n2 if scale is None else n2 / scale.float() ** 2  # as the table has it, and A and B
        curvatures = self._curvatures(adapter, u)
        if self.observing:
            self._observe(adapter, u, n2, curvatures, None)
        scaling = self.hyplora_scaling[adapter]
        update: Tensor = self.hyplora_B[adapter](u, n2, curvatures, scaling=scaling)
        update = update if scale is None else update * scale.to(update.dtype)
        return (result + update).to(result.dtype)

    def _rows_of(self, weight: Tensor) -> Tensor:
        return weight.mT

    def _as_stored(self, weight: Tensor) -> Tensor:
        return weight.mT.contiguous()


class HypLoraLorentzLinear(HypLoraLayer):
    """An adapted `beltrami.nn.Linear` between Lorentz points.

    The input is a point already, so that `log0(BA·x)` on its space part is the update; it is a
    tangent vector at the origin, carried to the base layer's output y and followed from there:
    exp_y(transport(Δ)). The curvature is the layer's own.
    """

    def _check(self, config: HypLoraConfig) -> None:
        refused = {
            "variant": config.variant not in ("rotation", "tangent"),
            "learn_curvature": config.learn_curvature != "no",
            "curvature": len(config.curvatures) > 1,
            "norm_source": config.norm_source != "input",
            "reference": config.reference != "paper",
            "use_dora": config.use_dora,
        }
        for name, bad in refused.items():
            if bad:
                raise ValueError(
                    f"{name}={getattr(config, name)!r} is not for layers between Lorentz points, "
                    "which bring their own geometry; use the default or exclude them"
                )

    def _map(self, config: HypLoraConfig) -> AdapterMap:
        return AdapterMap(config.variant, "paper", 1.0, None)

    def curvatures(self, adapter: str) -> tuple[float | Tensor, ...]:
        """The curvature of the base layer's points."""
        return (self.get_base_layer().manifold.c,)

    def _adapted(self, adapter: str, seen: Seen, result: Tensor, base: Tensor) -> Tensor:
        (c,) = self.curvatures(adapter)
        flat = torch.zeros_like(seen.n2)
        delta = self.hyplora_B[adapter](
            seen.u, flat, Curvatures((c,)), scaling=self.hyplora_scaling[adapter]
        )
        moved = lorentz.boost(lorentz.exp0(upcast(delta), c), upcast(result), c)
        return _held(moved, result.dtype)

    def check_mergeable(self, adapters: Sequence[str], mode: MergeMode) -> None:
        """Refuse to merge: no weight has the effect of these adapters."""
        raise ValueError(
            "adapters of layers between Lorentz points cannot be merged: their update is a "
            "translation of the output, not a weight"
        )


def _is_bare(module: Any) -> bool:
    """Whether a module does nothing but what its class says, with parameters that are all there.

    Engines that shard, move or watch parameters hook into modules, replace their forward, or put
    tensors of other types into them.
    """
    return not (
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or "forward" in module.__dict__
        or type(module._parameters.get("weight")) is not nn.Parameter
    )


def _held(points: Tensor, dtype: torch.dtype) -> Tensor:
    """Points in a dtype; of those that are further out than float16 holds, ones that it does."""
    if dtype == torch.float16:
        longest = torch.linalg.vector_norm(points, dim=-1, keepdim=True)
        points = points * (torch.finfo(dtype).max / longest.clamp(min=1.0)).clamp(max=1.0)
    return cast(points, dtype)


def _wide_weight(up: UpProjection) -> Tensor:
    if up.time_weight is None:
        return up.weight
    return torch.cat([up.weight, up.time_weight.unsqueeze(-1)], -1)


def _detached(c: float | Tensor) -> float | Tensor:
    return c.detach() if isinstance(c, Tensor) else c
