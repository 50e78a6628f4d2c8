"""The end of a run as it is written onto its workload: the one place that reads it, and that makes it fit.

Read wherever a run's state is asked for, written by whoever follows it (backends/kubernetes/verdict.py). Pure.
"""

from __future__ import annotations

import json
from dataclasses import replace

from stepset.targets.identity import VERDICT
from stepset.watch.cluster.fields import Fields, part, text
from stepset.watch.state import RunStatus

LIMIT = 48 * 1024
"""Bytes a verdict may have; all annotations of an object may have 256 KiB together."""

_TEXT = 500
_ROWS = 64


def verdict_of(workload: Fields) -> RunStatus | None:
    """How a run ended, where somebody has written it down; None where not, or where it cannot be read.

    Args:
        workload: the object on top.
    """
    told = text(part(workload, "metadata", "annotations"), VERDICT)
    if not told:
        return None
    try:
        status = RunStatus.from_dict(json.loads(told))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):  # another version's, or somebody's own
        return None
    return status if status.phase.final else None


def verdict_text(status: RunStatus) -> str:
    """A final status as text of bounded size: long lines are cut, and of many ranks those that tell most are kept.

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
    # First those that did not succeed: why a run failed is asked more often than who has finished.
    kept = sorted(rows, key=lambda row: row.state == "Succeeded")[:_ROWS]
    note = f"{len(rows) - len(kept)} of {len(rows)} ranks are not shown"
    short = tuple(replace(row, last_line="") for row in sorted(kept, key=lambda row: (row.rank is None, row.rank or 0)))
    if failure is not None:
        failure = replace(failure, aftermath=failure.aftermath[:_ROWS])
    return _text(status.with_(failure=failure, ranks=short, notes=(*status.notes, note)))


def _text(status: RunStatus) -> str:
    return json.dumps(status.to_dict(), separators=(",", ":"))
