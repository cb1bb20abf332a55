r"""Where the first NaN came from.

Nothing here is attached to a model while it trains. Once a loss or a gradient is found to be
non-finite, `find_nonfinite` runs the same batch again, with a hook on every module, and names the
first one that put out something non-finite though all it was given was finite.

NaN and +∞ are what it looks for. −∞ alone is no fault: masks are made of it. If a module made −∞
out of finite inputs before the fault, as log 0 does, the report says so.
"""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from beltrami.geometry import Manifold
from beltrami.optim.sharded import is_sharded, local

Cause = Literal["parameter", "buffer", "batch", "forward", "loss", "backward"]

# Under which name a wrapper of one module (compile, FSDP, activation checkpointing) keeps it.
_WRAPPED = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")


class NonFiniteLossError(ArithmeticError):
    """A run was stopped because its loss, or the norm of its gradients, is not finite.

    Attributes:
        origin: where it began, if that could be found.
        step: the optimiser step, counted from 1.
    """

    def __init__(
        self, message: str, *, origin: NonFinite | None = None, step: int | None = None
    ) -> None:
        super().__init__(message)
        self.origin = origin
        self.step = step


@dataclass(frozen=True)
class Entries:
    """What a tensor held: how many entries are NaN, +∞ and −∞, and the largest finite |entry|."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    nan: int
    inf: int
    minus_inf: int
    largest: float

    @property
    def faulty(self) -> bool:
        """Whether there is a NaN or +∞; −∞ alone may be a mask."""
        return self.nan + self.inf > 0

    @property
    def bad(self) -> int:
        """How many entries are not finite."""
        return self.nan + self.inf + self.minus_inf

    def __str__(self) -> str:
        counts = (("nan", self.nan), ("inf", self.inf), ("-inf", self.minus_inf))
        total = 1
        for size in self.shape:
            total *= size
        found = ", ".join(f"{n} {word}" for word, n in counts if n)
        shape = f"{self.dtype} of shape {self.shape}"
        if not found:
            return f"{self.name} ({shape}), largest |entry| {self.largest:.3g}"
        return f"{self.name} ({shape}) with {found} among {total} entries"


@dataclass(frozen=True)
class NonFinite:
    """Where something non-finite began; `str` of it is a sentence for a person.

    Attributes:
        cause: "forward": the module made it of finite inputs and parameters. "backward": the same
            of gradients. "parameter", "buffer": it was there before the forward. "batch": it was in
            what the model was given. "loss": all modules were fine, what made the loss of their
            outputs was not.
        module: the module's path from the model, "" for the model itself and outside of it.
        kind: the module's class, "" outside of the model.
        manifold: that of the module, if it has one, and its curvature at the time.
        entries: what was non-finite.
        inputs: what the module was given; for "backward" the gradients of its outputs.
        note: more that is worth knowing.
        rank: the process that found it.
    """

    cause: Cause
    module: str
    kind: str
    manifold: str | None
    entries: Entries
    inputs: tuple[Entries, ...] = ()
    note: str = ""
    rank: int = 0

    @property
    def label(self) -> str:
        """The module's path, class and manifold."""
        where = f" on {self.manifold}" if self.manifold else ""
        return f"{self.module or 'the model itself'} ({self.kind}{where})"

    def __str__(self) -> str:
        given = "; ".join(map(str, self.inputs)) or "none"
        text = {
            "parameter": (
                f"{self.entries}, a parameter of {self.label}, was not finite before the forward: "
                "an optimiser step or a checkpoint made it so"
            ),
            "buffer": (
                f"{self.entries}, a buffer of {self.label}, was not finite before the forward"
            ),
            "batch": f"what the model was given is not finite: {self.entries}",
            "forward": (
                f"it began in the forward of {self.label}: {self.entries}, though its parameters "
                f"and inputs are finite; inputs: {given}"
            ),
            "loss": (
                f"every module's output is finite, the loss made of them is not: {self.entries}"
            ),
            "backward": (
                f"the loss is finite, and it began in the backward of "
                f"{self.label if self.kind else 'the loss'}: {self.entries}; "
                f"gradients of its outputs: {given}"
            ),
        }[self.cause]
        return f"{text}. {self.note}" if self.note else text


