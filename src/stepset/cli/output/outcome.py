"""The last lines of the commands about runs: how a run ended, or its state. Pure except for the clock."""

from __future__ import annotations

import json
import time

from stepset.cli.output.terminal import painted
from stepset.printable import printable
from stepset.run_status import FailureKind, Phase, RunStatus
from stepset.watch.present.failure_report import failure_lines, row_lines
from stepset.watch.present.records import held_up
from stepset.watch.present.sentences import duration, end_sentence, state_line

_RED, _GREEN, _BOLD = "1;31", "1;32", "1"


def took(status: RunStatus, now: float | None = None) -> float:
    """Seconds from a run's creation to its end, or to now."""
    return (status.finished or now or time.time()) - status.created


def result_text(status: RunStatus) -> str:
    """The result as one line of JSON."""
    return json.dumps(status.result, ensure_ascii=False)


def outcome(status: RunStatus, colour: bool = False, flags: str = "") -> str:
    """Returns how a run ended and why it failed, or its state; `flags`: `BackendArgs.as_flags` of the run."""

    def bold(title: str) -> str:
        return painted(title, _BOLD, colour)

    if not status.phase.final:
        state = f"{printable(state_line(status))}, {duration(took(status))} so far"
        held = held_up(status)
        rows = held.rows if held is not None else ()
        why = [line for title, text in rows for line in row_lines(title, [text], bold)]
        return "\n".join([f"stepset: run {printable(status.name)} is not over: {state}", *why])
    ink = _GREEN if status.phase is Phase.SUCCEEDED else _RED
    end = end_sentence(status, style=lambda verb: painted(verb, ink, colour))
    if status.phase is Phase.SUCCEEDED:
        return f"stepset: {end}" + ("" if status.result is None else f"; result: {printable(result_text(status))}")
    failure = status.failure
    if failure is not None and failure.kind is FailureKind.CANCELLED:
        return f"stepset: {end}"
    ranks = "" if failure is None or failure.rank is None else f" --ranks {failure.rank}"
    known = [] if failure is None else failure_lines(failure, bold)
    more = row_lines("more", [f"stepset logs {status.name}{flags}{ranks}"], bold)
    return "\n".join([f"stepset: {end}", *known, *more])
