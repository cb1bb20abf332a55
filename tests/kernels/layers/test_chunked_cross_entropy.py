"""Cross-entropy by chunks against torch's of all scores, plain and by Triton's interpreter."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from beltrami.kernels.layers import chunked_cross_entropy as module
from beltrami.kernels.layers.chunked_cross_entropy import chunked_cross_entropy
from tests.kernels.checks import saved_bytes
from tests.kernels.layers.test_word_scores import F64, KINDS, inputs, plain, terms_of
from tests.kernels.memory import LargestTensor

HAS_TRITON = importlib.util.find_spec("triton") is not None
TRITON = pytest.mark.skipif(not HAS_TRITON, reason="Triton comes for Linux alone")
FUSED = pytest.mark.parametrize("fused", [False, pytest.param(True, marks=TRITON)])
F32 = torch.float32
TOLERANCE = {F32: {"rtol": 2e-5, "atol": 1e-6}, F64: {"rtol": 1e-10, "atol": 1e-12}}
Loss = Callable[..., Tensor]


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter goes through all rows of a strip, however few there are."""
    if HAS_TRITON and not torch.cuda.is_available():
        from beltrami.kernels.layers import chunked_cross_entropy_triton

        monkeypatch.setattr(chunked_cross_entropy_triton, "STEPS", 2)


def labels_of(n: int, words: int) -> Tensor:
    """Random words, the last two, and every fourth ignored."""
    labels = torch.randint(0, words, (n,))
    labels[-2:] = words - 1
    labels[1::4] = -100
    return labels


def expected_loss(scores: Tensor, labels: Tensor, z_loss: float = 0.0, **options: Any) -> Tensor:
    """As torch has it, with the term of the log-sum-exp."""
    loss = F.cross_entropy(scores, labels, **options)
    squares = scores[labels != options.get("ignore_index", -100)].logsumexp(-1).square()
    return loss + z_loss * (squares.sum() if options.get("reduction") == "sum" else squares.mean())


def losses(kind: str, labels: Tensor, **options: Any) -> tuple[Loss, Loss]:
    """By chunks and from all scores, as functions of x, w, b, R and T."""
    chunks = {name: options.pop(name) for name in ("chunk_size", "fused") if name in options}

    def by_chunks(x: Tensor, w: Tensor, *others: Tensor) -> Tensor:
        terms = terms_of(kind, x, w, *others)
        return chunked_cross_entropy(x, w, labels, terms, **options, **chunks)

    def by_scores(*given: Tensor) -> Tensor:
        return expected_loss(plain(kind, *given), labels, **options)

    return by_chunks, by_scores


def loss_and_gradients(loss: Loss, given: tuple[Tensor, ...]) -> list[Tensor]:
    value = loss(*given)
    gradients = torch.autograd.grad(value, given, allow_unused=True)
    return [value.detach(), *(g for g in gradients if g is not None)]


def assert_same(first: Loss, second: Loss, given: tuple[Tensor, ...]) -> None:
    got, expected = (loss_and_gradients(loss, given) for loss in (first, second))
    assert len(got) == len(expected)
    for a, b in zip(got, expected, strict=True):
        assert a.dtype == b.dtype
        torch.testing.assert_close(a, b, **TOLERANCE[a.dtype])


