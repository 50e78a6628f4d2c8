"""Reads and writes the annotation of a workload that contains the end of its run."""

from __future__ import annotations

import json
from dataclasses import replace

from stepset.targets.metadata import VERDICT
from stepset.watch.cluster.unstructured import Fields, part, text
from stepset.watch.state import RunStatus

LIMIT = 48 * 1024
"""Bytes of a verdict; all annotations of an object may have 256 KiB together."""

_TEXT = 500
_ROWS = 64


def verdict_of(workload: Fields) -> RunStatus | None:
    """The stored end of a run; None if there is none or it is invalid. `workload` is the top-level object."""
    stored = text(part(workload, "metadata", "annotations"), VERDICT)
    if not stored:
        return None
    try:
        status = RunStatus.from_dict(json.loads(stored))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):  # of another version, or edited by hand
        return None
    return status if status.phase.final else None


def verdict_text(status: RunStatus) -> str:
    """A final status as text of bounded size: cuts long lines, and of many ranks keeps the most informative.

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
    # Ranks that did not succeed come first: they explain the failure.
    kept = sorted(rows, key=lambda row: row.state == "Succeeded")[:_ROWS]
    note = f"{len(rows) - len(kept)} of {len(rows)} ranks are not shown"
    short = tuple(replace(row, last_line="") for row in sorted(kept, key=lambda row: (row.rank is None, row.rank or 0)))
    if failure is not None:
        failure = replace(failure, aftermath=failure.aftermath[:_ROWS])
    return _text(status.with_(failure=failure, ranks=short, notes=(*status.notes, note)))


def _text(status: RunStatus) -> str:
    return json.dumps(status.to_dict(), separators=(",", ":"))
