"""The axes of charts have round values, whatever numbers a training reports."""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stepset.html.charts import line_chart
from stepset.html.ticks import tick_label, ticks
from tests.fuzzing import FUZZED

NUMBERS = st.floats(-1e300, 1e300)
ENDS = st.tuples(NUMBERS, NUMBERS) | st.tuples(st.floats(-1e4, 1e4), st.floats(-1e4, 1e4))
EVERYTHING = st.floats() | st.integers(-(10**400), 10**400)


def decimal(value: float) -> Fraction:
    """A float's shortest decimal text as a number."""
    return Fraction(repr(value))


@FUZZED
@given(ENDS)
def test_ticks_are_round_inside_the_range_and_at_equal_distances(ends: tuple[float, float]) -> None:
    low, high = sorted(ends)
    assume(high - low > 1e-9 * max(abs(low), abs(high)) and high - low > 1e-300)
    found = ticks(low, high)
    assert 3 <= len(found) <= 8
    assert low <= found[0] and found[-1] <= high
    (step,) = {decimal(after) - decimal(before) for before, after in pairwise(found)}
    digits = f"{float(step):.12e}".partition("e")[0].rstrip("0").rstrip(".")
    assert digits in ("1", "2", "5")
    for tick in found:
        assert (decimal(tick) / step).denominator == 1, "no noise as in 0.30000000000000004"


@FUZZED
@given(st.integers(-(10**12), 10**12), st.integers(1, 10**9))
def test_ticks_of_whole_numbers_are_whole(low: int, length: int) -> None:
    found = ticks(low, low + length, whole=True)
    assert 2 <= len(found) <= 8
    assert all(tick.is_integer() and low <= tick <= low + length for tick in found)


def test_ticks_of_known_ranges() -> None:
    assert ticks(0.1, 0.4) == [0.1, 0.2, 0.3, 0.4]
    assert ticks(-1, 1) == [-1.0, -0.5, 0.0, 0.5, 1.0]
    assert ticks(1, 3, whole=True) == [1.0, 2.0, 3.0]
    assert ticks(5, 5) == [5]


@FUZZED
@given(ENDS)
def test_labels_of_ticks_are_short_and_have_all_digits(ends: tuple[float, float]) -> None:
    low, high = sorted(ends)
    assume(high - low > 1e-6 * max(abs(low), abs(high)) and high - low > 1e-300)
    for tick in ticks(low, high):
        label = tick_label(tick)
        assert float(label) == tick and len(label) <= 14


@FUZZED
@given(st.lists(st.tuples(EVERYTHING, EVERYTHING), max_size=8))
def test_all_points_and_ticks_are_inside_the_chart(points: list[tuple[float, float]]) -> None:
    chart = line_chart(points, "loss")
    pairs = [pair.split(",") for curve in re.findall(r'points="([^"]*)"', chart) for pair in curve.split()]
    places = [*re.findall(r'\bc?x[12]?="([^"]*)"', chart), *(x for x, _ in pairs)]
    heights = [*re.findall(r'\bc?y[12]?="([^"]*)"', chart), *(y for _, y in pairs)]
    assert all(0 <= float(x) <= 720 for x in places)
    assert all(0 <= float(y) <= 240 for y in heights)


@pytest.mark.parametrize("step", [5, 10**9, 10**18])
def test_reports_at_one_step_are_a_chart(step: int) -> None:
    assert "<polyline" in line_chart([(step, 1.0), (step, 2.0)], "loss")
