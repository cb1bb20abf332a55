from __future__ import annotations

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

import beltrami.nn as bnn
from beltrami.geometry import Lorentz, PoincareBall, lorentz
from beltrami.kernels.hyplora.adapted_linear import adapted_linear
from beltrami.peft import HypLoraConfig, HypLoraLayer
from beltrami.peft import layer as layer_module
from tests.peft import tiny


def adapted(**changes: object) -> nn.Module:
    targets = {"target_modules": ["first", "second"]}
    return get_peft_model(tiny.MLP(), tiny.config(**{**targets, **changes}))


def layer_of(model: nn.Module, name: str = "first") -> HypLoraLayer:
    found = model.base_model.model.get_submodule(name)
    assert isinstance(found, HypLoraLayer)
    return found


def inputs(rows: int = 6) -> Tensor:
    return torch.randn(rows, 6, dtype=torch.float64)


VARIANTS: list[dict] = [
    {},
    {"variant": "boost"},
    {"variant": "simplified"},
    {"variant": "tangent"},
    {"learn_curvature": "module"},
    {"learn_curvature": "token"},
    {"curvature": [0.1, 1.0, 2.0]},
    {"curvature": [0.1, 2.0], "learn_curvature": "module"},
    {"reference": "repo"},
    {"variant": "simplified", "reference": "repo"},
    {"use_dora": True},
    {"use_rslora": True},
    {"max_radius": None},
]


