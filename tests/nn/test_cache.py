"""The key-value cache by itself; what decoding with it gives is in test_decoder."""

from __future__ import annotations

import pytest
import torch

import beltrami.nn as bnn


def rows(batch: int, length: int) -> torch.Tensor:
    return torch.randn(batch, length, 2, 3)


def test_holds_what_it_was_given_in_order() -> None:
    cache, parts = bnn.KVCache(), [(rows(2, n), rows(2, n)) for n in (3, 1, 1, 4, 2)]
    for keys, values in parts:
        all_keys, all_values = cache.update(keys, values)
    assert cache.length == 11
    assert torch.equal(all_keys, torch.cat([k for k, _ in parts], 1))
    assert torch.equal(all_values, torch.cat([v for _, v in parts], 1))


def test_crop_and_reorder() -> None:
    cache, keys = bnn.KVCache(), rows(3, 5)
    cache.update(keys, keys)
    cache.crop(2)
    cache.reorder(torch.tensor([2, 2, 0]))
    new = rows(3, 1)
    got, _ = cache.update(new, new)
    assert torch.equal(got, torch.cat([keys[[2, 2, 0], :2], new], 1))
    with pytest.raises(ValueError, match="cannot crop a cache of 3 tokens to 4"):
        cache.crop(4)
    with pytest.raises(TypeError, match="length must be an integer, got Tensor"):
        cache.crop(torch.tensor(1))  # type: ignore[arg-type]
    bnn.KVCache().reorder(torch.tensor([0]))  # nothing to reorder yet


def test_cropped_to_nothing_it_is_new() -> None:
    cache = bnn.KVCache()
    cache.update(rows(3, 5), rows(3, 5))
    cache.crop(0)
    keys, _ = cache.update(rows(2, 1).double(), rows(2, 1).double())
    assert keys.shape == (2, 1, 2, 3)
    assert keys.dtype == torch.float64


def test_inference_mode_and_no_grad_may_follow_each_other() -> None:
    cache, keys = bnn.KVCache(), rows(1, 2)
    with torch.inference_mode():
        cache.update(keys, keys)
        cache.update(keys, keys)
    with torch.no_grad():
        got, _ = cache.update(keys, keys)
    assert torch.equal(got, torch.cat([keys] * 3, 1))


def test_a_failed_update_leaves_it_as_it_was() -> None:
    cache = bnn.KVCache()
    cache.update(rows(2, 3), rows(2, 3))
    with pytest.raises(RuntimeError):
        cache.update(rows(2, 1), rows(2, 2))
    assert cache.length == 3


def test_what_does_not_fit_is_named() -> None:
    cache = bnn.KVCache()
    cache.update(rows(2, 3), rows(2, 3))
    with pytest.raises(ValueError, match="batch of 2, got 3"):
        cache.update(rows(3, 1), rows(3, 1))
    with pytest.raises(ValueError, match=r"\(2, 3\), got \(4, 3\)"):
        cache.update(torch.randn(2, 1, 4, 3), torch.randn(2, 1, 4, 3))
    with pytest.raises(RuntimeError, match=r"torch\.no_grad"):
        cache.update(rows(2, 1).requires_grad_(), rows(2, 1))
