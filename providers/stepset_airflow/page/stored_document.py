"""Validates documents that were read from Airflow's database. Any task can write such documents.

A document is unreadable if it does not have the form that document.py creates. In this case, the page of the task
instance and the list of runs show that the data is unreadable. Other tasks are not affected.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, NotRequired, TypedDict

from msgspec import Meta, ValidationError, convert

from stepset.printable import printable_text
from stepset.unstructured import LATEST
from stepset_airflow.page.document import EXACT, LIMIT, VERSION

MAX_STORED_BYTES = 4 * LIMIT
"""Maximum size of a stored value in bytes. Larger values are not read.

The limit is larger than LIMIT, because some databases add spaces and escape sequences to stored JSON.
"""

Text = Annotated[str, Meta(max_length=LIMIT)]
Moment = Annotated[float, Meta(ge=0, lt=LATEST)]
Number = Annotated[float, Meta(ge=-1e308, le=1e308)]
Count = Annotated[int, Meta(ge=-1, le=2**31 - 1)]
Point = Annotated[list[Number | None], Meta(min_length=1, max_length=100)]


class StoredProgress(TypedDict):
    """The last progress that the run reported."""

    step: Annotated[int, Meta(ge=-EXACT, le=EXACT)] | None
    progress: Number | None


class StoredPhase(TypedDict):
    """A phase of the run. The timeline is a list of such phases."""

    at: Moment
    phase: Text
    reason: Text
    state: NotRequired[Text]
    attempt: Count


class StoredCurve(TypedDict):
    """The result of `Curve.to_dict`."""

    x: Text
    names: Annotated[list[Text], Meta(max_length=20)]
    points: Annotated[list[Point], Meta(max_length=1000)]
    stride: Annotated[int, Meta(ge=1, le=2**31)]


class StoredFailure(TypedDict):
    """The diagnosis of a failed run."""

    headline: Text
    rows: Annotated[list[tuple[Text, Annotated[list[Text], Meta(max_length=200)]]], Meta(max_length=20)]
    kind: Text
    rank: Count | None
    pod: Text


class StoredTrouble(TypedDict):
    """The problem that prevents the run from making progress."""

    summary: Text
    advice: Text
    event: NotRequired[Count | None]
    rows: NotRequired[Annotated[list[tuple[Text, Annotated[list[Text], Meta(max_length=200)]]], Meta(max_length=50)]]


class StoredEvent(TypedDict):
    """The result of `document.event_of`."""

    at: Moment
    level: Text
    kind: NotRequired[Text]
    text: Text
    time: NotRequired[Moment]


class Summary(TypedDict):
    """The result of `document.summary_of`."""

    run: Text
    job: Text
    backend: Text
    phase: Text
    reason: Text
    state: NotRequired[Text | None]
    attempt: Count
    world_size: Count | None
    created: Moment
    started: Moment | None
    finished: Moment | None
    updated: Moment
    progress: StoredProgress | None
    try_number: Count
    failure: Text


class Document(Summary):
    """The result of `document.document_of`."""

    version: int
    ranks_state: Text
    timeline: Annotated[list[StoredPhase], Meta(max_length=200)]
    curve: StoredCurve
    failure: StoredFailure | None  # type: ignore[misc]  # a summary has its headline only
    trouble: StoredTrouble | None
    events: Annotated[list[StoredEvent], Meta(max_length=200)]
    result: Text | None
    nodes: Annotated[list[Text], Meta(max_length=20_000)]
    ranks: Annotated[list[tuple[Text, Count | None, Text, Count, Text, Count, Text, Text]], Meta(max_length=20_000)]
    hidden: Count
    namespace: NotRequired[Text | None]
    target: NotRequired[Text | None]
    followed: NotRequired[bool]
    parameters: NotRequired[Annotated[list[tuple[Text, Text]], Meta(max_length=100)]]


def read_document(value: Any) -> dict[str, Any] | None:
    """Returns the document that a stored value contains, or None if the document is unreadable.

    Unknown fields and unprintable characters are removed from the returned document.
    """
    if not isinstance(value, Mapping) or value.get("version") != VERSION:
        return None
    return _read(value, Document)


def read_summary(value: Any) -> dict[str, Any] | None:
    """Returns the summary that a stored value contains, or None if the summary is unreadable. See `read_document`."""
    return _read(value, Summary)


def _read(value: Any, form: Any) -> dict[str, Any] | None:
    try:
        found = convert(value, form)
        if len(json.dumps(found, allow_nan=False)) > MAX_STORED_BYTES:
            return None
    except (ValidationError, ValueError, RecursionError):
        return None
    return _printable(found)  # type: ignore[no-any-return]  # a mapping, as `form` is


def _printable(data: Any) -> Any:
    if isinstance(data, str):
        return printable_text(data)
    if isinstance(data, dict):
        return {key: _printable(value) for key, value in data.items()}
    return [_printable(each) for each in data] if isinstance(data, (list, tuple)) else data
