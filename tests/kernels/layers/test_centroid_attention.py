"""Lorentz attention against an explicit softmax of distances and the centroid of the geometry."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from beltrami.geometry import lorentz
from beltrami.kernels.layers.centroid_attention import attend, causal_mask, centroid_attention
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
