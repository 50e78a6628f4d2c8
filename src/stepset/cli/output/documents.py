"""The JSON documents that commands print with `-o json`; docs/cli-output.schema.json describes them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from stepset.run_status import RunStatus

API_VERSION = "stepset.dev/v1"
TIMES = ("created", "started", "finished", "expires")
"""The fields of a run that are times."""


def document(kind: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a document of a kind."""
    return {"apiVersion": API_VERSION, "kind": kind, **fields}


def run_document(run: RunStatus) -> dict[str, Any]:
    """Returns a run as a document; its times are RFC 3339 texts, null if unknown."""
    data = run.to_dict()
    return document("Run", {**data, **{name: time_text(data[name]) for name in TIMES}})


def run_list_document(runs: Iterable[RunStatus], sizes: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Returns runs as a document; `sizes`: name of a run -> bytes of its files, which become the field `size`."""
    items = [run_document(run) for run in runs]
    if sizes is not None:
        items = [{**item, "size": sizes.get(item["name"])} for item in items]
    return document("RunList", {"items": items})


def deletion_document(runs: Iterable[RunStatus], *, dry_run: bool) -> dict[str, Any]:
    """Returns the runs that a command has deleted, or with `dry_run` would delete, as a document."""
    return document("DeletedRuns", {"dry_run": dry_run, "items": [run_document(run) for run in runs]})


def time_text(seconds: float | None) -> str | None:
    """Returns a time as RFC 3339 text in UTC; None for an unknown one.

    >>> time_text(1764065472.25), time_text(0.0)
    ('2025-11-25T10:11:12.250Z', None)
    """
    if not seconds:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
