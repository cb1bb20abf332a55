"""The finite check names the place where NaN began, and leaves no trace."""

from __future__ import annotations

import pickle
from collections import namedtuple
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter
from torch.utils.checkpoint import checkpoint

import beltrami.nn as bnn
from beltrami.geometry import Curvature, Lorentz
from beltrami.train.finite import (
    NonFinite,
    NonFiniteLossError,
    RandomState,
    entries,
    find_nonfinite,
    module_paths,
)
from beltrami.train.finite.steps import Batch, Step
from tests.optim.processes import together

Pair = namedtuple("Pair", ["first", "second"])


class Root(nn.Module):
    """Square root: NaN below 0, and at 0 an infinite gradient."""

    def forward(self, x: Tensor) -> Tensor:
        return x.sqrt()


class Model(nn.Module):
    """Tokens to points, a layer on them, and something that may go wrong in a block inside."""

    def __init__(self, fault: nn.Module) -> None:
        super().__init__()
        self.curvature = Curvature(2.0)
        H = Lorentz(self.curvature)
        self.embed = bnn.Embedding(10, 4, manifold=H)
        self.block = nn.Sequential(bnn.Linear(4, 4, manifold=H), fault)

    def forward(self, ids: Tensor) -> Tensor:
        return self.block(self.embed(ids)).square().mean()


def find(model: nn.Module, *inputs: Tensor) -> NonFinite | None:
    return find_nonfinite(model, lambda: model(*inputs))


@pytest.fixture
def ids() -> Tensor:
    torch.manual_seed(0)
    return torch.arange(6).view(2, 3)


# --- what is found --------------------------------------------------------------------------------


def test_forward_names_the_module_and_what_it_was_given(ids: Tensor) -> None:
    model = Model(Root())
    with torch.no_grad():
        given = model.block[0](model.embed(ids))
    found = find(model, ids)
    assert found is not None
    assert (found.cause, found.module, found.kind) == ("forward", "block.1", "Root")
    assert found.entries.nan == int((given < 0).sum()) > 0
    assert found.entries.shape == (2, 3, 4)
    assert found.inputs[0].largest == pytest.approx(float(given.abs().max()))
    for part in (
        "block.1 (Root)",
        f"{found.entries.nan} nan among 24",
        "parameters and inputs are",
    ):
        assert part in str(found)
    assert str(found).endswith(".")


def test_the_manifold_is_named_with_its_curvature_now(ids: Tensor) -> None:
    class Broken(bnn.Activation):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) / 0

    model = Model(nn.Identity())
    model.block[1] = Broken(torch.relu, manifold=Lorentz(model.curvature))
    found = find(model, ids)
    assert found is not None
    assert found.manifold == "Lorentz with c=2"
    assert found.entries.inf > 0
    assert "block.1 (Broken on Lorentz with c=2)" in str(found)


