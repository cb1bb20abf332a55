"""State: saved and loaded, scheduled, scaled, copied, and given new groups."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, OneCycleLR, ReduceLROnPlateau

from beltrami.geometry import Curvature, Euclidean, Lorentz, Manifold, PoincareBall, Product, Sphere
from beltrami.optim import (
    RiemannianAdam,
    RiemannianAdamW,
    RiemannianSGD,
    create_optimizer,
    param_groups,
)
from tests.optim.problems import MyLorentz, Words, forced, points, same, train

OPTIMISERS: dict[str, dict[str, Any]] = {
    "adam": {"lr": 0.05},
    "amsgrad": {"name": "adam", "lr": 0.05, "amsgrad": True},
    "adamw": {"lr": 0.05, "weight_decay": 0.1, "point_weight_decay": 0.1},
    "momentum": {"name": "sgd", "lr": 0.1, "momentum": 0.9},
    "nesterov": {"name": "sgd", "lr": 0.1, "momentum": 0.9, "nesterov": True},
    "sgd": {"lr": 0.1},
}
every_optimiser = pytest.mark.parametrize("name", OPTIMISERS)


def create(model: nn.Module, name: str) -> Optimizer:
    return create_optimizer(model, **{"name": name, "curvature_lr": 0.02, **OPTIMISERS[name]})


def words(**options: Any) -> Words:
    torch.manual_seed(0)
    return Words(**options)


def on_disk(state: Any) -> Any:
    """What comes back from a file that may hold no code."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def picture(model: nn.Module, optimizer: Optimizer) -> Any:
    state = optimizer.state_dict()
    for group in state["param_groups"]:
        group.pop("differentiable", None)  # torch adds it at a load
    return dict(model.state_dict()), state


# --- saved and loaded -----------------------------------------------------------------------------


@every_optimiser
@pytest.mark.parametrize("kind", [Lorentz, PoincareBall])
@pytest.mark.parametrize("sparse", [False, True])
def test_going_on_after_a_load_is_not_having_stopped(
    name: str, kind: type[Manifold], sparse: bool
) -> None:
    model = words(kind=kind, sparse=sparse)
    optimizer = create(model, name)
    train(model, optimizer, 4)
    saved = on_disk({"model": model.state_dict(), "optimizer": optimizer.state_dict()})

    other = Words(kind, sparse=sparse)
    resumed = create(other, name)
    other.load_state_dict(saved["model"])
    resumed.load_state_dict(saved["optimizer"])
    losses = train(model, optimizer, 4, first=4)
    assert losses == train(other, resumed, 4, first=4)
    assert same(picture(model, optimizer), picture(other, resumed))
    assert all(isinstance(g["manifold"], Manifold) for g in resumed.param_groups)


@pytest.mark.parametrize("name", ["adam", "amsgrad", "momentum"])
def test_a_state_holds_tensors_numbers_and_text(name: str) -> None:
    model = words()
    optimizer = create(model, name)
    train(model, optimizer, 2)
    state = optimizer.state_dict()
    assert {g["manifold"] for g in state["param_groups"]} == {
        "Euclidean()",
        repr(Lorentz(model.curvature)),
    }
    assert all(isinstance(g["manifold"], Manifold) for g in optimizer.param_groups)  # still
    table = optimizer.state[model.embedding.weight]
    if name == "momentum":
        assert {n: tuple(t.shape) for n, t in table.items()} == {"momentum_buffer": (12, 4)}
    else:
        shapes = {"step": (), "exp_avg": (12, 4), "exp_avg_sq": (12, 1)}
        if name == "amsgrad":
            shapes["max_exp_avg_sq"] = (12, 1)
        assert {n: tuple(t.shape) for n, t in table.items()} == shapes


def test_momentum_matters() -> None:
    """The test above could pass with a state that is never used: here it is forgotten."""
    for name in ("adam", "momentum"):
        model = words()
        optimizer = create(model, name)
        train(model, optimizer, 4)
        other = copy.deepcopy(model)
        losses = train(model, optimizer, 4, first=4)
        assert losses != train(other, create(other, name), 4, first=4)


