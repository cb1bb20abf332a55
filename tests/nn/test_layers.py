"""What holds for every layer, in all its forms and on all its manifolds, at random parameters.

The rows are in `layers`; what a layer computes is checked in the tests of its own file.
"""

from __future__ import annotations

import copy
import inspect
import shutil
import warnings
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, fx

import beltrami
import beltrami.nn as bnn
from beltrami.geometry import Manifold
from tests.gpu import no_waiting
from tests.nn.layers import CASES, KINDS, Case, Inputs, Model, build, feed, randomise

SEEDS = range(3)

# Each model once, its curvature a tensor: for checks that a fixed curvature would only repeat.
ONCE = ("lorentz-learnable", "ball-learnable", "euclidean")


def each(
    *kinds: str, where: Callable[[Case, str], bool] = lambda case, kind: True
) -> pytest.MarkDecorator:
    """Every row of the table with each of its manifolds, or with those among the given kinds."""
    rows = [
        pytest.param(case, kind, id=f"{case.layer.__name__}-{case.name}-{kind}")
        for case in CASES
        for kind in case.kinds
        if where(case, kind) and (not kinds or kind in kinds)
    ]
    return pytest.mark.parametrize(("case", "kind"), rows)


def first_of_each_layer(case: Case, kind: str) -> bool:
    return case is next(c for c in CASES if c.layer is case.layer and kind in c.kinds)


def call(model: torch.nn.Module, inputs: Inputs) -> Tensor:
    """The output, with the same dropout at every call."""
    torch.manual_seed(0)
    out: Tensor = model(**inputs)
    return out.clone()  # layers that are identities hand back their input


def cotangent(out: Tensor) -> Tensor:
    g = torch.Generator().manual_seed(7)
    return torch.randn(out.shape, generator=g, dtype=torch.float64).to(out)


def differentiable(inputs: Inputs) -> Inputs:
    return {
        name: t.detach().clone().requires_grad_() if t.is_floating_point() else t
        for name, t in inputs.items()
    }


def variables(model: torch.nn.Module, inputs: Inputs) -> dict[str, Tensor]:
    """All that can have a gradient."""
    given = {f"input {name}": t for name, t in inputs.items() if t.requires_grad}
    return dict(model.named_parameters()) | given


def run(
    model: torch.nn.Module, inputs: Inputs, forward: torch.nn.Module | None = None
) -> tuple[Tensor, dict[str, Tensor | None]]:
    """The output and the gradients of one cotangent, by name."""
    inputs = differentiable(inputs)
    out = call(model if forward is None else forward, inputs)
    leaves = variables(model, inputs)
    if not out.requires_grad:
        return out, dict.fromkeys(leaves)
    grads = torch.autograd.grad(out, list(leaves.values()), cotangent(out), allow_unused=True)
    return out.detach(), dict(zip(leaves, dense(grads), strict=True))


def dense(grads: tuple[Tensor | None, ...]) -> list[Tensor | None]:
    return [g.to_dense() if g is not None and g.is_sparse else g for g in grads]


def agree(a: Tensor, b: Tensor, tolerance: float) -> None:
    """Equal within the tolerance, relative to the largest entry."""
    assert a.shape == b.shape
    scale = max(1.0, float(b.detach().abs().max())) if b.numel() else 1.0
    torch.testing.assert_close(a.double(), b.double(), rtol=0, atol=tolerance * scale)


def agree_all(
    found: dict[str, Tensor | None], expected: dict[str, Tensor | None], tolerance: float
) -> None:
    for name, e in expected.items():
        f = found[name]
        assert (f is None) == (e is None), name
        if f is not None and e is not None:
            try:
                agree(f, e, tolerance)
            except AssertionError as error:
                raise AssertionError(f"gradient of {name}: {error}") from None