def test_code_between_modules_is_laid_to_the_module_that_runs_it(ids: Tensor) -> None:
    class Between(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.second(self.first(x) / 0)

    found = find(Model(Between()), ids)
    assert found is not None
    assert (found.module, found.kind) == ("block.1", "Between")
    assert "own forward" in found.note
    assert found.note.endswith("It reaches block.1.second (Linear) first.")
    assert str(found).endswith(found.note)


def test_parameters_come_first_and_all_are_counted(ids: Tensor) -> None:
    model = Model(Root())
    with torch.no_grad():
        model.embed.weight[3, 1] = torch.inf
        model.block[0].weight[0, 0] = torch.nan
    found = find(model, ids)
    assert found is not None
    assert (found.cause, found.module, found.entries.name) == ("parameter", "embed", "embed.weight")
    assert "before the forward" in str(found)
    assert str(found).endswith(". 1 more are not finite: block.0.weight.")


def test_a_buffer_with_nan(ids: Tensor) -> None:
    model = Model(nn.BatchNorm1d(3))
    model.block[1].running_mean[0] = torch.nan
    found = find(model, ids)
    assert found is not None
    assert (found.cause, found.entries.name) == ("buffer", "block.1.running_mean")


def test_the_batch_itself() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    found = find_nonfinite(model, lambda: model(torch.tensor([[1.0, torch.nan, 2.0]])).sum())
    assert found is not None
    assert (found.cause, found.entries.name, found.entries.nan) == ("batch", "input", 1)


def test_the_loss_outside_of_the_model(ids: Tensor) -> None:
    model = nn.Linear(3, 3)
    found = find_nonfinite(model, lambda: model(torch.ones(2, 3)).sum() / 0)
    assert found is not None
    assert found.cause == "loss"
    assert "every module's output is finite" in str(found)


def test_nothing_is_found_where_nothing_is_wrong(ids: Tensor) -> None:
    assert find(Model(nn.Identity()), ids) is None


def test_a_mask_is_no_fault_but_log_of_zero_before_one_is_mentioned() -> None:
    class Mask(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.masked_fill(torch.eye(3, dtype=torch.bool), -torch.inf)

    class Log(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x - x).log()

    x = torch.randn(3, 3, requires_grad=True)
    masked = nn.Sequential(Mask(), nn.Softmax(-1))
    assert find_nonfinite(masked, lambda: masked(x).square().sum()) is None
    model = nn.Sequential(Log(), nn.Softmax(-1))
    found = find_nonfinite(model, lambda: model(x).square().sum())
    assert found is not None
    assert (found.module, found.kind) == ("1", "Softmax")
    assert "Before that, 0 made 9 entries -inf" in found.note


# --- the backward ---------------------------------------------------------------------------------


class AtZero(nn.Module):
    """Finite forward; the gradient of its input is 0·∞."""

    def forward(self, x: Tensor) -> Tensor:
        return (x * 0).sqrt()


def test_backward_names_the_module(ids: Tensor) -> None:
    found = find(Model(AtZero()), ids)
    assert found is not None
    assert (found.cause, found.module, found.kind) == ("backward", "block.1", "AtZero")
    assert found.entries.name == "the gradient of its input"
    assert found.inputs[0].bad == 0  # what came in


def test_backward_of_a_parameter() -> None:
    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            return x + self.scale.sqrt()

    model = nn.Sequential(nn.Linear(3, 3), Scale())
    found = find_nonfinite(model, lambda: model(torch.ones(2, 3)).sum())
    assert found is not None
    assert (found.module, found.entries.name) == ("1", "the gradient of its scale")
    assert found.entries.inf == 1


def test_backward_of_code_around_modules_and_of_the_loss(ids: Tensor) -> None:
    class Around(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return (self.inner(x) * 0).sqrt()

    found = find(Model(Around()), ids)
    assert found is not None
    assert (found.cause, found.module, found.kind) == ("backward", "block.1", "Around")
    assert "output of block.1.inner (Linear)" in found.note

    model = nn.Linear(3, 3)
    found = find_nonfinite(model, lambda: (model(torch.ones(2, 3)) * 0).sqrt().sum())
    assert found is not None
    assert (found.cause, found.kind) == ("backward", "")
    assert "backward of the loss" in str(found)


def test_one_input_of_two_modules_is_laid_to_the_right_one() -> None:
    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.good, self.bad = nn.Linear(3, 3), nn.Linear(3, 3), AtZero()

        def forward(self, x: Tensor) -> Tensor:
            x = self.before(x)
            return self.bad(x) + self.good(x)

    model = Branches()
    found = find_nonfinite(model, lambda: model(torch.ones(2, 3)).sum())
    assert found is not None
    assert found.module == "bad"


@pytest.mark.parametrize("reentrant", [False, True])
def test_backward_through_checkpoints(reentrant: bool) -> None:
    class Saving(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.inner = nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 3), AtZero())

        def forward(self, x: Tensor) -> Tensor:
            return checkpoint(self.inner, self.first(x), use_reentrant=reentrant)

    model = Saving()
    found = find_nonfinite(model, lambda: model(torch.ones(2, 3)).sum())
    assert found is not None
    assert (found.module, found.kind) == ("inner.1", "AtZero")
    assert found.inputs[0].bad == 0

    found = find_nonfinite(model, lambda: (model(torch.ones(2, 3)) * 0).sqrt().sum())
    assert found is not None
    assert (found.cause, found.kind) == ("backward", "")

    class Spoils(Saving):
        def forward(self, x: Tensor) -> Tensor:
            return (super().forward(x) * 0).sqrt()

    spoils = nn.ModuleDict({"a": Spoils()})
    found = find_nonfinite(spoils, lambda: spoils["a"](torch.ones(2, 3)).sum())
    assert found is not None
    assert (found.module, found.kind) == ("a", "Spoils")


def test_sparse_gradients() -> None:
    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rows = nn.Embedding(5, 3, sparse=True)

        def forward(self, ids: Tensor) -> Tensor:
            x = self.rows(ids)
            x.register_hook(lambda g: g / 0)  # needs gradients
            return x

    model = Table()
    found = find_nonfinite(model, lambda: model(torch.tensor([1, 2])).sum())
    assert found is not None
    assert found.cause == "backward"


# --- what a model may be made of ------------------------------------------------------------------


@dataclass
class Output:
    loss: Tensor | None = None
    states: Any = None


class Dict(dict):  # transformers' outputs are dicts of this kind
    pass


@pytest.mark.parametrize(
    "pack",
    [
        lambda x: {"x": [x]},
        lambda x: (x, None),
        lambda x: Pair(x, 1),
        lambda x: Output(states=(x,)),
        lambda x: Dict(x=x),
    ],
)
@pytest.mark.parametrize("backward", [False, True])
def test_tensors_inside_of_things(pack: Any, backward: bool) -> None:
    class Packs(nn.Module):
        def forward(self, x: Tensor, *, y: Tensor) -> Any:
            return pack((x * 0).sqrt() if backward else y / 0)

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.packs = nn.Linear(3, 3), Packs()

        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x)
            packed = self.packs(x, y=x)
            while not isinstance(packed, Tensor):
                parts = packed.values() if isinstance(packed, dict) else packed
                packed = packed.states if isinstance(packed, Output) else next(iter(parts))
            return packed

    model = Outer()
    found = find_nonfinite(model, lambda: model(torch.ones(2, 3)).sum())
    assert found is not None
    assert (found.module, found.cause) == ("packs", "backward" if backward else "forward")


def test_transformers_outputs() -> None:
    outputs = pytest.importorskip("transformers.modeling_outputs")

    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.fault = nn.Linear(3, 3), AtZero()

        def forward(self, x: Tensor) -> Any:
            states = self.fault(self.linear(x))
            return outputs.CausalLMOutput(loss=states.sum(), logits=states)

    model = nn.ModuleDict({"head": Head()})
    found = find_nonfinite(model, lambda: model["head"](torch.ones(2, 3)).loss)
    assert found is not None
    assert found.module == "head.fault"


def test_a_module_that_works_in_place_is_not_taken_for_its_input() -> None:
    class InPlace(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.div_(0)

    model = nn.Sequential(nn.Linear(3, 3), InPlace())
    found = find_nonfinite(model, lambda: model(torch.ones(2, 3)).sum())
    assert found is not None
    assert found.module == "1"
    model[1] = nn.ReLU(inplace=True)
    assert find_nonfinite(model, lambda: model(torch.ones(2, 3)).sum()) is None


def test_what_trips_over_nan_does_not_hide_it() -> None:
    class Picky(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if not x.isfinite().all():
                raise RuntimeError("cannot work with this")
            return x

    class Between(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.picky = Picky()

        def forward(self, x: Tensor) -> Tensor:
            return self.picky(x.sqrt())

    between = nn.ModuleDict({"a": Between()})
    found = find_nonfinite(between, lambda: between["a"](-torch.ones(2)).sum())
    assert found is not None
    assert (found.module, found.kind) == ("a", "Between")

    model = nn.Sequential(Root(), Picky())
    found = find_nonfinite(model, lambda: model(-torch.ones(2)).sum())
    assert found is not None
    assert found.module == "0"
    with pytest.raises(RuntimeError, match="cannot work"):  # no NaN from inside: the news is this
        find_nonfinite(
            model[1], lambda: model[1](torch.tensor([1.0])) + Picky()(torch.tensor(torch.nan))
        )


def test_what_trips_over_a_gradient_of_nan_does_not_hide_it() -> None:
    class Picky(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            x = x.view_as(x)
            if x.requires_grad:
                x.register_hook(self.look)
            return x

        @staticmethod
        def look(gradient: Tensor) -> None:
            if not gradient.isfinite().all():
                raise RuntimeError("cannot work with this")

    model = nn.Sequential(nn.Linear(3, 3), Picky(), AtZero())
    found = find_nonfinite(model, lambda: model(torch.ones(2, 3)).sum())
    assert found is not None
    assert (found.cause, found.module) == ("backward", "2")


def test_run_must_return_the_loss() -> None:
    model = nn.Linear(2, 2)
    with pytest.raises(TypeError, match="run must return the loss, a tensor, got NoneType"):
        find_nonfinite(model, lambda: None)  # type: ignore[arg-type, return-value]


def test_compiled_models_are_looked_into(ids: Tensor) -> None:
    model = Model(Root())
    count = CompileCounter()
    compiled = torch.compile(model, backend=count)
    assert torch.isnan(compiled(ids))
    frames = count.frame_count
    for watched in (compiled, nn.ModuleDict({"body": compiled})):
        found = find_nonfinite(watched, lambda: compiled(ids))
        assert found is not None
        assert found.module == ("block.1" if watched is compiled else "body.block.1")
    assert torch.isnan(compiled(ids))  # compiled as before, and only once
    assert count.frame_count == frames > 0


def test_paths_are_those_without_wrappers(ids: Tensor) -> None:
    plain = Model(Root())
    wrapped = torch.compile(nn.DataParallel(plain), backend="eager")
    assert module_paths(wrapped) == module_paths(plain)
    assert set(module_paths(plain).values()) == {name for name, _ in plain.named_modules()}


# --- no trace -------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [nn.Identity, Root, AtZero])
def test_the_model_is_as_it_was(ids: Tensor, fault: type[nn.Module]) -> None:
    model = Model(nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(0.5), fault()))
    model.block[0].eval()
    model.embed.weight.grad = torch.ones_like(model.embed.weight)
    gradient = model.embed.weight.grad
    state = {name: value.clone() for name, value in model.state_dict().items()}
    flags = [module.training for module in model.modules()]
    random = torch.get_rng_state()

    def run() -> Tensor:
        model.train()
        return model(ids)

    find_nonfinite(model, run)
    assert torch.equal(torch.get_rng_state(), random)
    assert [module.training for module in model.modules()] == flags
    for name, value in model.state_dict().items():
        assert torch.equal(value, state[name]), name
    assert model.embed.weight.grad is gradient
    assert torch.equal(gradient, torch.ones_like(gradient))
    assert all(p.grad is None for n, p in model.named_parameters() if n != "embed.weight")
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks")
    assert not any(getattr(m, name) for m in model.modules() for name in hooks)
    assert not any(p._backward_hooks for p in model.parameters())


def test_dropout_is_repeated_from_the_random_state_given() -> None:
    class Unlucky(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x / (torch.rand(()) > 0.5)  # ∞ in half of the runs

    model = nn.Sequential(nn.Linear(2, 2), Unlucky())
    x = torch.ones(1, 2)
    for seed in range(8):
        torch.manual_seed(seed)
        state = RandomState.now()
        bad = not bool(model(x).isfinite().all())
        torch.manual_seed(99)
        found = find_nonfinite(model, lambda: model(x).sum(), random_state=state)
        assert (found is not None) == bad


def test_results_travel_between_processes(ids: Tensor) -> None:
    found = find(Model(Root()), ids)
    error = NonFiniteLossError("stopped", origin=found, step=3)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.origin, again.step) == ("stopped", found, 3)


def test_entries_of_odd_tensors() -> None:
    assert entries(torch.tensor([1, 2]), "x") is None
    assert entries(torch.empty(0), "x").bad == 0  # type: ignore[union-attr]
    mixed = entries(torch.tensor([torch.nan, torch.inf, -torch.inf, -3.0]), "x")
    assert mixed is not None
    assert (mixed.nan, mixed.inf, mixed.minus_inf, mixed.largest) == (1, 1, 1, 3.0)
    small = entries(torch.tensor([1.0, 2.0]).to(torch.float8_e4m3fn), "x")
    assert small is not None
    assert small.largest == 2.0
    assert entries(torch.tensor([1 + 1j * torch.inf]), "x").inf == 1  # type: ignore[union-attr]


@pytest.mark.parametrize("count", [1, 2])
def test_flags_of_a_step_are_not_rounded_into_being(count: int) -> None:
    def flags(loss: Tensor, norm: Tensor | None) -> tuple[bool, bool]:
        step = Step(1, [Batch({}, None, RandomState.now(), loss)] * count, norm)
        step.send()
        return step.receive()

    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        largest = torch.tensor(torch.finfo(dtype).max, dtype=dtype)
        other = torch.tensor(torch.finfo(torch.float32).max)
        assert flags(largest, None) == (False, False)
        assert flags(largest, other) == (False, False)
        for bad in (torch.nan, torch.inf, -torch.inf):
            assert flags(torch.tensor(bad, dtype=dtype), other) == (True, False)
            assert flags(largest, torch.tensor(bad)) == (False, True)


# --- several processes ----------------------------------------------------------------------------


class Tokens(nn.Module):
    """NaN for token 7 alone."""

    def __init__(self, backward: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.curvature = Curvature(1.0)
        H = Lorentz(self.curvature)
        self.embed = bnn.Embedding(8, 4, manifold=H)
        self.linear = bnn.Linear(4, 4, manifold=H)
        self.fault = OnToken(backward)
        self.last = nn.Linear(4, 1)

    def forward(self, ids: Tensor) -> Tensor:
        return self.last(self.fault(self.linear(self.embed(ids)), ids)).mean()


class OnToken(nn.Module):
    def __init__(self, backward: bool) -> None:
        super().__init__()
        self.backward_only = backward

    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        bad = (ids == 7).unsqueeze(-1).to(x)
        if self.backward_only:
            return x + ((x * 0).square() + (1 - bad)).sqrt()
        return x / (1 - bad)


def _in_process(kind: str, backward: bool) -> dict[str, Any]:
    rank = dist.get_rank()
    plain = Tokens(backward)
    model: Any = plain
    if kind == "ddp":
        model = nn.parallel.DistributedDataParallel(plain, gradient_as_bucket_view=True)
    else:
        from torch.distributed.fsdp import fully_shard

        fully_shard(plain.linear)
        fully_shard(plain)
    good, bad = torch.tensor([[1, 2]]), torch.tensor([[1, 7]])
    for _ in range(3):  # DDP settles its buckets, of which gradients are views, in the second
        model.zero_grad()
        model(good).backward()
    before = [p.grad for p in model.parameters()]
    values = [None if g is None else _whole(g).clone() for g in before]
    found = find_nonfinite(model, lambda: model(bad if rank == 1 else good))
    assert all(p.grad is g for p, g in zip(model.parameters(), before, strict=True))
    for gradient, value in zip(before, values, strict=True):
        assert gradient is None or torch.equal(_whole(gradient), value)
    model(good).backward()  # and it goes on
    names = {"module": found.module, "cause": found.cause, "rank": found.rank} if found else {}
    return {"found": found is not None, **names}


def _whole(t: Tensor) -> Tensor:
    return t.full_tensor() if hasattr(t, "full_tensor") else t


@pytest.mark.slow
@pytest.mark.skipif(not dist.is_available(), reason="torch without torch.distributed")
@pytest.mark.parametrize(("kind", "backward"), [("ddp", True), ("fsdp2", False)])
def test_processes_look_together(tmp_path: Path, kind: str, backward: bool) -> None:
    quiet, loud = together(2, _in_process, tmp_path, kind, backward)
    assert not quiet["found"]
    cause = "backward" if backward else "forward"
    assert loud == {"found": True, "module": "fault", "cause": cause, "rank": 1}


class Raises(nn.Module):
    """Raises in process 1, where it is told to; process 0 goes on."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where

    def forward(self, x: Tensor) -> Tensor:
        if dist.get_rank() == 1:
            if self.where == "forward":
                raise RuntimeError("out of luck")
            if self.where == "backward" and x.requires_grad:
                x.register_hook(self.trip)
        return x

    @staticmethod
    def trip(gradient: Tensor) -> None:
        raise RuntimeError("out of luck")


def _one_raises(where: str) -> dict[str, str]:
    model = nn.Sequential(nn.Linear(2, 2), Raises(where))
    gradient = model[0].weight.grad = torch.ones(2, 2)
    said = ""
    try:
        assert find_nonfinite(model, lambda: model(torch.ones(1, 2)).sum(), together=True) is None
    except RuntimeError as error:
        said = str(error)
    assert model[0].weight.grad is gradient
    assert not model[1]._forward_hooks
    dist.barrier()  # nobody is left waiting for something else
    return {"said": said}


@pytest.mark.slow
@pytest.mark.skipif(not dist.is_available(), reason="torch without torch.distributed")
@pytest.mark.parametrize("where", ["forward", "backward"])
def test_an_error_in_one_process_leaves_none_waiting(tmp_path: Path, where: str) -> None:
    quiet, loud = together(2, _one_raises, tmp_path, where)
    assert (quiet["said"], loud["said"]) == ("", "out of luck")