@dataclass(frozen=True)
class RandomState:
    """The state of torch's random generators, to run a batch again with the same dropout.

    Taking it waits for no device: a GPU's generator is a seed and a counter on the host.
    """

    cpu: Tensor
    devices: tuple[tuple[torch.device, Tensor], ...] = ()

    @classmethod
    def now(cls, devices: Iterable[torch.device] = ()) -> RandomState:
        """The state of the CPU's generator, and of those of the devices named."""
        others = [device for device in devices if device.type not in ("cpu", "meta")]
        states = [torch.get_device_module(d).get_rng_state(*_which(d)) for d in others]
        return cls(torch.get_rng_state(), tuple(zip(others, states, strict=True)))

    def restore(self) -> None:
        """Make it the state of the generators."""
        torch.set_rng_state(self.cpu)
        for device, state in self.devices:
            torch.get_device_module(device).set_rng_state(state, *_which(device))


def _which(device: torch.device) -> tuple[torch.device, ...]:
    """The argument that names a device; MPS has one device, and takes none."""
    return () if device.type == "mps" else (device,)


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
    batch. They then go through the same runs, and each returns what it found itself.

    Args:
        model: the model. Wrappers (DDP, FSDP, compile) are looked through.
        run: computes the loss of the batch with this model, up to the loss and no further.
        random_state: taken before the batch was first run, so that dropout is the same; if None,
            the generators go on from where they are.
        together: whether processes compute together; if None, whether the model is wrapped or split
            for that.

    Returns: what was found, or None if this time everything was finite.
    """
    modules = module_paths(model)
    together = _compute_together(model) if together is None else together
    with _unchanged(model), _uncompiled():
        found = _look_at_tensors(modules)
        for backward in (False, True):
            if _anywhere(found is not None, together):
                break
            if random_state is not None:
                random_state.restore()
            found = _Run(model, modules, backward, together).look(run)
    return found


def module_paths(model: nn.Module) -> dict[nn.Module, str]:
    """Every module that is not a wrapper, with its path as if there were no wrappers."""
    found: dict[nn.Module, str] = {}

    def walk(module: nn.Module, path: str) -> None:
        inner = _unwrapped(module)
        if inner is not None:
            walk(inner, path)
        elif module not in found:
            found[module] = path
            for name, child in module.named_children():
                walk(child, f"{path}.{name}" if path else name)

    walk(model, "")
    return found


def _unwrapped(module: nn.Module) -> nn.Module | None:
    """The module inside a wrapper; None if it is no wrapper."""
    if isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel):
        inner: nn.Module = module.module
        return inner
    return next((module._modules[name] for name in _WRAPPED if name in module._modules), None)


# --- tensors --------------------------------------------------------------------------------------


def entries(tensor: Tensor, name: str) -> Entries | None:
    """What a tensor holds, of a split one this process's part; None if it holds no numbers."""
    held = local(tensor.detach())
    if held.is_sparse:
        held = held._values()
    if held.is_complex():
        held = torch.view_as_real(held)
    if not held.is_floating_point() or held.layout != torch.strided or held.is_meta:
        return None
    if held.itemsize == 1:  # float8 has no arithmetic
        held = held.float()
    dtype = str(tensor.dtype).removeprefix("torch.")
    nan, inf, minus_inf, largest = _count(held)
    return Entries(name, tuple(tensor.shape), dtype, nan, inf, minus_inf, largest)


def _count(held: Tensor) -> tuple[int, int, int, float]:
    """NaNs, +∞s, −∞s and the largest finite |entry|; one pass and no copy if all are finite."""
    if not held.numel():
        return 0, 0, 0, 0.0
    low, high = (float(end) for end in held.aminmax())  # NaN if there is one
    if math.isfinite(low) and math.isfinite(high):
        return 0, 0, 0, max(abs(low), abs(high))
    largest = float(torch.where(held.isfinite(), held, 0).abs().max())
    nan, inf, minus_inf = (
        int(f(held).sum()) for f in (torch.isnan, torch.isposinf, torch.isneginf)
    )
    return nan, inf, minus_inf, largest