def roughly(found: dict[str, Tensor | None], expected: dict[str, Tensor | None]) -> None:
    """Gradients that differ by the rounding of bfloat16.

    Scalars are sums over all tokens in which much cancels, so single parameters have leeway that
    the gradient as a whole has not.
    """
    total = error = 0.0
    for name, e in expected.items():
        f = found[name]
        assert (f is None) == (e is None), name
        if f is None or e is None:
            continue
        off, size = float((f - e).norm()), float(e.norm())
        assert off < 0.3 * max(1.0, size), (name, f, e)
        total, error = total + size**2, error + off**2
    assert error <= 0.05**2 * max(1.0, total)


# --- the table ------------------------------------------------------------------------------------


def test_every_layer_is_in_the_table():
    public = {
        thing
        for thing in (getattr(bnn, name) for name in bnn.__all__)
        if inspect.isclass(thing) and issubclass(thing, torch.nn.Module)
    }
    assert public - {bnn.Layer} == {case.layer for case in CASES}


def test_names_of_rows_are_unique():
    names = [(case.layer, case.name) for case in CASES]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    "layer", {case.layer: None for case in CASES if issubclass(case.layer, bnn.Layer)}
)
def test_the_table_tries_every_manifold_a_layer_accepts(layer: type[torch.nn.Module]) -> None:
    tried = {kind for case in CASES if case.layer is layer for kind in case.kinds}
    wanted = {kind for kind, make in KINDS.items() if isinstance(make(1.0), layer.accepts)}
    assert tried == wanted
    case = next(case for case in CASES if case.layer is layer)
    for kind in KINDS.keys() - wanted:
        with pytest.raises(TypeError, match=f"{layer.__name__} works on"):
            case.make(KINDS[kind](1.0))


# --- parameters -----------------------------------------------------------------------------------


@each(*ONCE)
def test_parameters(case: Case, kind: str) -> None:
    layer = case.make(KINDS[kind](1.0))
    for module in layer.modules():
        own = dict(module.named_parameters(recurse=False))
        assert all(p.ndim > 0 for p in own.values())  # sharding engines reject scalars
        points = set(getattr(module, "manifold_of", {}))
        kept = getattr(module, "no_weight_decay", set)()
        assert points <= kept <= own.keys()
        assert {name for name in own if name.startswith("log_")} <= kept
    assert type(layer).__name__ in repr(layer)


@each("lorentz", "ball", "euclidean")
def test_meta_device(case: Case, kind: str) -> None:
    """Built without memory, then filled: the start has the same parameters and statistics."""
    with torch.device("meta"):
        layer = case.make(KINDS[kind](1.0))
    assert all(t.is_meta for t in layer.state_dict().values())
    layer.to_empty(device="cpu")
    with torch.no_grad():
        for t in layer.state_dict().values():
            t.fill_(-7)
    for module in layer.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    expected = case.make(KINDS[kind](1.0)).state_dict()
    for name, t in layer.state_dict().items():
        assert not (t == -7).any(), f"{name} was not filled"
        if expected[name].numel() > 20 and expected[name].unique().numel() > 1:
            assert float(t.std() / expected[name].std()) == pytest.approx(1, abs=0.5), name
        elif expected[name].unique().numel() == 1:
            assert torch.equal(t, expected[name]), name


@each(*ONCE)
def test_forward_on_the_meta_device(case: Case, kind: str) -> None:
    """Shapes and dtypes without numbers, inside autocast's reach too."""
    model = build(case, kind)
    inputs = {name: t.to("meta") for name, t in feed(case, model).items()}
    out = model.to("meta")(**inputs)
    assert out.is_meta
    assert out.shape == (*case.batch, *case.out)


class LeafTracer(fx.Tracer):
    """Leaves layers whole, as timm's feature extraction does with registered modules."""

    def is_leaf_module(self, m: torch.nn.Module, qualified_name: str) -> bool:
        ours = type(m).__module__.startswith("beltrami.nn")
        return ours or super().is_leaf_module(m, qualified_name)