OPTIONS: list[dict[str, Any]] = [
    {},
    {"label_smoothing": 0.1},
    {"z_loss": 0.01, "reduction": "sum"},
    {"ignore_index": 3, "label_smoothing": 0.2, "z_loss": 1e-3},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@KINDS
def test_loss_and_gradients(kind: str, dtype: torch.dtype, options: dict[str, Any]) -> None:
    labels = labels_of(7, 11)
    if "ignore_index" in options:
        labels[labels < 0] = options["ignore_index"]
    assert_same(*losses(kind, labels, chunk_size=3, **options), inputs(dtype=dtype))


@KINDS
def test_gradcheck(kind: str) -> None:
    given = inputs(n=4, words=5, d=3)
    options = {"label_smoothing": 0.1, "z_loss": 0.02, "chunk_size": 3}
    by_chunks, _ = losses(kind, labels_of(4, 5), **options)
    assert torch.autograd.gradcheck(by_chunks, given)
    with pytest.raises(RuntimeError, match="no second derivatives"):
        torch.autograd.grad(by_chunks(*given), given[:1], create_graph=True)


@pytest.mark.parametrize("chunk_size", [1, 2, 7, 100, None])
def test_chunks_of_any_size(chunk_size: int | None) -> None:
    labels = labels_of(7, 11)
    whole, _ = losses("hyperplane", labels)
    chunked, _ = losses("hyperplane", labels, chunk_size=chunk_size)
    assert_same(chunked, whole, inputs(dtype=F32))


@pytest.mark.parametrize("items", [12, 12.0, torch.tensor(12), torch.tensor([12.0])])
def test_number_of_items(items: float | Tensor) -> None:
    x, w, *_ = inputs(dtype=F32)
    labels = labels_of(7, 11)
    got = chunked_cross_entropy(x, w, labels, num_items_in_batch=items)
    expected = F.cross_entropy(x @ w.mT, labels, reduction="sum") / 12
    torch.testing.assert_close(got.squeeze(), expected)
    torch.testing.assert_close(
        torch.autograd.grad(got, x), torch.autograd.grad(expected, x), rtol=1e-5, atol=1e-6
    )


@FUSED
@pytest.mark.parametrize("n", [0, 5])
def test_no_labels(n: int, fused: bool) -> None:
    """The mean of none is nan, as in torch, with gradients that are 0."""
    x, w, *_ = inputs(n=n, dtype=F32)
    labels = torch.full((n,), -100)
    for reduction in ("mean", "sum"):
        loss = chunked_cross_entropy(x, w, labels, reduction=reduction, fused=fused)
        expected = F.cross_entropy(x @ w.mT, labels, reduction=reduction)
        torch.testing.assert_close(loss, expected, equal_nan=True)
        assert not any(g.any() for g in torch.autograd.grad(loss, (x, w)))
    assert chunked_cross_entropy(x, w, labels, num_items_in_batch=3, fused=fused) == 0


@FUSED
@pytest.mark.parametrize("frozen", [(), (0,), (1,), (2, 3, 4), (0, 2), (0, 1, 2, 3, 4)], ids=str)
@KINDS
def test_frozen_inputs(kind: str, frozen: tuple[int, ...], fused: bool) -> None:
    given = inputs(dtype=F32)
    for i in frozen:
        given[i].requires_grad_(False)
    by_chunks, by_scores = losses(kind, labels_of(7, 11), chunk_size=4, fused=fused)
    got, expected = by_chunks(*given), by_scores(*given)
    torch.testing.assert_close(got, expected)
    assert got.requires_grad == expected.requires_grad
    leaves = [t for t in given if t.requires_grad]
    if leaves:
        for a, b in zip(
            *(torch.autograd.grad(s, leaves, allow_unused=True) for s in (got, expected)),
            strict=True,
        ):
            assert (a is None) == (b is None)
            if a is not None:
                torch.testing.assert_close(a, b, **TOLERANCE[F32])
    with torch.no_grad():
        assert not by_chunks(*given).requires_grad


def test_batches_and_strided_inputs() -> None:
    x, w, b, radius, temperature = inputs(n=12, dtype=F32)
    labels = labels_of(12, 11)
    expected = losses("hyperplane", labels)[0](x, w, b, radius, temperature)
    wide = torch.randn(2, 6, 10)
    wide[..., ::2] = x.detach().view(2, 6, 5)
    across = w.detach().mT.contiguous().mT
    many = torch.stack([labels, labels], -1).view(2, 6, 2)[..., 0]
    loss, _ = losses("hyperplane", many)
    torch.testing.assert_close(loss(wide[..., ::2], across, b, radius, temperature), expected)


def test_what_it_refuses() -> None:
    x, w, *_ = inputs(dtype=F32)
    labels = labels_of(7, 11)
    for wrong in (11, -1):
        labels[2] = wrong
        with pytest.raises(IndexError, match=rf"labels must be in \[0, 11\) or -100.*got {wrong}"):
            chunked_cross_entropy(x, w, labels)
    with pytest.raises(ValueError, match=r"reduction must be .*'none'"):
        chunked_cross_entropy(x, w, labels, reduction="none")
    with pytest.raises(ValueError, match=r"labels \(\.\.\.\), got shapes"):
        chunked_cross_entropy(x, w, labels[1:])


# --- precision ------------------------------------------------------------------------------------


@FUSED
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@KINDS
def test_autocast(kind: str, dtype: torch.dtype, fused: bool) -> None:
    """The loss is that of the rounded points; of the gradients, scores' are rounded once."""
    given = inputs(n=33, words=50, d=16, dtype=F32)
    labels = labels_of(33, 50)
    by_chunks, by_scores = losses(kind, labels, chunk_size=8, fused=fused)
    with torch.autocast("cpu", dtype=dtype):
        got = loss_and_gradients(by_chunks, given)
    rounded = tuple(t.detach().to(dtype).double().requires_grad_() for t in given[:2])
    others = tuple(t.detach().double().requires_grad_() for t in given[2:])
    expected = loss_and_gradients(by_scores, rounded + others)
    torch.testing.assert_close(got[0].double(), expected[0], rtol=1e-6, atol=1e-6)
    for a, b in zip(got[1:], expected[1:], strict=True):
        assert a.dtype == F32
        assert (a - b).norm() <= 2 * torch.finfo(dtype).eps * b.norm()


def test_half_precision_parameters() -> None:
    x, w, *_ = (t.detach().bfloat16().requires_grad_() for t in inputs(n=40, words=30, dtype=F32))
    labels = labels_of(40, 30)
    loss = chunked_cross_entropy(x, w, labels, chunk_size=7)
    assert loss.dtype == F32
    expected = F.cross_entropy(x.float() @ w.float().mT, labels)
    torch.testing.assert_close(loss, expected)
    for a, b in zip(
        *(torch.autograd.grad(s, (x, w)) for s in (loss, expected)),
        strict=True,
    ):
        assert a.dtype == torch.bfloat16
        torch.testing.assert_close(a, b, rtol=0.02, atol=1e-4)


# --- memory ---------------------------------------------------------------------------------------


@KINDS
def test_memory_does_not_hold_all_scores(kind: str) -> None:
    n, words, d, chunk = 600, 512, 8, 16
    given = inputs(n=n, words=words, d=d, dtype=F32)
    x, w, *_ = given
    terms = terms_of(kind, *given)
    labels = labels_of(n, words)
    settings = (kind, -100, 0.1, 0.01, F32, chunk, False)
    wanted = [t is not None for t in (x, w, terms.row, *terms.columns)]
    with LargestTensor() as largest, torch.no_grad():
        module._loss_and_gradients(x, w, labels, terms.row, *terms.columns, *settings, wanted)
    assert largest.elements == chunk * words
    with LargestTensor() as largest:
        chunked_cross_entropy(x, w, labels, terms, chunk_size=chunk).backward()
    assert largest.elements <= n * d  # of the gradients
    held = saved_bytes(
        lambda: chunked_cross_entropy(x, w, labels, chunk_size=chunk), besides=(x, w)
    )
    assert held <= 4 * (n * d + words * d) + 64


# --- compilers and checkpoints --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "fused"), [("linear", None), ("hyperplane", HAS_TRITON), ("distance", None)]
)
def test_compiles(kind: str, fused: bool | None) -> None:
    """One graph for any number of tokens, the same from the second call on."""
    _, w, *others = inputs(dtype=F32)
    used = [others[1], others[2] if kind == "distance" else others[0]]

    def loss(x: Tensor, labels: Tensor) -> Tensor:
        by_chunks, _ = losses(kind, labels, label_smoothing=0.1, chunk_size=5, fused=fused)
        return by_chunks(x, w, *others)

    torch._dynamo.reset()
    compiled = torch.compile(loss, fullgraph=True, dynamic=True)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for n in (7, 12):
            x = torch.randn(n, 5, requires_grad=True)
            labels = labels_of(n, 11)
            got, expected = (f(x, labels) for f in (compiled, loss))
            torch.testing.assert_close(got, expected)
            for a, b in zip(
                *(torch.autograd.grad(s, [x, w, *used]) for s in (got, expected)), strict=True
            ):
                torch.testing.assert_close(a, b, **TOLERANCE[F32])


def test_operator_is_registered_as_torch_expects() -> None:
    x, w, b, *_ = inputs(dtype=F32)
    terms = terms_of("linear", *inputs(dtype=F32))
    row = terms.row.detach().requires_grad_()
    wanted = [True, True, True, False, True, False, False]
    settings = ("linear", -100, 0.1, 0.01, F32, 3, None, wanted)
    torch.library.opcheck(
        torch.ops.beltrami.chunked_cross_entropy.default,
        (x, w, labels_of(7, 11), row, None, b, None, None, *settings),
    )


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints(reentrant: bool) -> None:
    given = inputs(dtype=F32)
    by_chunks, by_scores = losses("hyperplane", labels_of(7, 11), chunk_size=3)
    expected = loss_and_gradients(by_scores, given)
    checkpoint(by_chunks, *given, use_reentrant=reentrant).backward()
    gradients = [t.grad for t in given if t.grad is not None]
    for a, b in zip(gradients, expected[1:], strict=True):
        torch.testing.assert_close(a, b, **TOLERANCE[F32])
