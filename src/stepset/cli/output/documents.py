"""Creates the JSON objects that commands print with `-o json`.

docs/cli-output.schema.json is the JSON Schema of these objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from stepset.run_status import RunStatus
from stepset.watch.present.sentences import last_restart
from stepset.watch.stacks.model import RunStacks

API_VERSION = "stepset.dev/v1"
TIMES = ("created", "started", "finished", "expires")
"""The fields of a run that are times."""
TIME_OF_RANK = "last_line_at"
"""The field of a rank that is a time."""
TIME_OF_HANG = "since"
"""The field of a hang that is a time."""


def document(kind: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a JSON object of the given kind."""
    return {"apiVersion": API_VERSION, "kind": kind, **fields}


def run_document(run: RunStatus) -> dict[str, Any]:
    """Returns the JSON object of a run. A time is an RFC 3339 string, or null if the time is unknown.

    The field `exit_code` is null until the run has finished.
    """
    data = run.to_dict()
    times = {name: time_text(data[name]) for name in TIMES}
    ranks = [{**row, TIME_OF_RANK: time_text(row[TIME_OF_RANK])} for row in data["ranks"]]
    hang = data["hang"] and {**data["hang"], TIME_OF_HANG: time_text(data["hang"][TIME_OF_HANG])}
    more = {"last_restart": last_restart(run), "exit_code": int(run.exit_code) if run.phase.final else None}
    return document("Run", {**data, **times, "ranks": ranks, "hang": hang, **more})


def run_list_document(runs: Iterable[RunStatus], sizes: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Returns the JSON object of a list of runs.

    `sizes` maps the name of a run to the size of its files in bytes. If `sizes` is given, each run has the field
    `size`.
    """
    items = [run_document(run) for run in runs]
    if sizes is not None:
        items = [{**item, "size": sizes.get(item["name"])} for item in items]
    return document("RunList", {"items": items})


def deletion_document(runs: Iterable[RunStatus], *, dry_run: bool) -> dict[str, Any]:
    """Returns the JSON object with the runs that a command has deleted.

    If `dry_run` is true, the JSON object contains the runs that the command would delete.
    """
    return document("DeletedRuns", {"dry_run": dry_run, "items": [run_document(run) for run in runs]})


def stacks_document(run: RunStacks) -> dict[str, Any]:
    """Returns the JSON object with the stacks of the ranks of a run."""
    return document("Stacks", {**asdict(run), "at": time_text(run.at)})


def time_text(seconds: float | None) -> str | None:
    """Converts seconds since the epoch to an RFC 3339 string in UTC. Returns None if the time is unknown.

    >>> time_text(1764065472.25), time_text(0.0)
    ('2025-11-25T10:11:12.250Z', None)
    """
    if not seconds:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
