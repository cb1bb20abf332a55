"""`transformers.Trainer` for models with points: `RiemannianTrainer`, or the mixin for your own.

>>> trainer = RiemannianTrainer(model, args, train_dataset=data, point_lr=1e-2)
>>> class MyTrainer(RiemannianTrainerMixin, SFTTrainer): ...

It builds the optimiser from `TrainingArguments`, clips by the Riemannian norm, logs curvatures and
radii, and stops at the first loss that is not finite, naming the layer where it began.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from beltrami.geometry import Euclidean
from beltrami.optim.clip import clip_grad_norm_
from beltrami.optim.create import create_optimizer
from beltrami.optim.finite import (
    NonFinite,
    NonFiniteLossError,
    RandomState,
    find_nonfinite,
)
from beltrami.optim.metrics import geometry_metrics, named_points

try:
    from transformers import Trainer, TrainerCallback, TrainingArguments
    from transformers.trainer_utils import get_last_checkpoint
except ImportError as error:
    raise ImportError(
        'beltrami.optim.trainer needs transformers and accelerate: pip install "beltrami[llm]"'
    ) from error

# The values of TrainingArguments.optim that have a Riemannian form, and what `optim_args` may set.
_OPTIMIZERS = {
    "adamw_torch": ("adamw", ("amsgrad",)),
    "adamw_torch_fused": ("adamw", ("amsgrad",)),
    "sgd": ("sgd", ("momentum", "dampening", "nesterov")),
}

if TYPE_CHECKING:
    from transformers import Trainer as _Base
else:
    _Base = object  # whatever Trainer comes after the mixin


class RiemannianTrainerMixin(_Base):
    """What `RiemannianTrainer` adds to a Trainer; put it first among the base classes.

    - The optimiser is `beltrami.optim.create_optimizer` with learning_rate, weight_decay and the
      betas and eps of `TrainingArguments`. `optim` may be adamw_torch, adamw_torch_fused or sgd
      (with `optim_args="momentum=0.9"`). One given as `optimizers=` is used as it is.
    - `max_grad_norm` clips the Riemannian norm, which is also the `grad_norm` that is logged.
    - At logging steps, whatever Trainer reports to gets `geometry_metrics(model)`.
    - The first loss or gradient norm that is not finite stops the run with `NonFiniteLossError`,
      whose message names the layer. That costs a tiny kernel or two a step: with Trainer's default
      `logging_nan_inf_filter=True`, which itself reads every loss, the run stops before the
      parameters are touched; with False nothing waits for the device, and it stops one step later.
      Under float16 with loss scaling, gradients that overflow are the scaler's business.

    FSDP2, which splits tables by rows, is fine; models with points are gathered in their own dtype,
    also with bf16. FSDP1 and DeepSpeed flatten parameters, in which points are no longer rows, and
    are refused for models with points.

    Args:
        args, kwargs: Trainer's own.
        point_lr: learning rate of points, if not `learning_rate`. curvature_lr: of curvatures.
        point_weight_decay: of points, a pull to the origin along geodesics.
        finite_check: whether to stop at the first loss or gradient norm that is not finite.
    """

    model: Any
    optimizer: Any  # None, an optimiser, or accelerate's wrapper of one

    def __init__(
        self,
        *args: Any,
        point_lr: float | None = None,
        curvature_lr: float | None = None,
        point_weight_decay: float = 0.0,
        finite_check: bool = True,
        **kwargs: Any,
    ) -> None:
        self.point_lr = point_lr
        self.curvature_lr = curvature_lr
        self.point_weight_decay = point_weight_decay
        self.finite_check = finite_check
        self._step = _Step()
        self._last_step = _Step()
        self._metrics_due = False
        super().__init__(*args, **kwargs)
        self._check_options()
        if finite_check:
            self.add_callback(_FiniteCheck(self))
        self._gather_points_whole()

    def _check_options(self) -> None:
        """Raise `ValueError` for what would be ignored, now and not when training starts."""
        if self.optimizer is None:
            _optimizer_options(self.args)
        elif self.point_lr is not None or self.curvature_lr is not None or self.point_weight_decay:
            raise ValueError(
                "point_lr, curvature_lr and point_weight_decay are for the optimiser this Trainer "
                "builds, but optimizers= brings one: give them to "
                "beltrami.optim.create_optimizer(model, ...)"
            )
        if self.optimizer_cls_and_kwargs is not None:
            raise ValueError(
                f"optimizer_cls_and_kwargs names {self.optimizer_cls_and_kwargs[0].__name__}, but "
                "this Trainer builds a Riemannian optimiser: set args.optim, or give an optimiser "
                "of beltrami.optim as optimizers=(optimizer, None)"
            )

    # --- optimiser and clipping -------------------------------------------------------------------

    def create_optimizer(self, model: nn.Module | None = None) -> Any:
        """The optimiser that `TrainingArguments` ask for, with the groups of `param_groups`."""
        if self.optimizer is None:
            trained: nn.Module = self.model if model is None else model
            self._refuse_flattening()
            name, options = _optimizer_options(self.args)
            self.optimizer = create_optimizer(
                trained,
                name,
                lr=self.args.learning_rate,
                weight_decay=self.args.weight_decay,
                point_lr=self.point_lr,
                curvature_lr=self.curvature_lr,
                point_weight_decay=self.point_weight_decay,
                **options,
            )
            if _name(self.args.optim) == "adamw_torch_fused":
                # For plain parameters; points take their own fused step wherever there is one.
                for group in self.optimizer.param_groups:
                    group["fused"] = True if group["kind"] != "points" else None
        return self.optimizer

    def _gather_points_whole(self) -> None:
        """Let FSDP2 gather parameters in their own dtype, if some of them are points.

        With bf16, accelerate would have it gather them all in bfloat16, points and curvatures with
        three digits. Autocast alone does what it does in one process.
        """
        plugin: Any = getattr(self.accelerator.state, "fsdp_plugin", None)
        if not self.is_fsdp_enabled or getattr(plugin, "fsdp_version", 1) != 2:
            return
        if self._curved():
            from torch.distributed.fsdp import MixedPrecisionPolicy

            plugin.mixed_precision_policy = MixedPrecisionPolicy()

    def _curved(self) -> list[str]:
        """Names of the model's parameters that are points of a curved manifold."""
        points = named_points(self.model)
        return [name for name, _, manifold in points if manifold != Euclidean()]

    def _refuse_flattening(self) -> None:
        """Raise if the engine turns parameters into pieces of one long vector."""
        engine = None
        if self.is_deepspeed_enabled:
            engine = "DeepSpeed"
        elif self.is_fsdp_enabled:
            plugin = self.accelerator.state.fsdp_plugin
            engine = None if getattr(plugin, "fsdp_version", 1) == 2 else "FSDP1"
        if engine is None:
            return
        if curved := self._curved():
            raise ValueError(
                f"{engine} flattens parameters, and then the rows of {curved[0]} are no points any "
                "more: use FSDP2 (fsdp_version: 2 in the accelerate configuration) or DDP"
            )

    def create_accelerator_and_postprocess(self) -> None:
        """As in Trainer; every version of it clips through this one method of accelerate's."""
        super().create_accelerator_and_postprocess()
        plain = self.accelerator.clip_grad_norm_

        def clip(parameters: Iterable[Tensor], max_norm: float, norm_type: float = 2) -> Any:
            parameters = list(parameters)
            ours = {id(p) for p in self.model_wrapped.parameters()}
            if self.is_deepspeed_enabled or any(id(p) not in ours for p in parameters):
                return plain(parameters, max_norm, norm_type)
            if norm_type != 2:
                raise ValueError(f"the Riemannian norm has norm_type 2, got {norm_type}")
            return self._clip(max_norm)

        self.accelerator.clip_grad_norm_ = clip

    def _clip(self, max_norm: float) -> Tensor:
        self.accelerator.unscale_gradients()
        known = all("manifold" in group for group in self.optimizer.param_groups)
        norm = clip_grad_norm_(self.optimizer if known else self.model_wrapped, max_norm)
        if self.finite_check and self.accelerator.scaler is None:
            self._step.norm = norm.detach()
        return norm

    def _mixed_mesh_grad_norm(self, model: nn.Module, max_norm: float) -> Any:
        """Trainer's own way around parameters on several meshes, which our norm needs none of."""
        return self.accelerator.clip_grad_norm_(model.parameters(), max_norm)

    # --- logging ----------------------------------------------------------------------------------

    def _maybe_log_save_evaluate(self, *args: Any, **kwargs: Any) -> None:
        control = self.control
        if control.should_log or control.should_save or control.should_evaluate:
            self._judge(self._last_step, late=True)
        self._metrics_due = True  # logs of this call only: all processes take part in it
        try:
            super()._maybe_log_save_evaluate(*args, **kwargs)
        finally:
            self._metrics_due = False

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """As in Trainer, with `geometry_metrics` beside the training loss."""
        if self._metrics_due and "loss" in logs:
            self._metrics_due = False
            logs = {**logs, **geometry_metrics(self.model)}
        super().log(logs, *args, **kwargs)

    # --- the finite check -------------------------------------------------------------------------

    def training_step(
        self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None
    ) -> Tensor:
        """As in Trainer; the batch is remembered until its loss is known to be finite."""
        if not self.finite_check:
            unwatched: Tensor = super().training_step(model, inputs, num_items_in_batch)
            return unwatched
        state = RandomState.now([self.args.device])
        kept = copy.copy(inputs) if isinstance(inputs, Mapping) else inputs
        loss: Tensor = super().training_step(model, inputs, num_items_in_batch)
        self._step.number = self.state.global_step + 1
        self._step.batches.append(_Batch(kept, num_items_in_batch, state, loss.detach()))
        return loss

    def _before_optimizer_step(self) -> None:
        step, self._step = self._step, _Step()
        if not step.batches:
            return
        step.send()
        if self._knows_at_once():
            self._judge(step, late=False)
        else:  # the step before: its flags have arrived while this one was computed
            self._judge(self._last_step, late=True)
            self._last_step = step

    def _knows_at_once(self) -> bool:
        """A CPU never waits, and where Trainer reads each loss itself the device has been waited
        for."""
        return self.args.logging_nan_inf_filter or self.args.device.type == "cpu"

    def _judge(self, step: _Step, *, late: bool) -> None:
        """Raise `NonFiniteLossError` if something in the step was not finite.

        All processes come here at the same step, and the flags are the same in all of them.
        """
        bad_loss, bad_norm = step.receive()
        if not bad_loss and not bad_norm:
            return
        index, found = self._find(step, bad_loss)
        count = len(step.batches)
        self._step, self._last_step = _Step(), _Step()  # let go of the batches
        self.is_in_train = False
        where = f"step {step.number}" + (f", batch {index + 1} of {count}" if count > 1 else "")
        what = "the loss" if bad_loss else "the norm of the gradients"
        message = (
            f"training stopped at {where}: {what} is not finite.",
            self._origin(found, late),
            self._last_checkpoint(),
        )
        raise NonFiniteLossError("\n".join(message), origin=found, step=step.number)

    def _find(self, step: _Step, bad_loss: bool) -> tuple[int, NonFinite | None]:
        """Run the step's batches again: which one it was, and where it began."""
        model, together = _alone(self.model_wrapped), _several_processes()

        def run(batch: _Batch) -> Any:
            model.train()
            inputs = self._prepare_inputs(copy.copy(batch.inputs))
            with self.compute_loss_context_manager():
                return self.compute_loss(model, inputs, num_items_in_batch=batch.num_items)

        index = 0
        for index, batch in enumerate(step.batches):
            bad = not bool(torch.isfinite(batch.loss))
            if bad_loss and not any(self._all_processes(bad)):
                continue
            found = find_nonfinite(
                model,
                functools.partial(run, batch),
                random_state=batch.random_state,
                together=together,
            )
            first = next((f for f in self._all_processes(found) if f is not None), None)
            if first is not None or bad_loss:
                return index, first
        return index, None

    @staticmethod
    def _all_processes(value: Any) -> list[Any]:
        if not _several_processes():
            return [value]
        values: list[Any] = [None] * torch.distributed.get_world_size()
        torch.distributed.all_gather_object(values, value)
        return values

    def _origin(self, found: NonFinite | None, late: bool) -> str:
        if found is None:
            return (
                "Run again from the same random state, uncompiled, the batch gave a finite loss "
                "and finite gradients, so no layer can be named: kernels that are not "
                "deterministic, compiled code that differs, state that a module keeps outside of "
                "its buffers, or a norm that overflowed."
            )
        process = f" (process {found.rank})" if _several_processes() else ""
        text = f"Where{process}: {found}."
        if late and found.cause == "parameter":
            text += (
                " With logging_nan_inf_filter=False the loss is looked at one step late, and the "
                "optimiser has stepped meanwhile: resume with True to learn the layer."
            )
        return text

    def _last_checkpoint(self) -> str:
        folder = Path(str(self.args.output_dir))
        last = get_last_checkpoint(str(folder)) if folder.is_dir() else None
        if last is None:
            return f"Nothing was saved, and there is no checkpoint in {folder}."
        return f"Nothing was saved after that; the last checkpoint is {last}."


