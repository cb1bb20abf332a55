"""Which features are represented, and what the others cost."""

from __future__ import annotations

import pytest
import torch

from beltrami.analysis.superposition import (
    expected_kappa,
    represented,
    unlearned_loss,
    welch_bound,
)


def rows(*lengths: float) -> torch.Tensor:
    """Rows of these lengths, in directions of their own."""
    g = torch.Generator().manual_seed(0)
    unit = torch.nn.functional.normalize(torch.randn(len(lengths), 6, generator=g).double(), dim=-1)
    return unit * torch.tensor(lengths, dtype=torch.float64)[:, None]


def test_the_share_above_a_half_and_above_one() -> None:
    w = rows(0.0, 0.2, 0.49, 0.51, 0.9, 1.1, 1.2, 0.3)
    assert represented(w).item() == 4 / 8
    assert represented(w, above=1).item() == 2 / 8
    assert represented(w).shape == ()


def test_a_stack_is_taken_one_by_one() -> None:
    a, b = rows(0.1, 0.9, 0.9), rows(0.1, 0.2, 0.9)
    stack = torch.stack([a, b, a, b]).reshape(2, 2, 3, 6)
    assert represented(stack).tolist() == [[2 / 3, 1 / 3], [2 / 3, 1 / 3]]
    p = torch.tensor([0.5, 0.25, 0.1])
    assert unlearned_loss(stack, p)[0].tolist() == pytest.approx(
        [unlearned_loss(a, p).item(), unlearned_loss(b, p).item()]
    )


def test_columns_of_zeros_change_nothing() -> None:
    """Models of different widths are stacked by padding them."""
    w = rows(0.1, 0.9, 1.2)
    padded = torch.nn.functional.pad(w, (0, 5))
    assert represented(padded) == represented(w)


def test_half_precision_counts_as_its_numbers_say() -> None:
    w = torch.tensor([[300.0, 400.0], [0.003, 0.004]], dtype=torch.float16)
    assert represented(w, above=499).item() == 0.5


def test_an_unlearned_feature_costs_its_variance() -> None:
    """x = u·v, u of probability p and v uniform in 0..2: drawn, not by the formula."""
    g = torch.Generator().manual_seed(1)
    p = torch.tensor([0.3, 0.05, 0.8], dtype=torch.float64)
    u = torch.rand(400_000, 3, generator=g, dtype=torch.float64) < p
    x = u * 2 * torch.rand(400_000, 3, generator=g, dtype=torch.float64)
    drawn = x.var(0)
    assert unlearned_loss(rows(0.1, 0.2, 0.9), p).item() == pytest.approx(
        float(drawn[:2].sum()), rel=0.01
    )
    assert unlearned_loss(rows(0.9, 0.9, 0.9), p).item() == 0
    assert unlearned_loss(rows(0.9, 0.9, 0.9), p, above=1).item() == pytest.approx(
        float(drawn.sum()), rel=0.01
    )


def test_bad_input() -> None:
    with pytest.raises(ValueError, match=r"rows \(..., n, m\)"):
        represented(torch.zeros(3))
    with pytest.raises(ValueError, match="at least one"):
        represented(torch.zeros(0, 3))
    with pytest.raises(ValueError, match="finite"):
        represented(torch.full((2, 2), torch.nan))
    with pytest.raises(ValueError, match="for each of 3 features"):
        unlearned_loss(rows(1, 1, 1), torch.ones(2))
    with pytest.raises(ValueError, match="from 0 to 1, got 0 to 2"):
        unlearned_loss(rows(1, 1, 1), torch.tensor([0.0, 1.0, 2.0]))


def test_known_frames() -> None:
    assert welch_bound(3, 2) == pytest.approx(1 / 4)  # 120° apart
    assert welch_bound(6, 3) == pytest.approx(1 / 5)  # diagonals of an icosahedron
    assert welch_bound(28, 7) == pytest.approx(1 / 9)
    assert welch_bound(7, 7) == welch_bound(2, 9) == 0
    assert welch_bound(10**9, 50) == pytest.approx(1 / 50, rel=1e-6)  # random directions


@pytest.mark.parametrize(("m", "kappa"), [(10, 0.0816), (25, 0.0369), (63, 0.0149), (100, 0.0090)])
def test_the_dashed_line_of_figure_6d(m: int, kappa: float) -> None:
    """n = 1000; Liu et al. 2025, figures digitised."""
    assert expected_kappa(1000, m) == pytest.approx(kappa, abs=6e-5)


def test_no_more_features_than_dimensions_do_not_overlap() -> None:
    assert expected_kappa(1000, 1) == expected_kappa(1000, 2) == expected_kappa(5, 8) == 0
    assert expected_kappa(1000, 100) == welch_bound(1000, 100)


def test_bad_numbers_of_directions() -> None:
    with pytest.raises(ValueError, match="n must be at least 2"):
        welch_bound(1, 3)
    with pytest.raises(TypeError, match="m must be an integer"):
        expected_kappa(10, 2.5)  # type: ignore[arg-type]
