"""`adapted_linear` for `torch.compile`: operators made of the passes that run without it.

Traced as plain tensors, the layer and its map are some thirty kernels in two passes, and starting
them takes longer than they run. Here the compiler is given the Triton kernels themselves, between
products that it sees; where they are interpreted, the operators stay whole. Numbers are part of the
code: layers with another scaling or curvature are compiled anew.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch._subclasses import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode

from beltrami.kernels.hyplora.adapted_linear_passes import backward_pass, forward_pass
from beltrami.kernels.hyplora.gain import Gain
from beltrami.kernels.launch.dispatch import requested, triton_module
from beltrami.kernels.launch.dtypes import under_autocast
from beltrami.kernels.launch.launcher import traced
from beltrami.kernels.launch.shapes import as_matrix

DTYPES = (torch.float16, torch.bfloat16)  # float32's are as many kernels without a compiler
# As ONE_PASS and ONE_PASS_RANK of the kernels, which are not imported where Triton is not.
MANY = 4096  # tokens without gradients: fewer are quicker as plain operations
MOST_RANK = 64
_HAS_TRITON = importlib.util.find_spec("triton") is not None
_INTERPRETED = os.environ.get("TRITON_INTERPRET", "") in ("1", "true", "yes", "on")  # on a CPU


def takes_operator(x: Tensor, weight: Tensor, down: Tensor, up: Tensor, fused: bool | None) -> bool:
    """Whether what is traced is the operator; `fused=True` has it interpreted on a CPU, too."""
    if not _HAS_TRITON or requested(fused) is False:
        return False
    if not (x.is_cuda or (fused and _INTERPRETED)):
        return False
    if x.dtype not in DTYPES or len(down) > MOST_RANK:
        return False
    if under_autocast(x):
        return False
    if any(t.dtype != x.dtype or t.device != x.device for t in (weight, down, up)):
        return False
    return torch.is_grad_enabled() or x.shape[:-1].numel() >= MANY


def adapted_linear_operator(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    down: Tensor,
    up: Tensor,
    gain: Gain,
) -> Tensor:
    """`adapted_linear` for what a compiler traces."""
    out: Tensor
    settings = (gain.c_tensor, *gain.constants, _SOURCES)
    out, *_ = torch.ops.beltrami.adapted_linear(as_matrix(x), weight, bias, down, up, *settings)
    return out.view(*x.shape[:-1], weight.shape[0])


def _digest() -> str:
    """Of all kernels' sources."""
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


# An argument of the operator, since torch keeps compiled code on disk under what the operator is
# given, and knows nothing of what is in it.
_SOURCES = _digest()

# Not by `torch.library.custom_op`, which takes longer to call than a small kernel runs.
_LIBRARY = torch.library.Library("beltrami", "FRAGMENT")
_GAIN = "Tensor? c, float number, float scaling, float? cap, bool stereographic, str sources"
_LIBRARY.define(
    f"adapted_linear(Tensor x, Tensor weight, Tensor? bias, Tensor down, Tensor up, {_GAIN})"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    tags=torch.Tag.pt2_compliant_tag,
)
_LIBRARY.define(
    "adapted_linear_backward(Tensor dy, Tensor x, Tensor weight, Tensor down, Tensor up, Tensor u,"
    f" Tensor n2, Tensor m2, Tensor gram, {_GAIN}, bool[] wanted) -> Tensor[]",
    tags=torch.Tag.pt2_compliant_tag,
)
# Traced, a sum in place would be one into a copy of what it is added to.
_LIBRARY.define(
    "add_product_(Tensor(a!) out, Tensor z, Tensor up) -> ()", tags=torch.Tag.pt2_compliant_tag
)


def _add_product(out: Tensor, z: Tensor, up: Tensor) -> None:
    out.addmm_(z, up.mT)


def _kernels() -> ModuleType:
    kernels = triton_module("hyplora.adapted_linear_triton")
    assert kernels is not None
    return kernels


def _forward(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    down: Tensor,
    up: Tensor,
    c: Tensor | None,
    *others: Any,
) -> tuple[Tensor, ...]:
    *constants, _ = others
    return forward_pass(x, weight, bias, down, up, Gain(*constants).at(c), _kernels())


def _fake_forward(
    x: Tensor, weight: Tensor, bias: Tensor | None, down: Tensor, *_: Any
) -> tuple[Tensor, ...]:
    # Not by len(), which would make numbers of sizes that may change.
    tokens, rank = x.shape[0], down.shape[0]
    return (
        x.new_empty(tokens, weight.shape[0]),
        x.new_empty(tokens, rank),
        x.new_empty(tokens, 1, dtype=torch.float32),
        x.new_empty(tokens, 1, dtype=torch.float32),
        x.new_empty(rank, rank, dtype=torch.float32),
    )


def _backward(dy: Tensor, *others: Any) -> list[Tensor]:
    *saved, number, scaling, cap, stereographic, _, wanted = others
    gain = Gain(number, scaling, cap, stereographic)
    gradients = backward_pass(dy, saved, gain, wanted, _kernels())
    return [t for t in gradients if t is not None]


def _fake_backward(
    dy: Tensor, x: Tensor, weight: Tensor, down: Tensor, up: Tensor, *others: Any
) -> list[Tensor]:
    c, wanted = others[4], others[-1]
    likes = (x, weight, dy.new_empty(dy.shape[1]), down, up, c)
    return [
        torch.empty_like(like, memory_format=torch.contiguous_format)
        for like, wants in zip(likes, wanted, strict=True)
        if wants
    ]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, weight, _, down, up, c, *ctx.numbers = inputs
    ctx.save_for_backward(x, weight, down, up, *output[1:], c)
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, dy: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    if dy is None:
        return (None,) * (6 + len(ctx.numbers))
    wanted = list(ctx.needs_input_grad[:6])
    computed = iter(
        torch.ops.beltrami.adapted_linear_backward(dy, *ctx.saved_tensors, *ctx.numbers, wanted)
    )
    gradients = [next(computed) if wants else None for wants in wanted]
    return *gradients, *(None for _ in ctx.numbers)


def _decomposed(function: Callable[..., Any]) -> Callable[..., Any]:
    """How a mode that traces takes an operator."""

    def take(
        mode: Any, operator: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if any(
            t not in (Tensor, FunctionalTensor) and not issubclass(t, FakeTensor) for t in types
        ):
            return NotImplemented  # tensors of other kinds are unwrapped first
        if _kernels().interpreted():
            return mode.__torch_dispatch__(operator, types, args, kwargs)
        with mode, traced():
            return function(*args, **kwargs)

    return take


for _key in ("CPU", "CUDA"):
    _LIBRARY.impl("adapted_linear", _forward, _key)
    _LIBRARY.impl("adapted_linear_backward", _backward, _key)
    _LIBRARY.impl("add_product_", _add_product, _key)
for _name, _fake, _function in (
    ("adapted_linear", _fake_forward, _forward),
    ("adapted_linear_backward", _fake_backward, _backward),
):
    torch.library.register_fake(f"beltrami::{_name}", _fake, lib=_LIBRARY)
    torch.library.register_torch_dispatch(
        f"beltrami::{_name}", FunctionalTensorMode, _decomposed(_function), lib=_LIBRARY
    )
torch.library.register_fake("beltrami::add_product_", lambda *_: None, lib=_LIBRARY)
torch.library.register_autograd(
    "beltrami::adapted_linear", _gradients, setup_context=_keep, lib=_LIBRARY
)
