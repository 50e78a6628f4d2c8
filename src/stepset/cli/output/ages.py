"""Lengths of time in tables, as kubectl writes them (k8s.io/apimachinery v0.36 pkg/util/duration). Pure."""

from __future__ import annotations

_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86_400, 31_536_000


def age(seconds: float) -> str:
    """Returns a length of time in one unit.

    >>> age(59.9), age(200), age(90_000), age(-1)
    ('59s', '3m', '1d', '0s')
    """
    whole = max(0, int(seconds))
    for unit, name in ((_YEAR, "y"), (_DAY, "d"), (_HOUR, "h"), (_MINUTE, "m")):
        if whole >= unit:
            return f"{whole // unit}{name}"
    return f"{whole}s"


def length(seconds: float) -> str:
    """Returns a length of time in at most two units; the longer it is, the less precise.

    >>> length(119), length(200), length(3720), length(5 * 3600 + 1200), length(200_000)
    ('119s', '3m20s', '62m', '5h20m', '2d7h')
    """
    whole = max(0, int(seconds))
    if whole < 2 * _MINUTE:
        return f"{whole}s"
    if whole < 10 * _MINUTE:
        return _two(whole, _MINUTE, "m", 1, "s")
    if whole < 3 * _HOUR:
        return f"{whole // _MINUTE}m"
    if whole < 8 * _HOUR:
        return _two(whole, _HOUR, "h", _MINUTE, "m")
    if whole < 2 * _DAY:
        return f"{whole // _HOUR}h"
    return _two(whole, _DAY, "d", _HOUR, "h") if whole < 8 * _DAY else age(whole)


def _two(whole: int, unit: int, name: str, smaller: int, smaller_name: str) -> str:
    rest = whole % unit // smaller
    return f"{whole // unit}{name}" + (f"{rest}{smaller_name}" if rest else "")
