"""Reads the durations that callers of the Python API give. Does not import the model of a job at the start."""

from __future__ import annotations

from datetime import timedelta


def argument_seconds(name: str, value: float | str | timedelta | None) -> float | None:
    """Converts an argument of the Python API to a number of seconds. Raises BadInputError if this is not possible.

    Args:
        name: the name of the argument.
        value: a number of seconds, a duration such as `10m`, a timedelta, or None for no limit.
    """
    if value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)):
        return value
    from stepset.spec.quantity import given_duration

    return given_duration(name, value)
