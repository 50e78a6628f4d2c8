"""Renders the status of a run: as text, and as HTML for notebooks. Contains only pure functions.

The HTML is one HTML element (`stepset.html.card`). The size of this element is limited, even if the status is large.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from stepset.html.calls import logs_call, resume_call
from stepset.html.card import STATE_CLASSES, card, cell, cut
from stepset.html.charts import metric_charts
from stepset.html.escaped import escaped, titled_row
from stepset.run_status import Failure, FailureKind, Phase, RankStatus, RunStatus, as_html, as_text
from stepset.watch.present.failure_report import ended, failure_rows
from stepset.watch.present.hang import slow_words
from stepset.watch.present.outcome import outcome_lines
from stepset.watch.present.records import held_up
from stepset.watch.present.sentences import (
    counted,
    duration,
    end_sentence,
    logs_values,
    phase_words,
    progress_words,
    ranks_words,
)

MAX_ROWS = 50
"""The maximum number of rows in the table of ranks. Ranks that failed come first."""
_MAX_CHARTS = 4
_MAX_NOTES = 10
_LINE, _LINES = 400, 25
"""The maximum number of characters of a line, and the maximum number of lines of a block. More text is omitted."""
_RESULT = 2000


@as_html.register(RunStatus)
def status_html(status: RunStatus, now: float) -> str:
    """Returns HTML that shows the state, the notes, the curves, the ranks and the result of a run.

    If the run has failed or cannot continue, the HTML also shows the cause. `now` is in seconds since the epoch.
    """
    phase = status.reason if _cancelled(status) else phase_words(status.phase, status.reason)
    ink = STATE_CLASSES.get(phase, "quiet")
    parts = [
        f'<p><strong>{cell(status.name)}</strong> <strong class="{ink}">{cell(phase)}</strong></p>',
        f'<p class="quiet">{cell(_facts(status, now))}</p>',
        *_notes(status),
        *_problem(status),
        *_curves(status),
        *_ranks(status),
        *_result(status),
    ]
    return card(parts)


def _facts(status: RunStatus, now: float) -> str:
    spent = (status.finished or now) - status.created if status.created else None
    facts = (
        status.program,
        ranks_words(status),
        f"on {status.backend}",
        f"namespace {status.namespace}" if status.namespace else "",
        "" if spent is None else duration(spent if status.phase.final else int(spent)),
        counted(status.attempt, "restart") if status.attempt else "",
        progress_words(status.progress),
    )
    return ", ".join(fact for fact in facts if fact)


def _notes(status: RunStatus) -> Iterator[str]:
    for note in status.notes[:_MAX_NOTES]:
        yield f'<p class="quiet">note: {escaped(cut(note, _LINE))}</p>'
    if len(status.notes) > _MAX_NOTES:
        yield f'<p class="quiet">and {counted(len(status.notes) - _MAX_NOTES, "more note")}</p>'


def _problem(status: RunStatus) -> Iterator[str]:
    """Yields HTML that shows the cause of the run's failure, or the problem that blocks the run."""
    held = held_up(status)
    rows = [*(held.rows if held is not None else ()), *([("slow", slow_words(status.slow))] if status.slow else [])]
    yield from _rows([(title, [text]) for title, text in rows])
    if status.phase.final and status.phase is not Phase.SUCCEEDED:
        ink = "quiet" if _cancelled(status) else "bad"
        yield f'<p class="{ink}">{escaped(cut(end_sentence(status), 2 * _LINE))}</p>'
        yield from _rows([(title, lines) for title, lines in _end_rows(status) if lines])


def _end_rows(status: RunStatus) -> Iterator[tuple[str, list[str]]]:
    """Yields the rows about the end of a run that did not succeed. A row may have no lines."""
    if status.failure is not None and not _cancelled(status):
        yield from _failure_rows(status.failure)
    yield "resume", resume_call(status).splitlines()
    if not _cancelled(status):
        yield "logs", logs_values(status, logs_call(status))


def _cancelled(status: RunStatus) -> bool:
    return status.phase.final and status.failure is not None and status.failure.kind is FailureKind.CANCELLED


def _failure_rows(failure: Failure) -> Iterator[tuple[str, list[str]]]:
    for title, lines in failure_rows(failure):
        if title == "last lines":
            yield title, lines[-_LINES:]
        elif title == "see":
            yield title, [f"!{line}" for line in lines]  # a cell executes a shell command after an exclamation mark
        else:
            yield title, lines


def _rows(rows: list[tuple[str, list[str]]]) -> Iterator[str]:
    if not rows:
        return
    yield '<div class="scroll"><table>'
    for title, lines in rows:
        yield titled_row(title, [cut(line, _LINE) for line in lines[:_LINES]])
    yield "</table></div>"


def _curves(status: RunStatus) -> Iterator[str]:
    for number, chart in enumerate(metric_charts(status.points)):
        if number == _MAX_CHARTS:
            return
        yield f'<p>{cell(chart.metric)} <span class="quiet">over {chart.over}</span></p>'
        yield f'<div class="scroll">{chart.svg}</div>'


def _ranks(status: RunStatus) -> Iterator[str]:
    if not status.ranks:
        return
    yield '<div class="scroll"><table class="ranks">'
    yield "<tr><th>source</th><th>state</th><th>ended</th><th>last line</th><th>pod</th><th>node</th></tr>"
    for row in sorted(status.ranks, key=lambda row: row.state != "Failed")[:MAX_ROWS]:
        yield _rank(row)
    yield "</table></div>"
    if len(status.ranks) > MAX_ROWS:
        yield f'<p class="quiet">and {counted(len(status.ranks) - MAX_ROWS, "more row")}</p>'


def _rank(row: RankStatus) -> str:
    state = f'<td class="{STATE_CLASSES.get(row.state, "")}">{cell(row.state)}</td>'
    line = f'<td class="text">{cell(row.last_line)}</td>'
    end = escaped(ended(row.exit_code, row.signal))
    return (
        f"<tr><td>{cell(row.source)}</td>{state}<td>{end}</td>{line}"
        f"<td>{cell(row.pod)}</td><td>{cell(row.node)}</td></tr>"
    )


def _result(status: RunStatus) -> Iterator[str]:
    if status.result is not None:
        text = json.dumps(status.result, indent=2, ensure_ascii=False)
        yield f'<p class="quiet">result</p><pre>{escaped(cut(text, _RESULT))}</pre>'


@as_text.register(RunStatus)
def status_text(status: RunStatus, now: float) -> str:
    """Returns a text about the result of a run. If the run failed, the text states why.

    If the run has not finished, the text describes the current state of the run. `now` is in seconds since the epoch.
    """
    took = (status.finished or now) - status.created
    return "\n".join(outcome_lines(status, took, logs=logs_call(status), resume=resume_call(status)))
