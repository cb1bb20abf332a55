"""The frequencies of laws, by their names."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from beltrami.models.superposition.frequencies import empirical, exponential, linear, power_law
from beltrami.recipes.superposition.law_names import law_number


def frequencies(text: str, n: int) -> Tensor:
    """The probabilities of n features, one of them a sample on average."""
    kind, _, rest = text.partition(":")
    if kind == "linear":
        return linear(n)
    if kind == "counts":
        return empirical(_counts(Path(rest), n))
    number = law_number(text)
    found = power_law(n, number) if kind == "power" else exponential(n, number)
    if not float(found.min()) > 0:
        remedy = "a smaller exponent" if kind == "power" else "a larger scale"
        raise ValueError(
            f"--laws {text} falls below what numbers can hold within {n} features; give {remedy}, "
            "or fewer --features"
        )
    return found


def _counts(path: Path, n: int) -> Tensor:
    """The largest counts of a text file: the last number of each line that has one."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"--laws counts:{path}: cannot read it ({error})") from error
    found = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        last = line.replace(",", " ").replace("\t", " ").split()[-1]
        try:
            value = float(last)
        except ValueError:
            if number == 1:  # a head line
                continue
            raise ValueError(
                f"--laws counts:{path}: line {number} ends with {last!r:.40}, which is no count"
            ) from None
        if value > 0:
            found.append(value)
    if len(found) < n:
        raise ValueError(
            f"--laws counts:{path} has {len(found)} counts above 0, and --features asks for {n}"
        )
    return torch.tensor(sorted(found, reverse=True)[:n], dtype=torch.float64)
