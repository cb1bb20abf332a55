"""Lorentz attention against an explicit softmax of distances and the centroid of the geometry."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from beltrami.geometry import lorentz
from beltrami.kernels.layers.centroid_attention import (
    _filled,
    attend,
    causal_mask,
    centroid_attention,
)
from tests.kernels.checks import assert_compiles, gradients, leaf, saved_bytes


def explicit(
    q: Tensor, k: Tensor, v: Tensor, c: Tensor | float, scale: Tensor, mask: Tensor | None = None
) -> Tensor:
    groups = q.shape[2] // k.shape[2]
    k, v = (t.repeat_interleave(groups, 2).transpose(1, 2) for t in (k, v))  # (B, H, S, D)
    q = q.transpose(1, 2)
    chord = lorentz.chord_sq(q.unsqueeze(-2), k.unsqueeze(-3), c)  # (B, H, T, S)
    scores = -chord * (scale.unsqueeze(-1) / 2)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    weights = scores.softmax(-1)
    sets = v.unsqueeze(-3).expand(*weights.shape, v.shape[-1])
    return lorentz.centroid(sets, weights, c).transpose(1, 2)


def heads(
    length: int = 5, keys: int = 7, groups: int = 2, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor, Tensor]:
    return (
        leaf(2, length, 4, 6, dtype=dtype),
        leaf(2, keys, groups, 6, dtype=dtype),
        leaf(2, keys, groups, 6, dtype=dtype),
    )


SCALE = torch.tensor([[0.3], [0.5], [1.0], [2.0]], dtype=torch.float64)


@pytest.mark.parametrize("c", [1e-6, 0.1, 1.0, 10.0])
@pytest.mark.parametrize("causal", [False, True])
def test_is_softmax_of_distances_and_centroid(c: float, causal: bool) -> None:
    q, k, v = heads()
    got = centroid_attention(q, k, v, c=c, scale=SCALE, causal=causal)
    mask = causal_mask(5, 7, q.device) if causal else None
    torch.testing.assert_close(got, explicit(q, k, v, c, SCALE, mask), rtol=1e-8, atol=1e-9)


def test_causal_sees_the_right_keys() -> None:
    assert causal_mask(2, 4, torch.device("cpu")).tolist() == [
        [True, True, True, False],
        [True, True, True, True],
    ]


@pytest.mark.parametrize("causal", [False, True])
def test_gradients(causal: bool) -> None:
    q, k, v = heads(length=3, keys=4)
    c = torch.tensor([1.3], dtype=torch.float64, requires_grad=True)
    scale = SCALE.clone().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda q, k, v, c, s: centroid_attention(q, k, v, c=c, scale=s, causal=causal),
        (q, k, v, c, scale),
    )


def test_gradients_in_flat_space_and_of_the_switches() -> None:
    q, k, v = heads(length=3, keys=4)
    scale = SCALE.clone().requires_grad_()
    inputs = (q, k, v, scale)
    for c, score, aggregate in [
        (0.0, "distance", "mean"),
        (1.3, "dot", "centroid"),
        (1.3, "distance", "mean"),
        (1.3, "dot", "mean"),
    ]:
        assert torch.autograd.gradcheck(
            lambda q, k, v, s, c=c, score=score, aggregate=aggregate: centroid_attention(
                q, k, v, c=c, scale=s, score=score, aggregate=aggregate
            ),
            inputs,
        )


def test_flat_space_is_distance_attention() -> None:
    q, k, v = heads(groups=4)
    got = centroid_attention(q, k, v, c=0.0, scale=SCALE)
    distances = (q.transpose(1, 2).unsqueeze(-2) - k.transpose(1, 2).unsqueeze(-3)).square().sum(-1)
    weights = (-distances * SCALE.unsqueeze(-1) / 2).softmax(-1)
    torch.testing.assert_close(got, (weights @ v.transpose(1, 2)).transpose(1, 2))
    errors = [
        (centroid_attention(q, k, v, c=c, scale=SCALE) - got).norm() for c in (1e-2, 1e-4, 1e-6)
    ]
    assert errors[1] < 0.02 * errors[0]
    assert errors[2] < 0.02 * errors[1]


def test_dot_and_mean_are_plain_attention() -> None:
    q, k, v = heads(groups=4, dtype=torch.float32)
    got = centroid_attention(q, k, v, c=1.0, scale=0.4, score="dot", aggregate="mean")
    assert torch.equal(got, attend(q, k, v, scale=0.4))


def test_boosts_of_the_values_carry_the_output() -> None:
    q, k, v = heads()
    p = torch.randn(6, dtype=torch.float64)
    moved = centroid_attention(q, k, lorentz.boost(v, p, 0.7), c=0.7, scale=SCALE)
    expected = lorentz.boost(centroid_attention(q, k, v, c=0.7, scale=SCALE), p, 0.7)
    torch.testing.assert_close(moved, expected)


@pytest.mark.parametrize("radius", [2.0, 5.0, 8.0])
def test_the_error_of_scores_of_far_queries_and_keys(radius: float) -> None:
    """A few eps·|q||k|·2/σ, as the docstrings say; `chord_sq` is as good as its points."""
    middle = lorentz.exp0(torch.tensor([radius, 0.0, 0.0, 0.0], dtype=torch.float64))
    near = math.exp(-radius) * torch.randn(2, 1, 6, 1, 4, dtype=torch.float64)
    q, k = (lorentz.boost(v, middle).float() for v in near)
    sigma, v = 8.0, torch.eye(6)[None, :, None]
    options = {"c": 1.0, "scale": 2 / sigma, "aggregate": "mean"}
    weights = centroid_attention(q, k, v, **options).squeeze(2)
    chord = lorentz.chord_sq(q.double(), k.double().transpose(1, 2)).squeeze(0)
    error = (weights.double().log() - (-chord / sigma).log_softmax(-1)).abs().max()
    eps = torch.finfo(torch.float32).eps
    assert (
        error < 8 * eps * float(q.norm(dim=-1).max() * k.norm(dim=-1).max()) * 2 / sigma + 8 * eps
    )
    by_edge = lorentz.chord_sq(q, k.transpose(1, 2)).squeeze(0)
    assert (by_edge - chord).abs().max() < 1e-6


def test_a_common_boost_of_queries_and_keys_changes_nothing() -> None:
    q, k, v = heads()
    p = torch.randn(6, dtype=torch.float64)
    moved = centroid_attention(
        lorentz.boost(q, p, 0.7), lorentz.boost(k, p, 0.7), v, c=0.7, scale=SCALE
    )
    torch.testing.assert_close(moved, centroid_attention(q, k, v, c=0.7, scale=SCALE))


def test_masked_rows_are_the_origin_and_have_gradient_zero() -> None:
    q, k, v = heads(length=3, keys=4, dtype=torch.float32)
    mask = torch.ones(2, 1, 3, 4, dtype=torch.bool)
    mask[0, :, 1] = False  # a query that may look nowhere
    mask[1, :, :, 2] = False  # a key nobody may look at
    scale = SCALE.float()

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return centroid_attention(q, k, v, c=1.0, scale=scale, mask=mask)

    out = run(q, k, v)
    assert torch.equal(out[0, 1], torch.zeros(4, 6))
    gq, gk, gv = gradients(run, q, k, v)
    assert all(g.isfinite().all() for g in (gq, gk, gv))
    assert not gq[0, 1].any()
    assert not gk[1, 2].any()
    assert not gv[1, 2].any()
    keep = [0, 1, 3]
    shorter = centroid_attention(q[1:], k[1:, keep], v[1:, keep], c=1.0, scale=scale)
    torch.testing.assert_close(out[1:], shorter)


@pytest.mark.parametrize("length", [10.0, 100.0, 1000.0])
@pytest.mark.parametrize("weights", ["one-hot", "spread"])
def test_far_values_in_float32(length: float, weights: str) -> None:
    """The norm of the mean cancels; its floor keeps the result close and never past the values."""
    q = torch.zeros(1, 3, 1, 4)
    k = torch.zeros(1, 5, 1, 4)
    if weights == "one-hot":
        k[0, :, 0, 0] = torch.arange(5.0) * 30
        q[0, :, 0, 0] = torch.tensor([0.0, 30.0, 60.0])
    v = torch.nn.functional.normalize(torch.randn(1, 5, 1, 4), dim=-1) * length
    scale = torch.ones(1, 1)
    got = centroid_attention(q, k, v, c=1.0, scale=scale)
    exact = explicit(q.double(), k.double(), v.double(), 1.0, scale.double())
    tolerance = 1e-6 * max(1.0, length**2 * 0.3) if weights == "one-hot" else 1e-4
    assert (got - exact).norm() <= min(tolerance, 0.5) * exact.norm()
    v.requires_grad_()
    (gv,) = gradients(lambda v: centroid_attention(q, k, v, c=1.0, scale=scale), v)
    assert gv.isfinite().all()


def test_half_precision_carries_time_in_two_parts() -> None:
    q, k, v = (torch.randn(2, 16, 4, 24) for _ in range(3))
    half = [t.bfloat16().requires_grad_() for t in (q, k, v)]
    wide = [t.detach().double().requires_grad_() for t in half]
    scale = SCALE / 8

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return centroid_attention(q, k, v, c=1.0, scale=scale.to(torch.float32), causal=True)

    got, expected = run(*half), explicit(*wide, 1.0, scale, causal_mask(16, 16, q.device))
    assert got.dtype == torch.bfloat16
    # √c·|v| is about 5 here; the rounding of the mean grows with its square.
    assert (got - expected).norm() <= 0.02 * expected.norm()
    weights = gradients(run, *half)
    exact = gradients(lambda *a: explicit(*a, 1.0, scale, causal_mask(16, 16, q.device)), *wide)
    for g, e in zip(weights, exact, strict=True):
        assert (g - e).norm() <= 0.15 * e.norm()


def test_keeps_what_plain_attention_keeps() -> None:
    q, k, v = (leaf(2, 64, 4, 16, dtype=torch.float32) for _ in range(3))
    scale = SCALE.float().requires_grad_()
    plain = saved_bytes(lambda: attend(q, k, v, scale=0.3, causal=True))
    ours = saved_bytes(lambda: centroid_attention(q, k, v, c=1.0, scale=scale, causal=True))
    assert ours <= plain * 17 / 16 * 1.02


def test_odd_shapes_and_compile() -> None:
    for batch, length in [(0, 3), (1, 1), (2, 0)]:
        q, k, v = (leaf(batch, length, 2, 5) for _ in range(3))
        out = centroid_attention(q, k, v, c=1.0, scale=1.0)
        assert out.shape == (batch, length, 2, 5)
    q, k, v = heads(dtype=torch.float32)
    strided = centroid_attention(
        q.transpose(0, 1).contiguous().transpose(0, 1), k, v, c=1.0, scale=SCALE.float()
    )
    torch.testing.assert_close(strided, centroid_attention(q, k, v, c=1.0, scale=SCALE.float()))
    scale = SCALE.float().requires_grad_()
    assert_compiles(
        lambda q, k, v, s: centroid_attention(q, k, v, c=1.0, scale=s, causal=True), q, k, v, scale
    )


def test_flat_distance_stays_in_the_range_of_float16() -> None:
    """|k|² of keys beyond 362 does not fit float16; the nearest key is the query itself."""
    q = (200 * torch.randn(1, 3, 1, 8)).half()
    out = centroid_attention(q, q, q, c=0.0, scale=torch.full((1, 1), 0.5))
    torch.testing.assert_close(out, q)


# --- values of another width than keys ------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 3, 9, 14])
@pytest.mark.parametrize("form", ["full", "causal", "mask", "grouped"])
def test_values_of_another_width(width: int, form: str) -> None:
    q, k, _ = heads(groups=2 if form == "grouped" else 4)
    v = leaf(2, 7, k.shape[2], width)
    mask = torch.rand(2, 4, 5, 7) < 0.6 if form == "mask" else None
    if mask is not None:
        mask[..., 0] = True
    allowed = causal_mask(5, 7, q.device) if form == "causal" else mask
    c = torch.tensor([0.7], dtype=torch.float64, requires_grad=True)

    def run(q: Tensor, k: Tensor, v: Tensor, c: Tensor) -> Tensor:
        return centroid_attention(q, k, v, c=c, scale=SCALE, causal=form == "causal", mask=mask)

    def expected(q: Tensor, k: Tensor, v: Tensor, c: Tensor) -> Tensor:
        return explicit(q, k, v, c, SCALE, allowed)

    assert run(q, k, v, c).shape == (2, 5, 4, width)
    torch.testing.assert_close(run(q, k, v, c), expected(q, k, v, c), rtol=1e-9, atol=1e-9)
    for got, exact in zip(gradients(run, q, k, v, c), gradients(expected, q, k, v, c), strict=True):
        torch.testing.assert_close(got, exact, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("width", [3, 9])
@pytest.mark.parametrize(
    ("c", "score", "aggregate"),
    [(0.0, "distance", "mean"), (1.3, "dot", "centroid"), (1.3, "distance", "mean")],
)
def test_values_of_another_width_in_flat_space_and_with_the_switches(
    c: float, score: str, aggregate: str, width: int
) -> None:
    q, k, _ = heads(length=3, keys=4)
    v = leaf(2, 4, 2, width)

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return centroid_attention(q, k, v, c=c, scale=SCALE, score=score, aggregate=aggregate)

    # Of another width is as good as filled up with zeros, keys or values.
    size = max(6, width)
    filled = run(*(F.pad(t, (0, size - t.shape[-1])) for t in (q, k, v)))
    torch.testing.assert_close(run(q, k, v), filled[..., :width])
    assert not filled[..., width:].any()
    assert torch.autograd.gradcheck(run, (q, k, v))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", [13, 24, 40])
def test_values_of_another_width_in_lower_precision(width: int, dtype: torch.dtype) -> None:
    q, k = torch.randn(2, 16, 4, 24), torch.randn(2, 16, 2, 24)
    v = torch.randn(2, 16, 2, width)
    low = [t.to(dtype).requires_grad_() for t in (q, k, v)]
    exact = [t.detach().double().requires_grad_() for t in low]
    scale, causal = SCALE / 8, causal_mask(16, 16, q.device)

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return centroid_attention(q, k, v, c=1 / 24, scale=scale.float(), causal=True)

    def expected(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return explicit(q, k, v, 1 / 24, scale, causal)

    out, reference = run(*low), expected(*exact)
    assert out.dtype == dtype
    tolerance = 0.01 if dtype == torch.bfloat16 else 1e-6
    assert (out - reference).norm() <= tolerance * reference.norm()
    for g, e in zip(gradients(run, *low), gradients(expected, *exact), strict=True):
        assert (g - e).norm() <= 5 * tolerance * e.norm()


# --- times that the caller knows ------------------------------------------------------------------


def explicit_with_times(
    q: Tensor, k: Tensor, v: Tensor, tq: Tensor, tk: Tensor, tv: Tensor, c: Tensor
) -> Tensor:
    q, k, v, tq, tk, tv = (t.transpose(1, 2) for t in (q, k, v, tq, tk, tv))
    groups = q.shape[1] // k.shape[1]
    k, v, tk, tv = (t.repeat_interleave(groups, 1) for t in (k, v, tk, tv))
    weights = (SCALE.unsqueeze(-1) * (q @ k.mT - tq @ tk.mT)).softmax(-1)
    s, t = weights @ v, weights @ tv
    norm_sq = c * (t * t - (s * s).sum(-1, keepdim=True))
    assert (norm_sq >= 1).all()
    return (s / norm_sq.sqrt()).transpose(1, 2)


@pytest.mark.parametrize("width", [3, 6, 9])
def test_times_that_are_given_are_used(width: int) -> None:
    """Latent attention: q, k and v are parts of points whose times the caller knows."""
    q, k, _ = heads(length=3, keys=4)
    v = leaf(2, 4, 2, width)
    c = torch.tensor([0.7], dtype=torch.float64, requires_grad=True)
    times = [
        (1 / 0.7 + t.detach().square().sum(-1, keepdim=True) + torch.rand(*t.shape[:-1], 1)) ** 0.5
        for t in (q, k, v)
    ]
    times = [t.requires_grad_() for t in times]

    def run(*inputs: Tensor) -> Tensor:
        q, k, v, tq, tk, tv, c = inputs
        return centroid_attention(q, k, v, c=c, scale=SCALE, q_time=tq, k_time=tk, v_time=tv)

    inputs = (q, k, v, *times, c)
    torch.testing.assert_close(run(*inputs), explicit_with_times(*inputs))
    for got, exact in zip(
        gradients(run, *inputs), gradients(explicit_with_times, *inputs), strict=True
    ):
        torch.testing.assert_close(got, exact)
    assert torch.autograd.gradcheck(run, inputs)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("given", ["q", "k", "v", "qkv"])
def test_true_times_change_nothing(given: str, dtype: torch.dtype) -> None:
    q, k, v = heads(dtype=dtype)

    def run(q: Tensor, k: Tensor, v: Tensor, names: str) -> Tensor:
        named = {"q": q, "k": k, "v": v}
        times = {f"{n}_time": lorentz.time(named[n], 0.7, keepdim=True) for n in names}
        return centroid_attention(q, k, v, c=0.7, scale=SCALE.to(q.dtype), causal=True, **times)

    tolerance = {torch.float64: 1e-10, torch.float32: 1e-5, torch.bfloat16: 0.02}[dtype]
    out, expected = run(q, k, v, given), run(q, k, v, "")
    assert out.dtype == dtype
    assert (out - expected).norm() <= tolerance * expected.norm()
    with_times = gradients(lambda q, k, v: run(q, k, v, given), q, k, v)
    without = gradients(lambda q, k, v: run(q, k, v, ""), q, k, v)
    for got, exact in zip(with_times, without, strict=True):
        assert (got - exact).norm() <= 3 * tolerance * exact.norm()


def test_a_radius_serves_as_well_as_a_curvature() -> None:
    q, k, v = heads()
    c = torch.tensor([0.7], dtype=torch.float64, requires_grad=True)
    for radius, curvature in ((c**-0.5, c), (0.7**-0.5, 0.7), (math.inf, 0.0)):
        got = centroid_attention(q, k, v, radius=radius, scale=SCALE)
        assert torch.equal(got, centroid_attention(q, k, v, c=curvature, scale=SCALE))


def test_other_widths_and_times_compile() -> None:
    q, k, _ = heads(dtype=torch.float32)
    v = leaf(2, 7, 2, 9, dtype=torch.float32)
    time = lorentz.time(v.detach(), 0.7, keepdim=True).requires_grad_()
    assert_compiles(
        lambda q, k, v, t: centroid_attention(q, k, v, c=0.7, scale=0.5, causal=True, v_time=t),
        *(q, k, v, time),
    )


# --- heads fill their tile ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize(("size", "width"), [(60, 64), (124, 128)])
def test_heads_fill_their_tile(
    size: int, width: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The times of 60 coordinates bring them to 64 channels, in which no kernel wastes any."""
    stored: list[int] = []
    attention = F.scaled_dot_product_attention

    def spy(q: Tensor, k: Tensor, v: Tensor, **options: object) -> Tensor:
        stored.extend(t.shape[-1] for t in (q, k, v))
        return attention(q, k, v, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    q = torch.randn(1, 3, 2, size).to(dtype)
    out = centroid_attention(q, q, q, c=1 / size, scale=0.1)
    assert stored == [width] * 3
    assert out.shape == q.shape
    exact = explicit(*(q.double(),) * 3, 1 / size, torch.full((2, 1), 0.1, dtype=torch.float64))
    assert (out - exact).norm() <= 10 * torch.finfo(dtype).eps * exact.norm()


def test_heads_of_other_sizes_stay_small_on_a_cpu() -> None:
    """Channels that would have to be added in number cost more than they bring."""
    q = torch.randn(1, 3, 2, 16)
    assert [_filled(n, q) for n in (17, 29, 33, 61)] == [17, 32, 33, 64]
    assert [_filled(n, q.bfloat16()) for n in (17, 61, 63, 66)] == [24, 64, 64, 72]
    assert [_filled(n, q.double()) for n in (17, 61)] == [17, 61]


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "shape", "says"),
    [
        ("q", (3, 4, 6), r"q must have shape \(B, T, H, D\), got \(3, 4, 6\)"),
        ("k", (2, 5, 2, 7), r"k must have shape .* D=6 as q, got \(2, 5, 2, 7\)"),
        ("k", (3, 5, 2, 6), r"k must have shape .* B=2.*, got \(3, 5, 2, 6\)"),
        ("k", (2, 5, 3, 6), "k must have a number of heads that divides 4, got 3"),
        ("v", (2, 4, 2, 6), r"v must have shape .*, got \(2, 4, 2, 6\)"),
        ("v", (2, 5, 1, 6), r"v must have shape .*, got \(2, 5, 1, 6\)"),
        ("q_time", (2, 3, 4), r"q_time must have shape \(2, 3, 4, 1\), .* got \(2, 3, 4\)"),
        ("k_time", (2, 3, 4, 1), r"k_time must have shape \(2, 5, 2, 1\)"),
        ("v_time", (2, 5, 1, 1), r"v_time must have shape \(2, 5, 2, 1\)"),
    ],
)
def test_wrong_shapes_are_named(name: str, shape: tuple[int, ...], says: str) -> None:
    inputs = {"q": torch.zeros(2, 3, 4, 6), "k": torch.zeros(2, 5, 2, 6)}
    inputs["v"] = torch.zeros(2, 5, 2, 6)
    inputs[name] = torch.ones(shape)
    with pytest.raises(ValueError, match=says):
        centroid_attention(**inputs, c=1.0, scale=1.0)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("q_time", {"c": 1.0, "score": "dot"}),
        ("k_time", {"c": 0.0}),
        ("v_time", {"c": 1.0, "aggregate": "mean"}),
    ],
)
def test_times_that_nobody_reads_are_refused(name: str, options: dict[str, Any]) -> None:
    q = torch.zeros(1, 2, 1, 4)
    with pytest.raises(ValueError, match=f"{name} is for"):
        centroid_attention(q, q, q, scale=1.0, **options, **{name: torch.ones(1, 2, 1, 1)})


@pytest.mark.parametrize(("score", "aggregate"), [("cosine", "mean"), ("dot", "sum")])
def test_unknown_switches(score: str, aggregate: str) -> None:
    q = torch.randn(1, 2, 1, 4)
    with pytest.raises(ValueError, match=f"{score}.*{aggregate}"):
        centroid_attention(q, q, q, c=1.0, scale=1.0, score=score, aggregate=aggregate)


def test_compiles_for_any_length() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda q: centroid_attention(q, q, q, c=1.0, scale=0.5, causal=True),
        fullgraph=True,
        backend="aot_eager",
    )
    for length in (7, 9, 12, 5):
        q = torch.randn(2, length, 2, 8)
        expected = centroid_attention(q, q, q, c=1.0, scale=0.5, causal=True)
        torch.testing.assert_close(compiled(q), expected)
