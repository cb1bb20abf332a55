"""One run of a batch with hooks on every module."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from beltrami.train.finite.keep import without_reduction
from beltrami.train.finite.processes import anywhere
from beltrami.train.finite.report import (
    Entries,
    NonFinite,
    describe,
    describe_inputs,
    entries,
    report,
)


@dataclass
class _Call:
    """One call of a module."""

    module: nn.Module
    path: str
    inputs: tuple[Entries, ...]
    caller: _Call | None
    gradients: tuple[Entries, ...] = ()
    """Gradients of its outputs, as they come in."""


class Run:
    """One forward, and if asked one backward, with hooks on every module."""

    def __init__(
        self, model: nn.Module, modules: dict[nn.Module, str], backward: bool, together: bool
    ) -> None:
        self.model = model
        self.modules = modules
        self.backward = backward
        self.together = together
        self.calls: list[_Call] = []
        self.latest: dict[nn.Module, _Call] = {}
        self.in_forward = True
        self.report: NonFinite | None = None
        self.error: Exception | None = None
        self.minus_inf: str = ""
        self.first_seen: tuple[_Call, Entries] | None = None
        """The first call that was given something faulty, by code no module of its own."""
        self.handles: list[RemovableHandle] = []
        self.watched_parameters: set[int] = set()

    def look(self, run: Callable[[], Tensor]) -> tuple[NonFinite | None, Exception | None]:
        """Where the first fault was, in forward, loss or backward; or what was raised."""
        for module in self.modules:
            before = module.register_forward_pre_hook(self._before, with_kwargs=True)
            after = module.register_forward_hook(self._after, with_kwargs=True)
            self.handles += [before, after]
        try:
            with torch.set_grad_enabled(self.backward), without_reduction(self.model):
                loss = self._forward(run)
                self.in_forward = False  # backward may repeat a checkpointed forward
                self.calls.clear()
                over = self.report is not None or self.error is not None
                if self.backward and not anywhere(over, self.together):
                    self._backward(loss)
        finally:
            for handle in self.handles:
                handle.remove()
        # What was non-finite often trips what comes after it: then the origin is the news.
        return self.report, None if self.report is not None else self.error

    def _forward(self, run: Callable[[], Tensor]) -> Tensor | None:
        try:
            loss = run()
            if not isinstance(loss, Tensor):
                raise TypeError(f"run must return the loss, a tensor, got {type(loss).__name__}")
            held = entries(loss, "loss")
        except Exception as error:
            if self.report is None and self.first_seen is not None:
                caller = self.first_seen[0].caller
                if caller is not None:
                    self._blame(caller, self.first_seen[1])
            if self.backward:  # a forward that itself takes gradients fails in the run without
                self.error = error
            return None
        if self.report is None and held is not None and held.bad:
            self.report = report("loss", None, "", held, note=self.minus_inf)
        return loss

    def _backward(self, loss: Tensor | None) -> None:
        if loss is None or not loss.requires_grad:
            return
        try:
            loss.sum().backward()
        except Exception as error:
            self.error = error

    # --- forward ----------------------------------------------------------------------------------

    def _before(self, module: nn.Module, args: Any, kwargs: Any) -> Any:
        before = self.latest.get(module)
        caller = self.calls[-1] if self.calls else before and before.caller
        inputs = describe_inputs(args, kwargs) if self.in_forward else ()
        call = _Call(module, self.modules[module], inputs, caller)
        self.calls.append(call)
        self.latest[module] = call
        bad = next((e for e in inputs if e.faulty), None)
        if self.report is None and bad is not None:
            if caller is None:
                self.report = report("batch", module, call.path, bad)
            elif self.first_seen is None:
                self.first_seen = call, bad
        if not self.backward:
            return None
        self._watch_parameters(call)
        done: dict[int, Tensor] = {}
        watch = self._watch("input", call)
        return _replace(args, watch, done), _replace(kwargs, watch, done)

    def _after(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        call = self.calls.pop()
        while call.module is not module:  # a forward inside it raised, and someone caught it
            call = self.calls.pop()
        if self.report is None and self.in_forward:
            self._judge(call, describe(output, "output"))
        return _replace(output, self._watch("output", call), {}) if self.backward else None

    def _judge(self, call: _Call, outputs: tuple[Entries, ...]) -> None:
        """Whether this call made something non-finite of what was finite."""
        if any(e.faulty for e in call.inputs):
            return  # it was given it
        bad = next((e for e in outputs if e.faulty), None)
        if bad is not None:
            self._blame(call, bad)
        elif not self.minus_inf and not any(e.minus_inf for e in call.inputs):
            made = next((e for e in outputs if e.minus_inf), None)
            if made is not None:
                label = call.path or type(call.module).__name__
                self.minus_inf = (
                    f"Before that, {label} made {made.minus_inf} entries -inf of finite inputs "
                    "(a mask, or log 0)."
                )

    def _blame(self, call: _Call, bad: Entries) -> None:
        notes = []
        if call.module._modules:
            notes.append("It is made in that module's own forward, not in a module inside it.")
        if self.first_seen is not None:
            seen = self.first_seen[0]
            notes.append(f"It reaches {seen.path} ({type(seen.module).__name__}) first.")
        note = " ".join([*notes, self.minus_inf]).rstrip()
        self.report = report("forward", call.module, call.path, bad, call.inputs, note)

    # --- backward ---------------------------------------------------------------------------------

    def _watch(self, role: str, call: _Call) -> Callable[[Tensor], Tensor]:
        """Gives a tensor a place of its own in the graph, and looks at the gradient there.

        Without it one tensor, being the output of a module and of the module around it, or the
        input of two, would have one gradient for all of them.
        """

        def watch(tensor: Tensor) -> Tensor:
            if not tensor.requires_grad or tensor.layout != torch.strided:
                return tensor
            place = tensor.view_as(tensor)
            self._hook(place, role, call, call.module)
            return place

        return watch

    def _watch_parameters(self, call: _Call) -> None:
        """Taken from the module as it is called: FSDP2 swaps whole parameters in before that."""
        for name, parameter in call.module._parameters.items():
            if parameter is None or not parameter.requires_grad:
                continue
            if id(parameter) not in self.watched_parameters:
                self.watched_parameters.add(id(parameter))
                self._hook(parameter, name, None, call.module)

    def _hook(self, tensor: Tensor, role: str, of: _Call | None, module: nn.Module) -> None:
        def look(gradient: Tensor) -> None:
            if self.report is not None:
                return
            call = of or self.latest[module]  # a parameter belongs to all calls of its module
            held = entries(gradient, f"the gradient of its {role}")
            if held is None:
                return
            if not held.bad:
                if role == "output":
                    call.gradients += (held,)
                return
            if role != "output":
                self.report = report("backward", call.module, call.path, held, call.gradients)
            elif call.caller is not None:
                # The gradient was spoilt on its way to this output, in the code that called it.
                by, name = call.caller, call.path
                note = f"It came to the output of {name} ({type(call.module).__name__}) like that."
                self.report = report("backward", by.module, by.path, held, by.gradients, note)
            else:
                self.report = report("backward", None, "", held)

        self.handles.append(tensor.register_hook(look))


def _replace(value: Any, change: Callable[[Tensor], Tensor], done: dict[int, Tensor]) -> Any:
    """The same nested tuples, lists and dicts with their tensors changed, each only once."""
    if isinstance(value, Tensor):
        if id(value) not in done:
            done[id(value)] = change(value)
        return done[id(value)]
    if isinstance(value, tuple | list):
        items = [_replace(item, change, done) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        changed = copy.copy(value)  # keeps the class: transformers' outputs are dicts
        for key, item in value.items():
            changed[key] = _replace(item, change, done)
        return changed
    return value
