"""Converts values from the training code into values that Airflow can store and send between processes.

The training code chooses the result, the names of the metrics and the error messages. This data may contain values that
Airflow cannot encode. If the result contained such a value, the task would fail although the run has succeeded. If the
event of a trigger contained such a value, the whole triggerer would terminate, because Airflow encodes events as
MessagePack (airflow 3.3 jobs/triggerer_job_runner.py, sync_state_to_supervisor).
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from stepset.surrogates import encodable
from stepset_airflow.airflow_internals import redact

if TYPE_CHECKING:
    from stepset.run_status import RunStatus

_INTEGERS = range(-(2**63), 2**64)
"""The integers that MessagePack can encode."""
_RESERVED = frozenset({"__classname__", "__data__", "__id__", "__type", "__var", "__version__"})
"""Keys that Airflow uses in its encoding of objects (airflow.sdk.serde, airflow.serialization.enums)."""


def transferable(value: Any) -> Any:
    """Converts `value` to JSON data that Airflow can send and store.

    - NaN and infinity become None, because databases reject NaN and infinity. Airflow does the same with XComs.
    - An integer that MessagePack cannot encode becomes a float. An integer that is too large for a float becomes a
      string.
    - Lone surrogates in strings become U+FFFD.
    - If Airflow reserves a key, the key gets an additional underscore as its first character.

    >>> transferable({"__type": [float("nan"), 2**64]})
    {'___type': [None, 1.8446744073709552e+19]}
    """
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int):
        return value if isinstance(value, bool) or value in _INTEGERS else _large(value)
    if isinstance(value, Mapping):
        return {_key(str(key)): transferable(each) for key, each in value.items()}
    return [transferable(each) for each in value] if isinstance(value, (list, tuple)) else value


def error_text(error: BaseException) -> str:
    """Returns the type and the message of an exception, without the secrets that Airflow masks in logs."""
    return str(masked(f"{type(error).__name__}: {error}"))


def masked_status(status: RunStatus) -> RunStatus:
    """Returns a copy of `status`, in which `masked` has replaced the secrets in the result and in the failure."""
    found = status.failure
    if found is None and status.result is None:  # all states of a run that has not ended
        return status
    failure = found and replace(
        found,
        message=redact(found.message),
        error=redact(found.error),
        frame=redact(found.frame),
        tail=tuple(map(redact, found.tail)),
    )
    return replace(status, result=masked(status.result), failure=failure)


def masked(value: Any) -> Any:
    """Replaces the secrets that Airflow masks in logs with `***` in all strings and keys of a JSON value.

    The masked secrets are the secrets that this process has read from Airflow, such as passwords of connections. The
    function masks no value because of its key. Airflow's `redact` masks every string whose key contains a word such as
    `token`, for example the value of `tokenizer`. Therefore the function passes each string to `redact` without the
    key.
    """
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        found: dict[str, Any] = {}
        for key, each in value.items():
            found[_unused(masked(str(key)), found)] = masked(each)
        return found
    return [masked(each) for each in value] if isinstance(value, (list, tuple)) else value


def _unused(key: str, found: Mapping[str, Any]) -> str:
    """Returns the key, with a number if two keys are equal after their secrets were replaced."""
    numbers = itertools.chain([key], (f"{key}_{number}" for number in itertools.count(2)))
    return next(each for each in numbers if each not in found)


def _large(value: int) -> float | str:
    return float(value) if abs(value) <= sys.float_info.max else str(value)


def _key(key: str) -> str:
    key = transferable(key)
    return f"_{key}" if key in _RESERVED else key
