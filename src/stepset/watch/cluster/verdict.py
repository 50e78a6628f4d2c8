"""The end of a run as it is stored in an annotation of its workload, read and written here only."""

from __future__ import annotations

import json
from dataclasses import replace

from stepset.targets.metadata import VERDICT
from stepset.watch.cluster.unstructured import Fields, part, text
from stepset.watch.state import RunStatus

LIMIT = 48 * 1024
"""Bytes of a verdict; the annotations of an object may have 256 KiB together."""

_TEXT = 500
_ROWS = 64


def verdict_of(workload: Fields) -> RunStatus | None:
    """The stored end of a run; None if there is none, or it cannot be read. `workload` is the top-level object."""
    told = text(part(workload, "metadata", "annotations"), VERDICT)
    if not told:
        return None
    try:
        status = RunStatus.from_dict(json.loads(told))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):  # another version's, or written by hand
        return None
    return status if status.phase.final else None


def verdict_text(status: RunStatus) -> str:
    """A final status as text of bounded size: long lines are cut, and of many ranks the most informative are kept.

    >>> RunStatus.from_dict(json.loads(verdict_text(RunStatus("a", "a", "kubernetes")))).name
    'a'
    """
    failure = status.failure
    if failure is not None:
        tail = tuple(line[-_TEXT:] for line in failure.tail)
        failure = replace(failure, tail=tail, error=failure.error[:_TEXT], message=failure.message[: 2 * _TEXT])
    rows = tuple(replace(row, last_line=row.last_line[:_TEXT]) for row in status.ranks)
    text = _text(status.with_(failure=failure, ranks=rows))
    if len(text.encode()) <= LIMIT:
        return text
    # First those that did not succeed: they explain the failure.
    kept = sorted(rows, key=lambda row: row.state == "Succeeded")[:_ROWS]
    note = f"{len(rows) - len(kept)} of {len(rows)} ranks are not shown"
    short = tuple(replace(row, last_line="") for row in sorted(kept, key=lambda row: (row.rank is None, row.rank or 0)))
    if failure is not None:
        failure = replace(failure, aftermath=failure.aftermath[:_ROWS])
    return _text(status.with_(failure=failure, ranks=short, notes=(*status.notes, note)))


def _text(status: RunStatus) -> str:
    return json.dumps(status.to_dict(), separators=(",", ":"))
