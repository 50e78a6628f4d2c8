"""Reads and writes the verdict of a run, which is stored in an annotation of its workload."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from stepset.run_status import RunStatus
from stepset.watch.bounded_json import parse_json

LIMIT = 48 * 1024
"""The maximum number of bytes of a verdict. All annotations of an object together may have 256 KiB."""

_TEXT = 500
_ROWS = 64
_SMALLER = ((200, 20), (60, 8), (20, 2))
"""The limits for a verdict that is too large: the number of characters of a string, and the number of items of a list.
The pairs are tried in this order."""
_RESULT = 8 * 1024
"""The maximum size of a result, and of a hang, in a shortened verdict, in bytes. A larger one is dropped, because a
shortened result would be wrong, and a shortened list of ranks, too."""


def parse_verdict(stored: str) -> RunStatus | None:
    """Parses the annotation. Returns None if the annotation is invalid.

    For example, another version or another user may have written an invalid annotation.

    `workload.verdict_of` decides whether the workload confirms the verdict.
    """
    if len(stored) > 2 * LIMIT:
        return None
    try:
        status = RunStatus.from_dict(parse_json(stored))
    except ValueError:
        return None
    return status if status.phase.final else None


def verdict_text(status: RunStatus) -> str:
    """Returns a final status as text of at most LIMIT bytes.

    Long lines are shortened. If the text is still too long, the last lines of all ranks are omitted, and at most _ROWS
    ranks are kept. Ranks that did not succeed are kept first. Of a hang, only the ranks that block the others are kept.
    If the text is then still too long, all strings and lists are shortened.

    >>> RunStatus.from_dict(json.loads(verdict_text(RunStatus("a", "a", "kubernetes")))).name
    'a'
    """
    # The metadata of the workload contains these fields, too (`workload.described`).
    status = status.with_(program="", labels={}, namespace="", submitted_by="")
    failure = status.failure
    if failure is not None:
        tail = tuple(line[-_TEXT:] for line in failure.tail)
        error, frame = failure.error[:_TEXT], failure.frame[:_TEXT]
        failure = replace(failure, tail=tail, error=error, frame=frame, message=failure.message[: 2 * _TEXT])
    rows = tuple(replace(row, last_line=row.last_line[:_TEXT]) for row in status.ranks)
    text = _text(status.with_(failure=failure, ranks=rows))
    if len(text.encode()) <= LIMIT:
        return text
    # Ranks that did not succeed come first, because they explain the failure.
    kept = sorted(rows, key=lambda row: row.state == "Succeeded")[:_ROWS]
    note = f"{len(rows) - len(kept)} of {len(rows)} ranks are not shown"
    short = tuple(replace(row, last_line="") for row in sorted(kept, key=lambda row: (row.rank is None, row.rank or 0)))
    if failure is not None:
        failure = replace(failure, aftermath=failure.aftermath[:_ROWS], same_error=failure.same_error[:_ROWS])
    notes = (*status.notes, note) if len(kept) < len(rows) else status.notes
    hang = status.hang and replace(status.hang, groups=status.hang.guilty)
    status = status.with_(failure=failure, ranks=short, notes=notes, hang=hang)
    text = _text(status)
    smaller = iter(_SMALLER)
    while len(text) > LIMIT:
        text = _text(_cut(status, *next(smaller)))
    return text


def _cut(status: RunStatus, characters: int, items: int) -> RunStatus:
    """Returns a status in which all strings and lists are shortened. Removes the result and the hang if it is large."""
    notes = status.notes
    if len(json.dumps(status.result)) > _RESULT:
        status, notes = status.with_(result=None), ("the result is too large to be shown", *notes)
    hang = status.to_dict()["hang"]
    if len(json.dumps(hang)) > _RESULT:
        hang = None  # the message of the failure still names the ranks
    progress = status.progress
    if progress is not None:
        metrics = {name[:characters]: value for name, value in [*progress.metrics.items()][:items]}
        progress = replace(progress, metrics=metrics)
    data = _beginnings(
        status.with_(result=None, hang=None, notes=notes, progress=progress).to_dict(), characters, items
    )
    return RunStatus.from_dict({**data, "name": status.name, "job": status.job, "result": status.result, "hang": hang})


def _beginnings(data: Any, characters: int, items: int) -> Any:
    if isinstance(data, str):
        return data[:characters]
    if isinstance(data, dict):
        return {key: _beginnings(value, characters, items) for key, value in data.items()}
    return [_beginnings(each, characters, items) for each in data[:items]] if isinstance(data, (list, tuple)) else data


def _text(status: RunStatus) -> str:
    return json.dumps(status.to_dict(), separators=(",", ":"))
