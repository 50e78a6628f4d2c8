"""The document of a run's page: plain data of bounded size. Pure.

It is an XCom of the task, and the only data of a run that the API server (queries.py) and the page's script have.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepset.run_status import RankStatus, RunStatus
    from stepset.watch.present.records import Record

KEY = "stepset_training"
"""Key of the XCom."""
VERSION = 1
EXACT = 2**53
"""The largest integer that a browser shows exactly; a larger step is left out."""
LIMIT = 64 * 1024
"""Maximum bytes of a document as JSON."""

RANK_FIELDS = ("source", "rank", "pod", "node", "state", "restarts", "ended", "last_line")
"""Fields of a row of `ranks`; `node` is an index into `nodes`."""

_LINE, _NOTE, _RESULT = 200, 500, 2000
_ROWS, _LINES = 256, 60
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def document_of(
    status: RunStatus,
    timeline: Sequence[Mapping[str, Any]],
    events: Sequence[Mapping[str, Any]],
    curve: Mapping[str, Any],
    extra_fields: Mapping[str, Any],
) -> dict[str, Any]:
    """Returns the document; `events` are results of `event_of`, `curve` is that of Curve.to_dict.

    `timeline` contains the phases so far, each with `at` in seconds since the epoch; `extra_fields` contains namespace,
    target, try_number and updated.
    """
    from stepset.watch.present.sentences import phase_words, ranks_words

    nodes = list(dict.fromkeys(row.node for row in status.ranks if row.node))
    body = {
        "version": VERSION,
        "run": status.name,
        "job": status.job,
        "backend": status.backend,
        "phase": status.phase.value,
        "reason": status.reason,
        "state": phase_words(status.phase, status.reason),
        "ranks_state": ranks_words(status),
        "attempt": status.attempt,
        "world_size": status.world_size,
        "created": status.created,
        "started": status.started,
        "finished": status.finished,
        "progress": _progress(status),
        "timeline": list(timeline),
        "curve": dict(curve),
        "failure": _failure(status),
        "trouble": _trouble(status),
        "events": list(events),
        "result": None if status.result is None else plain(json.dumps(status.result))[:_RESULT],
        "nodes": nodes,
        **extra_fields,
    }
    return _bounded(body, status.ranks, {name: index for index, name in enumerate(nodes)})


def summary_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the part of a document that a list of runs shows."""
    wanted = ("run", "job", "backend", "phase", "reason", "state", "attempt", "world_size")
    failure = document.get("failure") or {}
    times = ("created", "started", "finished", "updated")
    return {
        **{name: document.get(name) for name in (*wanted, *times, "progress", "try_number")},
        "failure": failure.get("headline", ""),
    }


def event_of(record: Record, at: float) -> dict[str, Any]:
    """Returns an event of the page from a Presenter's record; `at` is in seconds since the epoch."""
    return {"at": round(at, 3), "level": record.level, "text": plain(record.text)[:_NOTE]}


def plain(text: str) -> str:
    """Returns text without escape sequences and without characters that some databases reject in JSON.

    >>> plain("\\x1b[31mred\\x1b[0m\\x00 tab\\tstays")
    'red tab\\tstays'
    """
    return _CONTROL.sub("", _COLOURS.sub("", text))


def _bounded(body: dict[str, Any], ranks: Sequence[RankStatus], nodes: Mapping[str, int]) -> dict[str, Any]:
    """Returns the document with as many of the ranks' rows as fit.

    If not all fit, drops the last lines of ranks that have not failed; if that is not enough, all last lines and the
    rows beyond a fixed number, keeping rows of failed ranks first.
    """
    rest = len(json.dumps(body))
    shorten: Sequence[Callable[[RankStatus], str]] = (
        lambda row: plain(row.last_line)[:_LINE],
        lambda row: plain(row.last_line)[:_LINE] if row.state == "Failed" else "",
    )
    for line_of in shorten:
        rows = [_row(row, nodes, line_of(row)) for row in ranks]
        if rest + len(json.dumps(rows)) <= LIMIT:
            return {**body, "ranks": rows, "hidden": 0}
    order = ("Failed", "Pending", "Running")
    kept = sorted(ranks, key=lambda row: order.index(row.state) if row.state in order else len(order))[:_ROWS]
    shown = sorted(kept, key=lambda row: (row.rank is None, row.rank or 0))
    return {**body, "ranks": [_row(row, nodes, "") for row in shown], "hidden": len(ranks) - len(shown)}


def _row(row: RankStatus, nodes: Mapping[str, int], line: str) -> list[Any]:
    from stepset.watch.present.failure_report import ended

    how = ended(row.exit_code, row.signal) if row.exit_code or row.signal is not None else ""
    return [row.source, row.rank, row.pod, nodes.get(row.node, -1), row.state, row.restarts, how, line]


def _progress(status: RunStatus) -> dict[str, Any] | None:
    if status.progress is None:
        return None
    step, done = status.progress.step, status.progress.progress
    exact = step is not None and abs(step) <= EXACT
    return {"step": step if exact else None, "progress": done if done is not None and math.isfinite(done) else None}


def _failure(status: RunStatus) -> dict[str, Any] | None:
    from stepset.run_status import Phase
    from stepset.watch.present.failure_report import failure_rows
    from stepset.watch.present.sentences import end_sentence

    if not status.phase.final or status.phase is Phase.SUCCEEDED:
        return None
    failure = status.failure
    rows = () if failure is None else failure_rows(failure)
    return {
        "headline": plain(end_sentence(status))[: 2 * _NOTE],
        "rows": [[title, [plain(line)[:_NOTE] for line in _ends(lines)]] for title, lines in rows],
        "kind": failure.kind.value if failure else "Lost",
        "rank": failure.rank if failure else None,
        "pod": failure.pod if failure else "",
    }


def _ends(lines: Sequence[str]) -> Sequence[str]:
    """Returns `lines`, without the middle ones if there are too many."""
    return lines if len(lines) <= _LINES else (*lines[: _LINES // 2], "...", *lines[-_LINES // 2 :])


def _trouble(status: RunStatus) -> dict[str, Any] | None:
    from stepset.watch.present.records import held_up

    held = held_up(status)
    if held is None:
        return None
    return {"summary": plain(held.rows[0][1])[:_NOTE], "advice": dict(held.rows).get("advice", "")}
