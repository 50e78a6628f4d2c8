"""The end of a run written onto its workload, so that it is known when its pods are gone.

Written by whoever follows a run; read by everybody else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from stepset.backends.kubernetes.site import Site
from stepset.targets.identity import VERDICT
from stepset.watch.state import RunStatus

LIMIT = 48 * 1024
"""Bytes a verdict may have; all annotations of an object may have 256 KiB together."""

_TEXT = 500
_ROWS = 64


def verdict_of(workload: Mapping[str, Any]) -> RunStatus | None:
    """How a run ended, where somebody has written it down; None where not, or where it cannot be read."""
    text = (workload["metadata"].get("annotations") or {}).get(VERDICT)
    if not text:
        return None
    try:
        return RunStatus.from_dict(json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError):  # of another version, or somebody's own
        return None


def write_verdict(site: Site, workload: Mapping[str, Any], status: RunStatus) -> bool:
    """Writes a run's end down.

    A StatefulSet never ends by itself; it is scaled to nothing with the same request.

    Args:
        site: where.
        workload: its object on top.
        status: final.

    Returns:
        False where the workload is gone.

    Raises:
        InfrastructureError: the server cannot be asked.
    """
    body: dict[str, Any] = {
        "metadata": {"uid": workload["metadata"]["uid"], "annotations": {VERDICT: verdict_text(status)}}
    }
    if workload["kind"] == "StatefulSet":
        body["spec"] = {"replicas": 0}
    return site.connection.patch(site.path_of(workload), body).accepted


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
