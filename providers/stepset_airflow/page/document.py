"""Creates the JSON document that a run's page displays.

The document is stored as an XCom of the task. The API server (queries.py) and the script of the page have no other data
about the run. The size of the document is limited. The functions of this module are pure.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepset.run_status import RankStatus, RunStatus
    from stepset.watch.present.records import HeldUp, Record

KEY = "stepset_training"
"""The key of the XCom."""
VERSION = 1
EXACT = 2**53
"""The largest integer that JavaScript represents exactly. If a step is larger, the document does not contain the
step."""
LIMIT = 64 * 1024
"""Maximum size of a document, in bytes of JSON."""

RANK_FIELDS = ("source", "rank", "pod", "node", "state", "restarts", "ended", "last_line")
"""The names of the elements of each entry in the document's list `ranks`. An entry is a list.

The element `node` is an index into the document's list `nodes`.
"""

_LINE, _NOTE, _REPORT, _RESULT = 200, 500, 1500, 2000
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
    """Returns the document of a run's page.

    Args:
        timeline: the phases of the run so far. The field `at` of a phase is its start time, in seconds since the epoch.
        events: the events of the run, which `event_of` created.
        curve: the result of `Curve.to_dict`.
        extra_fields: additional fields of the document, such as the namespace.
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
        "trouble": _trouble(status, events),
        "events": list(events),
        "result": None if status.result is None else plain(json.dumps(status.result))[:_RESULT],
        "nodes": nodes,
        **extra_fields,
    }
    return _bounded(body, status.ranks, {name: index for index, name in enumerate(nodes)})


def summary_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of a document that the list of runs displays."""
    wanted = ("run", "job", "backend", "phase", "reason", "state", "attempt", "world_size")
    failure = document.get("failure") or {}
    times = ("created", "started", "finished", "updated")
    return {
        **{name: document.get(name) for name in (*wanted, *times, "progress", "try_number")},
        "failure": failure.get("headline", ""),
    }


def event_of(record: Record, at: float, created: float) -> dict[str, Any]:
    """Converts a record of the Presenter to an event of the page.

    The field `kind` of the event is the name of the record's class. If the text of the record ends with a time, this
    time is moved to the field `time`, because the page displays times in the browser's time zone.

    Args:
        at: the time of the event, in seconds since the epoch.
        created: the time when the run was created, in seconds since the epoch.
    """
    from stepset.unstructured import LATEST
    from stepset.watch.present.sentences import resumed_note

    event = {"at": round(at, 3), "level": record.level, "kind": type(record).__name__}
    if (resumed := resumed_note(record.text, created)) is not None and 0 <= resumed[1] < LATEST:
        return {**event, "text": plain(resumed[0])[:_NOTE], "time": resumed[1]}
    return {**event, "text": plain(record.text)[: _NOTE if len(record.lines) == 1 else _REPORT]}


def is_event_of(event: Mapping[str, Any], held: HeldUp) -> bool:
    """Returns whether an event describes the problem `held`.

    The function ignores differences in the names of pods and in numbers. For example, the missing amount of a resource
    may have changed since the event.
    """
    from stepset.watch.present.records import cause_of

    texts = (event["text"], plain(held.text)[:_NOTE])
    # Each text may have been truncated at _NOTE characters. The two texts may contain names of different lengths.
    # Therefore the ends of the texts may differ, and only the first halves are compared.
    one, other = (cause_of(text)[: _NOTE // 2] for text in texts)
    return one == other


def plain(text: str) -> str:
    """Returns `text` without escape sequences and without characters that some databases reject in JSON.

    >>> plain("\\x1b[31mred\\x1b[0m\\x00 tab\\tstays")
    'red tab\\tstays'
    """
    return _CONTROL.sub("", _COLOURS.sub("", text))


def _bounded(body: dict[str, Any], ranks: Sequence[RankStatus], nodes: Mapping[str, int]) -> dict[str, Any]:
    """Returns the document with the list `ranks`. The list is shortened if the document would exceed LIMIT.

    First, the last lines of ranks that have not failed are removed. If the document is still too large, all last lines
    are removed, and the list contains at most _ROWS ranks. If there are more ranks, failed ranks are preferred.
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
    """Returns `lines`. If there are more than _LINES lines, lines in the middle are replaced by `...`."""
    return lines if len(lines) <= _LINES else (*lines[: _LINES // 2], "...", *lines[-_LINES // 2 :])


def _trouble(status: RunStatus, events: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Returns the problem that prevents the run from making progress, or None if there is no such problem.

    The page displays the problem in a card. If an event describes the problem, the field `event` is the index of this
    event, and the page does not display the event. If no event describes the problem, the field `event` is None. If the
    ranks make no progress, the field `rows` states what each group of ranks does.
    """
    from stepset.watch.present.records import HangReported, held_up

    held = held_up(status)
    if held is None:
        return None
    same = [index for index, event in enumerate(events) if is_event_of(event, held)]
    advice = plain(dict(held.rows).get("advice", ""))[:_NOTE]
    found: dict[str, Any] = {
        "summary": plain(held.rows[0][1])[:_NOTE],
        "advice": advice,
        "event": same[-1] if same else None,
    }
    if isinstance(held, HangReported):
        found["rows"] = [[title, [plain(text)[:_NOTE]]] for title, text in held.rows[1:-1]]
    return found
