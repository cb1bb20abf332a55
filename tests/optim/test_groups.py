"""Parameter groups: what is a point, what is a curvature, what may decay; asked of the modules."""

from __future__ import annotations

import copy
import io
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_model, save_model
from torch import Tensor, nn

import beltrami.nn as bnn
from beltrami.geometry import (
    Curvature,
    Euclidean,
    Lorentz,
    Manifold,
    PoincareBall,
    Product,
    Stereographic,
)
from beltrami.optim import (
    RiemannianAdam,
    RiemannianAdamW,
    RiemannianSGD,
    create_optimizer,
    param_groups,
)
from tests.nn.layers import CASES, Case, build
from tests.optim.problems import Words, points, same, train


class Decoder(nn.Module):
    """A language model from our layers and torch's, with a curvature of its own."""

    def __init__(self, manifold: Manifold, curvature: Curvature | None = None) -> None:
        super().__init__()
        self.curvature = curvature
        self.embedding = bnn.Embedding(11, 8, manifold=manifold)
        self.positions = bnn.LearnedPositions(5, 8, manifold=manifold)
        self.blocks = nn.ModuleList(
            bnn.TransformerBlock(8, 2, manifold=manifold, norm=norm) for norm in ("rms", "layer")
        )
        self.classes = bnn.DistanceClassifier(8, 3, manifold=manifold)
        self.scores = bnn.MLR(8, 11, manifold=manifold)
        self.plain = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.positions(self.embedding(ids))
        for block in self.blocks:
            x = block(x)
        out: Tensor = self.scores(x)
        return out


def decoder() -> Decoder:
    curvature = Curvature(1.0)
    return Decoder(Lorentz(curvature), curvature)


def names(groups: list[dict[str, Any]], kind: str) -> set[str]:
    return {name for g in groups if g["kind"] == kind for name, _ in g["params"]}


# --- which is which -------------------------------------------------------------------------------


def test_every_parameter_of_a_model_is_in_exactly_one_group() -> None:
    model = decoder()
    groups = param_groups(model, weight_decay=0.1, point_weight_decay=0.2)
    listed = [id(p) for g in groups for _, p in g["params"]]
    assert sorted(listed) == sorted(id(p) for p in model.parameters())
    every = dict(model.named_parameters())
    for group in groups:
        assert all(every[name] is p for name, p in group["params"])
    decay = {"points": 0.2, "curvature": 0.0, "log_scale": 0.0, "decay": 0.1, "no_decay": 0.0}
    assert {g["kind"] for g in groups} == set(decay)
    for group in groups:
        assert group["weight_decay"] == decay[group["kind"]]
        is_point = group["kind"] == "points"
        assert group["manifold"] == (Lorentz(model.curvature) if is_point else Euclidean())
        assert "lr" not in group


def test_what_modules_mark_is_exempt_and_nothing_else() -> None:
    """The expected sets are made by asking every module; no name is compared with a pattern."""
    model = decoder()
    points, marked, small, scales = set(), set(), set(), set()
    for prefix, module in model.named_modules():
        dot = f"{prefix}." if prefix else ""
        points |= {dot + own for own in getattr(module, "manifold_of", {})}
        marked |= {dot + own for own in getattr(module, "no_weight_decay", set)()}
        small |= {dot + n for n, p in module.named_parameters(recurse=False) if p.ndim < 2}
        scales |= {dot + own for own in getattr(module, "log_scales", ())}
    groups = param_groups(model)
    assert names(groups, "points") == points != set()
    assert names(groups, "curvature") == {"curvature.raw"}
    assert names(groups, "log_scale") == scales != set()
    assert scales <= marked
    assert names(groups, "no_decay") == (marked | small) - points - scales - {"curvature.raw"}
    every = {name for name, _ in model.named_parameters()}
    assert names(groups, "decay") == every - marked - small - points


def test_names_do_not_matter() -> None:
    """A matrix called curvature decays, a curvature called weight does not."""

    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = Curvature(1.0)
            self.curvature = nn.Linear(3, 3, bias=False)
            self.log_scale_bias_norm = nn.Parameter(torch.zeros(2, 2))
            self.table = nn.Parameter(torch.zeros(2, 2))
            self.fixed = nn.Parameter(torch.zeros(2, 2))

        def no_weight_decay(self) -> set[str]:
            return {"fixed"}

    groups = param_groups(Odd(), weight_decay=0.1)
    assert names(groups, "curvature") == {"weight.raw"}
    assert names(groups, "decay") == {"curvature.weight", "log_scale_bias_norm", "table"}
    assert names(groups, "no_decay") == {"fixed"}


