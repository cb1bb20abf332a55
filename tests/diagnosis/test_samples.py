"""Which points are compared."""

from __future__ import annotations

from beltrami.diagnosis.source import sample_rows


def test_large_data_give_samples_that_share_nothing() -> None:
    found = [rows.tolist() for rows in sample_rows(1000, 50, 4, 0)]
    assert [len(rows) for rows in found] == [50] * 4
    assert len({row for rows in found for row in rows}) == 200


def test_small_data_are_taken_whole_each_time_from_another_point() -> None:
    found = [rows.tolist() for rows in sample_rows(30, 50, 4, 0)]
    assert all(sorted(rows) == list(range(30)) for rows in found)
    assert len({rows[0] for rows in found}) > 1


def test_samples_depend_on_the_seed_alone() -> None:
    first, again, other = ([r.tolist() for r in sample_rows(99, 40, 3, seed)] for seed in (1, 1, 2))
    assert first == again
    assert first != other
