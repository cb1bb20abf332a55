"""A batch is run again, watched, and the place where its first NaN began is named."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from torch import Tensor, nn

from beltrami.optim.module_paths import module_paths
from beltrami.train.finite.keep import RandomState, unchanged, uncompiled
from beltrami.train.finite.processes import anywhere, compute_together
from beltrami.train.finite.report import NonFinite, entries, report
from beltrami.train.finite.watch import Run


def find_nonfinite(
    model: nn.Module,
    run: Callable[[], Tensor],
    *,
    random_state: RandomState | None = None,
    together: bool | None = None,
) -> NonFinite | None:
    """Run a batch again, watched, and say where its first NaN or +∞ began.

    Parameters and buffers are looked at first, then a forward without gradients, then a forward and
    a backward. Compiled code runs uncompiled meanwhile. Afterwards the model is as it was: buffers,
    gradients, training flags and the random generators; what a module keeps elsewhere (a count in
    a Python number, a cache) is beyond our reach.

    Where processes compute together (DDP, FSDP) every one of them must call it, each with its own
    batch. They then go through the same runs, and each returns what it found itself. If a run
    raises in one of them, that one raises, and the others return what they found. (Where the model
    itself waits for others, as under FSDP, those that are in its forward wait until the group's
    timeout.)

    Args:
        model: the model. Wrappers (DDP, FSDP, compile) are looked through.
        run: computes the loss of the batch with this model, up to the loss and no further.
        random_state: taken before the batch was first run, so that dropout is the same; if None,
            the generators go on from where they are.
        together: whether processes compute together; if None, whether the model is wrapped or split
            for that.

    Returns: what was found, or None if this time everything was finite.

    Raises:
        Exception: what `run` or the backward raised, unless something non-finite came before it.
    """
    modules = module_paths(model)
    together = compute_together(model) if together is None else together
    origin: NonFinite | None = None
    error: Exception | None = None
    with ExitStack() as stack:
        # Errors wait until all processes have heard of them, or others would wait in vain.
        try:
            stack.enter_context(unchanged(model))
            stack.enter_context(uncompiled())
            origin = _look_at_tensors(modules)
        except Exception as caught:
            error = caught
        for backward in (False, True):
            if anywhere(origin is not None or error is not None, together):
                break
            if random_state is not None:
                random_state.restore()
            origin, error = Run(model, modules, backward, together).look(run)
    if error is not None:
        raise error
    return origin


def _look_at_tensors(modules: dict[nn.Module, str]) -> NonFinite | None:
    """The first parameter that is not finite, or else the first buffer."""
    for cause in ("parameter", "buffer"):
        bad = []
        for module, path in modules.items():
            own = module._parameters if cause == "parameter" else module._buffers
            for name, tensor in own.items():
                held = None if tensor is None else entries(tensor, f"{path}.{name}".lstrip("."))
                # A parameter has no business at −∞; a buffer may be a mask.
                if held is not None and (held.faulty or (cause == "parameter" and held.bad)):
                    bad.append((module, path, held))
        if bad:
            module, path, held = bad[0]
            others = ", ".join(e.name for *_, e in bad[1:4])
            more = " and others" if len(bad) > 4 else ""
            note = f"{len(bad) - 1} more are not finite: {others}{more}." if others else ""
            return report(cause, module, path, held, note=note)
    return None
