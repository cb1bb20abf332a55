from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from beltrami.data.vectors.numbers import check_real, float32_tensor, table_shape
from beltrami.data.vectors.table import VectorsError


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((), "x is a single number"),
        ((5,), r"x is a list of 5 numbers.*reshape\(1, -1\).*reshape\(-1, 1\)"),
        ((2, 3, 4), r"x has shape \(2, 3, 4\).*reshape\(-1, 4\)"),
        ((0, 4), r"x is empty: it has no rows \(shape 0 x 4\)"),
        ((4, 0), r"x is empty: it has no columns \(shape 4 x 0\)"),
    ],
)
def test_shapes_that_are_no_tables(shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(VectorsError, match=message):
        table_shape(shape, "x")


@pytest.mark.parametrize("dtype", ["complex64", "complex128", "object", "datetime64[s]"])
def test_types_that_are_no_real_numbers_are_named(dtype: str) -> None:
    with pytest.raises(VectorsError, match=f"x holds {np.dtype(dtype).name.split('[')[0]}"):
        check_real(np.dtype(dtype), "x")


def test_text_is_no_number() -> None:
    with pytest.raises(VectorsError, match=r"x holds str\d+, not real numbers; save it as float32"):
        check_real(np.array(["dog"]).dtype, "x")


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f4", ">f8", "i1", "u2", "i8", "u8", "?"])
def test_all_real_types_become_float32(dtype: str) -> None:
    check_real(np.dtype(dtype), "x")
    block = float32_tensor(np.array([[0, 1], [1, 0]], dtype=dtype), "x")
    assert block.dtype == torch.float32
    assert block.tolist() == [[0.0, 1.0], [1.0, 0.0]]


@pytest.mark.parametrize("make", [np.asarray, torch.tensor])
def test_what_float32_cannot_hold_names_the_row(make: Any) -> None:
    numbers = make(np.array([[1.0, 2.0], [3.0, -1e39]]))
    with pytest.raises(VectorsError, match=r"x, row 11: -1e\+39 is beyond float32.*scale"):
        float32_tensor(numbers, "x", first=10)


@pytest.mark.parametrize("make", [np.asarray, torch.tensor])
def test_nan_and_infinity_are_kept(make: Any) -> None:
    block = float32_tensor(make(np.array([[np.nan, np.inf, -np.inf, 1e-300]])), "x")
    expected = torch.tensor([[torch.nan, torch.inf, -torch.inf, 0.0]])
    torch.testing.assert_close(block, expected, equal_nan=True)
