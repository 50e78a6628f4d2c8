"""Calculates round values for the axis of a chart, and their labels. Contains only pure functions.

`page/static/ticks.js` of the Airflow provider implements the same rule. A test compares the two implementations.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import ceil, floor

_LEAST = 3
"""The minimum number of steps in a range. Successive step sizes differ by at most a factor of 2.5. Therefore a range
contains fewer than 7.5 steps."""
_ROUND = (1, 2, 5)
_SHORT = 8
"""The maximum number of characters of a label without an exponent."""


def ticks(low: float, high: float, *, whole: bool = False) -> list[float]:
    """Returns round values in a range, in ascending order.

    The values are the multiples of a step. The step is 1, 2 or 5 times a power of ten.

    Args:
        low, high: the finite ends of the range. `low` is below `high`.
        whole: whether the values must be whole numbers. A short range contains fewer than three whole numbers.

    Returns:
        3 to 8 values. There are fewer only if `whole` is True, or if the range contains too few floating-point numbers.

    >>> ticks(0.08, 2.28), ticks(0.1, 0.4), ticks(1, 60)
    ([0.5, 1.0, 1.5, 2.0], [0.1, 0.2, 0.3, 0.4], [10.0, 20.0, 30.0, 40.0, 50.0, 60.0])
    """
    first, last = _decimal(low), _decimal(high)
    if first >= last:
        return [low]
    for factor, exponent in _descending_steps(last - first):
        step = factor * Fraction(10) ** exponent
        if last - first >= _LEAST * step or (whole and exponent == 0 and factor == 1):
            numbers = range(ceil(first / step), floor(last / step) + 1)
            # The float is parsed from decimal digits, because the product of two floats can be 0.30000000000000004.
            return list(dict.fromkeys(float(f"{number * factor}e{exponent}") for number in numbers))
    raise AssertionError("a short enough step fits into every range")


def tick_label(value: float) -> str:
    """Returns a value of `ticks` as text with all its digits.

    >>> [tick_label(value) for value in (0.3, 60.0, -0.00012, 2e9, 1.5e-7)]
    ['0.3', '60', '-0.00012', '2e9', '1.5e-7']
    """
    plain = f"{value:.12f}".rstrip("0").rstrip(".")
    digits, _, exponent = f"{value:.11e}".partition("e")
    short = f"{digits.rstrip('0').rstrip('.')}e{int(exponent)}"
    return plain if value == 0 or (float(plain) == value and len(plain.lstrip("-")) <= _SHORT) else short


def _descending_steps(length: Fraction) -> Iterator[tuple[int, int]]:
    """Yields round steps in descending order. The first step is larger than `length`.

    Each step is a pair `(factor, exponent)`, which means `factor * 10**exponent`.
    """
    exponent = len(str(floor(length))) if length >= 1 else 1 - len(str(floor(1 / length)))
    while True:
        for factor in reversed(_ROUND):
            yield factor, exponent
        exponent -= 1


def _decimal(value: float) -> Fraction:
    """Returns the exact value of the shortest decimal representation of a float. For 0.3, this value is 3/10."""
    return Fraction(repr(float(value)))