@pytest.mark.parametrize("name", ["adam", "adamw", "momentum"])
def test_a_copy_of_model_and_optimiser_together(name: str) -> None:
    model = words()
    optimizer = create(model, name)
    train(model, optimizer, 3)
    other, copied = copy.deepcopy((model, optimizer))
    kept = {id(p) for g in copied.param_groups for p in g["params"]}
    assert kept == {id(p) for p in other.parameters()}
    (manifold,) = (g["manifold"] for g in copied.param_groups if g["kind"] == "points")
    assert manifold.curvature is other.curvature
    assert train(model, optimizer, 3, first=3) == train(other, copied, 3, first=3)
    assert same(picture(model, optimizer), picture(other, copied))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_keeps_second_moments_wide_over_a_load(dtype: torch.dtype) -> None:
    manifold = Product([(Lorentz(1.0), 3), (PoincareBall(1.0), 2)])
    start = points(manifold, 6, 5, std=0.1).to(dtype)
    gradients = [torch.randn_like(start) for _ in range(4)]

    def make(p: Any) -> Optimizer:
        return RiemannianAdam(p, lr=0.05, amsgrad=True, manifold=manifold)

    whole = forced(make, start, gradients)
    parameter = nn.Parameter(start.clone())
    optimizer: Optimizer = make([parameter])
    for gradient in gradients:
        parameter.grad = gradient
        optimizer.step()
        state = on_disk(optimizer.state_dict())
        optimizer = make([parameter])
        optimizer.load_state_dict(state)
        held = optimizer.state[parameter]
        assert held["exp_avg"].dtype == dtype
        assert held["exp_avg_sq"].dtype == held["max_exp_avg_sq"].dtype == torch.float32
    assert same(whole, (parameter.detach(), optimizer.state[parameter]))