def _tensors(value: Any, name: str) -> Iterator[tuple[str, Tensor]]:
    """The tensors in nested tuples, lists, mappings and dataclasses, with names for a reader."""
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _tensors(item, f"{name}[{key!r}]")
    elif isinstance(value, tuple | list):
        for i, item in enumerate(value):
            yield from _tensors(item, name if len(value) == 1 else f"{name}[{i}]")
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from _tensors(getattr(value, field.name, None), f"{name}.{field.name}")


def _describe(value: Any, name: str) -> tuple[Entries, ...]:
    found = (entries(tensor, path) for path, tensor in _tensors(value, name))
    return tuple(e for e in found if e is not None)


def _describe_inputs(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Entries, ...]:
    named = (_describe(value, key) for key, value in kwargs.items())
    return (*_describe(args, "input"), *(e for part in named for e in part))


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
            others = ", ".join(e.name for *_, e in bad[1:4]) + (", ..." if len(bad) > 4 else "")
            note = f"{len(bad) - 1} more are not finite: {others}" if others else ""
            return _report(cause, module, path, held, note=note)
    return None


def _report(
    cause: Any,
    module: nn.Module | None,
    path: str,
    bad: Entries,
    inputs: tuple[Entries, ...] = (),
    note: str = "",
) -> NonFinite:
    kind = "" if module is None else type(module).__name__
    return NonFinite(cause, path, kind, _manifold(module), bad, inputs, note, _rank())


def _manifold(module: nn.Module | None) -> str | None:
    """The manifold a module works on, with the curvature it has now."""
    manifold = getattr(module, "manifold", None)
    if not isinstance(manifold, Manifold):
        manifold = next(iter(getattr(module, "manifold_of", {}).values()), None)
    if not isinstance(manifold, Manifold):
        return None
    c = getattr(manifold, "c", None)
    if not isinstance(c, Tensor) or is_sharded(c) or c.is_meta:
        return repr(manifold)
    numbers = c.detach().flatten().tolist()
    value = f"{numbers[0]:.4g}" if len(numbers) == 1 else f"{min(numbers):.4g}..{max(numbers):.4g}"
    return f"{type(manifold).__name__} with c={value}"


# --- a watched run --------------------------------------------------------------------------------


@dataclass
class _Call:
    """One call of a module."""

    module: nn.Module
    path: str
    inputs: tuple[Entries, ...]
    caller: _Call | None
    gradients: tuple[Entries, ...] = ()
    """Gradients of its outputs, as they come in."""


class _Run:
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
        self.found: NonFinite | None = None
        self.minus_inf: str = ""
        self.first_seen: tuple[_Call, Entries] | None = None
        """The first call that was given something faulty, by code no module of its own."""
        self.handles: list[RemovableHandle] = []
        self.watched_parameters: set[int] = set()

    def look(self, run: Callable[[], Tensor]) -> NonFinite | None:
        """Where the first fault was, in the forward, the loss or the backward."""
        for module in self.modules:
            before = module.register_forward_pre_hook(self._before, with_kwargs=True)
            after = module.register_forward_hook(self._after, with_kwargs=True)
            self.handles += [before, after]
        try:
            with torch.set_grad_enabled(self.backward), _without_reduction(self.model):
                loss = self._forward(run)
                self.in_forward = False  # a checkpointed forward that backward repeats is no news
                self.calls.clear()
                go_on = self.backward and not _anywhere(self.found is not None, self.together)
                if go_on and loss is not None and loss.requires_grad:
                    loss.sum().backward()
        finally:
            for handle in self.handles:
                handle.remove()
        return self.found

    def _forward(self, run: Callable[[], Tensor]) -> Tensor | None:
        try:
            loss = run()
        except Exception:
            # What was non-finite often trips what comes after it: then the origin is the news.
            # And a forward that itself takes gradients cannot do without: the next run has them.
            if self.found is None and self.first_seen is not None:
                caller = self.first_seen[0].caller
                if caller is not None:
                    self._blame(caller, self.first_seen[1])
            if self.found is None and self.backward:
                raise
            return None
        if not isinstance(loss, Tensor):
            raise TypeError(f"run must return the loss, a tensor, got {type(loss).__name__}")
        held = entries(loss, "loss")
        if self.found is None and held is not None and held.bad:
            self.found = _report("loss", None, "", held, note=self.minus_inf)
        return loss

    # --- forward ----------------------------------------------------------------------------------

    def _before(self, module: nn.Module, args: Any, kwargs: Any) -> Any:
        before = self.latest.get(module)
        caller = self.calls[-1] if self.calls else before and before.caller
        inputs = _describe_inputs(args, kwargs) if self.in_forward else ()
        call = _Call(module, self.modules[module], inputs, caller)
        self.calls.append(call)
        self.latest[module] = call
        bad = next((e for e in inputs if e.faulty), None)
        if self.found is None and bad is not None:
            if caller is None:
                self.found = _report("batch", module, call.path, bad)
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
        if self.found is None and self.in_forward:
            self._judge(call, _describe(output, "output"))
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
        self.found = _report("forward", call.module, call.path, bad, call.inputs, note)

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
            if self.found is not None:
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
                self.found = _report("backward", call.module, call.path, held, call.gradients)
            elif call.caller is not None:
                # The gradient was spoilt on its way to this output, in the code that called it.
                by, name = call.caller, call.path
                note = f"It came to the output of {name} ({type(call.module).__name__}) like that."
                self.found = _report("backward", by.module, by.path, held, by.gradients, note)
            else:
                self.found = _report("backward", None, "", held)

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