class RiemannianTrainer(RiemannianTrainerMixin, Trainer):
    """`transformers.Trainer` for models with points, see `RiemannianTrainerMixin`."""


class _FiniteCheck(TrainerCallback):
    """Calls the Trainer it belongs to before each optimiser step and at the end."""

    def __init__(self, trainer: RiemannianTrainerMixin) -> None:
        self._trainer = trainer

    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        self._trainer._step, self._trainer._last_step = _Step(), _Step()

    def on_pre_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        self._trainer._before_optimizer_step()

    def on_train_end(self, *args: Any, **kwargs: Any) -> None:
        self._trainer._judge(self._trainer._last_step, late=True)


class _Reading:
    """Numbers on their way from the device to the host; making one waits for nothing."""

    def __init__(self, values: Tensor) -> None:
        self._values, self._arrived = values, None
        if values.device.type in ("cuda", "xpu"):
            self._values = torch.empty_like(values, device="cpu", pin_memory=True)
            self._values.copy_(values, non_blocking=True)
            self._arrived = torch.get_device_module(values.device).Event()
            self._arrived.record()

    def get(self) -> list[float]:
        """The numbers; waits until they have arrived, and for nothing that was queued later."""
        if self._arrived is not None:
            self._arrived.synchronize()
        numbers: list[float] = self._values.tolist()
        return numbers


