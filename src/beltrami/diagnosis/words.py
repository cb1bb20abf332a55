"""Norms against frequencies, and whether frequencies follow a power law."""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from beltrami.analysis.correlation import spearman
from beltrami.analysis.power_law import FEWEST_IN_TAIL, power_law_fit
from beltrami.data.delimited import read_records
from beltrami.diagnosis.numbers import finite, mean_of, plain
from beltrami.diagnosis.source import Tick, VectorSource

WORDFREQ = "wordfreq, English"
PER = 1e9  # words: Zipf's scale is the logarithm of occurrences in so many
FEWEST = 30  # words, below which no correlation is computed
HIGHEST_BAND = 7
DRAWS = 50  # samples for the p-value
Z975 = 1.96  # standard errors to either side that are a 95 % interval
_ROUNDING = 1e-6  # share of the largest norm by which norms that are equal may differ


def words(source: VectorSource, frequencies: Path | None, tick: Tick) -> dict[str, Any]:
    """Correlation of norm and frequency, norms by frequency, and the power law.

    Returns what is missing under "missing" where there is nothing to count, and so does the
    correlation where there is nothing to rank.
    """
    if frequencies is not None:
        if source.labels is None:
            raise ValueError(
                f"--frequencies {frequencies} needs labels, and {source.name} has none"
            )
        by_label = read_frequencies(frequencies)
        named, origin = [by_label.get(label) for label in source.labels], frequencies.name
    elif source.words is None:
        return {"missing": "the rows are not known to be words; --frequencies FILE names them"}
    else:
        try:
            named, origin = _wordfreq(source.words), WORDFREQ
        except ImportError:
            return {"missing": 'wordfreq is not installed: pip install "beltrami[words]"'}
    rows = [row for row, count in enumerate(named) if count]
    if len(rows) < FEWEST:
        return {"missing": f"only {len(rows)} rows have a frequency, and {FEWEST} are the least"}
    counts = torch.tensor([named[row] for row in rows], dtype=torch.float64)
    norms = source.norms[torch.tensor(rows)]
    result: dict[str, Any] = {
        "origin": origin,
        "words": len(rows),
        "spearman_of_norm_and_frequency": _correlation(norms, counts),
        "norm_by_frequency": _bands(counts, norms),
    }
    tick(0.2)
    whole = counts.round().long()
    whole = whole[whole > 0]
    if len(whole.unique()) > 1 and len(whole) >= FEWEST_IN_TAIL:
        fit = power_law_fit(whole, draws=DRAWS, tick=lambda share: tick(0.2 + 0.8 * share))
        result["power_law"] = {**plain(fit), "half_width": finite(Z975 * fit.error)}
    return result


def wordfreq_version() -> str:
    """Version of the word list, or "" where it is not installed."""
    try:
        return version("wordfreq")
    except PackageNotFoundError:
        return ""


def read_frequencies(path: Path) -> dict[str, float]:
    """Label and count of each line of a CSV or TSV file; a header is skipped."""
    frequencies: dict[str, float] = {}
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    for number, (line, fields) in enumerate(read_records(path, delimiter, error=ValueError)):
        where = f"--frequencies {path}, line {line}"
        try:
            label, count = fields[0], float(fields[1])
        except (IndexError, ValueError) as error:
            if number == 0:
                continue
            raise ValueError(
                f"{where}: expected label and count, got {delimiter.join(fields)!r}"
            ) from error
        if not 0 <= count < math.inf:
            raise ValueError(f"{where}: {count} is not a count")
        frequencies[label] = count
    if not frequencies:
        raise ValueError(f"--frequencies {path} has no counts")
    return frequencies


def _wordfreq(tokens: Any) -> list[float | None]:
    """Occurrences in a billion words; None for what is not a word, or unknown."""
    from wordfreq import get_frequency_dict

    known: Mapping[str, float] = get_frequency_dict("en", wordlist="best")
    return [None if t is None else known.get(t.lower(), 0.0) * PER or None for t in tokens]


def _correlation(norms: torch.Tensor, counts: torch.Tensor) -> dict[str, Any]:
    """Spearman's, unless one of both is constant: the ranks of rounding errors say nothing."""
    longest = float(norms.max())
    if longest - float(norms.min()) <= _ROUNDING * longest:
        return {"missing": "all norms are equal"}
    if len(counts.unique()) == 1:
        return {"missing": "all counts are equal"}
    return dict(fisher_interval(spearman(norms, counts), len(norms)))


def fisher_interval(correlation: float, n: int) -> dict[str, float | None]:
    """Spearman's correlation with a 95 % interval by Fisher's z (Bonett and Wright, 2000)."""
    if not abs(correlation) < 1 or n <= 3:
        return {"value": finite(correlation), "low": None, "high": None}
    z = math.atanh(correlation)
    off = Z975 * math.sqrt((1 + correlation**2 / 2) / (n - 3))
    return {"value": correlation, "low": math.tanh(z - off), "high": math.tanh(z + off)}


def _bands(counts: torch.Tensor, norms: torch.Tensor) -> list[dict[str, Any]]:
    """Mean norms by decade of frequency, the most frequent first."""
    decade = counts.log10().floor().clamp(max=HIGHEST_BAND)
    bands = []
    for power in sorted(set(decade.tolist()), reverse=True):
        in_band = norms[decade == power]
        mean = mean_of(in_band.tolist())
        bands.append(
            {
                "from_log10": int(power),
                "words": len(in_band),
                "mean_norm": mean["mean"],
                "half_width": mean["half_width"],
            }
        )
    return bands
