"""Kubernetes resource quantities and durations, as numbers."""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from functools import lru_cache
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from stepset.spec.scalars import number, plain

_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}  # powers of ten
_QUANTITY = re.compile(r"^([+-]?[0-9]+\.?[0-9]*|[+-]?\.[0-9]+)([eE][+-]?[0-9]+|Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E)?$")
_DURATION = re.compile(r"(?:([0-9]+)d)?(?:([0-9]+)h)?(?:([0-9]+)m)?(?:([0-9]+)s)?")
_SECONDS = re.compile(r"[0-9]+")
_MAX_SECONDS = 2**31 - 1  # most durations of Kubernetes have 32 bits
_MAX_CHARACTERS = 1000
_MIN_BYTES = 2**20
_MAX_QUANTITY = 2**63 - 1  # a Kubernetes quantity has 64 bits (k8s.io/apimachinery resource.Quantity)


@lru_cache(maxsize=256)  # a render reads each quantity of its job several times
def parse_quantity(text: str) -> Decimal:
    """Returns the number of a Kubernetes quantity such as `500m`, `4`, `16Gi` or `1e3`, else raises ValueError.

    Source: the grammar and the limits of k8s.io/apimachinery resource.Quantity.

    >>> parse_quantity("500m"), parse_quantity("2Ki")
    (Decimal('0.500'), Decimal('2048'))
    """
    if len(text) > _MAX_CHARACTERS:
        raise ValueError(f"{text[:20]}... has {len(text)} characters; a quantity has at most {_MAX_CHARACTERS}")
    match = _QUANTITY.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is not a Kubernetes quantity; write it like 4, 500m or 16Gi")
    number, suffix = match.group(1), match.group(2) or ""
    too_large = f"{text} is too large for a quantity; give {_MAX_QUANTITY} or less"
    try:
        exponent = f"e{_DECIMAL[suffix]}" if suffix in _DECIMAL else suffix
        amount = Decimal(number) * _BINARY[suffix] if suffix in _BINARY else Decimal(number + exponent)
    except InvalidOperation as error:  # an exponent beyond the range of Decimal
        raise ValueError(too_large) from error
    if amount > _MAX_QUANTITY:
        raise ValueError(too_large)
    return amount


def ceil_quantity(text: str) -> int:
    """Returns a quantity rounded up to a whole number, as `Quantity.Value()` does.

    >>> ceil_quantity("1500m")
    2
    """
    return int(parse_quantity(text).to_integral_value(rounding=ROUND_CEILING))


def read_quantity(value: Any) -> str:
    """Returns a quantity of a job file, a text or a number, as text; ValueError if it is negative."""
    amount = number(value)
    if isinstance(amount, bool) or not isinstance(amount, (str, int, float)):
        raise ValueError(f"{value!r} is not a quantity; write it like 4, 500m or 16Gi")
    text = str(amount).strip()
    if parse_quantity(text) < 0:
        raise ValueError(f"{text} is negative; give 0 or more")
    return text


def check_bytes(text: str) -> str:
    """Returns a quantity of bytes; ValueError if it is so small that its unit is missing or wrong, such as 16 or 16m.

    A container runtime refuses a memory limit below about 6 MiB.
    """
    amount = parse_quantity(text)
    if 0 < amount < _MIN_BYTES:
        number = text.rstrip("numkKi")
        raise ValueError(f"{text} is {_plural(amount)}; write {number}Gi or {number}Mi")
    return text


def _plural(amount: Decimal) -> str:
    return f"{amount.normalize():f} {'byte' if amount == 1 else 'bytes'}"


def parse_duration(value: Any) -> int:
    """Returns the seconds of a duration: whole seconds, or text such as `90s`, `1d12h`; else raises ValueError."""
    number_or_text = plain(value)
    if isinstance(number_or_text, bool):
        raise ValueError(f"{value} is not a duration; write it like 90s, 30m, 12h or 1d")
    if isinstance(number_or_text, int) and ":" not in str(value):  # 12:30 is 750 in YAML
        seconds = int(number(value))
    else:
        text = str(value).strip()
        match = _DURATION.fullmatch(text)
        if _SECONDS.fullmatch(text):
            seconds = int(text)
        elif match and text:
            days, hours, minutes, secs = (int(g or 0) for g in match.groups())
            seconds = ((days * 24 + hours) * 60 + minutes) * 60 + secs
        else:
            raise ValueError(f"{text!r} is not a duration; write it like 90s, 30m, 12h or 1d")
    if seconds <= 0:
        raise ValueError(f"{value} is not a positive duration; give at least 1s")
    if seconds > _MAX_SECONDS:
        raise ValueError(f"{value} is too long; give {_MAX_SECONDS}s (68 years) or less")
    return seconds


def format_duration(seconds: int) -> str:
    """The shortest text of a duration in whole seconds.

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