def test_a_model_may_name_the_parameters_of_its_parts() -> None:
    """As those of timm do, with dots."""

    class Model(nn.Sequential):
        def no_weight_decay(self) -> set[str]:
            return {"1.weight"}

    groups = param_groups(Model(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)))
    assert names(groups, "no_decay") == {"1.weight"}
    assert names(groups, "decay") == {"0.weight"}


def test_learning_rates_of_groups() -> None:
    groups = param_groups(decoder(), lr=0.1, point_lr=0.2, curvature_lr=0.3, scale_lr=0.4)
    rates = {"points": 0.2, "curvature": 0.3, "log_scale": 0.4, "decay": 0.1, "no_decay": 0.1}
    assert all(g["lr"] == rates[g["kind"]] for g in groups)
    groups = param_groups(decoder(), point_lr=0.2)
    assert [g.get("lr") for g in groups if g["kind"] != "points"] == [None] * 4


def test_a_module_names_logarithms_of_its_scales() -> None:
    """Also from outside, with dots, and also where the parameter is a matrix."""
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model.log_scales = {"1.weight", "0.bias", "missing"}  # type: ignore[assignment]
    groups = param_groups(model, weight_decay=0.1, scale_lr=0.2)
    (group,) = (g for g in groups if g["kind"] == "log_scale")
    assert names(groups, "log_scale") == {"1.weight", "0.bias"}
    assert (group["lr"], group["weight_decay"]) == (0.2, 0.0)


def test_one_group_a_manifold() -> None:
    first, second = Curvature(1.0), Curvature(1.0)
    model = nn.ModuleList(
        bnn.Embedding(3, 4, manifold=m)
        for m in (Lorentz(1.0), Lorentz(1.0), Lorentz(2.0), PoincareBall(1.0), Lorentz(first))
    )
    model.append(bnn.Embedding(3, 4, manifold=Lorentz(second)))
    model.append(bnn.Embedding(3, 4, manifold=Lorentz(first)))
    model.extend([first, second])
    groups = [g for g in param_groups(model) if g["kind"] == "points"]
    assert [len(g["params"]) for g in groups] == [2, 1, 1, 2, 1]


def test_tensors_that_manifolds_were_made_with_are_curvatures() -> None:
    """A κ that is learned through 0, and the curvatures of a product."""

    class Signed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kappa = nn.Parameter(torch.full((1,), -0.5))
            self.curvature = Curvature(1.0, size=3)
            self.points = nn.Parameter(torch.zeros(5, 4))
            self.others = nn.Parameter(torch.zeros(5, 8))
            product = Product([(Lorentz(self.curvature), 2, 3), (Stereographic(self.kappa), 2)])
            self.manifold_of = {"points": Stereographic(self.kappa), "others": product}

    groups = param_groups(Signed(), weight_decay=0.1)
    assert names(groups, "curvature") == {"kappa", "curvature.raw"}
    assert names(groups, "points") == {"points", "others"}


def test_frozen_parameters_are_left_out() -> None:
    model = Words()
    model.embedding.requires_grad_(False)
    model.curvature.requires_grad_(False)
    assert {g["kind"] for g in param_groups(model)} == {"decay", "no_decay"}


def test_a_euclidean_twin_has_the_same_groups() -> None:
    groups = param_groups(decoder(), weight_decay=0.1)
    twin = param_groups(Decoder(Euclidean()), weight_decay=0.1)
    for kind in ("points", "decay"):
        assert names(groups, kind) == names(twin, kind)
    optimizer = RiemannianAdamW(twin)
    assert all(g["manifold"] == Euclidean() for g in optimizer.param_groups)


def test_tied_parameters_are_listed_once() -> None:
    first, second = (bnn.Embedding(3, 4, manifold=Lorentz(1.0)) for _ in range(2))
    second.weight = first.weight
    (group,) = param_groups(nn.ModuleList([first, second]))
    assert [name for name, _ in group["params"]] == ["0.weight"]
    head = nn.Linear(4, 3, bias=False)
    head.weight = first.weight  # a plain layer that borrows points: they stay points
    (group,) = param_groups(nn.ModuleList([head, first]))
    assert group["kind"] == "points"


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.layer.__name__}-{case.name}")
def test_all_layers_have_groups(case: Case) -> None:
    for kind in case.kinds:
        model = build(case, kind)
        groups = param_groups(model, weight_decay=0.1)
        assert sum(len(g["params"]) for g in groups) == len(list(model.parameters()))
        assert names(groups, "points") == {
            name for name, _ in model.points() if name in dict(model.named_parameters())
        }
        if groups:
            RiemannianAdamW(groups)


