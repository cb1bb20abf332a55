"""The loss, with logits and by chunks without them, against torch's own cross-entropy."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from beltrami.models.helm import HelmForCausalLM
from tests.models.helm.variants import assert_near, every_variant, some_variants, tokens, trained

# Of the scores of words, one variant each.
heads = pytest.mark.parametrize(
    "variant", ["default", "tied", "distance", "linear", "linear-time", "flat-embedding", "flat"]
)
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "smoothing": {"label_smoothing": 0.1},
    "z-loss": {"z_loss": 0.01},
    "all": {"label_smoothing": 0.1, "z_loss": 0.01},
}


def labels_of(ids: Tensor) -> Tensor:
    labels = ids.clone()
    labels[0, :4] = labels[1, -1] = -100
    return labels


def loss_and_gradients(
    model: HelmForCausalLM, **given: Any
) -> tuple[Tensor, dict[str, Tensor], Any]:
    model.zero_grad()
    out = model(**given)
    out.loss.backward()
    return out.loss.detach(), {n: p.grad.clone() for n, p in model.named_parameters()}, out


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@heads
def test_the_fused_loss_is_the_plain_one(variant: str, options: dict[str, Any]) -> None:
    ids = tokens()
    ways: dict[str, dict[str, Any]] = {
        "labels": {"labels": labels_of(ids)},
        "shifted": {"shift_labels": labels_of(ids).roll(-1, 1)},
        "counted": {"labels": labels_of(ids), "num_items_in_batch": torch.tensor(37)},
        "ignored": {"labels": ids, "ignore_index": int(ids[0, 3])},
    }
    plain, fused = (trained(variant, fused_loss=f, **options) for f in (False, True))
    fused.load_state_dict(plain.state_dict())
    for given in ways.values():
        a, by_a, out = loss_and_gradients(plain, input_ids=ids, **given)
        b, by_b, fused_out = loss_and_gradients(fused, input_ids=ids, **given)
        assert out.logits is not None
        assert fused_out.logits is None
        assert_near(a, b, 1e-10)
        for name, g in by_a.items():
            assert_near(by_b[name], g, 1e-10 * (1 + g.abs().max().item()))
    assert fused(ids).logits is not None  # without labels there is no loss


@every_variant
def test_the_loss_is_that_of_the_next_token(variant: str) -> None:
    model, ids = trained(variant), tokens()
    labels = labels_of(ids)
    out = model(ids, labels=labels)
    flat = out.logits[:, :-1].flatten(0, 1)
    expected = F.cross_entropy(flat, labels[:, 1:].flatten())
    assert_near(out.loss, expected, 1e-12)
    counted = model(ids, labels=labels, num_items_in_batch=5).loss
    assert_near(counted * 5 / (labels[:, 1:] != -100).sum(), expected, 1e-12)
    fused = trained(variant, fused_loss=True)
    assert_near(fused(ids, labels=labels).loss, expected, 1e-10)


def test_the_parts_of_the_loss() -> None:
    model, ids = trained(label_smoothing=0.2, z_loss=0.3), tokens()
    out = model(ids, labels=ids)
    scores, words = out.logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()
    expected = F.cross_entropy(scores, words, label_smoothing=0.2)
    expected = expected + 0.3 * scores.logsumexp(-1).square().mean()
    assert_near(out.loss, expected, 1e-12)


@some_variants
def test_a_loss_under_autocast(variant: str) -> None:
    """The fused one is float32, and near that of float32."""
    model = trained(variant, fused_loss=True).float()
    ids = tokens()
    exact = model(ids, labels=ids).loss
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(ids, labels=ids).loss
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, exact, rtol=0.03, atol=0)


def test_logits_to_keep_go_with_their_labels() -> None:
    """Of the last tokens, by labels that are shifted already."""
    ids = tokens()
    shifted = ids.roll(-1, 1)
    shifted[:, :-3] = -100
    model = trained(fused_loss=True)
    whole = model(ids, shift_labels=shifted).loss
    part = model(ids, shift_labels=shifted[:, -3:], logits_to_keep=3).loss
    assert_near(part, whole, 1e-10)


def test_labels_in_a_batch_without_any() -> None:
    ids = tokens()
    for fused in (False, True):
        model = trained(fused_loss=fused)
        loss = model(ids, labels=torch.full_like(ids, -100), num_items_in_batch=4).loss
        assert loss == 0


def test_labels_beyond_the_vocabulary() -> None:
    model, ids = trained(fused_loss=True), tokens()
    with pytest.raises(IndexError, match="40"):
        model(ids, labels=ids + 40)
