"""Where an axis has its ticks, and how numbers are written on it.

An axis runs from its first tick to its last, so the ticks always cover the data.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from decimal import Decimal
from fractions import Fraction

MOST_TICKS = 8
FEWEST_TICKS = 3  # 0 is a multiple of every step, so data around it needs three
LIMIT = 1e150  # beyond this, and below 1/LIMIT on a log axis, a value is not drawn
FLAT = 1e-6  # data whose relative spread is smaller is drawn as a constant
PLAIN_BELOW, PLAIN_FROM = 1e6, 1e-4  # other numbers are written with a power of ten
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def can_show(value: float, *, log: bool = False) -> bool:
    """Whether an axis can hold this value."""
    return math.isfinite(value) and abs(value) <= LIMIT and (not log or value >= 1 / LIMIT)


def linear_ticks(low: float, high: float, most: int = MOST_TICKS) -> tuple[float, ...]:
    """Round numbers from at or below `low` to at or above `high`, evenly spaced, at most `most`.

    The step is 1, 2, 2.5 or 5 times a power of ten. A constant gets some room on either side.
    """
    _check(low, high, most, log=False)
    size = max(abs(low), abs(high))
    if high - low < max(FLAT * size, 1 / LIMIT):
        room = 0.1 * size if size > 1 / LIMIT else 1.0
        low, high = low - room, high + room
    # Fractions of the numbers as people write them: 0.1 is a multiple of a tenth, and every tick
    # is the float nearest to its round number.
    bottom, top = Fraction(repr(float(low))), Fraction(repr(float(high)))
    for step in round_steps((high - low) / 100, (1, 2, Fraction(5, 2), 5)):
        first, last = math.floor(bottom / step), math.ceil(top / step)
        if last - first < most:
            break
    return tuple(float(n * step) for n in range(first, last + 1))


def round_steps(least: float, mantissas: Sequence[Fraction | int]) -> Iterator[Fraction]:
    """Round numbers without end, ascending: mantissas times powers of ten, about from `least`."""
    for power in itertools.count(math.floor(math.log10(least))):
        for mantissa in mantissas:
            yield mantissa * Fraction(10) ** power


def log_ticks(low: float, high: float, most: int = MOST_TICKS) -> tuple[float, ...]:
    """Round positive numbers around `low` and `high` for a log axis, at most `most`.

    Evenly spaced over a short range; then 1, 2, 5 or 1, 3 times powers of ten; then powers alone.
    """
    _check(low, high, most, log=True)
    if high - low < FLAT * high:
        low, high = low / 2, high * 2
    if high < 3 * low:
        even = linear_ticks(low, high, most)
        if even[0] > 0:
            return even
    # The float 10**floor(log10(x)) may exceed x by rounding, hence the tests against the values.
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    first -= float(f"1e{first}") > low
    last += float(f"1e{last}") < high
    if last - first <= MOST_TICKS:
        for mantissas in ((1, 2, 5), (1, 3)):
            grid = [float(f"{m}e{e}") for e in range(first, last + 1) for m in mantissas]
            start = max(i for i, value in enumerate(grid) if value <= low)
            end = min(i for i, value in enumerate(grid) if value >= high)
            if end - start < most:
                return tuple(grid[start : end + 1])
    every = 1
    while math.ceil(last / every) - math.floor(first / every) >= most:
        every += 1
    powers = range(math.floor(first / every), math.ceil(last / every) + 1)
    return tuple(float(f"1e{n * every}") for n in powers)


def _check(low: float, high: float, most: int, *, log: bool) -> None:
    for name, value in (("low", low), ("high", high)):
        if not can_show(value, log=log):
            least = f"from {1 / LIMIT:g} " if log else ""
            raise ValueError(f"{name} must be a number {least}of size up to {LIMIT:g}, got {value}")
    if low > high:
        raise ValueError(f"low must not exceed high, got {low} and {high}")
    if most < FEWEST_TICKS:
        raise ValueError(f"most must be at least {FEWEST_TICKS}, got {most}")


def format_ticks(ticks: Sequence[float], *, log: bool = False) -> list[str]:
    """Ticks as texts: as many decimals as they need, the same for all unless the axis is log."""
    plain = all(t == 0 or PLAIN_FROM <= abs(t) < PLAIN_BELOW for t in ticks)
    if not plain:
        return [_power(Decimal(repr(t))) for t in ticks]
    needed = [_decimals(t) for t in ticks]
    most = max(needed, default=0)
    return [_fixed(t, n if log else most) for t, n in zip(ticks, needed, strict=True)]


def format_number(value: float, digits: int = 3) -> str:
    """A number with so many significant digits; whole numbers below a million in full."""
    if math.isnan(value):
        return "no value"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == 0 or (abs(value) < PLAIN_BELOW and value == int(value)):
        return _fixed(value, 0)
    rounded = Decimal(f"{value:.{digits - 1}e}")
    if not PLAIN_FROM <= abs(rounded) < PLAIN_BELOW:
        return _power(rounded)
    return _fixed(value, max(0, _places(value, digits)))


def format_estimate(mean: float, half_width: float | None) -> str:
    """A mean with its interval, for example "0.946 ± 0.004": digits as the interval allows."""
    if half_width is None or not math.isfinite(mean) or not math.isfinite(half_width):
        return format_number(mean)
    if half_width < 0:
        raise ValueError(f"half_width must not be negative, got {half_width}")
    sizes = [size for size in (abs(mean), half_width) if size > 0]
    if any(not PLAIN_FROM <= size < PLAIN_BELOW for size in sizes):
        return f"{format_number(mean)} ± {format_number(half_width, 1)}"
    if not half_width:
        return f"{format_number(mean)} ± 0"
    # One digit of the interval, two where it begins with 1; at least one digit of the mean.
    digits = 2 if f"{half_width:.0e}".startswith("1") else 1
    places = max(0, _places(half_width, digits), _places(mean, 1) if mean else 0)
    return f"{_fixed(mean, places)} ± {_fixed(half_width, places)}"


def format_interval(mean: float, low: float | None, high: float | None) -> str:
    """A mean with its interval, with ± where the mean is in the middle."""
    if low is None or high is None or not all(map(math.isfinite, (mean, low, high))):
        return format_number(mean)
    below, above = mean - low, high - mean
    if math.isclose(below, above, rel_tol=0.01, abs_tol=1e-12 * abs(mean)):
        return format_estimate(mean, abs(above))
    return f"{format_number(mean)} ({format_number(low)} to {format_number(high)})"


def _places(value: float, digits: int) -> int:
    """How many decimals show so many significant digits."""
    return digits - 1 - int(f"{abs(value):.{digits - 1}e}".split("e")[1])


def _decimals(value: float) -> int:
    exponent = Decimal(repr(value)).normalize().as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


def _fixed(value: float, decimals: int) -> str:
    rounded = round(value, decimals) + 0.0  # −0.0 + 0.0 is 0.0
    separator = "," if abs(rounded) >= 10_000 else ""
    return f"{rounded:{separator}.{decimals}f}".replace("-", "−")


def _power(value: Decimal) -> str:
    """For example "2.5×10⁻⁷", and "10⁶" where the factor is 1."""
    if value == 0:
        return "0"
    sign, digits, exponent = value.normalize().as_tuple()
    assert isinstance(exponent, int)
    written = "".join(map(str, digits))
    factor = written[0] + (f".{written[1:]}" if len(written) > 1 else "")
    power = "10" + str(exponent + len(written) - 1).translate(_SUPERSCRIPT)
    return ("−" if sign else "") + (power if factor == "1" else f"{factor}×{power}")