# --- what keeps the link from a parameter to its manifold -----------------------------------------


def picture(model: nn.Module) -> list[tuple[str, str, tuple[str, ...]]]:
    """Groups without their tensors."""
    return [
        (g["kind"], repr(g["manifold"]), tuple(name for name, _ in g["params"]))
        for g in param_groups(model)
    ]


def copied(model: Words) -> nn.Module:
    return copy.deepcopy(model)


def pickled(model: Words) -> nn.Module:
    found: nn.Module = pickle.loads(pickle.dumps(model))
    return found


def saved_whole(model: Words) -> nn.Module:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    found: nn.Module = torch.load(file, weights_only=False)
    return found


def compiled(model: Words) -> nn.Module:
    found: nn.Module = torch.compile(model, backend="eager")._orig_mod
    return found


@pytest.mark.parametrize("kind", [Lorentz, PoincareBall])
@pytest.mark.parametrize(
    "change",
    [
        copied,
        pickled,
        saved_whole,
        compiled,
        lambda model: model.to(torch.float64),
        lambda model: model.to(torch.bfloat16),
        lambda model: copy.deepcopy(model).half(),
        lambda model: model.to("meta").to_empty(device="cpu"),
        lambda model: nn.Sequential(model)[0],
        lambda model: model.requires_grad_(False).requires_grad_(True),
        lambda model: model.train(False),
    ],
)
def test_the_link_survives(change: Any, kind: type[Manifold]) -> None:
    model = Words(kind)
    before = picture(model)
    changed = change(model)
    assert picture(changed) == before
    # points and layers hold the curvature that the model registers, not a copy of it
    groups = param_groups(changed)
    (manifold,) = [g["manifold"] for g in groups if g["kind"] == "points"]
    assert manifold.curvature is changed.curvature
    assert changed.linear.manifold.curvature is changed.curvature


def test_a_copy_trains_as_the_model_does() -> None:
    """Its own parameters and its own curvature, and the model's are left alone."""
    for change in (copied, pickled, saved_whole):
        torch.manual_seed(0)
        model = Words().double()
        other = change(model)
        before = copy.deepcopy(model.state_dict())
        options: dict[str, Any] = {"lr": 0.05, "curvature_lr": 0.05}
        losses = train(other, create_optimizer(other, **options), 5)
        assert same(dict(model.state_dict()), dict(before))
        assert losses == train(model, create_optimizer(model, **options), 5)
        assert same(dict(model.state_dict()), dict(other.state_dict()))
        assert model.curvature.raw.detach().abs() > 0.01


def test_safetensors(tmp_path: Path) -> None:
    """A file has the values; the modules, built anew, know the rest."""
    model = Words()
    train(model, create_optimizer(model, lr=0.05), 3)
    save_model(model, str(tmp_path / "model.safetensors"))
    other = Words()
    load_model(other, str(tmp_path / "model.safetensors"))
    assert picture(other) == picture(model)
    assert same(dict(other.state_dict()), dict(model.state_dict()))
    assert train(model, create_optimizer(model), 2) == train(other, create_optimizer(other), 2)


def test_assigned_state_dicts_replace_parameters_and_keep_the_link() -> None:
    model, other = Words(), Words()
    other.load_state_dict(model.state_dict(), assign=True)
    assert picture(other) == picture(model)
    train(other, create_optimizer(other), 1)


@pytest.mark.parametrize(
    "manifold",
    [
        Lorentz(0.7),
        PoincareBall(Curvature(2.0)),
        Stereographic(-0.5),
        Product([(Lorentz(1.0), 3), (PoincareBall(Curvature(1.0, size=2)), 2, 2)], p=1),
    ],
    ids=repr,
)
def test_manifolds_can_be_pickled(manifold: Manifold) -> None:
    for other in (pickle.loads(pickle.dumps(manifold)), copy.deepcopy(manifold)):
        assert type(other) is type(manifold)
        assert repr(other) == repr(manifold)
    x = points(PoincareBall(2.0), 3, 7, std=0.1)
    torch.testing.assert_close(other.dist0(x), manifold.dist0(x))


