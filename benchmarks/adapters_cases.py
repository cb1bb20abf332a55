"""What is timed: a frozen layer or model with each adapter beside it, LoRA the one to compare with.

All adapters of a problem have the same A and B, both random: LoRA's B of zeros would make the
arithmetic of a GPU cheaper than it is in training.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

if TYPE_CHECKING:
    from peft import PeftConfig  # takes seconds to load

BASE, LORA, DORA = "base alone", "LoRA", "DoRA"
OURS, LEARNED = "HypLoRA", "HypLoRA, learned c"
BOOST, MIXTURE = "HypLoRA, boost", "HypLoRA, three c"
WRITTEN = "written out"
COMPARED = (LORA, DORA, OURS)
"""Those that are compiled, and put into a whole model."""

STEP, FORWARD, TOKEN, MODEL = "step", "forward", "one token", "model"
EAGER, COMPILED = "eager", "compiled"
GRAPHS = "CUDA graphs"
"""Compiled and recorded: nothing waits for kernels to be started, only what they take counts."""

RANKS = (8, 32, 64)
# The compiler takes longer than the measurement: it sees one rank, and steps alone at all shapes.
COMPILED_RANK = 32
CURVATURE = 1.0
CURVATURES = [0.5, 1.0, 2.0]
_ALPHA_PER_RANK = 2
# Standard deviation of B, of time columns and of routers.
_STD = 0.02


@dataclass(frozen=True)
class Linear:
    """A layer without bias and what passes through it."""

    kind: str
    inputs: int
    outputs: int
    rank: int
    tokens: int
    dtype: torch.dtype
    modes: tuple[str, ...] = (EAGER,)

    @property
    def title(self) -> str:
        """What `--only` is looked for in."""
        return f"{self.kind} {self.inputs}x{self.outputs} r{self.rank}"

    @property
    def shape(self) -> str:
        """For a table."""
        words = "1 token" if self.tokens == 1 else f"{self.tokens} tokens"
        return f"{self.inputs} × {self.outputs}, r = {self.rank}, {words}"

    @property
    def backward(self) -> bool:
        """Whether gradients are timed too."""
        return self.kind == STEP


@dataclass(frozen=True)
class Model:
    """A decoder in the shape of Llama, all of its linear layers adapted."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    intermediate: int
    vocabulary: int
    batch: int
    tokens: int
    dtype: torch.dtype
    modes: tuple[str, ...] = (EAGER,)
    rank: int = 32
    kind: str = MODEL
    backward: bool = True

    @property
    def title(self) -> str:
        """What `--only` is looked for in."""
        return f"{self.kind} {self.hidden} r{self.rank}"

    @property
    def shape(self) -> str:
        """For a table."""
        size = f"{self.layers} layers of {self.hidden}, r = {self.rank}"
        return f"{size}, {self.batch} × {self.tokens} tokens"


Problem = Linear | Model


@dataclass(frozen=True)
class Case:
    """A problem, how to make each of its competitors, and what they are given."""

    problem: Problem
    builders: dict[str, Callable[[], nn.Module]]
    inputs: Tensor


# --- the problems of a device ---------------------------------------------------------------------


def _linears(
    shapes: list[tuple[int, int]],
    ranks: tuple[int, ...],
    tokens: int,
    dtype: torch.dtype,
    compiled: bool,
) -> list[Problem]:
    found: list[Problem] = []
    for kind, (i, shape), r in product((STEP, FORWARD, TOKEN), enumerate(shapes), ranks):
        count = 1 if kind == TOKEN else tokens
        modes = [EAGER]
        if compiled and r == COMPILED_RANK:
            modes += [COMPILED] if kind == STEP or i == 0 else []
            modes += [GRAPHS] if kind != FORWARD and i == 0 else []  # what has least to compute
        found.append(Linear(kind, *shape, r, count, dtype, tuple(modes)))
    return found


def problems(device: str, quick: bool) -> list[Problem]:
    """Linear layers at three shapes and ranks, then a whole model."""
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    if quick:
        small = Model(32, 2, 4, 2, 48, 64, 2, 8, dtype, rank=4)
        return [*_linears([(64, 64)], (8,), 16, dtype, compiled=False), small]
    if device == "cuda":
        shapes = [(4096, 4096), (4096, 14336), (14336, 4096)]
        model = Model(2048, 16, 32, 8, 8192, 32000, 8, 1024, dtype, (EAGER, COMPILED))
        return [*_linears(shapes, RANKS, 8192, dtype, compiled=True), model]
    shapes = [(1024, 1024), (1024, 4096), (4096, 1024)]
    model = Model(256, 4, 8, 8, 688, 512, 4, 128, dtype)
    return [*_linears(shapes, RANKS, 512, dtype, compiled=False), model]


# --- competitors ----------------------------------------------------------------------------------


def config(name: str, rank: int, targets: list[str] | str) -> PeftConfig:
    """An adapter of a name; all have the same rank and scale."""
    from peft import LoraConfig

    from beltrami.peft import HypLoraConfig

    alpha = _ALPHA_PER_RANK * rank
    if name in (LORA, DORA):
        return LoraConfig(
            r=rank, lora_alpha=alpha, target_modules=targets, use_dora=name == DORA, bias="none"
        )
    changes: dict[str, dict[str, Any]] = {
        OURS: {"curvature": CURVATURE},
        LEARNED: {"curvature": CURVATURE, "learn_curvature": "module"},
        BOOST: {"curvature": CURVATURE, "variant": "boost"},
        MIXTURE: {"curvature": CURVATURES},
    }
    return HypLoraConfig(r=rank, alpha=alpha, target_modules=targets, **changes[name])