class Named(torch.nn.Module):
    """A layer whose inputs go by position, which is what fx can trace."""

    def __init__(self, layer: torch.nn.Module, names: list[str]) -> None:
        super().__init__()
        self.layer, self.names = layer, names

    def forward(self, a: Tensor, b: Tensor | None = None, d: Tensor | None = None) -> Tensor:
        given = dict(zip(self.names, (a, b, d), strict=False))
        out: Tensor = self.layer(**given) * 2
        return out


@each(*ONCE, where=lambda case, kind: not case.random and first_of_each_layer(case, kind))
def test_fx_traces_around_layers(case: Case, kind: str) -> None:
    model = build(case, kind)
    inputs = feed(case, model)
    root = Named(model.layer, list(inputs)).eval()
    spare = dict.fromkeys(("a", "b", "d")[len(inputs) :])
    traced = fx.GraphModule(root, LeafTracer().trace(root, concrete_args=spare))
    leaves = [node.target for node in traced.graph.nodes if node.op == "call_module"]
    assert leaves == (
        ["layer.0", "layer.1"] if type(model.layer) is torch.nn.Sequential else ["layer"]
    )
    out = traced(*inputs.values(), *spare.values())
    assert torch.equal(out, root(*inputs.values()))


# --- shapes ---------------------------------------------------------------------------------------


@each()
def test_shape(case: Case, kind: str) -> None:
    model = build(case, kind)
    for batch in case.batches:
        out = call(model, feed(case, model, batch=batch))
        assert out.shape == (*batch, *case.out)
        assert out.dtype == torch.float32


@each(*ONCE, where=lambda case, _: case.rowwise)
def test_empty_batch(case: Case, kind: str) -> None:
    model = build(case, kind)
    for batch in [(0,)] if case.lead == 1 else [(0,), (2, 0), (0, 3)]:
        out, grads = run(model, feed(case, model, batch=batch))
        assert out.shape == (*batch, *case.out)
        for name, p in model.named_parameters():
            g = grads[name]
            assert g is None or (g.shape == p.shape and not g.any())


@each(*ONCE, where=lambda case, _: case.rowwise)
def test_rows_do_not_see_each_other(case: Case, kind: str) -> None:
    model = build(case, kind)
    inputs = feed(case, model)

    def check(f: Callable[[Tensor], Tensor]) -> None:
        """Changing the batch dimensions of the input changes those of the output alone."""
        changed = {name: t if name in case.shared else f(t) for name, t in inputs.items()}
        agree(call(model, changed), f(out), 2e-6)

    out = call(model, inputs)
    dims = len(case.batch)
    check(lambda t: t[:1])
    check(lambda t: t[-1:])
    if case.lead is None:
        check(lambda t: t[(0,) * dims])  # no batch dimension at all
        check(lambda t: t[(-1,) * dims])
        check(lambda t: t.flatten(0, dims - 1))
        check(lambda t: t[None, :, None])


@each(*ONCE, where=lambda case, _: not case.random)
def test_strided_input(case: Case, kind: str) -> None:
    model = build(case, kind)
    inputs = feed(case, model)
    out, grads = run(model, inputs)

    def spread(t: Tensor) -> Tensor:
        return torch.stack([t, t.flip(-1)], -1)[..., 0]

    def turned(t: Tensor) -> Tensor:
        return t.transpose(0, -1).contiguous().transpose(0, -1)

    for change in (spread, turned):
        # A leaf of the same strides, made here since cloning would make it contiguous.
        strided = {name: change(t).detach() for name, t in inputs.items()}
        for t in strided.values():
            t.requires_grad_(t.is_floating_point())
        result = call(model, strided)
        agree(result, out, 2e-6)
        if not result.requires_grad:
            continue
        leaves = variables(model, strided)
        found = torch.autograd.grad(
            result, list(leaves.values()), cotangent(result), allow_unused=True
        )
        agree_all(dict(zip(leaves, dense(found), strict=True)), grads, 5e-6)


# --- values ---------------------------------------------------------------------------------------


