"""No logit depends on a later token, on padding or on another document of its row."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.models.helm.variants import (
    WORDS,
    assert_near,
    config,
    every_variant,
    left_padded,
    logits,
    tokens,
    trained,
)

# transformers' own softmax, "eager", is of float32, whatever the scores are.
ROUNDING = {"sdpa": 1e-10, "eager": 1e-5}
both_backends = pytest.mark.parametrize("backend", ROUNDING)


def changed(ids: Tensor, position: int) -> Tensor:
    """The tokens with another one there."""
    ids = ids.clone()
    ids[:, position] = 3 + (ids[:, position] - 2) % (WORDS - 3)
    return ids


@both_backends
@every_variant
def test_no_logit_sees_a_later_token(variant: str, backend: str) -> None:
    model = trained(variant, attn_implementation=backend)
    ids = tokens(1, 8)
    rows = torch.cat([ids, *(changed(ids, t) for t in range(1, 8))])
    out = logits(model, rows)
    for t in range(1, 8):
        assert_near(out[t, :t], out[0, :t], 1e-10)
        assert (out[t, t] - out[0, t]).abs().max() > 1e-4  # but it sees its own


@both_backends
@every_variant
def test_left_padding_is_as_if_it_were_not_there(variant: str, backend: str) -> None:
    model = trained(variant, attn_implementation=backend)
    ids, mask, positions = left_padded(8, 5, 1)
    real = mask.bool()
    out = logits(model, ids, attention_mask=mask, position_ids=positions)
    assert out.isfinite().all()
    for row, n in enumerate((8, 5, 1)):
        assert_near(out[row, -n:], logits(model, ids[row : row + 1, -n:])[0], ROUNDING[backend])
    other = torch.where(real, ids, 7)
    again = logits(model, other, attention_mask=mask, position_ids=positions)
    assert_near(again[real], out[real], 1e-10)
    last = changed(ids, 7)
    after = logits(model, last, attention_mask=mask, position_ids=positions)
    real[:, 7] = False
    assert_near(after[real], out[real], 1e-10)


@both_backends
@every_variant
def test_packed_documents_do_not_see_each_other(variant: str, backend: str) -> None:
    model = trained(variant, attn_implementation=backend)
    documents = [tokens(1, n, seed=n) for n in (4, 1, 6)]
    packed = torch.cat(documents, 1)
    positions = torch.cat([torch.arange(d.shape[1]) for d in documents])[None]
    out = logits(model, packed, position_ids=positions, use_cache=False)
    alone = torch.cat([logits(model, d) for d in documents], 1)
    assert_near(out, alone, ROUNDING[backend])
    after = logits(model, changed(packed, 7), position_ids=positions, use_cache=False)
    assert_near(after[:, :7], out[:, :7], 1e-10)


@every_variant
def test_both_backends_agree(variant: str) -> None:
    model = trained(variant)
    assert model.config._attn_implementation == "sdpa"
    ids = tokens()
    out = logits(model, ids)
    model.set_attn_implementation("eager")
    assert_near(logits(model, ids), out, ROUNDING["eager"])


def test_the_default_is_all_on() -> None:
    default = config()
    fields = (
        "geometry", "residual", "learn_residual", "attention_score", "attention_aggregate",
        "time_columns", "embedding", "logits",
    )  # fmt: skip
    assert [getattr(default, name) for name in fields] == [
        "lorentz", "lorentz", True, "distance", "centroid", "outputs", "points", "mlr",
    ]  # fmt: skip