class WrittenOut(nn.Module):
    """HypLoRA as its paper puts it: five steps from point to point, (t, x) with all coordinates.

    The points are float32 at least; the products are in the dtype of the weights, as those of the
    others.
    """

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.scaling = float(_ALPHA_PER_RANK)
        self.c = CURVATURE / base.in_features
        self.lora_A = nn.Parameter(base.weight.new_empty(rank, base.in_features))
        self.lora_B = nn.Parameter(base.weight.new_empty(base.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        """The base layer's result and the update."""
        point = self._exp0(x)
        point = self._linear(point, self.lora_A)
        point = self._linear(point, self.lora_B)
        update = self._log0(point).to(x.dtype)
        out: Tensor = self.base(x) + self.scaling * update
        return out

    def _exp0(self, x: Tensor) -> Tensor:
        x = x.to(torch.promote_types(x.dtype, torch.float32))
        norm = x.norm(dim=-1, keepdim=True)
        radius = self.c**0.5 * norm
        return torch.cat([torch.cosh(radius) / self.c**0.5, torch.sinh(radius) / radius * x], -1)

    def _linear(self, point: Tensor, weight: Tensor) -> Tensor:
        space = F.linear(point[..., 1:].to(weight.dtype), weight).to(point.dtype)
        time = torch.sqrt(space.square().sum(-1, keepdim=True) + 1 / self.c)
        return torch.cat([time, space], -1)

    def _log0(self, point: Tensor) -> Tensor:
        time, space = point[..., :1], point[..., 1:]
        distance = torch.acosh(self.c**0.5 * time) / self.c**0.5
        tangent: Tensor = distance * space / space.norm(dim=-1, keepdim=True)
        return tangent


@torch.no_grad()
def randomise(module: nn.Module) -> nn.Module:
    """The same A and B for all, then small numbers for what else an adapter starts with at 0."""
    device = next(module.parameters()).device
    generator = torch.Generator(device).manual_seed(1)
    matrices: dict[str, float] = {}
    others: dict[str, float] = {}
    for name, p in module.named_parameters():
        matrix = re.search(r"lora_([AB])(\.default\.weight)?$", name)
        if matrix is not None:
            matrices[name] = p.shape[-1] ** -0.5 if matrix[1] == "A" else _STD
        elif "time_weight" in name or "router" in name:
            others[name] = _STD
    for name, std in [*matrices.items(), *others.items()]:
        module.get_parameter(name).normal_(std=std, generator=generator)
    return module


def _layer(name: str, n: Linear, device: str) -> nn.Module:
    """The adapted layer itself, which models call, not the wrapper that PEFT puts around them."""
    from peft import get_peft_model

    torch.manual_seed(0)
    base = nn.Linear(n.inputs, n.outputs, bias=False, device=device, dtype=n.dtype)
    if name == BASE:
        return base.requires_grad_(False)
    if name == WRITTEN:
        return randomise(WrittenOut(base, n.rank))
    model: Any = get_peft_model(
        nn.Sequential(OrderedDict(linear=base)),
        config(name, n.rank, ["linear"]),
        autocast_adapter_dtype=False,
    )
    layer: nn.Module = model.base_model.model.linear
    return randomise(layer).train(n.backward)


class _Loss(nn.Module):
    """A language model's loss on a text."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor) -> Tensor:
        loss: Tensor = self.model(input_ids=ids, labels=ids, use_cache=False).loss
        return loss


def _model(name: str, n: Model, device: str) -> nn.Module:
    from peft import get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    settings = LlamaConfig(
        vocab_size=n.vocabulary,
        hidden_size=n.hidden,
        intermediate_size=n.intermediate,
        num_hidden_layers=n.layers,
        num_attention_heads=n.heads,
        num_key_value_heads=n.kv_heads,
        max_position_embeddings=n.tokens,
        bos_token_id=1,
        eos_token_id=2,
        attn_implementation="sdpa",
    )
    with torch.device(device):
        base = LlamaForCausalLM(settings).to(n.dtype)
    base.enable_input_require_grads()  # the first block is like the others: one code for all
    model = get_peft_model(base, config(name, n.rank, "all-linear"), autocast_adapter_dtype=False)
    return _Loss(randomise(model).train())


def build(problem: Problem, device: str = "cpu") -> Case:
    torch.manual_seed(0)
    builders: dict[str, Callable[[], nn.Module]]
    if isinstance(problem, Model):
        shape = problem.batch, problem.tokens
        ids = torch.randint(problem.vocabulary, shape, device=device)
        builders = {name: partial(_model, name, problem, device) for name in COMPARED}
        return Case(problem, builders, ids)
    x = torch.randn(1, problem.tokens, problem.inputs, device=device, dtype=problem.dtype)
    names = (BASE, *COMPARED, LEARNED, BOOST, MIXTURE, WRITTEN)
    builders = {name: partial(_layer, name, problem, device) for name in names}
    return Case(problem, builders, x.requires_grad_(problem.backward))


def compiled(module: nn.Module, *, whole: bool, recorded: bool = False) -> nn.Module:
    """By `torch.compile`; of a model, each of its blocks, which are compiled once for all."""
    how = "reduce-overhead" if recorded else None
    if not isinstance(module, _Loss):
        function: Any = torch.compile(module, fullgraph=whole, dynamic=False, mode=how)
        return function  # type: ignore[no-any-return]
    model: Any = module.model
    for block in model.get_base_model().model.layers:
        block.compile(fullgraph=whole, dynamic=False, mode=how)
    return module
