"""A layer and its map in one operation: the same as the parts, one after the other."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from torch.nn import functional as F

from beltrami.kernels.hyplora.adapted_linear import adapted_linear
from beltrami.kernels.hyplora.lorentz_gain import lorentz_gain

pytest.importorskip("triton", reason="Triton comes for Linux alone")
from beltrami.kernels.hyplora import (
    adapted_linear_operator,
    adapted_linear_triton,
    norm_linear_triton,
)
from beltrami.kernels.launch.launcher import launch
from tests.kernels.checks import saved_bytes
from tests.kernels.compiling import kernels_seen, size_guards, spills_of

C, SCALING = 0.3, 1.7
# Products of narrow dtypes are rounded, in another order than float64's.
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 2.0**-5, torch.float16: 2.0**-8}
NARROW = pytest.param(torch.float16, marks=pytest.mark.gpu)
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, NARROW], ids=str)


def made(
    dtype: torch.dtype, device: str, *, tokens: tuple[int, ...] = (3, 5), rank: int = 5
) -> list[Tensor]:
    """x, W, bias, A and B; the first token is zero."""
    x = torch.randn(*tokens, 40)
    x.view(-1, 40)[0] = 0.0
    sizes = [(24, 40), (24,), (rank, 40), (24, rank)]
    others = [torch.randn(size) / size[-1] ** 0.5 for size in sizes]
    return [t.to(device, dtype).requires_grad_() for t in (x, *others)]


def written_out(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    down: Tensor,
    up: Tensor,
    c: Tensor | float,
    cap: float | None,
    stereographic: bool = False,
) -> Tensor:
    n2 = x.square().sum(-1, keepdim=True)
    mapped = F.linear(F.linear(x, down), up)
    p = c * n2
    if cap is not None:
        p = torch.where(p > cap**2, cap**2, p)
    q = c * mapped.square().sum(-1, keepdim=True)
    lift = 1 / (1 - p / 4)
    g = 2 * lift / (1 + (1 + lift**2 * q).sqrt()) if stereographic else lorentz_gain(p, q)
    return F.linear(x, weight, bias) + SCALING * g * mapped


def check(
    dtype: torch.dtype,
    device: str,
    *,
    tokens: tuple[int, ...] = (3, 5),
    rank: int = 5,
    cap: float | None = None,
    learned: bool = False,
    has_bias: bool = True,
    stereographic: bool = False,
) -> None:
    parts = made(dtype, device, tokens=tokens, rank=rank)
    exact = [t.detach().cpu().double().requires_grad_() for t in parts]
    c = torch.tensor([C], device=device, requires_grad=True) if learned else C
    exact_c = torch.tensor([C], dtype=torch.float64, requires_grad=True) if learned else C
    if not has_bias:
        parts[2], exact[2] = None, None  # type: ignore[call-overload]
    settings = {"scaling": SCALING, "cap": cap, "stereographic": stereographic}
    y = adapted_linear(*parts, c, **settings, fused=True)  # type: ignore[arg-type]
    expected = written_out(*exact, exact_c, cap, stereographic)
    dy = torch.randn(expected.shape)
    y.backward(dy.to(device, dtype))
    expected.backward(dy.to(dtype).double())
    with torch.no_grad():
        again = adapted_linear(*parts, c, **settings, fused=True)  # type: ignore[arg-type]
    found, wanted = [y, again], [expected, expected]
    for a, b in zip([*parts, c], [*exact, exact_c], strict=True):
        if isinstance(a, Tensor) and isinstance(b, Tensor):
            found.append(a.grad)  # type: ignore[arg-type]
            wanted.append(b.grad)  # type: ignore[arg-type]
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == (torch.float32 if a.numel() == 1 else dtype)
        off = (a.detach().cpu().double() - b).norm()
        assert off <= TOLERANCE[dtype] * b.norm(), (tuple(b.shape), float(off / b.norm()))


@DTYPES
@pytest.mark.parametrize("rank", [1, 5, 33])
def test_it_is_the_layer_and_the_map(dtype: torch.dtype, rank: int, device: str) -> None:
    check(dtype, device, rank=rank)


@pytest.mark.parametrize("cap", [None, 2.0])
@pytest.mark.parametrize("learned", [False, True])
def test_limits_and_learned_curvatures(cap: float | None, learned: bool, device: str) -> None:
    check(torch.float32, device, cap=cap, learned=learned)


@pytest.mark.parametrize("learned", [False, True])
def test_stereographic_projections(learned: bool, device: str) -> None:
    check(torch.float32, device, cap=1.9, learned=learned, stereographic=True)
    x, weight, bias, down, up = made(torch.float32, device)
    for cap in (None, 2.0):
        with pytest.raises(ValueError, match="needs cap below 2"):
            adapted_linear(x, weight, bias, down, up, C, cap=cap, stereographic=True, fused=True)


def test_layers_need_no_bias(device: str) -> None:
    check(torch.float32, device, has_bias=False)


@pytest.mark.parametrize("rank", [3, 16])
@pytest.mark.parametrize("learned", [False, True])
def test_many_tokens_take_one_pass(
    rank: int, learned: bool, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapted_linear_triton, "ONE_PASS", 64)
    launched = []

    def noted(kernel: Any, *arguments: Any, **constants: Any) -> None:
        launched.append(kernel.__name__)
        launch(kernel, *arguments, **constants)

    for module in (adapted_linear_triton, norm_linear_triton):
        monkeypatch.setattr(module, "launch", noted)
    check(torch.bfloat16, device, tokens=(2, 70), rank=rank, cap=3.0, learned=learned)
    assert launched == ["_rows", "_gradient_rows", "_input_gradient", "_rows"]
    check(torch.bfloat16, device, tokens=(70,), rank=rank, cap=1.9, stereographic=True)
    assert len(launched) == 8


def test_few_tokens_take_several_chunks_and_blocks(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapted_linear_triton, "CHUNK", 16)
    monkeypatch.setattr(adapted_linear_triton, "COLUMNS", 8)
    monkeypatch.setattr(adapted_linear_triton, "UP_COLUMNS", 16)
    monkeypatch.setattr(adapted_linear_triton, "GAIN_COLUMNS", 16)
    check(torch.float32, device, tokens=(1,), cap=2.0)
    check(torch.float32, device, tokens=(2, 3))


def test_without_kernels_it_is_the_parts() -> None:
    parts = made(torch.float64, "cpu")
    y = adapted_linear(*parts, C, scaling=SCALING, cap=2.0)
    torch.testing.assert_close(y, written_out(*parts, C, 2.0))


def laid_out(values: Tensor, how: str) -> Tensor:
    """The same numbers, (n, d), in memory as `how` says."""
    n, d = values.shape
    if how == "rows apart":
        return values.new_zeros(n, 2 * d)[:, :d].copy_(values)
    if how == "numbers apart":
        return values.new_zeros(n, 2 * d)[:, ::2].copy_(values)
    if how == "last of each":
        return values.new_zeros(n, 3, d)[:, -1].copy_(values)
    return values.mT.contiguous().mT


LAYOUTS = ("rows apart", "numbers apart", "last of each", "transposed")


@pytest.mark.parametrize("how", LAYOUTS)
@pytest.mark.parametrize("one_pass", [1, 4096])
def test_inputs_and_gradients_of_any_layout(
    how: str, one_pass: int, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapted_linear_triton, "ONE_PASS", one_pass)
    x, *weights = (t.detach() for t in made(torch.bfloat16, device, tokens=(15,)))
    dy = torch.randn(15, 24).to(x)
    outcomes = []
    for as_given in (True, False):
        tokens = (x.clone() if as_given else laid_out(x, how)).requires_grad_()
        y = adapted_linear(tokens, *weights, C, fused=True)
        back = dy if as_given else laid_out(dy, how)
        (dx,) = torch.autograd.grad(y, tokens, back)
        with torch.no_grad():
            few = adapted_linear(tokens, *weights, C, fused=True)
        outcomes.append((y.detach(), dx, few))
    for expected, found in zip(*outcomes, strict=True):
        if device == "cpu":
            assert torch.equal(found, expected)
        else:  # cuBLAS multiplies a transposed matrix by another kernel
            assert (found - expected).norm() <= 2.0**-6 * expected.norm()


@pytest.mark.parametrize("one_pass", [1, 4096])
def test_one_gradient_for_all_tokens(
    one_pass: int, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a sum gives: a tensor without strides."""
    monkeypatch.setattr(adapted_linear_triton, "ONE_PASS", one_pass)
    x, *weights = made(torch.bfloat16, device, tokens=(15,))
    y = adapted_linear(x, *weights, C, fused=True)
    (found,) = torch.autograd.grad(y, x, torch.ones_like(y[:1, :1]).expand_as(y), retain_graph=True)
    (expected,) = torch.autograd.grad(y, x, torch.ones_like(y))
    assert torch.equal(found, expected)


