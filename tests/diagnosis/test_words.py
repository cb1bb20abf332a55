"""Norms and frequencies."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from beltrami.data.atomic import to_json
from beltrami.diagnosis.config import DiagnoseConfig
from beltrami.diagnosis.source import VectorSource, open_source
from beltrami.diagnosis.words import fisher_interval, read_frequencies, words


def silent(share: float) -> None:
    assert 0 <= share <= 1


def source(tmp_path: Path, count: int = 200, step: float = 1.0) -> VectorSource:
    """Words whose norms fall with their number."""
    path = tmp_path / "v.csv"
    lines = [f"w{i},{1000 - step * i!r},0" for i in range(count)]
    path.write_text("\n".join(["word,a,b", *lines]), encoding="utf-8")
    found = open_source(DiagnoseConfig(str(path)))
    assert isinstance(found, VectorSource)
    return found


def counts(tmp_path: Path, values: list[float]) -> Path:
    path = tmp_path / "counts.csv"
    lines = [f"w{i},{v}" for i, v in enumerate(values)]
    path.write_text("\n".join(["word,count", *lines]), encoding="utf-8")
    return path


def test_norms_that_fall_with_frequency(tmp_path: Path) -> None:
    values = [float(round(1e6 / (i + 1))) for i in range(200)]
    found = words(source(tmp_path), counts(tmp_path, values), silent)
    assert found["words"] == 200
    assert found["spearman_of_norm_and_frequency"]["value"] == pytest.approx(1, abs=1e-3)
    bands = {b["from_log10"]: b for b in found["norm_by_frequency"]}
    assert bands[6]["words"] == 1
    assert bands[6]["mean_norm"] == 1000
    assert bands[5]["mean_norm"] == pytest.approx(np.mean([1000 - i for i in range(1, 10)]))
    assert sum(b["words"] for b in bands.values()) == 200
    assert found["power_law"]["count"] == 200


@pytest.mark.parametrize("step", [0.0, 1e-6], ids=["equal", "equal but for rounding"])
def test_norms_that_are_equal_have_no_correlation(tmp_path: Path, step: float) -> None:
    values = [float(round(1e6 / (i + 1))) for i in range(200)]
    found = words(source(tmp_path, step=step), counts(tmp_path, values), silent)
    assert found["spearman_of_norm_and_frequency"] == {"missing": "all norms are equal"}
    assert sum(band["words"] for band in found["norm_by_frequency"]) == 200
    assert found["power_law"]["count"] == 200
    to_json(found)


def test_counts_that_are_equal_have_no_correlation(tmp_path: Path) -> None:
    found = words(source(tmp_path), counts(tmp_path, [1.0] * 200), silent)
    assert found["spearman_of_norm_and_frequency"] == {"missing": "all counts are equal"}
    assert [band["words"] for band in found["norm_by_frequency"]] == [200]
    to_json(found)


def test_the_error_of_the_power_law_has_its_interval(tmp_path: Path) -> None:
    values = [float(round(1e6 / (i + 1))) for i in range(200)]
    law = words(source(tmp_path), counts(tmp_path, values), silent)["power_law"]
    assert law["half_width"] == pytest.approx(1.96 * law["error"])


def test_words_without_a_frequency_do_not_count(tmp_path: Path) -> None:
    found = words(source(tmp_path), counts(tmp_path, [5.0] * 20 + [7.0] * 20), silent)
    assert found["words"] == 40
    few = words(source(tmp_path), counts(tmp_path, [5.0, 6.0]), silent)
    assert few == {"missing": "only 2 rows have a frequency, and 30 are the least"}


def test_rows_that_are_no_words_say_so(tmp_path: Path) -> None:
    assert "--frequencies" in words(source(tmp_path), None, silent)["missing"]
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(50, 2)))
    bare = open_source(DiagnoseConfig(str(tmp_path / "x.npy")))
    assert isinstance(bare, VectorSource)
    with pytest.raises(ValueError, match="needs labels"):
        words(bare, counts(tmp_path, [1.0, 2.0]), silent)


def test_english_words_have_the_frequencies_of_wordfreq(tmp_path: Path) -> None:
    wordfreq = pytest.importorskip("wordfreq")
    vectors = source(tmp_path, 100)
    known = wordfreq.top_n_list("en", 60)
    vectors.words = [*known, None, *(["xqzzx"] * 39)]
    found = words(vectors, None, silent)
    assert found["words"] == 60
    assert found["spearman_of_norm_and_frequency"]["low"] > 0.9  # both fall with the rank


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("a,1\nb,x\n", r"line 2: expected label and count, got 'b,x'"),
        ("a,1\nb\n", "line 2"),
        ("a,-1\n", "-1.0 is not a count"),
        ("a,nan\n", "nan is not a count"),
        ("word,count\n", "no counts"),
        ("", "no counts"),
    ],
)
def test_files_of_frequencies_that_are_none(content: str, match: str, tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=match):
        read_frequencies(path)


def test_labels_may_be_quoted_and_separated_by_tabs(tmp_path: Path) -> None:
    path = tmp_path / "f.tsv"
    path.write_text('label\tcount\n"a ""b"""\t3\n', encoding="utf-8")
    assert read_frequencies(path) == {'a "b"': 3.0}


def test_the_interval_covers_the_correlation_of_normal_ranks() -> None:
    found = fisher_interval(0.5, 400)
    assert found["low"] is not None
    assert found["high"] is not None
    # 1.96·√(1 + 0.5²/2)·(1 − 0.5²)/√397 to either side, a little more to that of 0.
    assert 0.07 < found["high"] - 0.5 < 0.5 - found["low"] < 0.085
    assert fisher_interval(1.0, 400) == {"value": 1.0, "low": None, "high": None}
    assert fisher_interval(0.5, 3)["low"] is None
    assert fisher_interval(math.nan, 400)["value"] is None


def test_a_file_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_bytes(b"a,1\nb\xe9,2\n")
    with pytest.raises(ValueError, match=r"f\.csv, line 2: not UTF-8"):
        read_frequencies(path)
