"""Validates leases that were read from Airflow's database.

Leases are untrusted, because any task of the DAG can write a lease. A lease is invalid if it does not have the form
that log_lease.py creates.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, NotRequired, TypedDict

from msgspec import Meta, ValidationError, convert

_TEXT = 4096
_MOST = 100_000
"""Maximum number of entries of a list or a mapping. No run has so many pods or notes."""

Text = Annotated[str, Meta(max_length=_TEXT)]
Count = Annotated[int, Meta(ge=0, le=2**53)]
Stamp = Annotated[str, Meta(pattern=r"\A(?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}(?:Z|[+-]\d\d:\d\d))?\Z")]
Texts = Annotated[list[Text], Meta(max_length=_MOST)]


class ReportedProgress(TypedDict):
    """The fields of a `stepset.run_status.Progress`."""

    step: int | None
    progress: float | None
    metrics: Annotated[dict[Text, float], Meta(max_length=_MOST)]


class ReportedHang(TypedDict):
    """The hang that a `Presenter` has presented last."""

    place: Text
    silent: Annotated[float, Meta(ge=0, le=1e12)]


class Reported(TypedDict, total=False):
    """The result of `Presenter.presented`."""

    phase: Text
    notes: Texts
    progress: ReportedProgress | None
    waiting: Texts
    position: Count | None
    hang: ReportedHang | None
    omitted: Count


class Cursor(TypedDict):
    """The result of `LogCursor.to_dict`."""

    last: Stamp
    equal: Count
    latest: Stamp
    open: Count | None


class Position(TypedDict, total=False):
    """The result of `TaskObserver.position`."""

    reported: Reported
    printed: Annotated[dict[Text, Cursor], Meta(max_length=_MOST)]
    at: Text


class Lease(TypedDict):
    """The value that `LogLease` stores."""

    trigger: int
    by: Text
    position: NotRequired[Position]


def read_lease(value: Any, trigger_id: Any) -> Mapping[str, Any]:
    """Returns the lease that a stored value contains.

    Returns an empty mapping if the value is None or belongs to another deferral.

    Raises ValueError if the value is not a lease.
    """
    if value is None or (isinstance(value, Mapping) and value.get("trigger") != trigger_id):
        return {}
    try:
        lease: Lease = convert(value, Lease)
        _check_times(lease.get("position", {}))
    except (ValidationError, ValueError, OverflowError, RecursionError) as error:
        raise ValueError(f"it is not a position in a log: {str(error)[:200]}") from error
    return lease


def _check_times(position: Position) -> None:
    """Raises ValueError or OverflowError if the position contains an invalid time."""
    from stepset.watch.log_cursor import LogCursor, second_of

    if (at := position.get("at")) and datetime.fromisoformat(at).tzinfo is None:
        raise ValueError("a time without a zone")
    for cursor in position.get("printed", {}).values():
        _ = LogCursor.from_dict(cursor).since
        if cursor["latest"]:
            second_of(cursor["latest"].encode())