def test_autocast_leaves_the_backward_pass_alone(device: str) -> None:
    parts = made(torch.float32, device)
    y = adapted_linear(*parts, C, fused=True)
    dy = torch.randn(y.shape).to(device)
    expected = torch.autograd.grad(y, parts, dy, retain_graph=True)
    with torch.autocast(torch.device(device).type, torch.bfloat16):
        found = torch.autograd.grad(y, parts, dy)
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b)


def test_what_kernels_cannot_do_is_said(device: str) -> None:
    x, weight, bias, down, up = made(torch.float32, device)
    with pytest.raises(ValueError, match="one dtype"):
        adapted_linear(x, weight, bias, down.bfloat16(), up, C, fused=True)
    with pytest.raises(ValueError, match="ranks of up to"):
        adapted_linear(x, weight, bias, down.repeat(40, 1), up.repeat(1, 40), C, fused=True)
    with pytest.raises(ValueError, match="one number"):
        adapted_linear(x, weight, bias, down, up, torch.ones(2, device=device), fused=True)
    kind = torch.device(device).type
    with torch.autocast(kind, torch.bfloat16), pytest.raises(ValueError, match="autocast"):
        adapted_linear(x, weight, bias, down, up, C, fused=True)


def test_what_is_kept_is_the_input_and_little_a_token(device: str) -> None:
    tokens, rank = 400, 4
    x, *others = made(torch.float32, device, tokens=(tokens,), rank=rank)
    kept = saved_bytes(lambda: adapted_linear(x, *others, C, fused=True), besides=[x, *others])
    assert kept <= tokens * 4 * (rank + 2) + 4 * rank * rank