@each(*ONCE)
def test_points(case: Case, kind: str) -> None:
    for seed, c in enumerate((0.3, 1.0, 2.5)):
        model = build(case, kind, seed=seed, c=c)
        inputs = feed(case, model, seed=seed)
        with beltrami.debug():
            out = call(model, inputs)
        model.target.check_point(out)


@each(*ONCE)
def test_every_parameter_has_its_gradient(case: Case, kind: str) -> None:
    """Against differences along a random direction, in float64; and no parameter is dead."""
    step = 1e-5
    strongest: dict[str, float] = {}  # over the seeds: one gradient may be 0 by chance
    for seed in SEEDS:
        model = build(case, kind, seed=seed, dtype=torch.float64)
        inputs = differentiable(feed(case, model, seed=seed, dtype=torch.float64))
        _, grads = run(model, inputs)
        out = call(model, inputs)
        weights = cotangent(out)
        leaves = variables(model, inputs)
        for i, (name, leaf) in enumerate(leaves.items()):
            grad = grads[name]
            if name == "curvature.raw" and kind in case.free:
                assert grad is None
                continue
            assert grad is not None, f"{name} has no gradient"
            assert grad.isfinite().all(), name
            strongest[name] = max(strongest.get(name, 0.0), float(grad.abs().max()))
            if case.coarse:
                continue
            g = torch.Generator().manual_seed(seed * 100 + i)
            direction = torch.randn(leaf.shape, generator=g, dtype=leaf.dtype)
            direction /= direction.norm()
            with torch.no_grad():
                values = []
                for sign in (1, -1):
                    leaf.add_(sign * step * direction)
                    values.append(call(model, inputs))
                    leaf.sub_(sign * step * direction)
            difference = float((weights * (values[0] - values[1])).sum() / (2 * step))
            along = float((grad * direction).sum())
            assert along == pytest.approx(difference, rel=1e-6, abs=1e-7), name
    dead = {name: value for name, value in strongest.items() if value < 1e-2}
    assert not dead


@each("lorentz", "ball", where=lambda case, _: case.rate is not None and "euclidean" in case.kinds)
def test_limit(case: Case, kind: str) -> None:
    """In normal coordinates: log0(layer(exp0(v))) tends to the Euclidean layer of v."""
    assert case.rate is not None
    for seed in SEEDS:
        twin = build(case, "euclidean", seed=seed, dtype=torch.float64)
        expected = call(twin, feed(case, twin, seed=seed, dtype=torch.float64))
        errors = []
        for c in (1e-2, 1e-4, 1e-6):
            model = build(case, kind, seed=seed, c=c, dtype=torch.float64)
            assert dict(twin.named_parameters()).keys() <= dict(model.named_parameters()).keys()
            out = call(model, feed(case, model, seed=seed, dtype=torch.float64))
            errors.append(float((model.target.log0(out) - expected).detach().abs().max()))
        scale = max(1.0, float(expected.detach().abs().max()))
        for before, after in pairwise(errors):
            assert after <= 2 * 100**-case.rate * before + 1e-12 * scale, errors
        assert errors[-1] <= 20 * scale * 1e-6**case.rate, errors


# --- dtypes ---------------------------------------------------------------------------------------


@each(*ONCE)
def test_double(case: Case, kind: str) -> None:
    """float64 in, float64 out, and what float32 gives."""
    model = build(case, kind)
    inputs = feed(case, model)
    out, grads = run(model, inputs)
    wide = {name: t.double() if t.is_floating_point() else t for name, t in inputs.items()}
    wide_out, wide_grads = run(copy.deepcopy(model).double(), wide)
    assert wide_out.dtype == torch.float64
    if case.random:  # drawn anew in each dtype
        return
    agree(out, wide_out, 1e-5)
    agree_all(grads, wide_grads, 1e-4)


