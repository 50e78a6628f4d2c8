"""Quantities and durations, as Kubernetes and people write them."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepset.spec.quantity import ceil_quantity, format_duration, parse_duration, parse_quantity, read_quantity


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("4", "4"),
        ("0", "0"),
        ("-1", "-1"),
        ("+1", "1"),
        ("2.5", "2.5"),
        ("2.", "2"),
        (".5", "0.5"),
        ("500m", "0.5"),
        ("100u", "0.0001"),
        ("100n", "0.0000001"),
        ("1k", "1000"),
        ("1Ki", "1024"),
        ("16Gi", str(16 * 2**30)),
        ("1.5Gi", str(3 * 2**29)),
        ("1M", "1000000"),
        ("1E", str(10**18)),
        ("1Ei", str(2**60)),
        ("1e3", "1000"),
        ("1E3", "1000"),
        ("12e-1", "1.2"),
        ("9223372036854775807", str(2**63 - 1)),
    ],
)
def test_a_quantity_is_a_number_with_a_suffix(text: str, number: str) -> None:
    assert parse_quantity(text) == Decimal(number)


@pytest.mark.parametrize(
    "text",
    ["", ".", "m", "1 Gi", "1gi", "1KI", "1kb", "16GB", "1e", "1e1.5", "1,5", "0x10", "1_000", "4\n", "٤", "nan"],
)
def test_rejects_invalid_quantities(text: str) -> None:
    with pytest.raises(ValueError, match="is not a Kubernetes quantity; write "):
        parse_quantity(text)


@pytest.mark.parametrize(
    "text", ["9223372036854775808", "8Ei", "1e19", "1e999999999", "1e99999999999999999999", "9" * 99]
)
def test_a_quantity_above_the_range_of_kubernetes_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is too large for a quantity; give 9223372036854775807 or less"):
        parse_quantity(text)


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("100m", 1),
        ("500m", 1),
        ("0.7", 1),
        ("1", 1),
        ("1500m", 2),
        ("2.5", 3),
        ("3.7", 4),
        ("8", 8),
        ("0", 0),
        ("1n", 1),
    ],
)
def test_a_fraction_of_a_cpu_is_rounded_up(text: str, whole: int) -> None:
    assert ceil_quantity(text) == whole


def test_a_tiny_quantity_is_rounded_up() -> None:
    assert ceil_quantity("1e-999999999") == 1


@pytest.mark.parametrize(("value", "text"), [(4, "4"), (0.5, "0.5"), (" 16Gi ", "16Gi"), (0, "0"), (1e-7, "1e-07")])
def test_a_job_file_may_contain_a_bare_number(value: Any, text: str) -> None:
    assert read_quantity(value) == text
    assert parse_quantity(text) >= 0


@pytest.mark.parametrize("value", [True, None, [4], {"cpu": 4}, float("nan"), float("inf"), -1, "-1m"])
def test_rejects_invalid_amounts(value: Any) -> None:
    with pytest.raises(ValueError, match=r"quantity|negative"):
        read_quantity(value)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (90, 90),
        ("90", 90),
        ("90s", 90),
        ("30m", 1800),
        ("12h", 43200),
        ("1d", 86400),
        ("1d12h", 129600),
        ("1h30m", 5400),
        ("1d2h3m4s", 93784),
        (" 5m ", 300),
        ("0h90s", 90),
    ],
)
def test_a_duration_is_seconds_or_text(value: Any, seconds: int) -> None:
    assert parse_duration(value) == seconds


def test_a_duration_may_be_a_timedelta_of_whole_seconds() -> None:
    assert parse_duration(timedelta(days=1, hours=12)) == 129600
    with pytest.raises(ValueError, match=r"^0:00:01\.500000 is not a whole number of seconds; give"):
        parse_duration(timedelta(seconds=1.5))


@pytest.mark.parametrize(
    "value", ["", "1h30", "30m1h", "1.5h", "1w", "1 h", "1H", "-1h", "soon", "²", True, 1.5, None, []]
)
def test_rejects_invalid_durations(value: Any) -> None:
    with pytest.raises(ValueError, match="is not a duration; write it like 90s, 30m, 12h or 1d"):
        parse_duration(value)


@pytest.mark.parametrize("value", [0, -1, "0", "0s", "0d0h"])
def test_rejects_a_duration_of_zero(value: Any) -> None:
    with pytest.raises(ValueError, match="is not a positive duration; give at least 1s"):
        parse_duration(value)


@pytest.mark.parametrize("value", [2**31, "24856d", "9" * 30])
def test_rejects_durations_above_the_range_of_kubernetes(value: Any) -> None:
    assert parse_duration("2147483647s") == 2**31 - 1
    with pytest.raises(ValueError, match=r"is too long; give 2147483647s \(68 years\) or less"):
        parse_duration(value)


@given(st.integers(1, 10**9))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_a_duration_is_written_as_it_is_read(seconds: int) -> None:
    assert parse_duration(format_duration(seconds)) == seconds
