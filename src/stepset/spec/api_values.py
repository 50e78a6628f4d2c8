"""Checks the parts of a job file that have the form of the Kubernetes API.

These parts are the affinity, the tolerations and the pod template.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator

from stepset.spec.base import validation_error
from stepset.spec.scalars import not_a_list, not_text, number, plain, shortened

# The fields of pods that contain strings or lists of strings (k8s.io/api v0.36 core/v1/types.go). The API server
# rejects numbers and booleans in these fields.
_TEXT_FIELDS = frozenset(
    {
        "args", "command", "effect", "image", "key", "mountPath", "operator", "path", "subPath", "topologyKey", "value",
        "values",
    }
)  # fmt: skip
_TEXT_MAPS = frozenset({"annotations", "labels", "matchLabels", "nodeSelector"})
"""The fields that contain mappings from strings to strings."""
_NUMBERS_IN = ("exitCodes", "onExitCodes")
"""The names of the fields in which `values` is a list of numbers instead of strings."""
_INT64 = range(-(1 << 63), 1 << 63)
"""The range of integers in the Kubernetes API (k8s.io/apimachinery v0.36 pkg/util/json/json.go)."""
_Place = tuple[str | int, ...]


def json_value(value: Any) -> Any:
    """Converts a part of a job file to JSON data. Each `Scalar` is replaced with `Scalar.value`.

    Raises:
        ValidationError: a value cannot be represented in JSON, exceeds 64 bits, or is a number in base 60, such as
            `12:30`. Also raised if a field that requires a string contains a value of another type, or if `command` or
            `args` is a string instead of a list.
    """
    if wrong := list(_problems(value, (), is_text=False)):
        raise validation_error(*wrong)
    return _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, (list, tuple)) else plain(value)


def _problems(value: Any, place: _Place, *, is_text: bool) -> Iterator[tuple[_Place, str]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key in ("command", "args") and isinstance(inner, str) and not is_text:
                yield (*place, str(key)), not_a_list(inner)
            yield from _problems(inner, (*place, str(key)), is_text=is_text or _holds_text(str(key), inner, place))
    elif isinstance(value, (list, tuple)):
        for index, inner in enumerate(value):
            yield from _problems(inner, (*place, index), is_text=is_text)
    elif not (value is None or isinstance(value, str)) and (wrong := _scalar_problem(value, is_text=is_text)):
        yield place, wrong


def _holds_text(key: str, value: Any, place: _Place) -> bool:
    if key in _TEXT_MAPS:
        return isinstance(value, Mapping)
    return key in _TEXT_FIELDS and not (key == "values" and place and place[-1] in _NUMBERS_IN)


def _scalar_problem(value: Any, *, is_text: bool) -> str:
    inner = plain(value)
    if is_text or isinstance(inner, datetime.date):
        return not_text(value)
    if not isinstance(inner, (int, float)):
        return f"{shortened(repr(inner))} is neither text, a number, a list nor a mapping; write one of these"
    if isinstance(inner, int) and inner not in _INT64:
        return f"{shortened(repr(value))} is beyond 64 bits; write a smaller number, or quote it"
    if isinstance(inner, float) and not math.isfinite(inner):
        return f"{value!r} is not a number of JSON; write a number, or quote it"
    # A number with ":" is read in base 60, and is rejected. Octal numbers are accepted, because file modes are often
    # octal.
    if ":" in str(value):
        try:
            number(value)
        except ValueError as error:
            return str(error)
    return ""


ApiMapping = Annotated[dict[str, Any], BeforeValidator(json_value)]
"""A mapping in the form of the Kubernetes API."""