@dataclass
class _Batch:
    """What is needed to run a batch again."""

    inputs: Any
    num_items: Any
    random_state: RandomState
    loss: Tensor


@dataclass
class _Step:
    """The batches of one optimiser step, and what is known about them."""

    number: int = 0
    batches: list[_Batch] = field(default_factory=list)
    norm: Tensor | None = None
    sent: _Reading | None = None

    def send(self) -> None:
        """Set off the losses' sum and the gradients' norm, not finite if any of them is not.

        All processes get the same. It takes one small kernel, and two more if they are several.
        """
        losses = [batch.loss.float() for batch in self.batches]
        loss = losses[0] if len(losses) == 1 else torch.stack(losses).sum()
        norm = torch.zeros_like(loss) if self.norm is None else self.norm.to(loss)
        values = torch.stack([loss, norm])
        if _several_processes():
            values = values * 0  # 0, or NaN if it was not finite: that is all that is shared
            torch.distributed.all_reduce(values)
        self.norm, self.sent = None, _Reading(values)

    def receive(self) -> tuple[bool, bool]:
        """Whether the losses, and whether the norm of the gradients, were not finite."""
        if self.sent is None:
            return False, False
        loss, norm = self.sent.get()
        self.sent = None
        return not math.isfinite(loss), not math.isfinite(norm)


