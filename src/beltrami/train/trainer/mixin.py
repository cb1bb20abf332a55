"""What `RiemannianTrainer` adds to `transformers.Trainer`."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import transformers
from torch import Tensor, nn
from transformers import Trainer

from beltrami.geometry.manifold import check_model
from beltrami.optim.clip import clip_grad_norm_
from beltrami.optim.create import OPTIMIZERS
from beltrami.optim.groups import param_groups
from beltrami.optim.metrics import geometry_metrics
from beltrami.train.finite import RandomState
from beltrami.train.finite.steps import Batch
from beltrami.train.trainer.check import FiniteCheck
from beltrami.train.trainer.engines import check_engine, gather_points_whole
from beltrami.train.trainer.options import check_options, optimizer_options

# Methods of Trainer, some of them its own business, without which ours would never be called.
_HOOKS = (
    "_maybe_log_save_evaluate",
    "_prepare_inputs",
    "compute_loss",
    "compute_loss_context_manager",
    "create_accelerator_and_postprocess",
    "create_optimizer",
    "log",
    "train",
    "training_step",
)

if TYPE_CHECKING:
    from transformers import Trainer as _Base
else:
    _Base = object  # whatever Trainer comes after the mixin


class RiemannianTrainerMixin(_Base):
    """What `RiemannianTrainer` adds to a Trainer; put it first among the base classes.

    - The optimiser is `beltrami.optim.create_optimizer` with learning_rate, weight_decay and the
      betas and eps of `TrainingArguments`. `optim` may be adamw_torch, adamw_torch_fused or sgd
      (with `optim_args="momentum=0.9"`). One given as `optimizers=` is used as it is; if it knows
      nothing of manifolds, that is a warning, and an error where its steps can leave the manifold.
    - `max_grad_norm` clips the Riemannian norm, which is also the `grad_norm` that is logged.
    - At logging steps, whatever Trainer reports to gets `geometry_metrics(model)`.
    - The first loss or gradient norm that is not finite stops the run with `NonFiniteLossError`,
      whose message names the layer. That costs a tiny kernel or two a step. With Trainer's default
      `logging_nan_inf_filter=True`, which itself waits for every loss, there is one more short
      wait, for the norm, and the run stops before the parameters are touched; with False nothing
      waits for the device, and it stops one step later. After the error the gradients of that step
      are still there, and callbacks have not heard `on_train_end`. Under float16 with loss scaling,
      gradients that overflow are the scaler's business.

    FSDP2, which splits tables by rows, is fine; models with points are gathered in their own dtype,
    also with bf16. FSDP1 and DeepSpeed flatten parameters, in which points are no longer rows, and
    are refused for models with points. So is `nn.DataParallel`, which Trainer takes where one
    process sees several GPUs: its copies of layers would share the curvature of the first GPU.

    Args:
        args, kwargs: Trainer's own.
        point_lr: learning rate of points, if not `learning_rate`.
        curvature_lr: learning rate of curvatures, if not `learning_rate`.
        scale_lr: learning rate of logarithms of scales, such as the temperatures of attention, if
            not `learning_rate`.
        point_weight_decay: of points, a pull to the origin along geodesics.
        finite_check: whether to stop at the first loss or gradient norm that is not finite.
    """

    model: Any
    optimizer: Any  # None, an optimiser, or accelerate's wrapper of one

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Raise `TypeError` where Trainer's methods would be called and ours would not."""
        super().__init_subclass__(**kwargs)
        place = cls.__mro__.index(RiemannianTrainerMixin)
        for base in cls.__mro__[1:place]:
            if issubclass(base, Trainer) and not issubclass(base, RiemannianTrainerMixin):
                raise TypeError(
                    f"{cls.__name__}: {base.__name__} comes before RiemannianTrainerMixin and "
                    "would train points as if space were flat; put the mixin first: "
                    f"class {cls.__name__}(RiemannianTrainerMixin, {base.__name__})"
                )
        after = cls.__mro__[place + 1 :]
        missing = [name for name in _HOOKS if not any(name in vars(base) for base in after)]
        if missing and Trainer in after:
            raise TypeError(
                f"{cls.__name__}: Trainer of transformers {transformers.__version__} has no "
                f"{', '.join(missing)}, on which beltrami builds: install a version of "
                'transformers that pip install "beltrami[llm]" names'
            )

    def __init__(
        self,
        *args: Any,
        point_lr: float | None = None,
        curvature_lr: float | None = None,
        scale_lr: float | None = None,
        point_weight_decay: float = 0.0,
        finite_check: bool = True,
        **kwargs: Any,
    ) -> None:
        self.point_lr = point_lr
        self.curvature_lr = curvature_lr
        self.scale_lr = scale_lr
        self.point_weight_decay = point_weight_decay
        self.finite_check = finite_check
        self._beltrami = FiniteCheck(self)  # one name, that other Trainers will not take
        super().__init__(*args, **kwargs)
        check_model(self.model)
        check_options(self)
        check_engine(self)
        gather_points_whole(self)
        if finite_check:
            self.add_callback(self._beltrami)

    # --- optimiser and clipping -------------------------------------------------------------------

    def create_optimizer(self, model: nn.Module | None = None) -> Any:
        """The optimiser that `TrainingArguments` ask for, with the groups of `param_groups`."""
        if self.optimizer is None:
            check_engine(self)
            name, options = optimizer_options(self.args)
            groups = param_groups(
                self.model if model is None else model,
                weight_decay=self.args.weight_decay,
                point_lr=self.point_lr,
                curvature_lr=self.curvature_lr,
                scale_lr=self.scale_lr,
                point_weight_decay=self.point_weight_decay,
            )
            if self.args.optim == "adamw_torch_fused":
                # For plain parameters; points take their own fused step wherever there is one.
                groups = [{**g, "fused": g["kind"] != "points" or None} for g in groups]
            self.optimizer = OPTIMIZERS[name](groups, lr=self.args.learning_rate, **options)  # type: ignore[call-arg]
        return self.optimizer

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
            self.accelerator.unscale_gradients()
            known = all("manifold" in group for group in self.optimizer.param_groups)
            norm = clip_grad_norm_(self.optimizer if known else self.model_wrapped, max_norm)
            self._beltrami.see_norm(norm)
            return norm

        self.accelerator.clip_grad_norm_ = clip

    def _mixed_mesh_grad_norm(self, model: nn.Module, max_norm: float) -> Any:
        """Trainer's own way around parameters on several meshes, which our norm needs none of."""
        return self.accelerator.clip_grad_norm_(model.parameters(), max_norm)

    # --- logging ----------------------------------------------------------------------------------

    def _maybe_log_save_evaluate(self, *args: Any, **kwargs: Any) -> None:
        self._beltrami.judge_if_due()
        self._beltrami.metrics_due = True  # logs of this call only: all processes take part in it
        try:
            super()._maybe_log_save_evaluate(*args, **kwargs)
        finally:
            self._beltrami.metrics_due = False

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """As in Trainer, with `geometry_metrics` beside the training loss."""
        if self._beltrami.metrics_due and "loss" in logs:
            self._beltrami.metrics_due = False
            logs = {**logs, **geometry_metrics(self.model)}
        super().log(logs, *args, **kwargs)

    # --- the finite check -------------------------------------------------------------------------

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """As in Trainer; no batch is kept once it is over, however it ended."""
        try:
            return super().train(*args, **kwargs)
        finally:
            self._beltrami.forget()

    def training_step(
        self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None
    ) -> Tensor:
        """As in Trainer; the batch is remembered until its loss is known to be finite."""
        if not self.finite_check:
            unwatched: Tensor = super().training_step(model, inputs, num_items_in_batch)
            return unwatched
        state = RandomState.now([self.args.device])
        batch_inputs = copy.copy(inputs) if isinstance(inputs, Mapping) else inputs
        loss: Tensor = super().training_step(model, inputs, num_items_in_batch)
        self._beltrami.see_batch(Batch(batch_inputs, num_items_in_batch, state, loss.detach()))
        return loss


class RiemannianTrainer(RiemannianTrainerMixin, Trainer):
    """`transformers.Trainer` for models with points, see `RiemannianTrainerMixin`."""