@each(*ONCE)
def test_autocast(case: Case, kind: str) -> None:
    for seed in SEEDS:
        model = build(case, kind, seed=seed)
        inputs = feed(case, model, seed=seed)
        expected, expected_grads = run(model, inputs)
        with torch.autocast("cpu", torch.bfloat16):
            out, grads = run(model, inputs)
        assert out.isfinite().all()
        model.target.check_point(out.float())
        assert all(g is None or g.isfinite().all() for g in grads.values())
        if case.random:
            continue
        agree(out, expected, 0.1 if case.steep else 0.03)
        if not case.steep:
            roughly(grads, expected_grads)


@each(*ONCE)
def test_bfloat16(case: Case, kind: str) -> None:
    """A model cast to bfloat16, against the same rounded numbers in float32."""
    for seed in SEEDS:
        model = build(case, kind, seed=seed).bfloat16()
        inputs = feed(case, model, seed=seed)
        half = {name: t.bfloat16() if t.is_floating_point() else t for name, t in inputs.items()}
        out, grads = run(model, half)
        assert out.isfinite().all()
        model.target.check_point(out)
        assert all(g is None or g.isfinite().all() for g in grads.values())
        if case.random:
            continue
        single = {name: t.float() if t.is_floating_point() else t for name, t in half.items()}
        expected, expected_grads = run(copy.deepcopy(model).float(), single)
        agree(out, expected, 0.1 if case.steep else 0.03)
        if not case.steep:
            roughly(grads, expected_grads)


def far(case: Case, model: Model, dtype: torch.dtype, radius: float) -> Inputs:
    """Inputs with points at that distance from the origin, or at the last one the dtype has."""
    source = model.source
    inputs = feed(case, model)
    for name, t in inputs.items():
        if name in ("x", "y", "memory", "input"):
            v = source.log0(t)
            v = v * (radius / torch.linalg.vector_norm(v, dim=-1, keepdim=True))
            t = source.exp0(v)
        inputs[name] = source.project(t.to(dtype)) if t.is_floating_point() else t
    return inputs


@each(*ONCE)
def test_far_points(case: Case, kind: str) -> None:
    """Finite, on the manifold, with finite gradients, where float32 still has digits."""
    model = build(case, kind)
    out, grads = run(model, far(case, model, torch.float32, 6.0))
    assert out.isfinite().all()
    model.target.check_point(out)
    assert all(g is None or g.isfinite().all() for g in grads.values())


@each("ball", "ball-learnable")
def test_half_precision_stays_in_the_ball(case: Case, kind: str) -> None:
    """Rounding to bfloat16 must not carry a point onto the border, from any radius."""
    model = build(case, kind).bfloat16()
    points = dict(model.points())
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.ndim > 1:
                p.mul_(2)
            if name in points:
                p.copy_(points[name].project(p))
    for radius in (2.0, 4.0, 8.0):
        out, grads = run(model, far(case, model, torch.bfloat16, radius))
        assert out.isfinite().all()
        model.target.check_point(out)
        assert all(g is None or g.isfinite().all() for g in grads.values())


# --- saving and copying ---------------------------------------------------------------------------


@each(*ONCE)
def test_state_dict_round_trip(case: Case, kind: str, tmp_path: Path) -> None:
    model = build(case, kind)
    inputs = feed(case, model)
    out = call(model, inputs)
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    fresh = build(case, kind, seed=1)
    curved = model.curvature is not None and kind not in case.free
    if not model.training and (curved or [*model.layer.parameters()]):
        assert not torch.equal(call(fresh, inputs), out)
    fresh.load_state_dict(load_file(tmp_path / "model.safetensors"))
    assert torch.equal(call(fresh, inputs), out)


