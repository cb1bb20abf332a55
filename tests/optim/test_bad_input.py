"""Bad input: clear errors, or a skip that is documented, and never a change by half."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.optim import Optimizer

import beltrami.nn as bnn
from beltrami.geometry import (
    Curvature,
    Euclidean,
    Lorentz,
    Manifold,
    PoincareBall,
    Product,
    Sphere,
    Stereographic,
)
from beltrami.optim import (
    RiemannianAdam,
    RiemannianAdamW,
    RiemannianSGD,
    adam,
    create_optimizer,
    param_groups,
)
from tests.optim.problems import MyLorentz, Words, points, same, sparse

ALL = [RiemannianAdam, RiemannianAdamW, RiemannianSGD]
every = pytest.mark.parametrize("make", ALL)
MANIFOLDS: list[Manifold] = [
    Lorentz(0.7),
    PoincareBall(0.7),
    Sphere(0.7),
    Stereographic(-0.7),
    MyLorentz(0.7),
]


def table(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.zeros(*(shape or (3, 4))))


def options(make: Any) -> dict[str, Any]:
    return {"momentum": 0.9} if make is RiemannianSGD else {}


def picture(optimizer: Optimizer) -> Any:
    params = [p.detach() for g in optimizer.param_groups for p in g["params"]]
    return copy.deepcopy([(p, dict(optimizer.state.get(p, {}))) for p in params])


# --- gradients ------------------------------------------------------------------------------------


@every
def test_a_parameter_without_gradient_is_skipped(make: Any) -> None:
    """Points, plain parameters and curvatures alike; no state is made for them, nothing decays."""
    model = Words()
    groups = param_groups(model, weight_decay=0.1, point_weight_decay=0.1)
    optimizer = make(groups, lr=0.1, **options(make))
    before = copy.deepcopy(model.state_dict())
    optimizer.step()
    assert same(dict(model.state_dict()), dict(before))
    assert optimizer.state_dict()["state"] == {}
    model.linear.weight.grad = torch.ones_like(model.linear.weight)
    optimizer.step()
    changed = {n for n, v in model.state_dict().items() if not torch.equal(v, before[n])}
    assert changed == {"linear.weight"}
    assert len(optimizer.state_dict()["state"]) == 1


@every
@pytest.mark.parametrize("manifold", MANIFOLDS, ids=repr)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_rows_with_a_bad_gradient_stay_and_the_others_move(
    bad: float, manifold: Manifold, make: Any
) -> None:
    """At the first step and later, dense and sparse; moments stay to the last bit."""
    start = points(manifold, 6, 4, dtype=torch.float32)
    for is_sparse in (False, True):
        x = nn.Parameter(start.clone())
        optimizer = make([x], lr=0.05, weight_decay=0.1, manifold=manifold, **options(make))
        for turn in range(3):
            gradient = torch.randn_like(x)
            if turn != 1:
                gradient[1, 2] = gradient[4, 0] = bad
            if is_sparse:
                gradient = gradient.to_sparse(1)
            before = copy.deepcopy((x.detach(), dict(optimizer.state[x])))
            x.grad = gradient
            optimizer.step()
            moved = (x.detach() != before[0]).any(-1)
            good = turn == 1
            assert moved.tolist() == [True, good, True, True, good, True]
            assert x.detach().isfinite().all()
            for name, value in optimizer.state[x].items():
                assert value.isfinite().all()
                if name != "step" and not good:
                    old = before[1].get(name, torch.zeros_like(value))
                    assert torch.equal(value[[1, 4]], old[[1, 4]])


@settings(max_examples=60)
@given(
    st.integers(0, 10**6),
    st.sampled_from([0.0, 1e-40, 1e-20, 1e-5, 1.0, 1e5, 1e18, 1e20, 3e38]),
    st.sampled_from([0.0, 1e-20, 0.1, 5.0, 20.0, 40.0]),
    st.sampled_from([1e-6, 0.1, 10.0]),
    st.sampled_from(range(len(MANIFOLDS))),
    st.sampled_from(range(3)),
)
def test_whatever_the_gradient_points_stay_finite(
    seed: int, scale: float, radius: float, lr: float, which: int, optimiser: int
) -> None:
    """Of any size, at any radius that float32 holds, with any learning rate: never a NaN."""
    manifold, make = MANIFOLDS[which], ALL[optimiser]
    generator = torch.Generator().manual_seed(seed)
    width = 4 if isinstance(manifold, Sphere) else 3
    direction = nn.functional.normalize(torch.randn(5, 3, generator=generator), dim=-1)
    x = nn.Parameter(manifold.project(manifold.exp0(radius * direction)))
    optimizer = make([x], lr=lr, weight_decay=0.1, manifold=manifold, **options(make))
    for _ in range(4):
        x.grad = scale * torch.randn(5, width, generator=generator)
        optimizer.step()
        assert x.detach().isfinite().all()
        assert all(v.isfinite().all() for v in optimizer.state[x].values())
        manifold.check_point(x.detach())


@every
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_raise_names_the_parameter_and_changes_nothing(bad: float, make: Any) -> None:
    model = Words()
    optimizer = make(model, lr=0.05, nonfinite="raise", **options(make))
    model.loss().backward()
    optimizer.step()
    for name in ("embedding.weight", "linear.bias", "curvature.raw"):
        optimizer.zero_grad()
        model.loss().backward()
        parameter = dict(model.named_parameters())[name]
        assert parameter.grad is not None
        parameter.grad.view(-1)[0] = bad
        before = picture(optimizer)
        with pytest.raises(FloatingPointError, match=rf"gradient of {name}.* 1 entries"):
            optimizer.step()
        assert same(picture(optimizer), before)
    optimizer.zero_grad()
    model.loss().backward()
    optimizer.step()  # and on it goes


def test_raise_looks_into_sparse_gradients_and_counts_without_names() -> None:
    x = nn.Parameter(torch.zeros(5, 3, dtype=torch.float64))
    optimizer = RiemannianAdam([table(), x], manifold=Lorentz(), nonfinite="raise")
    x.grad = sparse([1, 3], 5, 3) * math.inf
    with pytest.raises(FloatingPointError, match=r"parameter 1, shape \(5, 3\), has 6 entries"):
        optimizer.step()


def test_a_sparse_gradient_must_be_of_whole_rows() -> None:
    x = nn.Parameter(torch.zeros(5, 3))
    optimizer = RiemannianSGD([x], manifold=Lorentz())
    x.grad = torch.eye(5, 3).to_sparse()
    with pytest.raises(ValueError, match="sparse in the first dimension alone"):
        optimizer.step()


# --- manifolds ------------------------------------------------------------------------------------


@every
@pytest.mark.parametrize(
    ("manifold", "error", "words"),
    [
        (None, ValueError, "do not say on which manifold they lie"),
        (Lorentz, TypeError, r"use an object, Lorentz\(\)"),
        ("lorentz", TypeError, "must be a Manifold such as"),
        (1.0, TypeError, "must be a Manifold such as"),
        (Curvature(1.0), TypeError, "must be a Manifold such as"),
    ],
)
def test_an_unknown_manifold(make: Any, manifold: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        make([table()], manifold=manifold)
    with pytest.raises(error, match=words):
        make([{"params": [table()], "manifold": manifold}])
    optimizer = make([table()], manifold=Lorentz())
    with pytest.raises(error, match=words):
        optimizer.add_param_group({"params": [table()], "manifold": manifold})
    assert len(optimizer.param_groups) == 1


@every
def test_parameters_of_a_model_are_not_taken_for_flat(make: Any) -> None:
    model = Words()
    for params in (model.parameters(), model.named_parameters()):
        with pytest.raises(ValueError, match="give the model itself"):
            make(params)
    with pytest.raises(ValueError, match="is for parameters given one by one"):
        make(model, manifold=Lorentz())


@every
@pytest.mark.parametrize(
    ("parameter", "manifold", "words"),
    [
        (torch.tensor(1.0), Lorentz(), "points are real and have at least one dimension"),
        (torch.zeros(3, dtype=torch.int64), Lorentz(), "got torch.int64"),
        (torch.zeros(3, dtype=torch.complex64), Lorentz(), "got torch.complex64"),
        (torch.zeros(3, 5), Product([(Lorentz(), 2), (Euclidean(), 2)]), "has 5 columns"),
        (torch.zeros(3, 4), Lorentz(Curvature(size=2)), "2 curvatures"),
        (torch.zeros(4), Lorentz(Curvature(size=2)), "2 curvatures"),
        (torch.zeros(2, 3, 4), PoincareBall(torch.ones(2, 1)), "2 curvatures"),
    ],
)
def test_what_cannot_hold_points(
    make: Any, parameter: Tensor, manifold: Manifold, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        make([parameter], manifold=manifold)
    with pytest.raises(ValueError, match="the_table"):
        make([{"params": [("the_table", parameter)], "manifold": manifold}])


def test_plain_parameters_may_be_complex_or_without_dimensions() -> None:
    """As in torch."""
    params = [nn.Parameter(torch.tensor(1.0)), nn.Parameter(torch.ones(2, dtype=torch.complex64))]
    others = copy.deepcopy(params)
    for ours, theirs in (
        (RiemannianAdam(params, manifold=Euclidean()), torch.optim.Adam(others)),
        (RiemannianSGD(params, manifold=Euclidean()), torch.optim.SGD(others)),
    ):
        for p, q in zip(params, others, strict=True):
            p.grad = torch.randn_like(p)
            q.grad = p.grad.clone()
        ours.step()
        theirs.step()
        assert same([p.detach() for p in params], [p.detach() for p in others])


def test_modules_that_say_what_is_not_so() -> None:
    layer = bnn.Embedding(3, 4, manifold=Lorentz())
    layer.manifold_of["weights"] = Lorentz()
    with pytest.raises(ValueError, match=r"0 names 'weights', which is not a parameter"):
        param_groups(nn.Sequential(layer))
    layer = bnn.Embedding(3, 4, manifold=Lorentz())
    layer.manifold_of["weight"] = "lorentz"  # type: ignore[assignment]
    with pytest.raises(TypeError, match=r"manifold_of\['weight'\] of Embedding must be a Manifold"):
        param_groups(layer)


def test_tied_parameters_that_disagree() -> None:
    first, second = (bnn.Embedding(3, 4, manifold=m) for m in (Lorentz(1.0), Lorentz(2.0)))
    second.weight = first.weight
    with pytest.raises(ValueError, match=r"0\.weight and 1\.weight are one parameter.*c=1.*c=2"):
        param_groups(nn.ModuleList([first, second]))


def test_a_parameter_in_two_groups() -> None:
    x = table()
    with pytest.raises(ValueError, match="more than one parameter group"):
        RiemannianSGD(
            [{"params": [x], "manifold": Lorentz()}, {"params": [x], "manifold": Euclidean()}]
        )


# --- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [RiemannianAdam, RiemannianAdamW])
@pytest.mark.parametrize(
    ("option", "error", "words"),
    [
        ({"lr": -0.1}, ValueError, "lr must be at least 0, got -0.1"),
        ({"lr": math.nan}, ValueError, "lr must be at least 0, got nan"),
        ({"lr": math.inf}, ValueError, "lr"),
        ({"lr": "0.1"}, TypeError, "lr must be a number, got str"),
        ({"lr": True}, TypeError, "lr must be a number, got bool"),
        ({"lr": torch.ones(2)}, ValueError, r"lr must be one number, got shape \(2,\)"),
        ({"betas": (1.0, 0.999)}, ValueError, r"betas\[0\] must be at least 0 and below 1, got 1"),
        ({"betas": (0.9, -0.1)}, ValueError, r"betas\[1\]"),
        ({"betas": 0.9}, TypeError, "betas must be two numbers"),
        ({"betas": (0.9,)}, TypeError, "betas must be two numbers"),
        ({"betas": (0.9, None)}, TypeError, r"betas\[1\] must be a number"),
        ({"eps": -1e-8}, ValueError, "eps must be at least 0"),
        ({"weight_decay": -0.1}, ValueError, "weight_decay must be at least 0"),
        ({"foreach": True, "fused": True}, ValueError, "foreach and fused cannot both be True"),
        ({"nonfinite": "ignore"}, ValueError, "nonfinite must be one of 'skip', 'raise'"),
    ],
)
def test_bad_options_of_adam(
    make: Any, option: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        make([table()], manifold=Lorentz(), **option)
    if "foreach" not in option:
        with pytest.raises(error, match=words):
            make([{"params": [table()], **option}], manifold=Lorentz())


@pytest.mark.parametrize(
    ("option", "error", "words"),
    [
        ({"lr": -0.1}, ValueError, "lr must be at least 0"),
        ({"momentum": -0.1}, ValueError, "momentum must be at least 0"),
        ({"momentum": "0.9"}, TypeError, "momentum must be a number"),
        ({"dampening": -0.1}, ValueError, "dampening must be at least 0"),
        ({"weight_decay": -0.1}, ValueError, "weight_decay must be at least 0"),
        ({"nesterov": True}, ValueError, "nesterov needs a momentum and zero dampening"),
        ({"nesterov": True, "momentum": 0.9, "dampening": 0.1}, ValueError, "nesterov needs"),
        ({"nonfinite": None}, ValueError, "nonfinite must be one of"),
    ],
)
def test_bad_options_of_sgd(option: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        RiemannianSGD([table()], manifold=Lorentz(), **option)
    with pytest.raises(error, match=words):
        RiemannianSGD([{"params": [table()], **option}], manifold=Lorentz())


def test_a_fused_step_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adam, "unsupported_device", lambda name, device: "no GPU")
    with pytest.raises(ValueError, match="cannot step these points: no GPU"):
        RiemannianAdam([table()], manifold=Lorentz(), fused=True)
    monkeypatch.setattr(adam, "unsupported_device", lambda name, device: None)
    x = table(2, 10000)  # wider than the kernel takes, wherever it runs
    x.grad = torch.ones_like(x)
    optimizer = RiemannianAdam([x], manifold=Lorentz(), fused=True)
    with pytest.raises(ValueError, match="fused=True, but the Triton kernel cannot"):
        optimizer.step()
    assert x.detach().abs().max() == 0


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: create_optimizer(nn.Identity()), ValueError, "Identity has no parameter"),
        (
            lambda: create_optimizer(nn.Linear(2, 2).requires_grad_(False)),
            ValueError,
            "no parameter that needs a gradient",
        ),
        (lambda: create_optimizer(Words(), "lamb"), ValueError, "name must be one of 'adam'"),
        (lambda: create_optimizer(Words().parameters()), ValueError, "give the model itself"),
        (
            lambda: create_optimizer(param_groups(Words())),
            TypeError,
            "model must be a torch.nn.Module, got list",
        ),
        (lambda: create_optimizer(Words(), momentum=0.9), TypeError, "momentum"),
        (lambda: create_optimizer(Words(), weight_decay=-1.0), ValueError, "weight_decay"),
        (lambda: create_optimizer(Words(), point_lr=-1.0), ValueError, "lr must be"),
        (lambda: RiemannianAdam(nn.Identity()), ValueError, "empty parameter list"),
        (lambda: RiemannianAdam([], manifold=Lorentz()), ValueError, "empty parameter list"),
    ],
)
def test_nothing_to_optimise_and_unknown_names(
    call: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        call()


# --- state dicts ----------------------------------------------------------------------------------


def stepped(make: Any, manifold: Manifold, *shape: int, **extra: Any) -> Optimizer:
    x = nn.Parameter(torch.zeros(*(shape or (3, 4))))
    if isinstance(manifold, Sphere):
        x.data[..., 0] = 1.0
    optimizer: Optimizer = make([x], manifold=manifold, **options(make), **extra)
    x.grad = torch.ones_like(x)
    optimizer.step()
    return optimizer


@every
@pytest.mark.parametrize(
    ("saved", "here"),
    [
        (Lorentz(1.0), Lorentz(2.0)),
        (Lorentz(1.0), PoincareBall(1.0)),
        (Lorentz(1.0), Euclidean()),
        (Euclidean(), Lorentz(1.0)),
        (Lorentz(Curvature(1.0)), Lorentz(1.0)),
        (Lorentz(Curvature(1.0)), Lorentz(Curvature(2.0))),
        (Lorentz(Curvature(1.0)), Lorentz(Curvature(1.0, bounds=(0.1, 10.0)))),
        (Product([(Lorentz(), 2, 2)]), Product([(Lorentz(), 1, 4)])),
        (Lorentz(1.0), MyLorentz(1.0)),
    ],
)
def test_a_state_of_another_manifold(make: Any, saved: Manifold, here: Manifold) -> None:
    state = stepped(make, saved).state_dict()
    optimizer = stepped(make, here)
    before, groups = picture(optimizer), optimizer.state_dict()["param_groups"]
    with pytest.raises(ValueError, match="can only be loaded onto the manifold") as error:
        optimizer.load_state_dict(state)
    assert repr(saved) in str(error.value)
    assert repr(here) in str(error.value)
    assert same(picture(optimizer), before)  # nothing was loaded
    assert optimizer.state_dict()["param_groups"] == groups


@pytest.mark.parametrize("reference", [torch.optim.Adam, torch.optim.AdamW])
def test_a_state_of_torchs_adam_does_not_load_for_points(reference: Any) -> None:
    """Its second moment is one number an entry, and its first no covector of the manifold."""
    x = table()
    theirs = reference([x])
    x.grad = torch.ones_like(x)
    theirs.step()
    optimizer = RiemannianAdam([x], manifold=Lorentz())
    with pytest.raises(ValueError, match=r"lies on Euclidean\(\), that of this optimiser on Lor"):
        optimizer.load_state_dict(theirs.state_dict())


def test_a_state_of_another_optimiser() -> None:
    for make, other in ((RiemannianAdam, RiemannianSGD), (RiemannianSGD, RiemannianAdamW)):
        optimizer = stepped(make, Lorentz())
        before = picture(optimizer)
        with pytest.raises(ValueError, match=f"saved by another optimiser, not by {make.__name__}"):
            optimizer.load_state_dict(stepped(other, Lorentz()).state_dict())
        assert same(picture(optimizer), before)


@every
def test_a_state_of_another_shape(make: Any) -> None:
    optimizer = stepped(make, Lorentz())
    with pytest.raises(ValueError, match=r"shape \(5, 4\) for a parameter of shape \(3, 4\)"):
        optimizer.load_state_dict(stepped(make, Lorentz(), 5, 4).state_dict())
    state = optimizer.state_dict()
    if make is not RiemannianSGD:  # as an optimiser with one second moment an entry would save it
        state["state"][0] = {**state["state"][0], "exp_avg_sq": torch.zeros(3, 4)}
        with pytest.raises(ValueError, match=r"exp_avg_sq of shape \(3, 4\).*expected \(3, 1\)"):
            optimizer.load_state_dict(state)


@every
def test_a_state_with_other_groups_is_refused(make: Any) -> None:
    model = Words()
    optimizer = make(model)
    state = optimizer.state_dict()
    with pytest.raises(ValueError, match="different number of parameter groups"):
        make([table()], manifold=Lorentz()).load_state_dict(state)
    short = {**state, "param_groups": copy.deepcopy(state["param_groups"])}
    short["param_groups"][-1]["params"].pop()
    with pytest.raises(ValueError, match="doesn't match the size"):
        optimizer.load_state_dict(short)


@pytest.mark.parametrize(
    "manifold",
    [PoincareBall(1.0), Product([(Lorentz(1.0), 2), (PoincareBall(1.0), 3)])],
    ids=["ball", "product"],
)
def test_points_that_are_none_are_refused(manifold: Manifold) -> None:
    table = nn.Parameter(3 + torch.rand(4, 5))
    with pytest.raises(ValueError, match=r"parameter 0 does not hold points of .*project"):
        RiemannianAdam([table], manifold=manifold)
    RiemannianAdam([nn.Parameter(manifold.project(table.detach()))], manifold=manifold)


def test_flattened_points_are_noticed() -> None:
    """As an engine does that replaces parameters by pieces of one long vector."""
    table = nn.Parameter(torch.rand(4, 5))
    optimizer = RiemannianAdam([table], manifold=Lorentz(1.0))
    flat = nn.Parameter(table.detach().flatten())
    flat.grad = torch.ones_like(flat)
    optimizer.param_groups[0]["params"][0] = flat
    with pytest.raises(ValueError, match=r"\[5\] coordinates .* \[20\]"):
        optimizer.step()


def test_fused_is_refused_where_there_is_no_kernel() -> None:
    table = nn.Parameter(Sphere(1.0).random(4, 5))
    with pytest.raises(ValueError, match="no fused step for Sphere"):
        RiemannianAdam([table], manifold=Sphere(1.0), fused=True)


def test_a_curvature_is_no_point() -> None:
    curvature = Curvature(1.0)
    table = nn.Parameter(PoincareBall(1.0).random(3, 1))
    with pytest.raises(ValueError, match="a curvature is among the points"):
        RiemannianAdam([table, curvature.raw], manifold=PoincareBall(curvature))


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"amsgrad": "no"}, TypeError, "amsgrad must be True or False, got 'no'"),
        ({"fused": 1}, TypeError, "fused must be None, True or False, got 1"),
        ({"foreach": True, "lr": torch.tensor(0.1)}, ValueError, "lr given as a tensor"),
        ({"lr": torch.tensor(-0.1)}, ValueError, "lr must be at least 0"),
        ({"capturable": True}, ValueError, "one is on the CPU"),
        ({"capturable": True, "fused": True}, ValueError, "a graph cannot capture"),
    ],
)
def test_options_are_checked_before_anything_moves(
    options: dict[str, Any], error: type[Exception], words: str
) -> None:
    table = nn.Parameter(torch.zeros(2, 3))
    with pytest.raises(error, match=words):
        RiemannianAdam([table], manifold=Lorentz(1.0), **options)
    with pytest.raises(error, match=words):
        RiemannianAdam([{"params": [table], **options}], manifold=Lorentz(1.0))


def test_a_refused_group_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adam, "unsupported_device", lambda name, device: "no GPU")
    first, second = table(), table()
    optimizer = RiemannianAdam([first], manifold=Lorentz())
    with pytest.raises(ValueError, match="no GPU"):
        optimizer.add_param_group({"params": [second], "fused": True})
    first.grad = torch.ones_like(first)
    optimizer.step()
    assert first.detach().abs().min() > 0
