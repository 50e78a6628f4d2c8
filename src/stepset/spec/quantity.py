"""Converts Kubernetes resource quantities and durations to numbers."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from functools import lru_cache
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from stepset.errors import BadInputError
from stepset.spec.scalars import number, plain, shortened

_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
# Suffix of a decimal quantity -> the exponent of ten.
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_QUANTITY = re.compile(r"^([+-]?[0-9]+\.?[0-9]*|[+-]?\.[0-9]+)([eE][+-]?[0-9]+|Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E)?$")
_BYTES = re.compile(r"([0-9]+\.?[0-9]*) ?([kmgtp])(i?)b?", re.IGNORECASE)
"""A number of bytes in a spelling that Kubernetes does not accept, such as 8GB or 8g."""
_DURATION = re.compile(r"(?:([0-9]+)d)?(?:([0-9]+)h)?(?:([0-9]+)m)?(?:([0-9]+)s)?")
_SECONDS = re.compile(r"[0-9]+")
_MAX_SECONDS = 2**31 - 1  # most durations in the Kubernetes API are int32
_MAX_DIGITS = len(str(_MAX_SECONDS)) + 1
_MAX_CHARACTERS = 1000
_MIN_BYTES = 2**20
_MAX_QUANTITY = 2**63 - 1  # a Kubernetes quantity is an int64 (k8s.io/apimachinery resource.Quantity)


@lru_cache(maxsize=256)  # each render parses every quantity of the job several times
def parse_quantity(text: str) -> Decimal:
    """Converts a Kubernetes quantity, such as `500m`, `4`, `16Gi` or `1e3`, to a number.

    Raises ValueError if the string is not a quantity. The grammar and the limits are those of `resource.Quantity` in
    k8s.io/apimachinery.

    >>> parse_quantity("500m"), parse_quantity("2Ki")
    (Decimal('0.500'), Decimal('2048'))
    """
    if len(text) > _MAX_CHARACTERS:
        raise ValueError(f"{text[:20]}... has {len(text)} characters; a quantity has at most {_MAX_CHARACTERS}")
    match = _QUANTITY.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is not a Kubernetes quantity; write {_spelling(text)}")
    number, suffix = match.group(1), match.group(2) or ""
    too_large = f"{text} is too large for a quantity; give {_MAX_QUANTITY} or less"
    try:
        exponent = f"e{_DECIMAL[suffix]}" if suffix in _DECIMAL else suffix
        amount = Decimal(number) * _BINARY[suffix] if suffix in _BINARY else Decimal(number + exponent)
    except InvalidOperation as error:  # the exponent is outside the range of Decimal
        raise ValueError(too_large) from error
    if amount > _MAX_QUANTITY:
        raise ValueError(too_large)
    return amount


def _spelling(text: str) -> str:
    """Returns how to write an invalid quantity.

    >>> _spelling("8GB"), _spelling("8 gib"), _spelling("512kb"), _spelling("many")
    ('8G or 8Gi', '8Gi', '512k or 512Ki', 'it like 4, 500m or 16Gi')
    """
    if not (found := _BYTES.fullmatch(text)):
        return "it like 4, 500m or 16Gi"
    number, unit, binary = found[1], found[2].upper(), f"{found[1]}{found[2].upper()}i"
    return binary if found[3] else f"{number}{'k' if unit == 'K' else unit} or {binary}"


def ceil_quantity(text: str) -> int:
    """Converts a quantity to an integer. Fractions are rounded up, as in Kubernetes' `Quantity.Value()`.

    >>> ceil_quantity("1500m")
    2
    """
    return int(parse_quantity(text).to_integral_value(rounding=ROUND_CEILING))


def read_quantity(value: Any) -> str:
    """Converts a quantity of a job file to a string.

    Raises ValueError if the value is negative or is not a quantity.

    Args:
        value: a string or a number.
    """
    amount = number(value)
    if isinstance(amount, bool) or not isinstance(amount, (str, int, float)):
        raise ValueError(f"{value!r} is not a quantity; write it like 4, 500m or 16Gi")
    text = str(amount).strip()
    if parse_quantity(text) < 0:
        raise ValueError(f"{text} is negative; give 0 or more")
    return text


def check_bytes(text: str) -> str:
    """Returns `text`. Raises ValueError if this quantity is less than 1 MiB.

    A smaller quantity of bytes, such as 16 or 16m, probably lacks the unit or has a wrong unit.
    """
    amount = parse_quantity(text)
    if 0 < amount < _MIN_BYTES:
        number = text.rstrip("numkKi")
        raise ValueError(f"{text} is {_plural(amount)}; write {number}Gi or {number}Mi")
    return text


def _plural(amount: Decimal) -> str:
    return f"{amount.normalize():f} {'byte' if amount == 1 else 'bytes'}"


def parse_duration(value: Any) -> int:
    """Converts a duration to a number of seconds. Raises ValueError if the value is not a duration.

    Args:
        value: a whole number of seconds, a string such as `90s` or `1d12h`, or a timedelta of whole seconds.
    """
    if isinstance(value, timedelta):
        if value.microseconds:
            raise ValueError(f"{value} is not a whole number of seconds; give a timedelta of whole seconds")
        value = value // timedelta(seconds=1)
    number_or_text = plain(value)
    if isinstance(number_or_text, bool):
        raise ValueError(f"{value} is not a duration; write it like 90s, 30m, 12h or 1d")
    if isinstance(number_or_text, int) and ":" not in str(value):  # YAML reads 12:30 as 750
        seconds = int(number(value))
    else:
        text = str(value).strip()
        match = _DURATION.fullmatch(text)
        if _SECONDS.fullmatch(text):
            seconds = _whole(text)
        elif match and text:
            days, hours, minutes, secs = (_whole(g or "0") for g in match.groups())
            seconds = ((days * 24 + hours) * 60 + minutes) * 60 + secs
        else:
            raise ValueError(f"{shortened(text)!r} is not a duration; write it like 90s, 30m, 12h or 1d")
    if seconds <= 0:
        raise ValueError(f"{value} is not a positive duration; give at least 1s")
    if seconds > _MAX_SECONDS:
        raise ValueError(f"{shortened(str(value))} is too long; give {_MAX_SECONDS}s (68 years) or less")
    return seconds


def given_duration(name: str, value: Any) -> int:
    """Converts an argument or a flag to a number of seconds, like `parse_duration`. `name` is the argument or flag.

    Raises BadInputError if the value is not a duration.
    """
    try:
        return parse_duration(value)
    except ValueError as error:
        raise BadInputError(f"{name}: {error}") from error


def _whole(digits: str) -> int:
    """Converts digits to a number.

    If there are too many digits, the result is not exact, but is larger than any valid duration.
    """
    return int(digits.lstrip("0")[:_MAX_DIGITS] or "0")


def format_duration(seconds: int) -> str:
    """Formats a number of seconds as a duration. The result is the shortest string for this duration.

    >>> format_duration(43200), format_duration(5400), format_duration(90)
    ('12h', '1h30m', '1m30s')
    """
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


Quantity = Annotated[
    str, BeforeValidator(read_quantity), WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "number"}]})
]
Duration = Annotated[
    int,
    BeforeValidator(parse_duration),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "integer"}], "examples": ["30m", "12h"]}),
]


def rank_grace(period: int) -> int:
    """Returns the number of seconds between SIGTERM and SIGKILL of a rank.

    The agent needs the rest of the period, at most 10 s, to report the end of the ranks.

    Args:
        period: the termination grace period of the pod or of the local node, in seconds.

    >>> rank_grace(60), rank_grace(12), rank_grace(1)
    (50, 6, 1)
    """
    return max(1, period - 10, period // 2)
