from __future__ import annotations

import torch

from beltrami.analysis.saved_memory import saved_bytes


def test_what_a_product_keeps() -> None:
    a, b = (torch.randn(10, dtype=torch.float64, requires_grad=True) for _ in range(2))
    kept, out = saved_bytes(lambda: a * b)
    assert kept == 2 * 80
    torch.testing.assert_close(out, a * b)
    assert saved_bytes(lambda: a * b, besides=(a,))[0] == 80
    assert saved_bytes(lambda: (a * b).exp(), besides=(a, b))[0] == 80  # the result
    assert saved_bytes(lambda: a + b)[0] == 0


def test_a_storage_counts_once() -> None:
    a = torch.randn(8, requires_grad=True)
    assert saved_bytes(lambda: a * a)[0] == 32
