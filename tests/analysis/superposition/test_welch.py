"""The least that directions must overlap."""

from __future__ import annotations

import pytest

from beltrami.analysis.superposition import expected_kappa, welch_bound


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


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="n must be at least 2"):
        welch_bound(1, 3)
    with pytest.raises(TypeError, match="m must be an integer"):
        expected_kappa(10, 2.5)  # type: ignore[arg-type]
