"""Formats of the command line: JSON and YAML for `--output`, durations of flags."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from typing import Any

from stepset.errors import BadInputError
from stepset.printable import printable_json


def check_format(given: str, *known: str) -> None:
    """Raises BadInputError unless `given` is one of `known`."""
    if given not in known:
        raise BadInputError(f"--output: {given!r} is not known; use {', '.join(known[:-1])} or {known[-1]}")


def as_json(data: Any) -> str:
    """Returns plain data as printable, indented JSON; NaN and infinity become null (RFC 8259, section 6)."""
    return printable_json(json.dumps(_finite(data), indent=2, ensure_ascii=False, allow_nan=False)) + "\n"


def _finite(data: Any) -> Any:
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    return [_finite(value) for value in data] if isinstance(data, (list, tuple)) else data


def as_yaml(data: Mapping[str, Any]) -> str:
    """Returns plain data as YAML in its own order; any text in it reads back unchanged."""
    from stepset.targets.dump import to_yaml

    return to_yaml([data])


def time_before_now(flag: str, text: str) -> float:
    """Returns the time before now by a duration, in seconds since the epoch; BadInputError names the flag."""
    return time.time() - seconds_of(flag, text)


def seconds_of(flag: str, text: str) -> float:
    """Returns the seconds of a duration such as 90s or 10m; BadInputError names the flag."""
    from stepset.spec.quantity import parse_duration

    try:
        return float(parse_duration(text))
    except ValueError as error:
        raise BadInputError(f"{flag}: {error}") from error