@each(*ONCE, where=first_of_each_layer)
def test_deepcopy(case: Case, kind: str) -> None:
    model = build(case, kind)
    inputs = feed(case, model)
    twin = copy.deepcopy(model)
    out = call(model, inputs)
    assert torch.equal(call(twin, inputs), out)
    for manifold in _manifolds(twin):
        curvature = getattr(manifold, "curvature", None)
        if curvature is not None and curvature.learnable:
            assert curvature is twin.curvature
            assert curvature is not model.curvature
    randomise(twin, seed=1)  # must not reach the original
    assert torch.equal(call(model, inputs), out)
    if kind.endswith("learnable") and kind not in case.free:
        with torch.no_grad():
            before = call(twin, inputs)
            twin.curvature.raw.add_(1.0)
            assert not torch.equal(call(twin, inputs), before)


def _manifolds(model: Model) -> Iterator[Manifold]:
    for module in model.modules():
        if isinstance(module, bnn.Layer):
            yield from (module.manifold, module.manifold_out, *module.manifold_of.values())


# --- torch.compile --------------------------------------------------------------------------------


def compiled_agrees(model: Model, compiled: torch.nn.Module, inputs: Inputs) -> None:
    expected, expected_grads = run(model, inputs)
    out, grads = run(model, inputs, compiled)
    agree(out, expected, 1e-5)
    agree_all(grads, expected_grads, 1e-5)


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.slow
@each("lorentz-learnable", "ball-learnable", where=first_of_each_layer)
def test_compile(case: Case, kind: str, fresh_compiler: None) -> None:
    model = build(case, kind)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    compiled_agrees(model, compiled, feed(case, model, batch=(3,)))


def hot(case: Case, kind: str) -> bool:
    """What a language model spends its time in."""
    return (case.layer, case.name) in {
        (bnn.Linear, "htc"),
        (bnn.Residual, "learnable"),
        (bnn.Attention, "causal"),
        (bnn.TransformerBlock, "decoder"),
    }


@each("lorentz-learnable", where=hot)
def test_compile_once_for_all_batches(case: Case, kind: str, fresh_compiler: None) -> None:
    model = build(case, kind)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    for batch in (3, 4):  # the second makes the batch dynamic
        compiled_agrees(model, compiled, feed(case, model, batch=(batch,)))
    with torch._dynamo.config.patch(error_on_recompile=True):
        for batch in (5, 9):
            compiled_agrees(model, compiled, feed(case, model, batch=(batch,)))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")
@each("lorentz-learnable", where=hot)
def test_inductor(case: Case, kind: str, fresh_compiler: None) -> None:
    model = build(case, kind)
    compiled_agrees(model, torch.compile(model, fullgraph=True), feed(case, model, batch=(3,)))


# --- CUDA -----------------------------------------------------------------------------------------


@pytest.fixture
def cuda() -> Iterator[None]:
    """A device whose first backward pass is over and whose convolutions run in float32."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about the context of the backward thread
        x = torch.ones(2, 2, device="cuda", requires_grad=True)
        (x @ x).sum().backward()
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield


@pytest.mark.gpu
@each(*ONCE, where=lambda case, _: not case.random)
def test_cuda_gives_what_the_cpu_gives(case: Case, kind: str, cuda: None) -> None:
    model = build(case, kind)
    inputs = feed(case, model)
    expected, expected_grads = run(model, inputs)
    device = copy.deepcopy(model).cuda()
    out, grads = run(device, {name: t.cuda() for name, t in inputs.items()})
    agree(out.cpu(), expected, 2e-5)
    cpu = {name: None if g is None else g.cpu() for name, g in grads.items()}
    agree_all(cpu, expected_grads, 1e-4)


@pytest.mark.gpu
@each(*ONCE)
def test_cuda_does_not_wait(case: Case, kind: str, cuda: None) -> None:
    model = build(case, kind)
    inputs = differentiable({name: t.cuda() for name, t in feed(case, model).items()})
    model.cuda()
    weights = cotangent(model(**inputs))
    with no_waiting():
        for dtype in (torch.float32, torch.bfloat16):
            with torch.autocast("cuda", dtype, enabled=dtype == torch.bfloat16):
                out = model(**inputs)
            if out.requires_grad:
                out.backward(weights.to(out.dtype))
