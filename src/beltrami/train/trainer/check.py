"""The stop at the first loss, or norm of gradients, that is not finite."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor
from transformers import TrainerCallback

from beltrami.optim.module_paths import without_copies
from beltrami.train.finite import NonFinite, NonFiniteLossError
from beltrami.train.finite.processes import several_processes
from beltrami.train.finite.steps import Batch, Step, look_again

if TYPE_CHECKING:
    from beltrami.train.trainer.mixin import RiemannianTrainerMixin


class FiniteCheck(TrainerCallback):
    """What the mixin remembers between its calls, and the judgement before an optimiser step."""

    def __init__(self, trainer: RiemannianTrainerMixin) -> None:
        self._trainer = trainer
        self._step, self._last_step = Step(), Step()
        self.metrics_due = False

    def forget(self) -> None:
        """Let go of the batches."""
        self._step, self._last_step = Step(), Step()

    def see_batch(self, batch: Batch) -> None:
        """Take note of a batch that has been run."""
        self._step.number = self._trainer.state.global_step + 1
        self._step.batches.append(batch)

    def see_norm(self, norm: Tensor) -> None:
        """Take note of the gradients' norm, unless a scaler takes care of those that overflow."""
        if self._trainer.finite_check and self._trainer.accelerator.scaler is None:
            self._step.norm = norm.detach()

    def judge_if_due(self) -> None:
        """Judge before something is logged or saved, and before other weights may be loaded."""
        control = self._trainer.control
        due = (control.should_log, control.should_save, control.should_evaluate)
        if any(due) or control.should_training_stop:
            self._judge(self._last_step, late=True)

    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        """Forget earlier steps."""
        self.forget()

    def on_pre_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        """Judge this step, or the one before where this one would have to be waited for."""
        step, self._step = self._step, Step()
        if not step.batches:
            return
        step.send()
        if self.knows_at_once():
            self._judge(step, late=False)
        else:  # the step before: its flags have arrived while this one was computed
            self._judge(self._last_step, late=True)
            self._last_step = step

    def on_train_end(self, *args: Any, **kwargs: Any) -> None:
        """Judge the last step."""
        self._judge(self._last_step, late=True)

    def knows_at_once(self) -> bool:
        """A CPU never waits, and where Trainer reads each loss itself the device has been waited
        for."""
        args = self._trainer.args
        return args.logging_nan_inf_filter or args.device.type == "cpu"

    def _judge(self, step: Step, *, late: bool) -> None:
        """Raise `NonFiniteLossError` if something in the step was not finite.

        All processes come here at the same step, and the flags are the same in all of them.
        """
        bad_loss, bad_norm = step.receive()
        if not bad_loss and not bad_norm:
            return
        model = without_copies(self._trainer.model_wrapped)

        def run(batch: Batch) -> Any:
            model.train()
            inputs = self._trainer._prepare_inputs(copy.copy(batch.inputs))
            with self._trainer.compute_loss_context_manager():
                return self._trainer.compute_loss(model, inputs, num_items_in_batch=batch.num_items)

        result = look_again(model, step, run, bad_loss=bad_loss)
        count = len(step.batches)
        self.forget()
        self._trainer.is_in_train = False
        where = f"step {step.number}"
        if count > 1 and result.batch is not None:
            where += f", batch {result.batch + 1} of {count}"
        what = "the loss" if bad_loss else "the norm of the gradients"
        message = (
            f"training stopped at {where}: {what} is not finite.",
            _origin(result.origin, result.failure, late),
            _last_checkpoint(Path(str(self._trainer.args.output_dir))),
        )
        raise NonFiniteLossError(
            "\n".join(message), origin=result.origin, step=step.number
        ) from result.error


def _origin(origin: NonFinite | None, failure: str, late: bool) -> str:
    """What is known of the layer, in words."""
    if origin is None and failure:
        failure = failure.rstrip(". \n")
        return f"No layer can be named: the batch could not be run again: {failure}."
    if origin is None:
        return (
            "Run again from the same random state, uncompiled, the batch gave a finite loss "
            "and finite gradients, so no layer can be named: kernels that are not "
            "deterministic, compiled code that differs, state that a module keeps outside of "
            "its buffers, or a norm that overflowed."
        )
    process = f" (process {origin.rank})" if several_processes() else ""
    text = f"Where{process}: {origin}"
    if late and origin.cause == "parameter":
        text += (
            " With logging_nan_inf_filter=False the loss is looked at one step late, and the "
            "optimiser has stepped meanwhile: resume with True to learn the layer."
        )
    return text


def _last_checkpoint(folder: Path) -> str:
    """Where to resume from: the last checkpoint that was written to its end."""
    written = [path.parent for path in folder.glob("checkpoint-*/trainer_state.json")]
    numbered = [(int(p.name.partition("-")[2]), p) for p in written if p.name[11:].isdigit()]
    if not numbered:
        return f"Nothing was saved, and there is no checkpoint in {folder}."
    return f"Nothing was saved after that; the last checkpoint is {max(numbered)[1]}."