def compiled_and_not(
    device: str, *, learned: bool = False, tokens: tuple[int, ...] = (3, 5), **settings: Any
) -> tuple[list[Tensor], list[Tensor]]:
    """Results and gradients of the operation and of the compiled one."""
    x, weight, bias, down, up = made(torch.bfloat16, device, tokens=tokens)
    weight.requires_grad_(False)
    c = torch.tensor([C], device=device, requires_grad=True) if learned else C

    def function(x: Tensor) -> Tensor:
        return adapted_linear(x, weight, bias, down, up, c, scaling=SCALING, **settings, fused=True)

    backend = "inductor" if device == "cuda" else "aot_eager"
    compiled = torch.compile(function, fullgraph=True, backend=backend)
    leaves = [t for t in (x, bias, down, up, c) if isinstance(t, Tensor)]
    dy = torch.randn(*tokens, 24).to(x)
    found = []
    for one in (compiled, function):
        y = one(x)
        found.append([y.detach(), *torch.autograd.grad(y, leaves, dy)])
    return found[0], found[1]


@pytest.mark.slow
@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("one_pass", [1, 4096])
def test_compiled_it_is_the_same_operation(
    one_pass: int, learned: bool, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapted_linear_triton, "ONE_PASS", one_pass)
    # What torch keeps compiled, on disk too, is looked up by what the operator is given.
    sources = f"{adapted_linear_operator._SOURCES} {one_pass}"
    monkeypatch.setattr(adapted_linear_operator, "_SOURCES", sources)
    torch._dynamo.reset()
    for settings in ({"cap": 2.0}, {"cap": 1.9, "stereographic": True}, {}):
        for a, b in zip(*compiled_and_not(device, learned=learned, **settings), strict=True):
            if device == "cpu":
                assert torch.equal(a, b)
            else:  # products may be other ones of cuBLAS
                torch.testing.assert_close(a, b, atol=2.0**-6, rtol=2.0**-6)


def test_its_operators_are_sound(device: str) -> None:
    operators = torch.ops.beltrami
    x, weight, bias, down, up = made(torch.bfloat16, device, tokens=(15,))
    for learned in (None, torch.tensor([C], device=device, requires_grad=True)):
        settings = (learned, C, SCALING, 2.0, False, "")
        given = (x, weight, bias, down, up, *settings)
        torch.library.opcheck(operators.adapted_linear.default, given)
        with torch.no_grad():
            dy, *kept = operators.adapted_linear(*given)
        parts = [t.detach() for t in (dy, x, weight, down, up, *kept)]
        for wanted in ([True] * 5 + [learned is not None], [False] * 3 + [True] * 2 + [False]):
            back = (*parts, None if learned is None else learned.detach(), *settings[1:], wanted)
            torch.library.opcheck(operators.adapted_linear_backward.default, back)
    torch.library.opcheck(operators.add_product_.default, (dy.clone(), kept[0], up.detach()))


