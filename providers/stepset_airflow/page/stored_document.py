"""Reads documents from Airflow's database, where any task of a DAG may have written them.

A document that is not of the form that document.py creates is unreadable as a whole. The page and the list then show
that the task's document is unreadable; other tasks are not affected.
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
"""Maximum bytes of a stored value that is read. Some databases add spaces and escapes, so this exceeds LIMIT."""

Text = Annotated[str, Meta(max_length=LIMIT)]
Moment = Annotated[float, Meta(ge=0, le=LATEST)]
Number = Annotated[float, Meta(ge=-1e308, le=1e308)]
Count = Annotated[int, Meta(ge=-1, le=2**31 - 1)]
Point = Annotated[list[Number | None], Meta(min_length=1, max_length=100)]


class Progress(TypedDict):
    """The last progress of the training."""

    step: Annotated[int, Meta(ge=-EXACT, le=EXACT)] | None
    progress: Number | None


class Phase(TypedDict):
    """An entry of the timeline."""

    at: Moment
    phase: Text
    reason: Text
    state: NotRequired[Text]
    attempt: Count


class Curve(TypedDict):
    """The result of `Curve.to_dict`."""

    x: Text
    names: Annotated[list[Text], Meta(max_length=20)]
    points: Annotated[list[Point], Meta(max_length=1000)]
    stride: Annotated[int, Meta(ge=1, le=2**31)]


class Failure(TypedDict):
    """The diagnosis."""

    headline: Text
    rows: Annotated[list[tuple[Text, Annotated[list[Text], Meta(max_length=200)]]], Meta(max_length=20)]
    kind: Text
    rank: Count | None
    pod: Text


class Trouble(TypedDict):
    """What keeps the run from making progress."""

    summary: Text
    advice: Text


class Event(TypedDict):
    """The result of `document.event_of`."""

    at: Moment
    level: Text
    text: Text


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
    progress: Progress | None
    try_number: Count
    failure: Text


class Document(Summary):
    """The result of `document.document_of`."""

    version: int
    ranks_state: Text
    timeline: Annotated[list[Phase], Meta(max_length=200)]
    curve: Curve
    failure: Failure | None  # type: ignore[misc]  # a summary has its headline only
    trouble: Trouble | None
    events: Annotated[list[Event], Meta(max_length=200)]
    result: Text | None
    nodes: Annotated[list[Text], Meta(max_length=20_000)]
    ranks: Annotated[list[tuple[Text, Count | None, Text, Count, Text, Count, Text, Text]], Meta(max_length=20_000)]
    hidden: Count
    namespace: NotRequired[Text | None]
    target: NotRequired[Text | None]
    followed: NotRequired[bool]


def read_document(value: Any) -> dict[str, Any] | None:
    """Returns the document in a stored value, without other fields and with printable texts; None if unreadable."""
    if not isinstance(value, Mapping) or value.get("version") != VERSION:
        return None
    return _read(value, Document)


def read_summary(value: Any) -> dict[str, Any] | None:
    """Returns a stored summary in the same way."""
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