@pytest.mark.parametrize("before", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("after", [torch.float32, torch.float64, torch.bfloat16])
def test_a_state_can_be_loaded_in_another_precision(
    before: torch.dtype, after: torch.dtype
) -> None:
    for manifold in (Lorentz(1.0), MyLorentz(1.0)):
        start = points(manifold, 6, 4).to(before)
        _, state = forced(
            lambda p, m=manifold: RiemannianAdam(p, manifold=m),  # type: ignore[misc]
            start,
            [torch.randn_like(start)],
        )
        saved = nn.Parameter(start.clone())
        optimizer = RiemannianAdam([saved], manifold=manifold)
        optimizer.state[saved] = state
        parameter = nn.Parameter(start.to(after))
        resumed = RiemannianAdam([parameter], manifold=manifold)
        resumed.load_state_dict(optimizer.state_dict())
        held = resumed.state[parameter]
        assert held["exp_avg"].dtype == after
        wide = torch.promote_types(after, torch.float32)
        assert held["exp_avg_sq"].dtype == wide
        assert torch.equal(held["exp_avg_sq"], state["exp_avg_sq"].to(wide))
        parameter.grad = torch.randn_like(parameter)
        resumed.step()
        assert parameter.detach().isfinite().all()


@pytest.mark.parametrize(
    ("make", "reference"),
    [
        (RiemannianAdam, torch.optim.Adam),
        (RiemannianAdamW, torch.optim.AdamW),
        (RiemannianSGD, torch.optim.SGD),
    ],
)
def test_a_state_of_torchs_own_loads_for_plain_parameters(make: Any, reference: Any) -> None:
    """A run that was started with torch's optimiser goes on with ours, to the last bit."""
    options = {"momentum": 0.9} if make is RiemannianSGD else {}
    model = nn.Linear(3, 2)
    theirs = reference(model.parameters(), lr=0.1, **options)
    ours = copy.deepcopy(model)

    def step(model: nn.Module, optimizer: Optimizer) -> None:
        optimizer.zero_grad()
        model(torch.ones(3)).square().sum().backward()
        optimizer.step()

    step(model, theirs)
    ours.load_state_dict(model.state_dict())
    optimizer = make(ours.parameters(), manifold=Euclidean())
    optimizer.load_state_dict(on_disk(theirs.state_dict()))
    step(model, theirs)
    step(ours, optimizer)
    assert same(dict(model.state_dict()), dict(ours.state_dict()))


def test_a_state_before_the_first_step() -> None:
    model = words()
    optimizer = create(model, "adam")
    state = on_disk(optimizer.state_dict())
    assert state["state"] == {}
    optimizer.load_state_dict(state)
    train(model, optimizer, 1)


# --- schedulers -----------------------------------------------------------------------------------

SCHEDULES: dict[str, Callable[[Optimizer], Any]] = {
    "cosine": lambda o: CosineAnnealingLR(o, T_max=6),
    "lambda": lambda o: LambdaLR(o, [lambda n, k=k: 1 / (1 + k * n) for k in range(4)]),
    "one cycle": lambda o: OneCycleLR(o, max_lr=0.1, total_steps=12, base_momentum=0.6),
}


@pytest.mark.parametrize("name", ["adam", "adamw", "momentum"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_schedulers_go_on_after_a_load(schedule: str, name: str) -> None:
    def run(stop: int | None) -> tuple[Any, list[Any]]:
        model = words()
        optimizer = create(model, name)
        scheduler = SCHEDULES[schedule](optimizer)
        seen = []
        for turn in range(6):
            if turn == stop:
                saved = on_disk([optimizer.state_dict(), scheduler.state_dict()])
                optimizer = create(model, name)
                scheduler = SCHEDULES[schedule](optimizer)
                optimizer.load_state_dict(saved[0])
                scheduler.load_state_dict(saved[1])
            train(model, optimizer, 1, first=turn)
            scheduler.step()
            seen.append(
                [(g["lr"], g.get("betas"), g.get("momentum")) for g in optimizer.param_groups]
            )
        return picture(model, optimizer), seen

    whole, seen = run(None)
    assert same(whole, run(3)[0])
    assert len({str(now) for now in seen}) == 6  # every step another rate
    if schedule == "one cycle":  # which turns the momentum too, on points as well
        beta = [now[0][2] if name == "momentum" else now[0][1][0] for now in seen]
        assert max(beta) - min(beta) > 0.1


@pytest.mark.parametrize("lr", [0.05, torch.tensor(0.05)], ids=["float", "tensor"])
def test_a_scheduler_sets_what_points_are_moved_by(lr: float | Tensor) -> None:
    H = Lorentz(0.7)
    x = nn.Parameter(points(H, 5, 3))
    optimizer = RiemannianSGD([x], lr=lr, manifold=H)
    scheduler = LambdaLR(optimizer, lambda n: 0.5**n)
    for n in range(4):
        before = x.detach().clone()
        x.grad = torch.randn_like(x)
        expected = 0.05 * 0.5**n * H.norm(before, H.riemannian_grad(before, x.grad))
        optimizer.step()
        scheduler.step()
        torch.testing.assert_close(H.dist(before, x.detach()), expected, rtol=1e-6, atol=0)


def test_reduce_on_plateau() -> None:
    model = words()
    optimizer = create(model, "adam")
    before = [g["lr"] for g in optimizer.param_groups]
    scheduler = ReduceLROnPlateau(optimizer, patience=0, factor=0.1)
    for _ in range(3):
        train(model, optimizer, 1)
        scheduler.step(1.0)
    assert [g["lr"] for g in optimizer.param_groups] == pytest.approx([0.01 * r for r in before])


# --- what else drives an optimiser ----------------------------------------------------------------


@pytest.mark.parametrize("name", ["adam", "momentum"])
def test_a_closure_is_called_with_gradients_on(name: str) -> None:
    model, other = words(), words()
    optimizer, expected = create(model, name), create(other, name)
    for turn in range(3):

        def closure(turn: int = turn) -> Tensor:
            optimizer.zero_grad()
            loss = model.loss(turn)
            loss.backward()
            return loss

        loss = optimizer.step(closure)
        assert loss.item() == train(other, expected, 1, first=turn)[0]  # type: ignore[union-attr]
    assert same(picture(model, optimizer), picture(other, expected))


@pytest.mark.parametrize("name", ["adam", "adamw", "momentum"])
def test_grad_scaler_skips_a_step_with_an_infinite_gradient(name: str) -> None:
    model, other = words(), words()
    optimizer, expected = create(model, name), create(other, name)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

    def step(turn: int, spoil: bool) -> None:
        optimizer.zero_grad()
        scaler.scale(model.loss(turn)).backward()
        if spoil:
            grad = model.embedding.weight.grad
            assert grad is not None
            grad[0, 0] = float("inf")
        scaler.step(optimizer)
        scaler.update()

    step(0, spoil=False)
    before = copy.deepcopy(picture(model, optimizer))
    step(1, spoil=True)
    assert scaler.get_scale() == 512.0
    assert same(picture(model, optimizer), before)
    step(2, spoil=False)
    train(other, expected, 1, first=0)
    train(other, expected, 1, first=2)
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b)  # powers of two scale without loss, sums of them nearly


def test_a_group_that_is_added_later() -> None:
    first, second = (nn.Parameter(points(Lorentz(), 5, 3, seed=i)) for i in range(2))
    plain = nn.Parameter(torch.ones(2, dtype=torch.float64))
    optimizer = RiemannianAdamW([first], lr=0.1, manifold=Lorentz())
    first.grad = torch.randn_like(first)
    optimizer.step()
    optimizer.add_param_group({"params": [second], "lr": 0.2})  # the manifold of all
    optimizer.add_param_group({"params": [plain], "manifold": Euclidean(), "weight_decay": 0.0})
    assert optimizer.param_groups[1]["manifold"] == Lorentz()
    starts = [p.detach().clone() for p in (second, plain)]
    gradients = [torch.randn_like(p) for p in (second, plain)]
    for p, g in zip((second, plain), gradients, strict=True):
        p.grad = g.clone()
    first.grad = None
    old = first.detach().clone()
    optimizer.step()
    assert torch.equal(first.detach(), old)
    assert optimizer.state[first]["step"] == optimizer.state[second]["step"] == 1
    alone, _ = forced(
        lambda p: RiemannianAdamW(p, lr=0.2, manifold=Lorentz()), starts[0], gradients[:1]
    )
    assert torch.equal(second.detach(), alone)
    flat, _ = forced(lambda p: torch.optim.Adam(p, lr=0.1), starts[1], gradients[1:])
    assert torch.equal(plain.detach(), flat)


def test_hooks_and_zero_grad_are_torchs() -> None:
    model = words()
    optimizer = create(model, "adamw")
    calls: list[str] = []
    optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
    optimizer.register_step_post_hook(lambda *_: calls.append("after"))
    train(model, optimizer, 1)
    assert calls == ["before", "after"]
    optimizer.zero_grad()
    assert all(p.grad is None for p in model.parameters())
    assert "RiemannianAdamW" in repr(optimizer)
    assert "Lorentz" in repr(optimizer)


def test_several_manifolds_each_with_its_own_state() -> None:
    curvature = Curvature(0.5)
    params = [
        nn.Parameter(points(m, 4, 3, dtype=torch.float32))
        for m in (Lorentz(), PoincareBall(curvature), Sphere())
    ]
    groups: list[dict[str, Any]] = [
        {"params": [params[0]], "manifold": Lorentz()},
        {"params": [params[1]], "manifold": PoincareBall(curvature)},
        {"params": [params[2]], "manifold": Sphere()},
        {"params": curvature.parameters(), "manifold": Euclidean()},
    ]
    optimizer = RiemannianAdam(groups, lr=0.1)
    for p in (*params, curvature.raw):
        p.grad = torch.randn_like(p)
    optimizer.step()
    state = on_disk(optimizer.state_dict())
    assert [g["manifold"] for g in state["param_groups"]] == [
        "Lorentz(c=1.0)",
        repr(PoincareBall(curvature)),
        "Sphere(c=1.0)",
        "Euclidean()",
    ]
    optimizer.load_state_dict(state)
    assert optimizer.param_groups[1]["manifold"].curvature is curvature


def test_names_of_parameters_are_kept_in_the_state() -> None:
    model = words()
    optimizer = RiemannianAdam(param_groups(model))
    kept = [name for g in optimizer.state_dict()["param_groups"] for name in g["param_names"]]
    assert sorted(kept) == sorted(name for name, _ in model.named_parameters())


def test_steps_are_counted_on_the_host_wherever_a_checkpoint_was_loaded_to() -> None:
    """A count elsewhere would cost the fused step; torch leaves it where it is."""
    table = nn.Parameter(points(Lorentz(1.0), 3, 4))
    optimizer = RiemannianAdam([table], manifold=Lorentz(1.0))
    table.grad = torch.ones_like(table)
    optimizer.step()
    state = optimizer.state_dict()
    state["state"][0]["step"] = state["state"][0]["step"].to("meta")
    with pytest.raises(NotImplementedError, match="meta"):  # it is moved, and meta has no values
        optimizer.load_state_dict(state)


@pytest.mark.gpu
def test_a_resumed_run_keeps_the_fused_step(tmp_path: Path) -> None:
    table = nn.Parameter(Lorentz(1.0).random(6, 8, device="cuda"))
    for fused in (None, True):
        optimizer = RiemannianAdamW([table], manifold=Lorentz(1.0), fused=fused)
        table.grad = torch.ones_like(table)
        optimizer.step()
        torch.save(optimizer.state_dict(), tmp_path / "state.pt")
        state = torch.load(tmp_path / "state.pt", weights_only=True, map_location="cuda")
        optimizer.load_state_dict(state)
        assert optimizer.state[table]["step"].is_cpu
        optimizer.step()


def test_what_to_do_with_a_nan_is_not_loaded() -> None:
    table = nn.Parameter(points(Lorentz(1.0), 3, 4))
    skips = RiemannianAdam([table], manifold=Lorentz(1.0), nonfinite="skip")
    raises = RiemannianAdam([table], manifold=Lorentz(1.0), nonfinite="raise")
    raises.load_state_dict(skips.state_dict())
    assert raises.param_groups[0]["nonfinite"] == "raise"


def test_small_tables_with_moments_of_another_layout_are_stepped() -> None:
    tables = [nn.Parameter(points(Lorentz(1.0), 2, 3, 4)) for _ in range(2)]
    optimizer = RiemannianAdam(tables, manifold=Lorentz(1.0))
    for table in tables:
        table.grad = torch.ones_like(table)
    optimizer.step()
    state = optimizer.state_dict()
    moment = state["state"][0]["exp_avg"]
    state["state"][0]["exp_avg"] = moment.transpose(0, 1).contiguous().transpose(0, 1)
    optimizer.load_state_dict(state)
    before = tables[0].detach().clone()
    optimizer.step()
    assert not torch.equal(tables[0], before)