def _alone(model: nn.Module) -> nn.Module:
    """The model without what copies it to devices or compiles it; FSDP is part of it."""
    while True:
        if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            model = model.module
        elif (compiled := model._modules.get("_orig_mod")) is not None:
            model = compiled
        else:
            return model


def _several_processes() -> bool:
    ready = torch.distributed.is_available() and torch.distributed.is_initialized()
    return ready and torch.distributed.get_world_size() > 1


# --- arguments ------------------------------------------------------------------------------------


def _optimizer_options(args: TrainingArguments) -> tuple[str, dict[str, Any]]:
    """Name and options for `create_optimizer`; `ValueError` for what has no Riemannian form."""
    optim = _name(args.optim)
    if optim not in _OPTIMIZERS:
        raise ValueError(
            f"optim={optim!r} has no Riemannian form: use one of {', '.join(_OPTIMIZERS)}, or give "
            "Trainer an optimiser of your own as optimizers=(optimizer, None)"
        )
    name, allowed = _OPTIMIZERS[optim]
    options: dict[str, Any] = {}
    if name == "adamw":
        options = {"betas": (args.adam_beta1, args.adam_beta2), "eps": args.adam_epsilon}
    for pair in filter(None, (args.optim_args or "").replace(" ", "").split(",")):
        key, _, text = pair.partition("=")
        if key not in allowed:
            raise ValueError(
                f"optim_args={args.optim_args!r}: with optim={optim!r} one can set "
                f"{', '.join(allowed)}, not {key!r}"
            )
        options[key] = _option(key, text)
    return name, options


def _option(key: str, text: str) -> float | bool:
    """The value of an optimiser's option written as text."""
    words = {"true": True, "false": False}
    if key in ("amsgrad", "nesterov"):
        if text.lower() not in words:
            raise ValueError(f"optim_args: {key} must be true or false, got {text!r}")
        return words[text.lower()]
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"optim_args: {key} must be a number, got {text!r}") from None


def _name(optim: Any) -> str:
    return str(getattr(optim, "value", optim))