@pytest.mark.parametrize("settings", VARIANTS, ids=str)
def test_a_new_adapter_changes_nothing(settings: dict) -> None:
    x = inputs()
    model = adapted(init_weights=True, **settings)
    torch.testing.assert_close(model(x), tiny.MLP()(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("settings", VARIANTS, ids=str)
def test_results_may_be_changed_in_place(settings: dict) -> None:
    """As by `nn.ReLU(inplace=True)` behind a layer."""
    layer = layer_of(adapted(**settings))
    for x in (inputs(), inputs().view(2, 3, 6)):
        expected = torch.autograd.grad(2 * layer(x).sum(), layer.hyplora_A["default"].weight)
        y = layer(x)
        y *= 2
        found = torch.autograd.grad(y.sum(), layer.hyplora_A["default"].weight)
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("settings", VARIANTS[:-1], ids=str)  # unbounded, nothing holds them back
def test_every_parameter_learns_and_stays_finite(settings: dict) -> None:
    """SGD with a rate of 0.5 on inputs up to 90, as PEFT's own suite does."""
    torch.manual_seed(0)
    model = adapted(**settings).float()
    x = 90 * torch.rand(8, 6)
    start = {n: p.detach().clone() for n, p in model.named_parameters() if p.requires_grad}
    optimiser = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(4):
        optimiser.zero_grad()
        model(x).sin().sum().backward()
        optimiser.step()
    for name, p in model.named_parameters():
        assert p.isfinite().all(), name
        assert name not in start or not torch.equal(p, start[name]), f"{name} was not trained"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("settings", VARIANTS[:9], ids=str)
def test_zero_and_huge_tokens(settings: dict, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = adapted(**settings).to(dtype)
    x = torch.randn(4, 6).to(dtype)
    x[0] = 0
    x[1] *= 300
    x.requires_grad_()
    out = model(x)
    out.float().square().mean().backward()
    assert out.isfinite().all()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    for name, p in model.named_parameters():
        assert p.grad is None or p.grad.isfinite().all(), name


@pytest.mark.parametrize("size", [0.0, 1.0, 300.0, 1e4])
def test_points_further_out_than_float16_holds(size: float) -> None:
    torch.manual_seed(0)
    base = nn.Sequential(bnn.Linear(16, 8, manifold=Lorentz(1.0))).half()
    model = get_peft_model(base, tiny.config(target_modules=["0"], init_weights=False))
    x = torch.full((2, 16), size, dtype=torch.float16, requires_grad=True)
    out = model(x)
    out.float().sum().backward()
    assert out.isfinite().all()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    wide = model.float()(x.float())
    near = torch.nn.functional.cosine_similarity(out.float(), wide, dim=-1)
    assert size == 0 or bool((near > 0.999).all())  # in the right direction


def ours_of(name: str) -> str:
    return name.replace("lora_", "hyplora_").replace("magnitude_vector", "magnitude")


def lora_twin(model: nn.Module, **changes: object) -> nn.Module:
    """PEFT's LoRA with the same A and B."""
    settings = {"r": 4, "lora_alpha": 8, "target_modules": ["first", "second"], **changes}
    twin = get_peft_model(tiny.MLP().float(), LoraConfig(**settings))
    ours = dict(model.named_parameters())
    with torch.no_grad():
        for name, p in twin.named_parameters():
            if "lora_" in name:
                p.copy_(ours[ours_of(name)])
    return twin


@pytest.mark.parametrize("rslora", [False, True])
@pytest.mark.parametrize("settings", [{"curvature": 1e-12}, {"variant": "tangent"}], ids=str)
def test_without_curvature_it_is_lora(settings: dict, rslora: bool) -> None:
    model = adapted(use_rslora=rslora, **settings).float()
    twin = lora_twin(model, use_rslora=rslora)
    x = inputs().float()
    torch.testing.assert_close(model(x), twin(x), rtol=1e-6, atol=1e-6)
    model(x).square().sum().backward()
    twin(x).square().sum().backward()
    ours = dict(model.named_parameters())
    for name, p in twin.named_parameters():
        if p.requires_grad:
            found = ours[ours_of(name)].grad
            torch.testing.assert_close(found, p.grad, rtol=1e-5, atol=1e-6, msg=name)


def test_dora_without_curvature_is_pefts() -> None:
    model = adapted(use_dora=True, curvature=1e-12).float()
    twin = lora_twin(model, use_dora=True)
    x = inputs().float()
    torch.testing.assert_close(model(x), twin(x), rtol=1e-5, atol=1e-6)


def test_dropout_acts_on_the_adapter_alone() -> None:
    model = adapted(dropout=0.5)
    x = inputs()
    model.train()
    assert not torch.equal(model(x), model(x))
    model.eval()
    assert torch.equal(model(x), model(x))
    with model.disable_adapter():
        torch.testing.assert_close(model(x), tiny.MLP()(x))


def test_two_active_adapters_add_up() -> None:
    model = get_peft_model(
        nn.Sequential(nn.Linear(6, 5)).double(), tiny.config(target_modules=["0"])
    )
    model.add_adapter("other", tiny.config(target_modules=["0"], curvature=2.0))
    x = inputs()
    with model.disable_adapter():
        base = model(x)
    single = []
    for name in ("default", "other"):
        model.set_adapter(name)
        single.append(model(x) - base)
    model.base_model.set_adapter(["default", "other"])
    torch.testing.assert_close(model(x) - base, single[0] + single[1], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("settings", [{}, {"curvature": [0.1, 2.0]}, {"variant": "boost"}], ids=str)
def test_mixed_batches(settings: dict) -> None:
    model = adapted(**settings)
    model.add_adapter("other", tiny.config(target_modules=["second"], curvature=3.0))
    model.eval()
    x = inputs(4)
    names = ["default", "__base__", "other", "default"]
    found = model(x, adapter_names=names)
    for i, name in enumerate(names):
        if name == "__base__":
            with model.disable_adapter():
                expected = model(x)
        else:
            model.set_adapter(name)
            expected = model(x)
        torch.testing.assert_close(found[i], expected[i], rtol=1e-10, atol=1e-12)


def test_mixed_batches_name_what_is_wrong() -> None:
    model = adapted().eval()
    with pytest.raises(ValueError, match="nobody"):
        model(inputs(2), adapter_names=["nobody", "default"])
    for count in (1, 2, 3):  # also those that the rows could be shared among
        with pytest.raises(ValueError, match=f"got {count} and 4"):
            model(inputs(4), adapter_names=["default"] * count)
    merged = adapted(variant="tangent").eval()
    merged.merge_adapter()
    with pytest.raises(ValueError, match="merged"):
        merged(inputs(1), adapter_names=["default"])
    with pytest.raises(ValueError, match="training"):
        model.train()(inputs(1), adapter_names=["default"])


def test_conv1d_is_a_linear_layer_stored_the_other_way() -> None:
    torch.manual_seed(0)
    linear, conv = nn.Linear(6, 5).double(), Conv1D(5, 6).double()
    with torch.no_grad():
        conv.weight.copy_(linear.weight.mT)
        conv.bias.copy_(linear.bias)
    x, found = inputs(), []
    for base, stored in ((linear, False), (conv, True)):
        torch.manual_seed(1)
        wanted = tiny.config(target_modules=["0"], fan_in_fan_out=stored)
        model = get_peft_model(nn.Sequential(base), wanted)
        out = model(x)
        model.calibrate([x])
        merged = model.merge_and_unload(merge_mode="calibrated")
        found.append((out, merged(x)))
    torch.testing.assert_close(found[0], found[1], rtol=1e-10, atol=1e-12)


def test_fan_in_fan_out_is_corrected() -> None:
    with pytest.warns(UserWarning, match="fan_in_fan_out is set to True"):
        model = get_peft_model(nn.Sequential(Conv1D(5, 6)), tiny.config(target_modules=["0"]))
    assert model.peft_config["default"].fan_in_fan_out
    assert layer_of(model, "0").fan_in_fan_out


def test_embeddings_take_the_norm_of_their_vectors() -> None:
    """One token's vector is longer than the others', and so its gain."""
    torch.manual_seed(0)
    base = nn.Embedding(7, 5).double()
    with torch.no_grad():
        base.weight.div_(base.weight.norm(dim=-1, keepdim=True)).mul_(5**0.5)
        base.weight[3] *= 2
    plain = base.weight.detach().clone()
    model = get_peft_model(nn.Sequential(base), tiny.config(target_modules=["0"]))
    layer = layer_of(model, "0")
    ids = torch.arange(7)
    update = model(ids) - plain
    a, b = layer.hyplora_A["default"].weight, layer.hyplora_B["default"].weight
    lora = 2 * (b @ a).mT
    m = lora.norm(dim=-1) / 2
    n = plain.norm(dim=-1) / 5**0.5
    expected = torch.asinh(torch.sinh(n) / n * m / 5**0.5) / (m / 5**0.5)
    torch.testing.assert_close(update, expected[:, None] * lora, rtol=1e-6, atol=1e-9)


def test_two_adapters_of_an_embedding_add_up() -> None:
    torch.manual_seed(0)
    base = nn.Embedding(7, 5, padding_idx=2).double()
    plain = base.weight.detach().clone()
    model = get_peft_model(nn.Sequential(base), tiny.config(target_modules=["0"]))
    model.add_adapter("other", tiny.config(target_modules=["0"], curvature=3.0))
    for p in model.parameters():
        p.data.mul_(5)
    base.weight.data.copy_(plain)
    ids, updates = torch.arange(7), {}
    for name in ("default", "other"):
        model.set_adapter(name)
        updates[name] = model(ids) - plain
    for order in (["default", "other"], ["other", "default"]):
        model.base_model.set_adapter(order)
        torch.testing.assert_close(model(ids) - plain, sum(updates.values()), rtol=1e-9, atol=1e-9)
    model(ids).sum().backward()
    learned = layer_of(model, "0").hyplora_A["default"].weight.grad
    assert not learned[:, 2].any()
    assert learned[:, 3].any()


def test_scaled_embeddings_keep_their_gain() -> None:
    """Gemma multiplies what it looks up; the update is multiplied, too, by the same gain."""

    class Scaled(nn.Embedding):
        embed_scale = 8.0

        def forward(self, ids: Tensor) -> Tensor:
            return self.embed_scale * super().forward(ids)

    found = []
    for kind in (nn.Embedding, Scaled):
        torch.manual_seed(0)
        base = kind(7, 5).double()
        model = get_peft_model(nn.Sequential(base), tiny.config(target_modules=["0"]))
        ids = torch.arange(7)
        found.append(model(ids) - base(ids))
    torch.testing.assert_close(found[1], 8 * found[0], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    "settings",
    [{"variant": "boost"}, {"norm_source": "residual"}, {"use_dora": True}],
    ids=str,
)
def test_what_embeddings_cannot_do(settings: dict) -> None:
    model = nn.Sequential(nn.Embedding(7, 5), nn.LayerNorm(5))
    with pytest.raises(ValueError, match=f"{next(iter(settings))}.*embeddings"):
        get_peft_model(model, tiny.config(target_modules=["0"], **settings))


def test_dora_of_a_row_of_zeros() -> None:
    base = nn.Linear(6, 5, bias=False)
    base.weight.data[2] = 0
    x = torch.randn(3, 6)
    expected = base(x)
    model = get_peft_model(
        nn.Sequential(base), tiny.config(target_modules=["0"], use_dora=True, init_weights=True)
    )
    torch.testing.assert_close(model(x), expected)


# --- layers between Lorentz points ----------------------------------------------------------------


def test_a_lorentz_layer_stays_on_its_manifold_and_moves_by_the_update() -> None:
    """The distance from the base output is the length of the update, wherever the output is."""
    torch.manual_seed(0)
    base = bnn.Linear(6, 5, manifold=Lorentz(0.7)).double()
    x = torch.randn(4, 6, dtype=torch.float64)
    y = base(x)
    model = get_peft_model(nn.Sequential(base), tiny.config(target_modules=["0"]))
    layer = layer_of(model, "0")
    w = x @ layer.hyplora_A["default"].weight.mT @ layer.hyplora_B["default"].weight.mT
    delta = 2 * lorentz.log0(w, 0.7)
    torch.testing.assert_close(
        lorentz.dist(y, model(x), 0.7), delta.norm(dim=-1), rtol=1e-9, atol=1e-9
    )


def test_a_lorentz_layer_tends_to_lora() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 6, dtype=torch.float64)
    errors = []
    for c in (1e-2, 1e-3, 1e-4):
        torch.manual_seed(1)
        base = bnn.Linear(6, 5, manifold=Lorentz(c), time=False).double()
        model = get_peft_model(nn.Sequential(base), tiny.config(target_modules=["0"]))
        layer = layer_of(model, "0")
        a, b = layer.hyplora_A["default"].weight, layer.hyplora_B["default"].weight
        lora = base(x) + 2 * x @ a.mT @ b.mT
        errors.append(float((model(x) - lora).detach().norm()))
    assert errors[0] / errors[1] == pytest.approx(10, rel=0.1)
    assert errors[1] / errors[2] == pytest.approx(10, rel=0.1)


def test_what_lorentz_layers_cannot_do() -> None:
    def model() -> nn.Module:
        return nn.Sequential(bnn.Linear(6, 5, manifold=Lorentz(1.0)))

    for settings in (
        {"variant": "boost"},
        {"learn_curvature": "module"},
        {"curvature": [1.0, 2.0]},
        {"use_dora": True},
        {"reference": "repo"},
    ):
        with pytest.raises(ValueError, match="Lorentz points"):
            get_peft_model(model(), tiny.config(target_modules=["0"], **settings))
    merged = get_peft_model(model(), tiny.config(target_modules=["0"]))
    with pytest.raises(ValueError, match="cannot be merged"):
        merged.merge_and_unload(merge_mode="tangent")


def test_other_layers_are_refused_by_name() -> None:
    for base in (nn.Conv2d(2, 2, 1), bnn.Linear(6, 5, manifold=PoincareBall(1.0))):
        with pytest.raises(TypeError, match=rf"{type(base).__name__}.*exclude_modules"):
            get_peft_model(nn.Sequential(base), HypLoraConfig(target_modules=["0"]))


# -- in one operation ------------------------------------------------------------------------------


@pytest.fixture
def in_one(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of what goes through a layer and its adapter in one operation."""
    seen: list[tuple[int, ...]] = []

    def noted(x: Tensor, *arguments: object, **settings: object) -> Tensor:
        seen.append(tuple(x.shape))
        return adapted_linear(x, *arguments, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(layer_module, "adapted_linear", noted)
    return seen


def test_a_plain_layer_and_its_gain_are_one_operation(in_one: list[tuple[int, ...]]) -> None:
    x = inputs()
    for settings in ({}, {"learn_curvature": "module"}, {"max_radius": None}):
        layer = layer_of(adapted(**settings))
        whole = layer(x)
        assert in_one == [(6, 6)]
        layer.base_layer.register_forward_hook(lambda *_: None)
        torch.testing.assert_close(layer(x), whole, rtol=1e-14, atol=0)
        assert len(in_one) == 1
        in_one.clear()


@pytest.mark.parametrize("part", ["base_layer", "hyplora_A.default", "hyplora_B.default"])
def test_parts_that_are_watched_are_called(part: str, in_one: list[tuple[int, ...]]) -> None:
    x = inputs()
    expected = layer_of(adapted())(x)
    in_one.clear()

    def hooked(module: nn.Module, calls: list[str]) -> None:
        module.register_forward_pre_hook(lambda *_: calls.append("before"))

    def backwards(module: nn.Module, calls: list[str]) -> None:
        module.register_full_backward_hook(lambda *_: calls.append("back"))

    def replaced(module: nn.Module, calls: list[str]) -> None:
        own = module.forward
        module.forward = lambda *a, **k: (calls.append("instead"), own(*a, **k))[1]

    for watch in (hooked, backwards, replaced):
        layer, calls = layer_of(adapted()), []  # type: HypLoraLayer, list[str]
        watch(layer.get_submodule(part), calls)
        found = layer(x.requires_grad_())
        found.sum().backward()
        torch.testing.assert_close(found, expected, rtol=1e-14, atol=0)
        assert calls, watch.__name__
    assert not in_one


@pytest.mark.parametrize(
    "settings",
    [
        {"variant": "boost"},
        {"variant": "tangent"},
        {"reference": "repo"},
        {"learn_curvature": "token"},
        {"curvature": [0.1, 1.0]},
        {"use_dora": True},
        {"dropout": 0.5},
    ],
    ids=str,
)
def test_what_is_more_than_a_gain_is_done_in_parts(
    settings: dict, in_one: list[tuple[int, ...]]
) -> None:
    layer_of(adapted(**settings))(inputs())
    assert not in_one


def test_dropout_at_rest_is_nothing(in_one: list[tuple[int, ...]]) -> None:
    layer = layer_of(adapted(dropout=0.5)).eval()
    layer(inputs())
    assert len(in_one) == 1
    layer.hyplora_dropout.train()  # alone, as for samples of what a model does not know
    x = inputs()
    assert not torch.equal(layer(x), layer(x))


def test_hooks_of_all_modules_see_the_parts(in_one: list[tuple[int, ...]]) -> None:
    seen: list[str] = []
    handle = nn.modules.module.register_module_forward_hook(
        lambda module, *_: seen.append(type(module).__name__)
    )
    try:
        layer_of(adapted())(inputs())
    finally:
        handle.remove()
    assert {"Linear", "DownProjection", "UpProjection"} <= set(seen)
    assert not in_one


def test_parameters_that_are_elsewhere(in_one: list[tuple[int, ...]]) -> None:
    """As in replicas of `DataParallel`, or behind a parametrisation."""
    x = inputs()
    expected = layer_of(adapted())(x)
    in_one.clear()
    for part in ("base_layer", "hyplora_A.default", "hyplora_B.default"):
        layer = layer_of(adapted())
        module = layer.get_submodule(part)
        for name, p in list(module.named_parameters()):
            del module._parameters[name]
            setattr(module, name, p.detach())
        torch.testing.assert_close(layer(x), expected, rtol=1e-14, atol=0)
    layer = layer_of(adapted())
    nn.utils.parametrizations.weight_norm(layer.hyplora_A["default"])
    torch.testing.assert_close(layer(x), expected, rtol=1e-12, atol=1e-12)
    assert not in_one


def test_a_deleted_adapter_leaves_nothing() -> None:
    model = adapted()
    model.add_adapter("other", tiny.config(target_modules=["first", "second"]))
    model.delete_adapter("other")
    layer = layer_of(model)
    for name in layer.adapter_layer_names + layer.other_param_names:
        assert "other" not in getattr(layer, name), name


def test_other_dtypes_autocast_and_several_adapters_are_done_in_parts(
    in_one: list[tuple[int, ...]],
) -> None:
    model = adapted().float()
    layer = layer_of(model)
    layer.base_layer.bfloat16()
    layer(inputs().bfloat16())
    layer.base_layer.float()
    with torch.autocast("cpu", torch.bfloat16):
        layer(inputs().float())
    model.add_adapter("other", tiny.config(target_modules=["first", "second"]))
    model.base_model.set_adapter(["default", "other"])
    layer(inputs().float())
    assert not in_one
    model.set_adapter("other")
    layer(inputs().float())
    assert len(in_one) == 1


def test_compiled_it_is_the_same() -> None:
    torch._dynamo.reset()
    layer, x = layer_of(adapted()), inputs()
    compiled = torch.compile(layer, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x), layer(x), rtol=1e-14, atol=0)