# --- the model's state, compiled code, other processes --------------------------------------------


@contextmanager
def _unchanged(model: nn.Module) -> Iterator[None]:
    """Leave buffers, gradients, training flags and random generators as they are now."""
    buffers = [
        (module, name, buffer, None if buffer is None else buffer.detach().clone())
        for module in model.modules()
        for name, buffer in module._buffers.items()
    ]
    training = [(module, module.training) for module in model.modules()]
    gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
    devices = {p.device for p, _ in gradients} | {b.device for *_, b, _ in buffers if b is not None}
    random_state = RandomState.now(devices)
    for parameter, _ in gradients:
        parameter.grad = None
    try:
        yield
    finally:
        _gather_no_more(model)
        with torch.no_grad():
            for module, name, buffer, value in buffers:
                module._buffers[name] = buffer
                if buffer is not None and value is not None:
                    buffer.copy_(value)
        for module, flag in training:
            module.training = flag
        for parameter, gradient in gradients:
            parameter.grad = gradient
        random_state.restore()


def _uncompiled() -> Any:
    """Compiled code sees no hooks, so it is run as written; a no-op if nothing is compiled."""
    if "torch._dynamo" in sys.modules:
        return torch.compiler.set_stance("force_eager")
    return nullcontext()


def _compute_together(model: nn.Module) -> bool:
    """Whether a forward or backward of this model waits for other processes."""
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return False
    if torch.distributed.get_world_size() == 1:
        return False
    wrapped = any(_waits(module) for module in model.modules())
    return wrapped or any(is_sharded(p) for p in model.parameters())


def _waits(module: nn.Module) -> bool:
    kinds = nn.parallel.DistributedDataParallel | nn.SyncBatchNorm
    return isinstance(module, kinds) or "_fsdp_wrapped_module" in module._modules


def _anywhere(flag: bool, together: bool) -> bool:
    """Whether the flag is set here or, where processes compute together, in any of them."""
    if not together:
        return flag
    flags: list[bool] = [False] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(flags, flag)
    return any(flags)


def _rank() -> int:
    ready = torch.distributed.is_available() and torch.distributed.is_initialized()
    return torch.distributed.get_rank() if ready else 0


@contextmanager
def _without_reduction(model: nn.Module) -> Iterator[None]:
    """DDP writes reduced gradients into buckets that the kept gradients may be views of."""
    ddp = [m for m in model.modules() if isinstance(m, nn.parallel.DistributedDataParallel)]
    due = [module.require_forward_param_sync for module in ddp]
    with ExitStack() as stack:
        for module in ddp:
            stack.enter_context(module.no_sync())
        yield
    for module, flag in zip(ddp, due, strict=True):
        module.require_forward_param_sync = flag


def _gather_no_more(model: nn.Module) -> None:
    """FSDP2 leaves the outermost parameters whole after a forward without a backward."""
    if "torch.distributed.fsdp" in sys.modules:
        from torch.distributed.fsdp import FSDPModule

        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()