def test_no_number_of_tokens_is_a_number_of_the_code() -> None:
    """As traced for a GPU; but many tokens go another way than few."""
    size, guards = size_guards()
    tokens, width = size.split()
    assert width == "512"
    assert not tokens.isdigit()
    assert guards == [f"{tokens} < {adapted_linear_triton.ONE_PASS}"]


def test_batches_of_any_size_are_one_code(device: str) -> None:
    # Of other ranks Inductor asks which size is the smallest, to see whether padding pays.
    x, *others = made(torch.bfloat16, device, rank=8)
    counter = CompileCounterWithBackend("inductor" if device == "cuda" else "aot_eager")
    torch._dynamo.reset()
    compiled = torch.compile(adapted_linear, backend=counter)
    for tokens in (3, 5, 8, 13):
        given = torch.randn(tokens, 40).to(x)
        torch._dynamo.mark_dynamic(given, 0)
        y = compiled(given, *others, C, fused=True)
        torch.testing.assert_close(y, adapted_linear(given, *others, C, fused=True))
    assert counter.frame_count == 1
    nodes = counter.graphs[0].graph.nodes
    assert any("beltrami" in str(node.target) for node in nodes)


def test_results_may_be_changed_in_place(device: str) -> None:
    for tokens in ((15,), (3, 5)):
        x, *others = made(torch.float32, device, tokens=tokens)
        for fused in (True, False):
            y = adapted_linear(x, *others, C, fused=fused)
            (expected,) = torch.autograd.grad(2 * y, x, torch.ones_like(y), retain_graph=True)
            y *= 2
            (found,) = torch.autograd.grad(y, x, torch.ones_like(y))
            torch.testing.assert_close(found, expected)


def test_what_is_exported_needs_none_of_our_operators(device: str) -> None:
    class Layer(torch.nn.Module):
        def forward(self, *parts: Tensor) -> Tensor:
            return adapted_linear(*parts, C, fused=True)  # type: ignore[arg-type]

    parts = tuple(t.detach() for t in made(torch.bfloat16, device))
    program = torch.export.export(Layer(), parts)
    assert not any("beltrami" in str(node.target) for node in program.graph.nodes)


def test_compiled_code_is_that_of_these_sources(device: str) -> None:
    """Or what torch keeps on disk would outlive a change of a kernel."""
    x, *others = made(torch.bfloat16, device)
    given: list[Any] = []

    def look(graph: Any, _: Any) -> Any:
        given.extend(a for node in graph.graph.nodes for a in node.args if isinstance(a, str))
        return graph

    torch._dynamo.reset()
    torch.compile(adapted_linear, backend=look, fullgraph=True)(x, *others, C, fused=True)
    assert adapted_linear_operator._SOURCES in given
    assert adapted_linear_operator._digest() == adapted_linear_operator._SOURCES


def test_without_gradients_few_tokens_are_traced_as_they_were(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, weight, bias, down, up = (t.detach() for t in made(torch.bfloat16, device))
    monkeypatch.setattr(adapted_linear_operator, "MANY", 20)
    for tokens, expected in ((15, 0), (20, 1)):
        seen: list[str] = []

        def look(graph: Any, _: Any, seen: list[str] = seen) -> Any:
            seen += [str(node.target) for node in graph.graph.nodes]
            return graph

        torch._dynamo.reset()
        with torch.no_grad():
            torch.compile(adapted_linear, backend=look, fullgraph=True)(
                torch.randn(tokens, 40).to(x), weight, bias, down, up, C, fused=True
            )
        assert sum("adapted_linear" in name for name in seen) == expected


ROWS = ["u_ptr", "n2_ptr", "z_ptr", "m2_ptr"]
GRADIENTS = ["du_ptr", "dn2_ptr", "z_ptr", "wu_ptr"]
SUM = ["beltrami.add_product_.default"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "written"),
    [
        ("many tokens", [ROWS, SUM, GRADIENTS, ["dx_ptr"]]),
        ("many tokens, learned c", [ROWS, SUM, [*GRADIENTS, "by_c_ptr"], ["dx_ptr"]]),
        ("on a GPU", [ROWS, SUM]),
        ("some tokens", [["n2_ptr"], ["z_ptr", "m2_ptr"], SUM, GRADIENTS, ["dx_ptr"]]),
    ],
)
def test_compilers_start_the_kernels_themselves(case: str, written: list[list[str]]) -> None:
    """Not by way of an operator that they know nothing of; and only what is written is copied."""
    assert kernels_seen(case) == written


def test_gpus_take_the_kernels_and_hold_their_tiles() -> None:
    assert spills_of("adapted_linear") == [0] * 22