# --- create_optimizer -----------------------------------------------------------------------------


def test_create_optimizer() -> None:
    kinds = {"adam": RiemannianAdam, "adamw": RiemannianAdamW, "sgd": RiemannianSGD}
    for name, kind in kinds.items():
        optimizer = create_optimizer(
            decoder(),
            name,
            lr=0.1,
            weight_decay=0.2,
            point_lr=0.3,
            point_weight_decay=0.4,
            curvature_lr=0.5,
            scale_lr=0.6,
        )
        assert type(optimizer) is kind
        found = {g["kind"]: (g["lr"], g["weight_decay"]) for g in optimizer.param_groups}
        assert found == {
            "points": (0.3, 0.4),
            "curvature": (0.5, 0.0),
            "log_scale": (0.6, 0.0),
            "decay": (0.1, 0.2),
            "no_decay": (0.1, 0.0),
        }
    assert type(create_optimizer(decoder())) is RiemannianAdamW
    assert type(create_optimizer(decoder(), "AdamW")) is RiemannianAdamW
    optimizer = create_optimizer(decoder(), "sgd", momentum=0.9, nesterov=True)
    assert all(g["momentum"] == 0.9 for g in optimizer.param_groups)
    optimizer = create_optimizer(decoder(), betas=(0.8, 0.9), nonfinite="raise")
    assert all(g["betas"] == (0.8, 0.9) for g in optimizer.param_groups)


def test_a_curvature_that_is_not_registered_is_refused() -> None:
    curvature = Curvature(1.0)
    H = Lorentz(curvature)
    model = nn.Sequential(
        bnn.Lift(4, manifold=H), bnn.Linear(4, 2, manifold=H), bnn.Lower(2, manifold=H)
    )
    with pytest.raises(ValueError, match=r"no module .* registered.*: model\[0\]\.curvature = c"):
        create_optimizer(model)
    model[0].curvature = curvature
    optimizer = create_optimizer(model, curvature_lr=0.1)
    model(torch.randn(3, 4)).square().sum().backward()
    optimizer.step()
    assert curvature.value.item() != 1.0
    assert "0.curvature.raw" in model.state_dict()


def test_an_optimiser_of_a_module_has_its_groups() -> None:
    """Decay is for what may decay: with AdamW's default too, and never for points."""
    optimizer = RiemannianAdamW(decoder())
    found = {g["kind"]: g["weight_decay"] for g in optimizer.param_groups}
    none = dict.fromkeys(("points", "curvature", "log_scale", "no_decay"), 0.0)
    assert found == {**none, "decay": 1e-2}
    assert optimizer.param_groups[0]["param_names"]
    # a module without points: torch's own
    (group,) = RiemannianSGD(nn.Linear(2, 2, bias=False), lr=0.1).param_groups
    assert group["manifold"] == Euclidean()


def test_a_whole_decoder_learns_with_every_optimiser() -> None:
    ids = torch.arange(5).expand(2, 5)
    for name, lr in (("adam", 0.01), ("adamw", 0.01), ("sgd", 0.1)):
        torch.manual_seed(0)
        model = decoder()
        optimizer = create_optimizer(model, name, lr=lr)
        losses = []
        for _ in range(12):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        assert losses[-1] < 0.8 * losses[0]


def test_a_parametrised_point_is_refused_not_taken_for_flat() -> None:
    layer = bnn.Embedding(4, 3, manifold=Lorentz(1.0))
    nn.utils.parametrizations.weight_norm(layer, "weight")
    with pytest.raises(ValueError, match=r"'weight', which is not a parameter .* parametrised"):
        param_groups(layer)


def test_a_tied_parameter_is_exempt_under_either_name() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
            self.b.weight = self.a.weight

        def no_weight_decay(self) -> set[str]:
            return {"b.weight"}

    (group,) = param_groups(Tied(), weight_decay=0.1)
    assert group["kind"] == "no_decay"


def test_no_weight_decay_may_be_something_else() -> None:
    model = nn.Linear(3, 3)
    model.no_weight_decay = {"weight"}  # type: ignore[assignment]
    assert {g["kind"] for g in param_groups(model)} == {"decay", "no_decay"}
